//! What fencing tokens are for: a holder that is stopped past its TTL, and writes late.
//!
//! `cargo run --example stale_writer` with `redis-server` or `valkey-server` on the `PATH`. An account has 100 on it,
//! and two processes add to it under a lock, 10 and 5. The first is stopped between its last look at the
//! lock and its write. Once without the fence: what the second added is lost. Once with it: the late
//! write is refused. Exits with another code than 0 when either does not come out so.
//!
//! Masters and store are private; they and the first process go with the example, also when it is interrupted.

#![allow(
    clippy::disallowed_methods,
    reason = "the example runs on real servers, in real time"
)]

use std::{
    env,
    error::Error,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    time::Duration,
};

use quorlock::{Coordinator, Guard, Lock};
use server::Server;

#[path = "../tests/support/server.rs"]
mod server;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match env::var(HOLDER) {
        Ok(setup) => first_holder(&setup).await,
        Err(_) if server::only_urls() => Ok(()),
        Err(_) if server::find_binary().is_none() => {
            Err("neither redis-server nor valkey-server is on the PATH; ./dev sees to it".into())
        }
        Err(_) => both_ways().await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stale_writer: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn both_ways() -> Result<()> {
    let masters = server::masters(3);
    let store = Server::start();
    println!("Three masters for the lock, a store for the account, and a TTL of {TTL:?}.");
    for (way, expected) in [(Way::Plain, "110"), (Way::Fenced, "105")] {
        println!("\n{}", way.title());
        let found = late_write(way, &masters, &store).await?;
        println!("on the account    {found}");
        if found != expected {
            return Err(format!("{way:?}: {found} on the account, and not {expected}").into());
        }
        println!("{}", way.verdict());
    }
    Ok(())
}

/// Both holders, and what is on the account in the end.
async fn late_write(way: Way, masters: &[Server], store: &Server) -> Result<String> {
    store.command(&["FLUSHALL"]);
    store.command(&["SET", VALUE, "100"]);
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    let setup = format!("{} {} {}", way.word(), store.port(), urls.join(","));
    let mut first = Holder::start(&setup)?;
    first.hear("prepared")?;
    first.signal("STOP")?;
    println!("                  it is stopped");

    let locks = coordinator(&urls)?;
    let guard = lock(&locks, way).acquire_within(10 * TTL).await?;
    let account = Account::new(way, store.port(), &guard);
    let balance: u64 = account.read()?.parse()?;
    println!("second holder     {}reads {balance}", account.token());
    let written = account.write(balance + 5)?;
    println!("                  writes {written}");
    guard.release().await?;

    first.signal("CONT")?;
    println!("first holder      goes on");
    first.tell()?;
    first.hear(way.word())?;
    first.end()?;
    Ok(store.command(&["GET", VALUE]))
}

/// The process that is stopped. Told what to do by `setup`, it says how far it is.
async fn first_holder(setup: &str) -> Result<()> {
    let mut words = setup.split(' ');
    let (Some(word), Some(store), Some(urls)) = (words.next(), words.next(), words.next()) else {
        return Err(format!("no setup: {setup:?}").into());
    };
    let way = Way::parse(word);
    let urls: Vec<_> = urls.split(',').map(str::to_owned).collect();
    let locks = coordinator(&urls)?;
    let guard = lock(&locks, way).acquire_within(10 * TTL).await?;
    let account = Account::new(way, store.parse()?, &guard);
    let balance: u64 = account.read()?.parse()?;
    println!("first holder      {}reads {balance}", account.token());
    guard.ensure_held()?;
    println!("prepared: holds the lock, and is about to write");
    // Here it is stopped. Nothing between the look at the lock and the write can prevent that.
    io::stdin().read_line(&mut String::new())?;
    match account.write(balance + 10) {
        Ok(written) => println!("{word}: late, it writes {written}"),
        Err(refused) => println!("{word}: late, it is refused: {refused}"),
    }
    Ok(())
}

fn coordinator(urls: &[String]) -> Result<Coordinator> {
    Ok(Coordinator::builder()
        .masters(urls)
        // Five times the default: for a machine that is busy with something else.
        .node_timeout(Duration::from_millis(250))
        .build()?)
}

fn lock(locks: &Coordinator, way: Way) -> Lock {
    let lock = locks
        .mutex("account")
        .ttl(TTL)
        .renewal(quorlock::Renewal::Off);
    match way {
        Way::Plain => lock,
        Way::Fenced => lock.fenced(),
    }
}

/// Whether the store goes by tokens.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Fenced,
}

impl Way {
    fn parse(word: &str) -> Self {
        if word == Self::Fenced.word() {
            Self::Fenced
        } else {
            Self::Plain
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fenced => "fenced",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Plain => "1. Without the fence",
            Self::Fenced => "2. With the fence",
        }
    }

    fn verdict(self) -> &'static str {
        match self {
            Self::Plain => "LOST: the 5 of the second holder are gone",
            Self::Fenced => "KEPT: the late write was refused",
        }
    }
}

/// What the lock is for, as one holder sees it.
struct Account {
    store: u16,
    /// Without the fence all holders come with the same.
    token: u64,
}

impl Account {
    fn new(way: Way, store: u16, guard: &Guard) -> Self {
        let token = match way {
            Way::Plain => 0,
            Way::Fenced => guard.fencing_token().unwrap_or(0),
        };
        Self { store, token }
    }

    fn token(&self) -> String {
        match self.token {
            0 => String::new(),
            token => format!("token {token}, "),
        }
    }

    /// With the token, as from here on nobody before us must write.
    fn read(&self) -> Result<String> {
        self.ask(&[])
    }

    fn write(&self, value: u64) -> Result<String> {
        self.ask(&[&value.to_string()])
    }

    fn ask(&self, value: &[&str]) -> Result<String> {
        let token = self.token.to_string();
        let mut words = vec!["EVAL", SCRIPT, "2", VALUE, "account:fence", &token];
        words.extend(value);
        let reply = server::try_command_on(self.store, &words, PATIENCE)?;
        if reply.starts_with("STALE") {
            return Err(reply.into());
        }
        Ok(reply)
    }
}

/// This program once more, in a process that can be stopped.
struct Holder {
    process: Child,
    output: BufReader<ChildStdout>,
    /// Kills it when we are gone before it: who is stopped does not see that.
    keeper: Child,
}

impl Holder {
    fn start(setup: &str) -> Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .env(HOLDER, setup)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().ok_or("no output")?;
        let keeper = Command::new("sh")
            .args(["-c", r#"read -r line || kill -9 "$1""#, "sh"])
            .arg(process.id().to_string())
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()?;
        Ok(Self {
            process,
            output: BufReader::new(output),
            keeper,
        })
    }

    /// Shows what it says, up to a line that starts with `word`.
    fn hear(&mut self, word: &str) -> Result<()> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(format!("the first holder ended before it said {word:?}").into());
            }
            match line.strip_prefix(word).and_then(|l| l.strip_prefix(": ")) {
                Some(said) => {
                    print!("                  {said}");
                    return Ok(());
                }
                None => print!("{line}"),
            }
        }
    }

    fn tell(&mut self) -> Result<()> {
        let input = self.process.stdin.as_mut().ok_or("no input")?;
        Ok(writeln!(input)?)
    }

    fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("sh")
            .args(["-c", r#"kill -s "$1" "$2""#, "sh", name])
            .arg(self.process.id().to_string())
            .status()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("kill -s {name}: {status}").into())
        }
    }

    fn end(mut self) -> Result<()> {
        let status = self.process.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the first holder ended with {status}").into())
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The keeper first, while the process id is still this one's.
        if let Some(input) = &mut self.keeper.stdin {
            let _ = writeln!(input);
        }
        let _ = self.keeper.wait();
        let _ = self.process.kill(); // it may be gone
        let _ = self.process.wait();
    }
}

/// The store's side of the fence: compares and writes in one step.
const SCRIPT: &str = include_str!("stale_writer.lua");

const VALUE: &str = "account";

const TTL: Duration = Duration::from_secs(1);

const PATIENCE: Duration = Duration::from_secs(5);

/// What makes a second run of this program the first holder.
const HOLDER: &str = "QUORLOCK_STALE_WRITER";

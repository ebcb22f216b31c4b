//! Shows why fencing tokens are needed. A lock holder is stopped for longer than the TTL of its
//! lock, and writes late.
//!
//! Run `cargo run --example stale_writer` with `redis-server` or `valkey-server` on the `PATH`.
//!
//! An account has a balance of 100, and two processes add 10 and 5 to it under a lock. The first
//! process is stopped after its last check of the lock and before its write. Without fencing, the
//! second process's addition is lost. With fencing, the late write is refused. The exit code is not
//! 0 if one of the cases ends differently.
//!
//! The example starts its own masters, its own store and the first process. All of them end with
//! the example, even when it is interrupted.

#![allow(
    clippy::disallowed_methods,
    reason = "the example runs on real servers in real time"
)]

use std::{
    env,
    error::Error,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    time::Duration,
};

use quorlock::{Coordinator, Guard, Lock, Renewal};
use testkit::server::{self, Server};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match env::var(HOLDER) {
        Ok(setup) => first_holder(&setup).await,
        Err(_) if server::only_urls() => Ok(()),
        Err(_) if server::find_binary().is_none() => {
            Err("neither redis-server nor valkey-server is on the PATH; ./dev installs one".into())
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
        println!("final balance     {found}");
        if found != expected {
            return Err(format!("{way:?}: the balance is {found}, not {expected}").into());
        }
        println!("{}", way.verdict());
    }
    Ok(())
}

/// Runs both holders, and returns the final balance.
async fn late_write(way: Way, masters: &[Server], store: &Server) -> Result<String> {
    store.command(&["FLUSHALL"]);
    store.command(&["SET", VALUE, "100"]);
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    let setup = format!("{} {} {}", way.word(), store.port(), urls.join(","));
    let mut first = Holder::start(&setup)?;
    first.print_until("prepared")?;
    first.signal("STOP")?;
    println!("                  is stopped");

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
    first.write_line()?;
    first.print_until(way.word())?;
    first.end()?;
    Ok(store.command(&["GET", VALUE]))
}

/// Runs the first holder, in the process that is stopped. `setup` says what the holder does. The
/// holder prints its progress.
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
    println!("prepared: holds the lock and is about to write");
    // The process is stopped here. Nothing between the check of the lock and the write can prevent
    // that.
    io::stdin().read_line(&mut String::new())?;
    match account.write(balance + 10) {
        Ok(written) => println!("{word}: writes {written} late"),
        Err(refused) => println!("{word}: late write refused: {refused}"),
    }
    Ok(())
}

fn coordinator(urls: &[String]) -> Result<Coordinator> {
    Ok(Coordinator::builder()
        .masters(urls)
        // Five times the default for near masters, so that the example works on a busy machine.
        .node_timeout(Duration::from_millis(250))
        .build()?)
}

fn lock(locks: &Coordinator, way: Way) -> Lock {
    let lock = locks.mutex("account").ttl(TTL).renewal(Renewal::Off);
    match way {
        Way::Plain => lock,
        Way::Fenced => lock.fenced(),
    }
}

/// Selects whether the holders use fencing tokens.
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
            Self::Plain => "1. Without fencing",
            Self::Fenced => "2. With fencing",
        }
    }

    fn verdict(self) -> &'static str {
        match self {
            Self::Plain => "LOST: the second holder's 5 are gone",
            Self::Fenced => "KEPT: the late write was refused",
        }
    }
}

/// The access of one holder to the data that the lock protects.
struct Account {
    store: u16,
    /// The fencing token. Without fencing, it is 0 for all holders.
    token: u64,
}

impl Account {
    fn new(way: Way, store: u16, guard: &Guard) -> Self {
        let token = match way {
            Way::Plain => 0,
            Way::Fenced => guard.fencing_token().map_or(0, u64::from),
        };
        Self { store, token }
    }

    fn token(&self) -> String {
        match self.token {
            0 => String::new(),
            token => format!("token {token}, "),
        }
    }

    /// Reads the balance and shows the token to the store. From then on, the store refuses smaller
    /// tokens, so no earlier holder can write.
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
        let reply = server::try_command_on(self.store, &words, TIME_LIMIT)?;
        if reply.starts_with("STALE") {
            return Err(reply.into());
        }
        Ok(reply)
    }
}

/// A second run of this program, in a process that can be stopped.
struct Holder {
    process: Child,
    output: BufReader<ChildStdout>,
    /// A shell that kills `process` if this program ends first. A stopped process cannot notice the
    /// end of this program.
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

    /// Prints the process's output, up to a line that starts with `word`.
    fn print_until(&mut self, word: &str) -> Result<()> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(format!("the first holder ended before it printed {word:?}").into());
            }
            match line.strip_prefix(word).and_then(|l| l.strip_prefix(": ")) {
                Some(rest) => {
                    print!("                  {rest}");
                    return Ok(());
                }
                None => print!("{line}"),
            }
        }
    }

    fn write_line(&mut self) -> Result<()> {
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
        // The keeper ends first, so that it cannot kill another process that gets the process ID
        // later.
        if let Some(input) = &mut self.keeper.stdin {
            let _ = writeln!(input);
        }
        let _ = self.keeper.wait();
        let _ = self.process.kill(); // the process may be gone
        let _ = self.process.wait();
    }
}

/// The script that the store runs. It compares the token and writes in one step.
const SCRIPT: &str = include_str!("stale_writer.lua");

const VALUE: &str = "account";

const TTL: Duration = Duration::from_secs(1);

const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The environment variable that makes this program run as the first holder. It contains the setup.
const HOLDER: &str = "QUORLOCK_STALE_WRITER";

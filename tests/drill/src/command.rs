//! Clients that use the command line: `quorlock run`, and the command that it runs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use quorlock::LockKind;
use testkit::random::Random;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::Result;
use crate::client::{Orders, write};
use crate::clock::{self, Nanos};
use crate::history::COMMAND;
use crate::locks::{LockNumber, MOST_TTL};
use crate::note::Note;
use crate::store::StoreClient;

/// The first argument of the program as a command.
pub const WORD: &str = "command";

/// Returns whether the command line has been built, and says so otherwise.
pub fn is_there() -> bool {
    let is_there = program().is_ok_and(|path| path.exists());
    if !is_there {
        println!("left out: the command line, which needs `cargo build -p quorlock-cli`");
    }
    is_there
}

fn program() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("quorlock"))
}

/// Runs one command after the other.
pub async fn run_all(
    orders: &Orders,
    configuration: &Path,
    mut over: watch::Receiver<()>,
) -> Result<()> {
    write(&Note::Ready)?;
    let mut random = Random::new(orders.seed);
    // The command line has no other locks.
    let locks: Vec<_> = LockNumber::all()
        .filter(|lock| matches!(lock.kind(), LockKind::Mutex | LockKind::Fair))
        .collect();
    let mut op = 0;
    while over.has_changed().is_ok() {
        op += 1;
        let lock = random.pick(&locks);
        let wait = Duration::from_millis(500 + random.below(4_000));
        let at = clock::now();
        write(&Note::Asked {
            op,
            at,
            lock,
            came: clock::came(),
            due: at + clock::nanos(wait + LONGEST_START),
            reads: false,
        })?;
        let mut command = quorlock_run(configuration, lock, wait, &mut random)?;
        command.arg(std::env::current_exe()?).arg(WORD);
        command.arg(&orders.store);
        let hold = match random.below(10) {
            0 => random.below(4_000), // the lock is renewed
            _ => random.below(300),
        };
        for number in [op, at, lock.0 as u64, hold] {
            command.arg(number.to_string());
        }
        let status = spawn_blocking(move || command.status()).await??;
        write(&Note::Failed {
            op,
            at: clock::now(),
            why: name(status),
        })?;
        let pause = Duration::from_millis(random.below(50));
        let _ = timeout(pause, over.changed()).await;
    }
    Ok(())
}

fn quorlock_run(
    configuration: &Path,
    lock: LockNumber,
    wait: Duration,
    random: &mut Random,
) -> Result<Command> {
    let ttl = 800 + random.below(MOST_TTL.as_millis() as u64 - 800);
    let mut command = Command::new(program()?);
    command
        .args(["run", "--quiet", "--config"])
        .arg(configuration);
    command.arg(format!("--ttl={ttl}ms"));
    command.arg(format!("--wait={}ms", wait.as_millis()));
    if lock.is_fenced() {
        command.arg("--fence");
    }
    if lock.kind() == LockKind::Fair {
        command.arg("--fair");
    }
    command.arg(lock.name()).arg("--");
    // It explains every loss.
    command.stdin(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// A command line that was killed never says that it failed.
fn name(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("quorlock-run-{code}"),
        None => "quorlock-run-killed".to_owned(),
    }
}

/// The longest time from the end of the wait to the start of the command: three dials, six node
/// timeouts, and the starts of four processes.
const LONGEST_START: Duration = Duration::from_secs(10);

/// Works as the command. It does not know when the lock ends: `quorlock` kills it before that. So
/// all of its writes count as writes in time.
pub fn run(arguments: &[String]) -> Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(work(arguments))
}

async fn work(arguments: &[String]) -> Result<()> {
    let (store, numbers) = arguments.split_first().ok_or("no store")?;
    let numbers = numbers.iter().map(|number| number.parse());
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
    let [op, asked, lock, hold] = numbers[..] else {
        return Err("not the arguments of a command".into());
    };
    let token = std::env::var("QUORLOCK_FENCING_TOKEN").ok();
    let token = token.map(|token| token.parse()).transpose()?;
    let at = clock::now();
    let lock = LockNumber(lock as usize);
    write(&Note::Got {
        op,
        at,
        lock,
        asked,
        valid_until: at,
        hold_until: 0,
        token,
        slot: None,
        owner: COMMAND.to_owned(),
    })?;
    let (resource, token) = (lock.resource(None), token.unwrap_or_default());
    let mut store = StoreClient::connect(store.as_ref()).await?;
    let Some(read) = store.read(resource, token).await? else {
        return Ok(()); // the lock is lost, and a later holder has been here
    };
    let until = clock::now() + hold * clock::MILLISECOND;
    while clock::now() < until {
        sleep(Duration::from_millis(10)).await;
        runs(op)?;
    }
    store.write(resource, token, read, Nanos::MAX).await?;
    Ok(runs(op)?)
}

fn runs(op: u64) -> std::io::Result<()> {
    write(&Note::Ended {
        op,
        at: clock::now(),
        valid_until: Nanos::MAX,
    })
}

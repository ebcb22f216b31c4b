//! Shows why fencing tokens are needed. A lock holder does nothing for longer than the TTL of its
//! lock, and writes late.
//!
//! Run `cargo run --example stale_writer` with `redis-server` or `valkey-server` on the `PATH`.
//!
//! An account has a balance of 100, and two holders add 10 and 5 to it under a lock. The first one
//! stands still after its last check of the lock and before its write, as a process does that is
//! stopped. Without fencing, the second holder's addition is lost. With fencing, the late write is
//! refused. The exit code is not 0 if one of the cases ends differently.
//!
//! The example starts its own masters and its own store. They end with the example, even when it is
//! interrupted.

use std::{error::Error, process::ExitCode, time::Duration};

use quorlock::{Coordinator, FencedGuard, Renewal};
use testkit::server::{self, Server};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let outcome = match server::find_binary() {
        None if server::only_urls() => Ok(()),
        None => {
            Err("neither redis-server nor valkey-server is on the PATH; ./dev installs one".into())
        }
        Some(_) => both_ways().await,
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
    for (title, is_fenced, expected, verdict) in [
        (
            "1. Without fencing",
            false,
            "110",
            "LOST: the second holder's 5 are gone",
        ),
        (
            "2. With fencing",
            true,
            "105",
            "KEPT: the late write was refused",
        ),
    ] {
        println!("\n{title}");
        let found = late_write(is_fenced, &masters, &store).await?;
        println!("final balance     {found}");
        if found != expected {
            return Err(format!("{title}: the balance is {found}, not {expected}").into());
        }
        println!("{verdict}");
    }
    Ok(())
}

/// Runs both holders, and returns the final balance. They show their tokens to the store if
/// `is_fenced`.
async fn late_write(is_fenced: bool, masters: &[Server], store: &Server) -> Result<String> {
    store.command(&["FLUSHALL"]);
    store.command(&["SET", VALUE, "100"]);
    // Each holder has a coordinator of its own, as if it were a process of its own.
    let first = acquire(masters).await?;
    let late = Account::of(&first, store, is_fenced);
    let balance: u64 = late.read()?.parse()?;
    println!("first holder      {}reads {balance}", late.token());
    first.ensure_valid()?;
    println!("                  holds the lock, is about to write, and stands still");

    // Nothing between the check of the lock and the write can prevent this.
    let second = acquire(masters).await?;
    let account = Account::of(&second, store, is_fenced);
    let newer: u64 = account.read()?.parse()?;
    println!("second holder     {}reads {newer}", account.token());
    println!("                  writes {}", account.write(newer + 5)?);
    second.release().await?;

    println!("first holder      goes on");
    match late.write(balance + 10) {
        Ok(written) => println!("                  writes {written} late"),
        Err(refused) => println!("                  late write refused: {refused}"),
    }
    Ok(store.command(&["GET", VALUE]))
}

/// Acquires the lock of the account. Nothing renews it, as if the holder were stopped.
async fn acquire(masters: &[Server]) -> Result<FencedGuard> {
    let locks = Coordinator::builder()
        .masters(masters.iter().map(Server::url))
        // Five times the default for near masters, so that the example works on a busy machine.
        .response_timeout(Duration::from_millis(250))
        .build()?;
    let lock = locks.mutex("account").ttl(TTL).renewal(Renewal::Off);
    Ok(lock.fenced().acquire_within(10 * TTL).await?)
}

/// The access of one holder to the data that the lock protects.
struct Account<'a> {
    store: &'a Server,
    /// The fencing token. Without fencing, it is 0 for all holders.
    token: u64,
}

impl<'a> Account<'a> {
    fn of(guard: &FencedGuard, store: &'a Server, is_fenced: bool) -> Self {
        let token = if is_fenced { guard.token().into() } else { 0 };
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
        let words = ["EVAL", SCRIPT, "2", VALUE, "account:fence", &token];
        let reply = self.store.command(&[&words[..], value].concat());
        match reply.starts_with("STALE") {
            true => Err(reply.into()),
            false => Ok(reply),
        }
    }
}

/// The script that the store runs. It compares the token and writes in one step.
const SCRIPT: &str = include_str!("stale_writer.lua");
const VALUE: &str = "account";
const TTL: Duration = Duration::from_secs(1);

//! Shows that a majority of masters is enough for a lock. Five real masters are started, and up to
//! three of them are killed.
//!
//! Run `cargo run --example demo` (or `./dev demo`) with `redis-server` or `valkey-server` on the
//! `PATH`. The demo uses masters of its own. They end with the demo, even when it is interrupted.

#![allow(
    clippy::disallowed_methods,
    reason = "the demo runs on real servers in real time"
)]

use std::{
    error::Error,
    process::ExitCode,
    time::{Duration, Instant},
};

use quorlock::{ConfigError, Coordinator, Reason, votes::Votes};
use testkit::server::{self, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    if server::find_binary().is_none() {
        eprintln!(
            "demo: neither redis-server nor valkey-server is on the PATH; ./dev demo installs one"
        );
        return ExitCode::FAILURE;
    }
    match demo(server::masters(5)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn demo(mut masters: Vec<Server>) -> Result<(), Box<dyn Error>> {
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    println!("Five independent masters are up; a lock needs three of them.");

    title(1, "Acquire a lock of 3 s");
    let locks = coordinator(&urls)?;
    let lock = locks.mutex("orders/42");
    let guard = lock.acquire_within(TIME_LIMIT).await?;
    println!("acquired, and valid for {:.3?}", guard.remaining());
    show(&guard.all_votes().await);

    title(2, "A second contender asks for it");
    let rival = coordinator(&urls)?;
    match rival.mutex("orders/42").try_acquire().await {
        Err(error) => match error.reason() {
            Reason::Held {
                remaining: Some(remaining),
                ..
            } => {
                println!("refused: the holder has it for another {remaining:.3?}");
                error.votes().into_iter().for_each(show);
            }
            _ => return Err(error.into()),
        },
        Ok(_) => return Err("a lock was granted that should not have been".into()),
    }
    guard.release().await?;
    println!("(the holder releases it)");

    title(3, "Two masters are killed");
    masters[0].kill();
    masters[1].kill();
    let guard = lock.acquire_within(TIME_LIMIT).await?;
    println!("still acquired, and valid for {:.3?}", guard.remaining());
    show(&guard.all_votes().await);
    guard.release().await?;

    title(4, "A third one is killed");
    masters[2].kill();
    match lock.try_acquire().await {
        Err(error) if *error.reason() == Reason::NoQuorum => {
            println!("refused: too few masters can vote");
            error.votes().into_iter().for_each(show);
        }
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("a lock was granted that should not have been".into()),
    }

    title(5, "It comes back, empty");
    println!(
        "It has no vote until every lock that it may have forgotten is over: the max ttl of 3 s."
    );
    masters[2].restart();
    let start = Instant::now();
    let guard = lock.acquire_within(TIME_LIMIT).await?;
    println!("acquired again, after {:.0?}", start.elapsed());
    show(&guard.all_votes().await);
    guard.release().await?;

    drop(masters);
    println!("\nReleased. The masters are gone, and so are their files.");
    Ok(())
}

fn coordinator(urls: &[String]) -> Result<Coordinator, ConfigError> {
    Coordinator::builder()
        .masters(urls)
        // Five times the default for near masters, so that the demo works on a busy machine.
        .response_timeout(Duration::from_millis(250))
        .ttl(TTL)
        .max_ttl(TTL)
        .build()
}

fn title(number: u32, what: &str) {
    println!("\n{number}. {what}\n");
}

fn show(votes: &Votes) {
    println!(
        "{} of {} granted, {} needed:",
        votes.granted_count(),
        votes.master_count(),
        votes.quorum()
    );
    for row in votes.iter() {
        let latency = row.latency.map(|latency| format!("{latency:.1?}"));
        let vote = row.vote.map(ToString::to_string);
        println!(
            "    {}  {:>8}  {}",
            row.master,
            latency.unwrap_or_default(),
            vote.unwrap_or_else(|| "not answered yet".to_owned())
        );
    }
}

const TIME_LIMIT: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(3);

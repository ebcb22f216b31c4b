//! `quorlock hold`: a lock that is held until a signal, or until the input ends.

use std::{future::pending, io, thread};

use futures::channel::oneshot;
use quorlock::FencingToken;
use serde::Serialize;
use tokio::time::sleep_until;

use crate::{
    args::{Common, Hold},
    ask::{Held, ask},
    exit::Exit,
    failure::Failure,
    loss,
    masters::Masters,
    news::tell,
    output::print,
    runtime::block_on,
    signals::{ENDING, Signals},
    style::clean,
    wanted,
};

/// The JSON of `hold`.
#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    names: &'a [&'a str],
    granted: usize,
    masters: usize,
    fencing_token: Option<FencingToken>,
    slot: Option<usize>,
    valid_until_ms: u64,
}

pub(crate) fn hold(args: &Hold, common: &Common) -> Result<Exit, Failure> {
    if !args.command.is_empty() {
        let sentence = "hold runs no command; use `quorlock run NAME -- CMD`";
        return Err(Failure::new(Exit::Usage, sentence));
    }
    wanted::check(&args.names, &args.asking)?;
    let masters = Masters::find(common, args.asking.quiet)?;
    block_on(async {
        let mut signals = Signals::catch(&ENDING)?;
        let mut input = Input::read(args.until_eof)?;
        let stop = async {
            tokio::select! {
                signal = signals.next() => Failure::silent(signal),
                () = input.ended() => Failure::new(Exit::Usage, NO_INPUT),
            }
        };
        let locks = masters.of_holder(&args.asking, None, "")?;
        let held = ask(locks, &args.names, &args.asking, common, stop).await?;
        let done = hold_until(&held, &mut signals, &mut input, args.json).await;
        held.give_back(&args.asking, common, done).await
    })
}

async fn hold_until(
    held: &Held,
    signals: &mut Signals,
    input: &mut Input,
    is_json: bool,
) -> Result<Exit, Failure> {
    // A script that waits for the line would wait forever.
    announce(held, is_json).map_err(|error| {
        let sentence = format!("cannot write that the lock is held: {error}; it was released");
        Failure::new(Exit::Output, sentence)
    })?;
    let over = async {
        match held.until {
            Some(until) => sleep_until(until.into()).await,
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        // First, because a process that was stopped may find several at once.
        _ = held.guard.lost() => Err(loss::failure(&held.guard, "")),
        _ = signals.next() => Ok(Exit::Success),
        () = input.ended() => Ok(Exit::Success),
        () = over => Err(Failure::new(Exit::Lost, held.too_long())),
        never = tell(held) => match never {},
    }
}

const NO_INPUT: &str = "the input ended before the lock was held; \
                        keep a pipe open for --until-eof, as in the manual page";

fn announce(held: &Held, is_json: bool) -> io::Result<()> {
    let (guard, votes) = (&held.guard, held.guard.votes());
    let names: Vec<_> = guard.names().collect();
    let (token, slot) = (held.token(), guard.slot());
    if is_json {
        let line = serde_json::to_string(&Report {
            name: guard.name(),
            names: &names,
            granted: votes.granted_count(),
            masters: votes.master_count(),
            fencing_token: token,
            slot,
            valid_until_ms: held.valid_until_ms(),
        })?;
        return print(line + "\n");
    }
    let token = token.map_or_else(String::new, |token| format!(" token={token}"));
    let slot = slot.map_or_else(String::new, |slot| format!(" slot={slot}"));
    print(format_args!(
        "held {} votes={}{token}{slot}\n",
        clean(&names.join(" ")),
        held.votes()
    ))
}

/// The input, until it ends. What it contains is dropped.
struct Input(Option<oneshot::Receiver<()>>);

impl Input {
    /// Reads the input in the background, if its end matters.
    fn read(matters: bool) -> Result<Self, Failure> {
        if !matters {
            return Ok(Self(None));
        }
        let (ended, end) = oneshot::channel();
        // A thread, because an input may be of a kind that only blocks, such as a file.
        let read = || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink()); // an error is an end, too
            drop(ended);
        };
        let started = thread::Builder::new().spawn(read);
        started.map_err(|error| Failure::system("cannot start a thread", error))?;
        Ok(Self(Some(end)))
    }

    /// Waits for the end of the input, or forever if it does not matter.
    async fn ended(&mut self) {
        match &mut self.0 {
            Some(end) => drop(end.await),
            None => pending().await,
        }
    }
}

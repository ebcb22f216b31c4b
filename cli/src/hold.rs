//! `quorlock hold`: a lock that is held until a signal.

use std::io;

use crate::{
    args::{Common, Hold},
    ask::{Asked, Held, ask},
    block_on,
    exit::Exit,
    failure::Failure,
    masters::Masters,
    output::print,
    signals::{ENDING, Signals},
};

pub(crate) fn hold(args: &Hold, common: &Common) -> Result<Exit, Failure> {
    let masters = Masters::find(common)?;
    block_on(async {
        let mut signals = Signals::catch(&ENDING)?;
        let held = match ask(&masters, &args.name, &args.asking, common, &mut signals).await? {
            Asked::Held(held) => held,
            Asked::Nothing(exit) => return Ok(exit),
        };
        let done = hold_until(&held, &mut signals).await;
        held.give_back(common).await;
        done
    })
}

async fn hold_until(held: &Held, signals: &mut Signals) -> Result<Exit, Failure> {
    // A script that waits for the line would wait forever.
    announce(held).map_err(|error| {
        let sentence = format!("cannot write that the lock is held: {error}; it was released");
        Failure::new(Exit::Output, sentence)
    })?;
    tokio::select! {
        _ = signals.next() => Ok(Exit::Success),
        lost = held.guard.lost() => Err(Failure::lost(&lost)),
    }
}

fn announce(held: &Held) -> io::Result<()> {
    let token = held.guard.fencing_token();
    let token = token
        .map(|token| format!(" token={token}"))
        .unwrap_or_default();
    print(format_args!(
        "held {} votes={}{token}\n",
        held.guard.name(),
        held.votes()
    ))
}

//! `quorlock break`: takes a lock away from its holder.

use std::io::{self, IsTerminal, Write};

use quorlock::{
    AskError, Coordinator, Inspection,
    tools::MasterView,
    votes::{Refusal, Vote, VoteRow, Votes},
};
use serde::Serialize;
use tokio::task::spawn_blocking;

use crate::{
    args::{Break, Common},
    exit::Exit,
    failure::Failure,
    holders::{HoldersLook, clients},
    lists::Tallies,
    look::{Look, look, reason},
    masters::Masters,
    outage::{Outage, Stage},
    output::{complain, print_json, say},
    owner::Owner,
    rights::BREAK,
    runtime::block_on,
    status::text::block,
    style::{Cell, Colour, Style, clean, heading},
    words::ADVICE,
};

/// The JSON of `break`.
#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    is_broken: bool,
    #[serde(flatten)]
    holders: &'a HoldersLook,
    waiters: Option<&'a [Owner]>,
    masters: &'a [MasterReport],
}

#[derive(Serialize)]
struct MasterReport {
    master: String,
    outcome: Outcome,
    reason: Option<String>,
}

/// The result of a break on one master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Broken,
    /// The lock was free before, or the holder that was to be removed did not have it.
    Free,
    NewerHolder,
    NotALock,
    NoAnswer,
}

pub(crate) fn break_lock(args: &Break, common: &Common) -> Result<Exit, Failure> {
    check_that_someone_can_answer(args)?;
    let masters = Masters::find(common, false)?;
    block_on(async {
        let locks = masters.coordinator()?;
        let mut seen = look(&locks, &args.name).await?;
        let Some(inspection) = seen.inspection.take() else {
            let action = format!("cannot break {:?}", seen.name);
            let sentence = format!("{action}: it is {}; {ADVICE}", seen.sentence());
            let unknown = Failure::new(Exit::Unavailable, sentence);
            let of = [&*args.name, BREAK];
            let refused = seen.outage.and_then(|why| why.denial(&locks, &action, of));
            return Err(refused.unwrap_or(unknown));
        };
        if !seen.is_held_anywhere() && args.holder.is_none() {
            report(args, &seen, &[], true)?;
            return Ok(Exit::Success);
        }
        if seen.may_be_no_lock() && !args.without_ttl {
            let sentence = format!(
                "will not break {:?}: it has no TTL, so it may be no lock but data; \
                 look at it with redis-cli, or give --without-ttl",
                args.name
            );
            return Err(Failure::new(Exit::Configuration, sentence));
        }
        let inspection = match &args.holder {
            Some(who) => choose(&mut seen, &inspection, who)?,
            None => inspection,
        };
        if !args.yes && !is_confirmed(&seen).await? {
            return Err(Failure::new(
                Exit::Usage,
                "nothing was broken, because the answer was not yes",
            ));
        }
        match locks.break_held(&inspection).await {
            Ok(votes) => finish(args, &locks, &seen, &votes),
            Err(AskError::NoQuorum(error)) => finish(args, &locks, &seen, &error.votes),
            Err(error) => Err(error.into()),
        }
    })
}

fn check_that_someone_can_answer(args: &Break) -> Result<(), Failure> {
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal() && !args.json;
    if args.yes || can_ask {
        return Ok(());
    }
    let sentence = format!(
        "will not break {:?} without asking, and there is no terminal; give --yes",
        args.name
    );
    Err(Failure::new(Exit::Usage, sentence))
}

/// Leaves out all holders but one, which perhaps only a minority of masters know.
fn choose(seen: &mut Look, inspection: &Inspection, who: &str) -> Result<Inspection, Failure> {
    let is = seen.sentence();
    let has_lock = seen.holders.iter().any(|one| one.who.is_called(who));
    let id = seen.holders.choose(who);
    let held = inspection.views().flat_map(|view| match view {
        MasterView::Held(holders) => holders,
        _ => Vec::new(),
    });
    let mut held =
        held.filter(|holder| id.is_some() && [&holder.owner, &holder.client].contains(&&id));
    let chosen = held.next().map(|holder| inspection.only(&holder));
    chosen.ok_or_else(|| {
        let now = match clients(&inspection.holders) {
            Some(all) => format!("held by {}, not", all.trim_end_matches(',')),
            None => format!("{is}, not held"),
        };
        let (exit, sentence) = match has_lock {
            true => (
                Exit::Usage,
                format!(
                    "{who:?} is several holders of {:?}; give the ID of one",
                    seen.name
                ),
            ),
            false => (Exit::Lost, format!("{:?} is {now} by {who:?}", seen.name)),
        };
        Failure::new(exit, sentence)
    })
}

/// Shows the lock, and asks. Any answer but `yes` and `y` is a no.
async fn is_confirmed(seen: &Look) -> Result<bool, Failure> {
    let shown = block(seen, Style::of_stdout());
    let warning = "If the holder is alive, it works on until its next renewal fails, \
                   or without renewal until its TTL ends.";
    let question = format!("{shown}{warning}\nBreak {:?}? [y/N] ", seen.name);
    // In a thread, because the connections must live while the person thinks.
    let asked = spawn_blocking(move || {
        let mut answer = String::new();
        let asked = io::stderr().write_all(question.as_bytes());
        asked.and_then(|()| io::stdin().read_line(&mut answer))?;
        Ok(answer)
    });
    let answer = asked.await.map_err(io::Error::other).and_then(|read| read);
    let answer = answer.map_err(|error| Failure::system("cannot ask", error));
    Ok(matches!(answer?.trim(), "y" | "yes"))
}

fn finish(args: &Break, locks: &Coordinator, seen: &Look, votes: &Votes) -> Result<Exit, Failure> {
    let report_on = |row: VoteRow<'_>| MasterReport::of(row, args.holder.is_some());
    let rows: Vec<_> = votes.iter().map(report_on).collect();
    let count = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    let tallies = |outcomes: &[Outcome]| {
        Tallies::of_votes(votes, |row| outcomes.contains(&report_on(*row).outcome))
    };
    let free = tallies(&[Outcome::Broken, Outcome::Free]);
    let may_be_free = tallies(&[Outcome::Broken, Outcome::Free, Outcome::NoAnswer]);
    let is_free_on_majority = free.has_quorum();
    let broken = count(Outcome::Broken);
    let told = format!("broke {:?} on {broken} masters", seen.name);
    report(args, seen, &rows, is_free_on_majority).inspect_err(|_| complain(told))?;
    if is_free_on_majority {
        return Ok(Exit::Success);
    }
    let outage = Outage::in_votes(locks, votes, Stage::Begins);
    let action = format!("{:?} is not broken", args.name);
    if let Some(refused) = outage.denial(locks, &action, [&args.name, BREAK]) {
        return Err(refused.with_votes(votes));
    }
    let few = free.too_few("confirmed");
    let few = format!("only {few}; the holder may keep it; try again, or {ADVICE}");
    let (exit, why) = match count(Outcome::NewerHolder) {
        _ if may_be_free.has_quorum() => (Exit::Unavailable, &*few),
        0 => (Exit::Configuration, NOT_A_LOCK),
        _ => (Exit::Busy, NEWER),
    };
    Err(Failure::new(exit, format!("{action}: {why}")).with_votes(votes))
}

const NOT_A_LOCK: &str = "the key is not a lock; delete it by hand if no program needs it";
const NEWER: &str = "a newer holder has it; look at it with `quorlock status`";

impl MasterReport {
    /// `is_chosen` says that one of several holders was to be removed, so that any other may stay.
    fn of(row: VoteRow<'_>, is_chosen: bool) -> Self {
        let (outcome, reason) = match row.vote {
            Some(Vote::Grant) => (Outcome::Broken, None),
            Some(Vote::Refuse(Refusal::Gone)) => (Outcome::Free, None),
            Some(Vote::Refuse(Refusal::OtherKind)) => (Outcome::NotALock, None),
            Some(Vote::Refuse(_)) if is_chosen => (Outcome::Free, None),
            Some(Vote::Refuse(refusal)) => (Outcome::NewerHolder, Some(refusal.to_string())),
            Some(Vote::Fail(_)) | None => (Outcome::NoAnswer, reason(row)),
        };
        Self {
            master: row.master.to_owned(),
            outcome,
            reason,
        }
    }

    fn row(&self) -> Vec<Cell> {
        let (colour, word) = match self.outcome {
            Outcome::Broken => (Colour::Yellow, "broken"),
            Outcome::Free => (Colour::Plain, "was free"),
            Outcome::NewerHolder => (Colour::Red, "kept by a newer holder"),
            Outcome::NotALock => (Colour::Red, "not a lock, left alone"),
            Outcome::NoAnswer => (Colour::Red, "no answer"),
        };
        let text = match &self.reason {
            Some(reason) => format!("{word}: {reason}"),
            None => word.to_owned(),
        };
        vec![Cell::plain(&self.master), Cell::wide(colour, text)]
    }
}

fn report(
    args: &Break,
    seen: &Look,
    rows: &[MasterReport],
    is_broken: bool,
) -> Result<(), Failure> {
    if args.json {
        return print_json(&Report {
            name: &seen.name,
            is_broken: is_broken && !rows.is_empty(),
            holders: &seen.holders,
            waiters: seen.waiters.as_deref(),
            masters: rows,
        });
    }
    if rows.is_empty() {
        return say(format!("{} is free: nothing to break\n", seen.name));
    }
    let style = Style::of_stdout();
    let what = clean(&seen.sentence());
    let mut table = vec![heading(["MASTER", "RESULT"])];
    table.extend(rows.iter().map(MasterReport::row));
    let name = style.paint(Colour::Bold, &seen.name);
    say(format!("{name}  was {what}\n{}", style.table(&table)))
}

//! `quorlock status`: who holds locks, and who waits.

use std::time::{Duration, Instant};

use quorlock::Coordinator;
use serde::Serialize;
use tokio::time::sleep;

use crate::{
    args::{Common, Status},
    exit::Exit,
    failure::Failure,
    holders::HolderLook,
    lists::ListReport,
    look::{Look, Verdict, look_at_all},
    masters::Masters,
    output::{complain, print_json, say},
    runtime::block_on,
    style::{Colour, Style},
};

mod list;
pub(crate) mod text;

/// The JSON of `status`.
#[derive(Serialize)]
struct Report<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lists: Vec<ListReport>,
    locks: &'a [Look],
    #[serde(flatten)]
    rest: Option<list::Rest>,
}

pub(crate) fn status(args: &Status, common: &Common) -> Result<Exit, Failure> {
    let masters = Masters::find(common, false)?;
    let source = masters.source.clone();
    if args.names.is_empty() {
        return block_on(list::list(&masters, args));
    }
    block_on(async {
        let locks = masters.coordinator()?;
        let tells = !args.json && common.wants_news();
        let looks = match args.now {
            true => look_at_all(&locks, &args.names).await?,
            false => watch(&locks, &args.names, tells).await?,
        };
        if args.json {
            print_json(&Report {
                source: &source,
                lists: ListReport::all(&locks),
                locks: &looks,
                rest: None,
            })?;
        } else {
            let style = Style::of_stdout();
            let blocks: Vec<_> = looks.iter().map(|look| text::block(look, style)).collect();
            let source = format!("the masters are those of {source}");
            let source = style.paint(Colour::Dim, &source);
            say(format!("{}\n{source}\n", blocks.join("\n")))?;
        }
        // Without a quorum, nothing is certain.
        let exit = match worst(&looks) {
            None | Some(Verdict::Free) => Exit::Success,
            Some(Verdict::Held | Verdict::Split) => Exit::Busy,
            Some(Verdict::Quarantined | Verdict::NoQuorum) => Exit::Unavailable,
        };
        let refused = looks.iter().find_map(|look| {
            let action = format!("cannot look at {:?}", look.name);
            let outage = look.outage.as_ref()?;
            outage.denial(&locks, &action, [&look.name, ""])
        });
        let refused = refused.filter(|_| exit == Exit::Unavailable);
        refused.map_or(Ok(exit), Err)
    })
}

/// Returns the worst verdict.
fn worst(looks: &[Look]) -> Option<Verdict> {
    looks.iter().map(|look| look.verdict).max()
}

/// Looks at the locks until it is known whether they are renewed, if that does not take too long.
/// Before that, says so, if it `tells`.
async fn watch(locks: &Coordinator, names: &[String], tells: bool) -> Result<Vec<Look>, Failure> {
    let mut looks = look_at_all(locks, names).await?;
    let end = Instant::now() + PATIENCE;
    if tells && is_open(&looks, end) {
        complain("looks twice, for up to 4s, to see whether the lock is renewed; --now looks once");
    }
    while is_open(&looks, end) {
        sleep(LOOK_INTERVAL).await;
        for (look, mut next) in looks.iter_mut().zip(look_at_all(locks, names).await?) {
            // A look that masters answer too late says nothing about the lock.
            if next.verdict != Verdict::NoQuorum {
                next.holders.compare(&look.holders);
                *look = next;
            }
        }
    }
    Ok(looks)
}

/// Returns whether it is not known yet whether the locks are renewed, and will be known before `end`.
fn is_open(looks: &[Look], end: Instant) -> bool {
    let held = looks.iter().filter(|look| look.verdict == Verdict::Held);
    let mut times = held.flat_map(|look| look.holders.iter().filter_map(HolderLook::decided_in));
    times.any(|time| Instant::now() + time <= end)
}

/// The time in which a lock with the default TTL is renewed.
const PATIENCE: Duration = Duration::from_secs(4);
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

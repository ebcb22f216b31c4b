//! `quorlock status`: who holds locks, and who waits.

use serde::Serialize;

use crate::{
    args::{Common, Status},
    exit::Exit,
    failure::Failure,
    look::{Look, MasterLook, MasterView, Verdict, look_at_all},
    masters::Masters,
    report::{print_json, say},
    runtime::block_on,
    style::{Cell, Colour, Style, heading},
    times::brief,
};

mod watch;

/// The JSON of `status`.
#[derive(Serialize)]
struct Report<'a> {
    locks: &'a [Look],
}

pub(crate) fn status(args: &Status, common: &Common) -> Result<Exit, Failure> {
    let masters = Masters::find(common)?;
    block_on(async {
        let locks = masters.coordinator()?;
        if args.watch {
            return watch::watch(args, &locks).await;
        }
        let looks = look_at_all(&locks, &args.names).await?;
        if args.json {
            print_json(&Report { locks: &looks })?;
        } else {
            let style = Style::of_stdout();
            let blocks: Vec<_> = looks.iter().map(|look| block(look, style)).collect();
            say(blocks.join("\n"))?;
        }
        Ok(worst(&looks).exit())
    })
}

/// Returns the verdict that decides the exit status: without a quorum, nothing is certain.
fn worst(looks: &[Look]) -> Verdict {
    let has = |verdict| looks.iter().any(|look| look.verdict == verdict);
    let verdicts = [Verdict::NoQuorum, Verdict::Contested, Verdict::Held];
    let worst = verdicts.into_iter().find(|verdict| has(*verdict));
    worst.unwrap_or(Verdict::Free)
}

/// Returns the text about one lock.
pub(crate) fn block(look: &Look, style: Style) -> String {
    let mut rows = vec![heading(["MASTER", "VIEW", "TTL LEFT", "ROUND TRIP"])];
    rows.extend(look.masters.iter().map(row));
    let mut text = headline(look, style);
    text.push_str(&style.table(&rows));
    text.push_str(&queue(look, style));
    text
}

/// Returns the name and the verdict. A long verdict has a line of its own.
pub(crate) fn headline(look: &Look, style: Style) -> String {
    let colour = match look.verdict {
        Verdict::Free => Colour::Green,
        Verdict::Held => Colour::Yellow,
        Verdict::Contested | Verdict::NoQuorum => Colour::Red,
    };
    let (name, sentence) = (style.paint(Colour::Bold, &look.name), look.sentence());
    let length = look.name.chars().count() + 2 + sentence.chars().count();
    let gap = if length > style.width() { "\n  " } else { "  " };
    format!("{name}{gap}{}\n", style.paint(colour, &sentence))
}

/// Returns the waiters of a fair lock, if there are any.
pub(crate) fn queue(look: &Look, style: Style) -> String {
    if look.waiters.is_empty() {
        return String::new();
    }
    let rows = look.waiters.iter().enumerate();
    let rows: Vec<_> = rows
        .map(|(at, owner)| vec![Cell::plain((at + 1).to_string()), Cell::plain(owner)])
        .collect();
    let count = style.paint(Colour::Dim, &format!("  WAITING: {}", look.waiters.len()));
    format!("{count}\n{}", style.table(&rows))
}

fn row(master: &MasterLook) -> Vec<Cell> {
    let name = Cell::plain(&master.master);
    if let Some(reason) = &master.reason {
        let text = format!("no answer: {reason}");
        return vec![name, Cell::wide(Colour::Red, text)];
    }
    let (view, left) = match &master.holder {
        Some(holder) => holder.columns(),
        None if master.view == MasterView::Free => ("free".to_owned(), "-".to_owned()),
        None => ("answers nonsense".to_owned(), "-".to_owned()),
    };
    let round_trip = master.round_trip.map_or_else(String::new, brief);
    vec![
        name,
        Cell::plain(view),
        Cell::plain(left),
        Cell::plain(round_trip),
    ]
}

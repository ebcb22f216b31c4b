//! The text about one lock.

use quorlock::LockKind;

use crate::{
    look::{Look, MasterAnswer, MasterLook, Verdict},
    style::{Cell, Colour, Style, heading},
    times::brief,
};

/// Returns the text about one lock.
pub(crate) fn block(look: &Look, style: Style) -> String {
    let first = look.masters.first();
    let mut head = first.map_or_else(Vec::new, |master| master.part.heading());
    head.extend(heading(["VIEW", "TTL LEFT", "ROUND TRIP"]));
    let mut rows = vec![head];
    rows.extend(look.masters.iter().map(row));
    let (holders, masters) = (style.table(&look.holders.rows()), style.table(&rows));
    headline(look, style) + &holders + &masters + &queue(look, style)
}

/// Returns the name and the verdict. A long verdict has a line of its own.
fn headline(look: &Look, style: Style) -> String {
    let colour = match look.verdict {
        Verdict::Free => Colour::Green,
        Verdict::Held => Colour::Yellow,
        Verdict::Split | Verdict::Quarantined | Verdict::NoQuorum => Colour::Red,
    };
    let (name, sentence) = (style.paint(Colour::Bold, &look.name), look.sentence());
    let length = look.name.chars().count() + 2 + sentence.chars().count();
    let gap = if length > style.width { "\n  " } else { "  " };
    format!("{name}{gap}{}\n", style.paint(colour, &sentence))
}

/// Returns the waiters of a lock with a queue, if there are any. No master knows those of other
/// locks.
fn queue(look: &Look, style: Style) -> String {
    let unknown =
        |why: String| style.paint(Colour::Dim, &format!("  WAITING: unknown, {why}")) + "\n";
    let kind = look.holders.iter().find_map(|holder| holder.kind);
    let waiters = match (&look.waiters, kind) {
        (None, Some(kind @ (LockKind::Mutex | LockKind::Reentrant))) => {
            return unknown(format!("no master knows who waits for a {kind}"));
        }
        (None, Some(_)) => return unknown("the user may not read its queue".to_owned()),
        (Some(waiters), _) if !waiters.is_empty() => waiters,
        _ => return String::new(),
    };
    let rows = (1_usize..).zip(waiters).map(|(place, owner)| {
        let start = owner.program.start().map(|start| format!(", {start}"));
        let who = owner.text().unwrap_or_default() + &start.unwrap_or_default();
        [place.to_string(), who].map(Cell::plain).into()
    });
    let rows: Vec<_> = rows.collect();
    let count = format!("  WAITING: {}", waiters.len());
    let count = style.paint(Colour::Dim, &count);
    format!("{count}\n{}", style.table(&rows))
}

fn row(master: &MasterLook) -> Vec<Cell> {
    let mut cells = master.part.cells(&master.master);
    if let (Some(reason), None) = (&master.reason, master.quarantine) {
        let what = match master.view {
            MasterAnswer::NoAnswer => "no answer",
            MasterAnswer::Free | MasterAnswer::Held => "no vote",
        };
        let text = format!("{what}: {reason}");
        cells.push(Cell::wide(Colour::Red, text));
        return cells;
    }
    let columns = master.holders.columns();
    let (mut view, left) = columns.unwrap_or_else(|| ("free".to_owned(), "-".to_owned()));
    if let Some(time) = master.quarantine {
        view.push_str(&format!(", no vote for {}", brief(time)));
    }
    let round_trip = master.round_trip.map_or_else(String::new, brief);
    cells.extend([view, left, round_trip].map(Cell::plain));
    cells
}

//! `quorlock status --watch`: a live table.

use std::{
    fmt::Write,
    io::IsTerminal,
    time::{Duration, SystemTime},
};

use quorlock::{Coordinator, MasterHealth, MasterState};
use serde::Serialize;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep_until},
};

use crate::{
    args::Status,
    configuration::in_words_of_the_file,
    exit::Exit,
    failure::Failure,
    look::{Look, MasterLook, brief, look},
    report::{print_json, say},
    status::{headline, queue},
    style::{Cell, Colour, Style, heading},
};

/// The JSON of `status --watch`: one line for each change.
#[derive(Serialize)]
struct Frame {
    time: String,
    masters: Vec<MasterReport>,
    locks: Vec<Look>,
}

/// The connection to one master.
#[derive(PartialEq, Eq, Serialize)]
struct MasterReport {
    master: String,
    state: &'static str,
    reason: Option<String>,
    can_vote: bool,
    round_trip_us: Option<u128>,
}

/// Shows the locks until a signal comes.
pub(crate) async fn watch(args: &Status, locks: &Coordinator) -> Result<Exit, Failure> {
    let mut signals = Signals::new()?;
    let is_live = !args.json && std::io::stdout().is_terminal();
    let screen = is_live.then(Screen::open).transpose()?;
    let shown = tokio::select! {
        number = signals.next() => Ok(Exit::Signal(number)),
        shown = show(args, locks, is_live) => shown,
    };
    drop(screen);
    shown
}

async fn show(args: &Status, locks: &Coordinator, is_live: bool) -> Result<Exit, Failure> {
    let mut last = None;
    let mut next = Instant::now();
    loop {
        let frame = Frame::take(args, locks).await?;
        if is_live {
            let style = Style::of_stdout();
            say(redraw(&frame.text(style), style))?;
        } else {
            let key = frame.key();
            if last.as_ref() != Some(&key) {
                last = Some(key);
                if args.json {
                    print_json(&frame)?;
                } else {
                    say(frame.text(Style::of_stdout()) + "\n")?;
                }
            }
        }
        next = Instant::now().max(next + args.interval.max(Duration::from_millis(100)));
        sleep_until(next).await;
    }
}

impl Frame {
    async fn take(args: &Status, locks: &Coordinator) -> Result<Self, Failure> {
        let mut looks = Vec::new();
        for name in &args.names {
            looks.push(look(locks, name).await?);
        }
        Ok(Self {
            time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            masters: locks.health().iter().map(MasterReport::of).collect(),
            locks: looks,
        })
    }

    /// Returns what must change for a new block. Times change always.
    fn key(&self) -> String {
        let mut key = String::new();
        for master in &self.masters {
            let _ = writeln!(key, "{} {}", master.state, master.can_vote);
        }
        for look in &self.locks {
            let _ = writeln!(key, "{:?} {:?}", look.verdict, look.waiters);
            let holders = look.masters.iter().map(|master| master.holder.as_ref());
            for holder in holders.chain([look.holder.as_ref()]) {
                let holder = holder.map(|holder| (holder.kind, &holder.owner, holder.depth));
                let _ = writeln!(key, "{holder:?}");
            }
        }
        key
    }

    fn text(&self, style: Style) -> String {
        let can_vote = self.masters.iter().filter(|master| master.can_vote).count();
        let all = self.masters.len();
        let end = if style.is_terminal() {
            "  Ctrl-C ends"
        } else {
            ""
        };
        let summary = format!("{}  {can_vote} of {all} masters can vote{end}", self.time);
        let colour = if can_vote > all / 2 {
            Colour::Dim
        } else {
            Colour::Red
        };
        let mut text = style.paint(colour, &summary) + "\n";
        for look in &self.locks {
            text.push('\n');
            text.push_str(&headline(look, style));
            text.push_str(&self.table(look, style));
            text.push_str(&queue(look, style));
        }
        text
    }

    fn table(&self, look: &Look, style: Style) -> String {
        let mut rows = vec![heading([
            "MASTER",
            "STATE",
            "ROUND TRIP",
            "HOLDER",
            "TTL LEFT",
        ])];
        let masters = self.masters.iter().zip(&look.masters);
        rows.extend(masters.map(|(master, view)| row(master, view)));
        style.table(&rows)
    }
}

fn row(master: &MasterReport, view: &MasterLook) -> Vec<Cell> {
    let name = Cell::plain(&master.master);
    let (state, colour) = match (master.state, master.can_vote) {
        ("connected", true) => ("connected", Colour::Green),
        ("connected", false) => ("quarantine", Colour::Yellow),
        (state, _) => (state, Colour::Red),
    };
    let state = Cell::new(colour, state);
    if let Some(reason) = master.reason.as_ref().or(view.reason.as_ref()) {
        return vec![name, state, Cell::wide(Colour::Red, reason)];
    }
    // The answer to the inspection is newer than the round trip of the dial.
    let micros = view.answer_us.or(master.round_trip_us).unwrap_or_default();
    let micros = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
    let (holder, left) = match &view.holder {
        Some(holder) => (
            holder.short(),
            holder.left().unwrap_or_else(|| "no TTL".to_owned()),
        ),
        None => ("-".to_owned(), "-".to_owned()),
    };
    vec![
        name,
        state,
        Cell::plain(brief(micros)),
        Cell::plain(holder),
        Cell::plain(left),
    ]
}

impl MasterReport {
    fn of(health: &MasterHealth) -> Self {
        let (state, reason) = match &health.state {
            MasterState::Connected => ("connected", None),
            MasterState::Connecting => ("connecting", None),
            MasterState::Down(why) => ("down", Some(in_words_of_the_file(why))),
            _ => ("closed", None),
        };
        Self {
            master: health.master.to_string(),
            state,
            reason,
            can_vote: health.can_vote(),
            round_trip_us: health.round_trip.map(|time| time.as_micros()),
        }
    }
}

/// Returns the bytes that replace the picture on the terminal. Lines that do not fit are counted.
fn redraw(text: &str, style: Style) -> String {
    let height = style.height().unwrap_or(24).max(2);
    let lines: Vec<_> = text.lines().collect();
    let mut picture = "\x1b[H".to_owned();
    let is_cut = lines.len() > height;
    let shown = if is_cut { height - 1 } else { lines.len() };
    for (at, line) in lines[..shown].iter().enumerate() {
        let end = if at + 1 == height { "" } else { "\r\n" };
        let _ = write!(picture, "{line}\x1b[K{end}");
    }
    if is_cut {
        let _ = write!(picture, "… {} more lines\x1b[K", lines.len() - shown);
    }
    picture + "\x1b[J"
}

/// The other screen of the terminal, without a cursor. Dropping it brings the first one back.
struct Screen;

impl Screen {
    fn open() -> Result<Self, Failure> {
        say("\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = say("\x1b[?25h\x1b[?1049l");
    }
}

/// The signals that end the table.
struct Signals([(u8, Signal); 3]);

impl Signals {
    fn new() -> Result<Self, Failure> {
        let open = |number: u8, kind| {
            let opened = signal(kind).map_err(|error| {
                Failure::new(Exit::System, format!("cannot listen for signals: {error}"))
            });
            opened.map(|signal| (number, signal))
        };
        Ok(Self([
            open(1, SignalKind::hangup())?,
            open(2, SignalKind::interrupt())?,
            open(15, SignalKind::terminate())?,
        ]))
    }

    async fn next(&mut self) -> u8 {
        let [(hangup, one), (interrupt, two), (terminate, three)] = &mut self.0;
        tokio::select! {
            _ = one.recv() => *hangup,
            _ = two.recv() => *interrupt,
            _ = three.recv() => *terminate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_that_is_too_high_is_cut() {
        let style = Style::terminal(80, 3);
        assert_eq!(
            redraw("a\nb\n", style),
            "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[J"
        );
        assert_eq!(
            redraw("a\nb\nc\n", style),
            "\x1b[Ha\x1b[K\r\nb\x1b[K\r\nc\x1b[K\x1b[J"
        );
        let cut = "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n… 2 more lines\x1b[K\x1b[J";
        assert_eq!(redraw("a\nb\nc\nd\n", style), cut);
    }
}

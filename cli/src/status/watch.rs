//! `quorlock status --watch`: a live table.

use std::{
    fmt::Write,
    io::IsTerminal,
    pin::pin,
    time::{Duration, SystemTime},
};

use nix::sys::signal::{Signal, raise};
use quorlock::{Coordinator, MasterHealth, MasterState};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::text::{headline, queue};

use crate::{
    args::Status,
    exit::Exit,
    failure::Failure,
    lists::{ListReport, Part, Tallies},
    look::{Look, MasterLook, look_at_all},
    output,
    report::{print_json, say},
    signals::Signals,
    style::{Cell, Colour, Style, clean, cut_painted, is_dumb},
    times::{brief, micros},
    words::in_words_of_the_file,
};

/// The JSON of `status --watch`: one line for each change.
#[derive(Serialize)]
struct Frame {
    time: String,
    source: String,
    #[serde(skip)]
    able: Tallies,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lists: Vec<ListReport>,
    masters: Vec<MasterReport>,
    locks: Vec<Look>,
}

/// The connection to one master.
#[derive(PartialEq, Eq, Serialize)]
struct MasterReport {
    master: String,
    #[serde(flatten)]
    part: Part,
    state: State,
    reason: Option<String>,
    can_vote: bool,
    #[serde(rename = "round_trip_us", serialize_with = "micros")]
    round_trip: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Connected,
    Connecting,
    Down,
    Closed,
}

/// Shows the locks until a signal comes.
pub(crate) async fn watch(
    args: &Status,
    locks: &Coordinator,
    source: &str,
) -> Result<Exit, Failure> {
    let is_live = !args.json && std::io::stdout().is_terminal() && !is_dumb();
    let mut signals = Signals::catch(if is_live { &LIVE } else { &ENDING })?;
    let screen = is_live.then(Screen::open).transpose()?;
    let mut shown = pin!(show(args, locks, source, is_live));
    loop {
        tokio::select! {
            shown = &mut shown => break shown,
            signal = signals.next() => match &screen {
                Some(screen) if signal == Signal::SIGTSTP => screen.stop()?,
                _ => break Ok(signal.into()),
            },
        }
    }
}

async fn show(
    args: &Status,
    locks: &Coordinator,
    source: &str,
    is_live: bool,
) -> Result<Exit, Failure> {
    let interval = args.interval.max(LEAST_INTERVAL);
    let mut last = None;
    let mut next = Instant::now();
    loop {
        let frame = Frame::take(args, locks, source).await?;
        let (style, key) = (Style::of_stdout(), frame.key());
        let is_new = last.as_ref() != Some(&key);
        last = Some(key);
        match is_live {
            true => say(redraw(&frame.text(style), style))?,
            false if !is_new => {}
            false if args.json => print_json(&frame)?,
            false => say(frame.text(style) + "\n")?,
        }
        if output::is_closed() {
            return Ok(Exit::Output);
        }
        next = Instant::now().max(next + interval);
        sleep_until(next).await;
    }
}

impl Frame {
    async fn take(args: &Status, locks: &Coordinator, source: &str) -> Result<Self, Failure> {
        let looks = look_at_all(locks, &args.names).await?;
        let health = Part::of_masters(locks);
        let able = Tallies::of(locks, MasterHealth::can_vote);
        let lists = ListReport::all(locks);
        Ok(Self {
            time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            source: source.to_owned(),
            able,
            lists,
            masters: health.into_iter().map(MasterReport::of).collect(),
            locks: looks,
        })
    }

    /// Returns what must change for a new block. Times change always.
    fn key(&self) -> String {
        let mut key = String::new();
        for master in &self.masters {
            let _ = writeln!(key, "{:?} {}", master.state, master.can_vote);
        }
        for look in &self.locks {
            let _ = writeln!(key, "{:?} {:?}", look.verdict, look.waiters);
            let of_masters = look.masters.iter().map(|master| &master.holders);
            for holders in of_masters.chain([&look.holders]) {
                for one in holders.iter() {
                    let what = (one.kind, &one.owner, &one.client, one.depth);
                    let _ = write!(key, "{what:?} ");
                }
                key.push('\n');
            }
        }
        key
    }

    fn text(&self, style: Style) -> String {
        let end = if style.is_terminal() {
            "  Ctrl-C ends"
        } else {
            ""
        };
        let summary = format!("{}  {} can vote{end}", self.time, self.able.all());
        let colour = if self.able.has_quorum() {
            Colour::Dim
        } else {
            Colour::Red
        };
        let mut text = style.paint(colour, &summary) + "\n";
        text.push_str(&style.paint(Colour::Dim, &clean(&self.source)));
        text.push('\n');
        for look in &self.locks {
            text.push('\n');
            text.push_str(&headline(look, style));
            text.push_str(&self.table(look, style));
            text.push_str(&queue(look, style));
        }
        text
    }

    fn table(&self, look: &Look, style: Style) -> String {
        let mut rows = vec![look.heading(["STATE", "HOLDER", "TTL LEFT", "ROUND TRIP"])];
        let masters = self.masters.iter().zip(&look.masters);
        rows.extend(masters.map(|(one, view)| row(one, view)));
        style.table(&rows)
    }
}

fn row(master: &MasterReport, view: &MasterLook) -> Vec<Cell> {
    let mut cells = master.part.cells(&master.master);
    let (state, colour) = match (master.state, master.can_vote) {
        (State::Connected, true) => ("connected", Colour::Green),
        (State::Connected, false) if master.reason.is_some() => ("no locks", Colour::Red),
        (State::Connected, false) => ("quarantine", Colour::Yellow),
        (State::Connecting, _) => ("connecting", Colour::Red),
        (State::Down, _) => ("down", Colour::Red),
        (State::Closed, _) => ("closed", Colour::Red),
    };
    cells.push(Cell::new(colour, state));
    if let Some(reason) = master.reason.as_ref().or(view.reason.as_ref()) {
        cells.push(Cell::wide(Colour::Red, reason));
        return cells;
    }
    // The answer to the inspection is newer than the round trip of the dial.
    let round_trip = view.answer.or(master.round_trip).unwrap_or_default();
    let none = || ("-".to_owned(), "-".to_owned());
    let (holder, left) = view.holders.columns().unwrap_or_else(none);
    cells.extend([holder, left, brief(round_trip)].map(Cell::plain));
    cells
}

impl MasterReport {
    fn of((health, part): (MasterHealth, Part)) -> Self {
        let (state, reason) = match &health.state {
            MasterState::Connected => {
                let error = health.error.as_deref().map(in_words_of_the_file);
                (State::Connected, error)
            }
            MasterState::Connecting => (State::Connecting, None),
            MasterState::Down(why) => (State::Down, Some(in_words_of_the_file(why))),
            _ => (State::Closed, None),
        };
        Self {
            master: health.master.to_string(),
            part,
            state,
            reason,
            can_vote: health.can_vote(),
            round_trip: health.round_trip,
        }
    }
}

/// Returns the bytes that replace the picture on the terminal. Lines that do not fit are counted.
fn redraw(text: &str, style: Style) -> String {
    let height = style.height().unwrap_or(24).max(2);
    let width = style.width();
    let lines: Vec<_> = text.lines().collect();
    let mut picture = "\x1b[H".to_owned();
    let is_cut = lines.len() > height;
    let shown = if is_cut { height - 1 } else { lines.len() };
    for (at, line) in lines[..shown].iter().enumerate() {
        let end = if at + 1 == height { "" } else { "\r\n" };
        let _ = write!(picture, "{}\x1b[K{end}", cut_painted(line, width));
    }
    if is_cut {
        let _ = write!(picture, "… {} more lines\x1b[K", lines.len() - shown);
    }
    picture + "\x1b[J"
}

/// The signals that end a watch.
const ENDING: [Signal; 3] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM];
/// The signals before which a live table must give back the screen.
const LIVE: [Signal; 5] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
];
/// A shorter interval would ask the masters all the time.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// The other screen of the terminal, without a cursor. Dropping it brings the first one back.
struct Screen;

impl Screen {
    fn open() -> Result<Self, Failure> {
        let screen = Self;
        screen.enter()?;
        Ok(screen)
    }

    fn enter(&self) -> Result<(), Failure> {
        say("\x1b[?1049h\x1b[?25l\x1b[2J")
    }

    fn leave(&self) -> Result<(), Failure> {
        say("\x1b[?25h\x1b[?1049l")
    }

    /// Stops this process, and gives the first screen to the shell meanwhile.
    fn stop(&self) -> Result<(), Failure> {
        self.leave()?;
        let _ = raise(Signal::SIGSTOP); // fails for no process that may stop itself
        self.enter()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.leave(); // the terminal is gone, too
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

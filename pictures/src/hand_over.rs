//! The picture of a hand-over: a holder releases the lock, and a waiter hears of it.

use std::error::Error;
use std::time::{Duration, Instant};

use quorlock::{Coordinator, Lock};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Result;
use crate::scale::{Piece, Scale};
use crate::server::{Server, masters};
use crate::svg::{Point, Svg};
use crate::tap::{Part, Tap, Way};
use crate::times::ms;

const DELAY: Duration = Duration::from_millis(4);
const LIMIT: Duration = Duration::from_secs(5);
/// The number of programs. The first one only makes the others wait before the hand-over.
const PROGRAMS: usize = 4;

/// The recorded hand-over. All times are in milliseconds after the holder's release.
#[derive(Debug)]
struct HandOver {
    messages: Vec<Message>,
    /// The master that both waiters asked first.
    agreed: usize,
    /// The program that released the lock.
    holder: usize,
    /// The waiter that got the lock.
    winner: usize,
    acquired: f64,
}

#[derive(Debug)]
struct Message {
    what: What,
    client: usize,
    master: usize,
    sent: f64,
    arrived: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Grant,
    News,
    Refusal,
    Release,
    Request,
}

pub async fn picture() -> Result<String> {
    // A busy machine may delay a message so much that another one overtakes it.
    for _ in 0..20 {
        let run = record().await?;
        if run.is_typical() {
            return Ok(run.draw());
        }
    }
    Err("in each of twenty runs, messages overtook each other".into())
}

async fn record() -> Result<HandOver> {
    let servers = masters(3);
    let tap = |server: &Server| Tap::new(server.port(), DELAY);
    let taps: Vec<_> = servers.iter().map(tap).collect();
    let mut locks = Vec::new();
    for _ in 0..PROGRAMS {
        let program = Coordinator::new(taps.iter().map(Tap::url))?;
        program.all_ready(LIMIT).await?;
        locks.push(program.mutex("orders/42"));
    }
    compete(&locks).await?;

    let guard = locks[0].acquire_within(LIMIT).await?;
    guard.settled().await;
    let began = Instant::now();
    let (sender, mut acquired) = mpsc::channel(PROGRAMS);
    for (client, lock) in locks.into_iter().enumerate().skip(1) {
        let sender = sender.clone();
        tokio::spawn(async move {
            let guard = lock.acquire_within(LIMIT).await;
            let _ = sender.send((client, Instant::now(), guard)).await;
        });
    }
    until_quiet(&taps, began).await?;
    drop(guard);
    let (holder, _, guard) = acquired.recv().await.ok_or("no waiter got the lock")?;
    let guard = guard?;
    until_quiet(&taps, Instant::now()).await?;

    let start = Instant::now();
    drop(guard);
    let (winner, acquired, guard) = acquired.recv().await.ok_or("no waiter got the lock")?;
    let guard = guard?;
    guard.settled().await;
    // The grants that came after the majority are on their way.
    sleep(4 * DELAY).await;
    let acquired = ms(start, acquired);
    let mut messages = Vec::new();
    for (master, tap) in taps.iter().enumerate() {
        let parts = tap.since(start).into_iter();
        messages.extend(parts.filter_map(|part| Message::read(&part, holder, master, start)));
    }
    messages.retain(|message| message.sent < acquired);
    let agreed = messages.iter().find(|message| message.what == What::News);
    Ok(HandOver {
        agreed: agreed.ok_or("no master reported the release")?.master,
        messages,
        holder,
        winner,
        acquired,
    })
}

/// Lets all programs take the lock a few times at once. Each of them then knows that it has rivals.
async fn compete(locks: &[Lock]) -> Result<()> {
    let mut rivals = JoinSet::new();
    for lock in locks.iter().cloned() {
        rivals.spawn(async move {
            for _ in 0..5 {
                lock.acquire_within(LIMIT).await?.release().await?;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
    }
    while let Some(result) = rivals.join_next().await {
        result??;
    }
    Ok(())
}

/// Waits until the programs have sent nothing for some time.
async fn until_quiet(taps: &[Tap], since: Instant) -> Result<()> {
    loop {
        sleep(10 * DELAY).await;
        let recent = Instant::now() - 10 * DELAY;
        if taps.iter().all(|tap| tap.since(recent).is_empty()) {
            return Ok(());
        }
        if since.elapsed() > LIMIT {
            return Err("the programs never stop sending".into());
        }
    }
}

impl Message {
    fn read(part: &Part, holder: usize, master: usize, start: Instant) -> Option<Self> {
        let what = match part.way {
            Way::ToMaster if part.client == holder => What::Release,
            Way::ToMaster => What::Request,
            Way::ToClient if part.client == holder => return None,
            Way::ToClient if part.says("invalidate") => What::News,
            // A refusal says for how long the lock is still held.
            Way::ToClient if part.says(":-") => What::Refusal,
            Way::ToClient => What::Grant,
        };
        Some(Self {
            what,
            client: part.client,
            master,
            sent: ms(start, part.sent),
            arrived: ms(start, part.arrived),
        })
    }
}

impl HandOver {
    /// Returns whether each message came once, and both waiters asked the same master first.
    fn is_typical(&self) -> bool {
        let count = |what| self.all(what).count();
        let counts = [
            What::Release,
            What::News,
            What::Request,
            What::Grant,
            What::Refusal,
        ];
        let first = self
            .all(What::Request)
            .filter(|request| request.master == self.agreed);
        counts.map(count) == [3, 2, 4, 3, 1] && first.count() == 2
    }

    fn all(&self, what: What) -> impl Iterator<Item = &Message> {
        self.messages
            .iter()
            .filter(move |message| message.what == what)
    }

    /// Returns the time at which a message about a master arrived.
    fn time(&self, what: What, client: usize, master: usize) -> f64 {
        let is_it = |message: &&Message| (message.client, message.master) == (client, master);
        self.all(what)
            .find(is_it)
            .map_or(0.0, |message| message.arrived)
    }

    fn draw(&self) -> String {
        let mut svg = Svg::new(
            BOTTOM + 124.0,
            "A hand-over: waiters hear of the release, and all ask the same master first",
            "A real run: three masters, 4 ms away from each program. A holds the lock, B and C wait",
        );
        let scale = Scale::new([Piece {
            from: -5.0,
            to: self.acquired + 7.0,
            left: 140.0,
            right: 836.0,
        }]);
        draw_axis(&mut svg, &scale, self.acquired + 6.0);
        self.draw_programs(&mut svg, &scale);
        for master in 0..3 {
            self.draw_master(&mut svg, &scale, master);
        }
        for message in &self.messages {
            self.draw_message(&mut svg, &scale, message);
        }
        self.draw_numbers(&mut svg, &scale);
        self.draw_legend(&mut svg);
        svg.finish()
    }

    fn loser(&self) -> usize {
        (1..PROGRAMS).sum::<usize>() - self.holder - self.winner
    }

    /// Returns the height of the row of a program.
    fn program_y(&self, client: usize) -> f64 {
        match () {
            () if client == self.holder => PROGRAM,
            () if client == self.winner => PROGRAM + 240.0,
            () => BOTTOM,
        }
    }

    /// Returns the height of the row of a master. The master that is asked first is the lowest.
    fn master_y(&self, master: usize) -> f64 {
        let others_before = (0..master).filter(|other| *other != self.agreed).count();
        let row = if master == self.agreed {
            2
        } else {
            others_before
        };
        PROGRAM + 62.0 + 54.0 * row as f64
    }

    fn draw_programs(&self, svg: &mut Svg, scale: &Scale) {
        let (left, right) = (140.0, 836.0);
        let y = self.program_y(self.holder);
        let released = scale.x(0.0);
        svg.bar("f-orange", (left, released), y, 24.0);
        svg.text(
            "f-card bold mid",
            ((left + released) / 2.0, y + 4.5),
            "holds",
        );
        svg.text("f-ink", (released + 12.0, y + 4.5), "releases the lock");

        let y = self.program_y(self.winner);
        let heard = scale.x(self.time(What::News, self.winner, self.agreed));
        let acquired = scale.x(self.acquired);
        svg.bar("f-grey tint", (left, heard), y, 24.0);
        svg.bar("f-blue tint", (heard, acquired), y, 24.0);
        svg.bar("f-blue", (acquired, right), y, 24.0);
        svg.text("f-ink", (left + 10.0, y + 4.5), "waits, sends nothing");
        svg.text(
            "f-card bold mid",
            ((acquired + right) / 2.0, y + 4.5),
            "holds",
        );

        let y = self.program_y(self.loser());
        svg.bar("f-grey tint", (left, right), y, 24.0);
        svg.text("f-ink", (left + 10.0, y + 4.5), "waits, sends nothing");
        let refused = scale.x(self.time(What::Refusal, self.loser(), self.agreed));
        svg.text(
            "f-ink",
            (refused + 14.0, y + 4.5),
            "waits for the next report",
        );
        for (client, name) in [(self.holder, "A"), (self.winner, "B"), (self.loser(), "C")] {
            let name = format!("program {name}");
            svg.text("f-ink bold", (24.0, self.program_y(client) + 4.5), &name);
        }
    }

    fn draw_master(&self, svg: &mut Svg, scale: &Scale, master: usize) {
        let y = self.master_y(master);
        svg.text(
            "f-ink bold",
            (24.0, y + 4.5),
            &format!("master {}", master + 1),
        );
        if master == self.agreed {
            svg.text("f-soft", (24.0, y + 21.5), "asked first");
        }
        svg.line("s-grid thin", (140.0, y), (836.0, y));
        let released = scale.x(self.time(What::Release, self.holder, master));
        let granted = scale.x(self.time(What::Request, self.winner, master));
        svg.bar("f-orange", (140.0, released), y, 10.0);
        svg.bar("f-blue", (granted, 836.0), y, 10.0);
    }

    fn draw_message(&self, svg: &mut Svg, scale: &Scale, message: &Message) {
        let (from, to) = self.ends(scale, message);
        svg.arrow(colour(message.what), from, to);
    }

    /// Returns where the arrow of a message begins and ends.
    fn ends(&self, scale: &Scale, message: &Message) -> (Point, Point) {
        let master = self.master_y(message.master);
        let program = self.program_y(message.client);
        let program = program + if program < master { 12.0 } else { -12.0 };
        let (from, to) = match message.what {
            What::Release | What::Request => (program, master),
            What::Grant | What::News | What::Refusal => (master, program),
        };
        (
            (scale.x(message.sent), from),
            (scale.x(message.arrived), to),
        )
    }

    /// Puts a number on some arrows.
    fn draw_numbers(&self, svg: &mut Svg, scale: &Scale) {
        let others = |message: &&Message| message.master != self.agreed;
        let highest = self.all(What::Request).filter(others);
        let highest =
            highest.min_by(|a, b| self.master_y(a.master).total_cmp(&self.master_y(b.master)));
        let winner = |what| {
            self.all(what)
                .find(|message| (message.client, message.master) == (self.winner, self.agreed))
        };
        let marked = [
            self.all(What::Release).next(),
            winner(What::News),
            winner(What::Request),
            highest,
        ];
        for (number, message) in marked.into_iter().flatten().enumerate() {
            let ((x0, y0), (x1, y1)) = self.ends(scale, message);
            let middle = ((x0 + x1) / 2.0, (y0 + y1) / 2.0);
            svg.dot("f-card", middle, 11.5);
            svg.badge(colour(message.what), middle, &(number + 1).to_string());
        }
    }

    fn draw_legend(&self, svg: &mut Svg) {
        let agreed = self.agreed + 1;
        let steps = [
            ("orange", "A releases the lock on all masters.".to_owned()),
            (
                "purple",
                format!("Master {agreed} reports the release to B and C."),
            ),
            (
                "ink",
                format!("B and C ask master {agreed}. It grants B and refuses C."),
            ),
            (
                "ink",
                "B asks the other masters, and has a majority.".to_owned(),
            ),
        ];
        for (number, (colour, text)) in steps.iter().enumerate() {
            let (x, y) = (
                33.0 + 330.0 * (number / 2) as f64,
                BOTTOM + 72.0 + 28.0 * (number % 2) as f64,
            );
            svg.badge(colour, (x, y - 4.6), &(number + 1).to_string());
            svg.text("f-ink", (x + 16.0, y), text);
            svg.figure(&format!("{}: {text}", number + 1));
        }
        for (row, (colour, text)) in [("orange", "A's key"), ("blue", "B's key")]
            .iter()
            .enumerate()
        {
            let y = BOTTOM + 72.0 + 28.0 * row as f64;
            svg.bar(&format!("f-{colour}"), (752.0, 776.0), y - 4.6, 10.0);
            svg.text("f-ink", (784.0, y), text);
        }
        svg.figure(&format!(
            "B had the lock {:.1} ms after the release.",
            self.acquired
        ));
    }
}

fn colour(what: What) -> &'static str {
    match what {
        What::Grant => "blue",
        What::News => "purple",
        What::Refusal => "red",
        What::Release => "orange",
        What::Request => "ink",
    }
}

fn draw_axis(svg: &mut Svg, scale: &Scale, end: f64) {
    for time in (0..)
        .map(|step| 4.0 * f64::from(step))
        .take_while(|time| *time < end)
    {
        let x = scale.x(time);
        svg.line("s-grid thin", (x, PROGRAM - 16.0), (x, BOTTOM + 18.0));
        svg.text("f-soft mid", (x, BOTTOM + 34.0), &format!("{time} ms"));
    }
}

/// The heights of the rows of the first and the last program.
const PROGRAM: f64 = 108.0;
const BOTTOM: f64 = PROGRAM + 300.0;

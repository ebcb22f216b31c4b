//! The drawing of a recorded hand-over.

use super::{Content, HandOver, Message, PROGRAMS};
use crate::scale::{Piece, Scale};
use crate::svg::{Point, Svg};

impl HandOver {
    pub(super) fn draw(&self) -> String {
        let mut svg = Svg::new(
            BOTTOM + 124.0,
            "A hand-over: waiters hear of the release, and all ask the same master first",
            "A real run. A holds the lock, B and C wait. A message takes 4 ms. One arrow stands \
             for those to the other masters",
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
        for message in self.telling() {
            self.draw_message(&mut svg, &scale, message);
        }
        self.draw_numbers(&mut svg, &scale);
        self.draw_legend(&mut svg);
        svg.finish()
    }

    /// Returns the messages that are drawn. The other masters get the same ones at the same times.
    fn telling(&self) -> impl Iterator<Item = &Message> {
        let top = (0..3).find(|master| self.row(*master) == 0);
        self.messages.iter().filter(move |message| {
            let is_agreed = message.master == self.agreed;
            match message.content {
                Content::News => true,
                Content::Release => is_agreed,
                Content::Request => is_agreed || Some(message.master) == top,
                Content::Grant => Some(message.master) == top,
                Content::Refusal => false,
            }
        })
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

    /// Returns the row of a master, which is also its number in the picture. The master that is
    /// asked first is the lowest.
    fn row(&self, master: usize) -> usize {
        let others_before = (0..master).filter(|other| *other != self.agreed).count();
        if master == self.agreed {
            2
        } else {
            others_before
        }
    }

    fn master_y(&self, master: usize) -> f64 {
        PROGRAM + 62.0 + 54.0 * self.row(master) as f64
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
        let heard = scale.x(self.time(Content::News, self.winner, self.agreed));
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
        let refused = scale.x(self.time(Content::Refusal, self.loser(), self.agreed));
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
            &format!("master {}", self.row(master) + 1),
        );
        if master == self.agreed {
            svg.text("f-soft", (24.0, y + 21.5), "asked first");
        }
        svg.line("s-grid thin", (140.0, y), (836.0, y));
        let released = scale.x(self.time(Content::Release, self.holder, master));
        let granted = scale.x(self.time(Content::Request, self.winner, master));
        svg.bar("f-orange", (140.0, released), y, 10.0);
        svg.bar("f-blue", (granted, 836.0), y, 10.0);
    }

    fn draw_message(&self, svg: &mut Svg, scale: &Scale, message: &Message) {
        let (from, to) = self.ends(scale, message);
        svg.arrow(colour(message.content), from, to);
    }

    /// Returns where the arrow of a message begins and ends.
    fn ends(&self, scale: &Scale, message: &Message) -> (Point, Point) {
        let master = self.master_y(message.master);
        let program = self.program_y(message.client);
        let program = program + if program < master { 12.0 } else { -12.0 };
        let (from, to) = match message.content {
            Content::Release | Content::Request => (program, master),
            Content::Grant | Content::News | Content::Refusal => (master, program),
        };
        (
            (scale.x(message.sent), from),
            (scale.x(message.arrived), to),
        )
    }

    /// Puts a number on some arrows.
    fn draw_numbers(&self, svg: &mut Svg, scale: &Scale) {
        let highest = self
            .all(Content::Request)
            .find(|message| self.row(message.master) == 0);
        let winner = |content| {
            self.all(content)
                .find(|message| (message.client, message.master) == (self.winner, self.agreed))
        };
        let marked = [
            self.telling()
                .find(|message| message.content == Content::Release),
            winner(Content::News),
            winner(Content::Request),
            highest,
        ];
        for (number, message) in marked.into_iter().flatten().enumerate() {
            let ((x0, y0), (x1, y1)) = self.ends(scale, message);
            let middle = ((x0 + x1) / 2.0, (y0 + y1) / 2.0);
            svg.dot("f-card", middle, 11.5);
            svg.badge(colour(message.content), middle, &(number + 1).to_string());
        }
    }

    fn draw_legend(&self, svg: &mut Svg) {
        let agreed = self.row(self.agreed) + 1;
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

fn colour(content: Content) -> &'static str {
    match content {
        Content::Grant => "blue",
        Content::News => "purple",
        Content::Refusal => "red",
        Content::Release => "orange",
        Content::Request => "ink",
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

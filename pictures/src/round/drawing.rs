//! The drawing of a recorded round.

use super::{DELAYS, HANGING, Round, Seat, TTL};
use crate::scale::{Piece, Scale};
use crate::svg::{Point, Svg};
use crate::times::millis;

impl Round {
    pub(super) fn draw(&self) -> String {
        let mut svg = Svg::new(
            BOTTOM + 84.0,
            "A round: all five masters are asked at once, and the third grant decides",
            "A real run on five Redis masters at different distances. Master 5 hangs. \
             The lock's TTL is 2 s",
        );
        let scale = self.scale();
        self.draw_marks(&mut svg, &scale);
        self.draw_program(&mut svg, &scale);
        for (number, seat) in self.masters.iter().enumerate() {
            self.draw_master(&mut svg, &scale, number, seat);
        }
        for gap in scale.gaps() {
            svg.tear(gap, (PROGRAM - 24.0, BOTTOM + 4.0));
        }
        self.draw_axis(&mut svg, &scale);
        legend(&mut svg);
        self.describe(&mut svg);
        svg.finish()
    }

    fn scale(&self) -> Scale {
        let late = self.masters[HANGING].voted;
        let first = self.masters[HANGING - 1].voted.max(self.decided).ceil() + 1.5;
        let ttl = millis(TTL);
        Scale::new([
            Piece {
                from: 0.0,
                to: first,
                left: 140.0,
                right: 520.0,
            },
            Piece {
                from: late - 2.0,
                to: late + 2.0,
                left: 540.0,
                right: 600.0,
            },
            Piece {
                from: self.valid_until - 8.0,
                to: ttl + 8.0,
                left: 620.0,
                right: 836.0,
            },
        ])
    }

    /// Draws the vertical lines, which the rows then cover.
    fn draw_marks(&self, svg: &mut Svg, scale: &Scale) {
        for (time, colour) in [
            (0.0, "ink"),
            (self.decided, "green"),
            (self.valid_until, "green"),
            (millis(TTL), "ink"),
        ] {
            let x = scale.x(time);
            let class = format!("s-{colour} thin dashed");
            svg.line(&class, (x, PROGRAM - 24.0), (x, BOTTOM + 4.0));
        }
        let y = PROGRAM - 32.0;
        svg.text("f-ink mid", (scale.x(0.0), y), "start");
        let decided = format!("decided after {:.1} ms", self.decided);
        svg.text("f-green bold mid", (scale.x(self.decided), y), &decided);
        svg.text(
            "f-green bold mid",
            (scale.x(self.valid_until), y),
            "valid until",
        );
        svg.text("f-ink mid", (scale.x(millis(TTL)), y), "start + TTL");
    }

    fn draw_program(&self, svg: &mut Svg, scale: &Scale) {
        let (start, decided) = (scale.x(0.0), scale.x(self.decided));
        let (end, ttl) = (scale.x(self.valid_until), scale.x(millis(TTL)));
        svg.text("f-ink bold", (24.0, PROGRAM + 4.5), "your program");
        svg.bar("f-grey tint", (start, decided), PROGRAM, 26.0);
        svg.text(
            "f-ink mid",
            ((start + decided) / 2.0, PROGRAM + 4.5),
            "asks",
        );
        svg.bar("f-green", (decided, end), PROGRAM, 26.0);
        svg.text(
            "f-card bold",
            (decided + 14.0, PROGRAM + 4.5),
            "holds the lock",
        );
        svg.bar("f-orange tint", (end, ttl), PROGRAM, 26.0);
        let drift = format!("drift {:.0} ms", millis(TTL) - self.valid_until);
        svg.text("f-ink mid", ((end + ttl) / 2.0, PROGRAM + 4.5), &drift);
    }

    fn draw_master(&self, svg: &mut Svg, scale: &Scale, number: usize, seat: &Seat) {
        let top = FIRST + ROW * number as f64;
        let (high, low) = (top + 6.0, top + 38.0);
        let name = format!("master {}", number + 1);
        svg.text("f-ink bold", (24.0, top + 21.0), &name);
        let distance = match number {
            HANGING => "hangs".to_owned(),
            _ => format!("{} ms round trip", DELAYS[number] as f64 * 2.0 / 1000.0),
        };
        svg.text("f-soft", (24.0, top + 39.0), &distance);
        svg.line("s-grid thin", (scale.x(0.0), low), (836.0, low));
        let (asked, voted) = ((scale.x(seat.asked), low), (scale.x(seat.voted), high));
        if seat.has_granted {
            let end = scale.x(seat.asked + millis(TTL));
            svg.bar("f-blue", (asked.0, end), low, 10.0);
            svg.arrow("blue", asked, short_of(asked, voted));
        }
        svg.arrow("ink", (scale.x(0.0), high), asked);
        if seat.has_granted {
            svg.badge("green", voted, &self.rank(seat).to_string());
        } else {
            svg.cross("red", (voted.0, high + 4.0));
            let note = "no answer, and no one waits for it";
            svg.text("f-ink s-card halo", (asked.0 + 24.0, high + 18.0), note);
        }
    }

    fn rank(&self, seat: &Seat) -> usize {
        let earlier = self
            .masters
            .iter()
            .filter(|other| other.voted <= seat.voted);
        earlier.count()
    }

    fn draw_axis(&self, svg: &mut Svg, scale: &Scale) {
        let y = BOTTOM + 22.0;
        let late = self.masters[HANGING].voted;
        for time in [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, late.round()] {
            let label = format!("{time:.0} ms");
            svg.text("f-soft mid", (scale.x(time), y), &label);
        }
        for time in [self.valid_until, millis(TTL)] {
            let label = format!("{:.3} s", time / 1000.0);
            svg.text("f-soft mid", (scale.x(time), y), &label);
        }
    }

    fn describe(&self, svg: &mut Svg) {
        for (number, seat) in self.masters.iter().enumerate() {
            let vote = if seat.has_granted {
                "grant"
            } else {
                "no answer"
            };
            svg.figure(&format!(
                "Master {}: asked after {:.1} ms, {vote} after {:.1} ms.",
                number + 1,
                seat.asked,
                seat.voted
            ));
        }
        svg.figure(&format!(
            "Decided after {:.1} ms. Valid until {:.1} ms. The TTL is {} ms.",
            self.decided,
            self.valid_until,
            millis(TTL)
        ));
    }
}

/// Returns the point at which an arrow to a badge ends.
fn short_of(from: Point, badge: Point) -> Point {
    let (dx, dy) = (badge.0 - from.0, badge.1 - from.1);
    let part = 10.0 / dx.hypot(dy).max(10.0);
    (badge.0 - part * dx, badge.1 - part * dy)
}

fn legend(svg: &mut Svg) {
    let y = BOTTOM + 58.0;
    svg.arrow("ink", (24.0, y - 10.0), (44.0, y + 4.0));
    svg.text("f-ink", (52.0, y + 2.0), "request");
    svg.arrow("blue", (124.0, y + 4.0), (144.0, y - 10.0));
    svg.text("f-ink", (152.0, y + 2.0), "reply");
    svg.bar("f-blue", (212.0, 236.0), y - 3.0, 10.0);
    svg.text(
        "f-ink",
        (244.0, y + 2.0),
        "the key lives on the master, for the TTL",
    );
    svg.badge("green", (522.0, y - 3.0), "n");
    svg.text("f-ink", (538.0, y + 2.0), "n-th grant");
    svg.cross("red", (632.0, y - 3.0));
    svg.text("f-ink", (646.0, y + 2.0), "node timeout");
}

/// The heights of the program's row, and of the first master's row.
const PROGRAM: f64 = 128.0;
const FIRST: f64 = 158.0;
const ROW: f64 = 56.0;
const BOTTOM: f64 = FIRST + 5.0 * ROW;

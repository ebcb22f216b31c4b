//! The drawing of a recorded restart.

use super::{END, Restart, State, VICTIM};
use crate::scale::{Piece, Scale};
use crate::svg::Svg;

impl Restart {
    pub(super) fn draw(&self) -> String {
        let mut svg = Svg::new(
            BOTTOM + 84.0,
            "A restart: a master that may have forgotten locks has no vote for a while",
            "A real run with three masters, a TTL of 1.5 s and a max_ttl of 4 s. Master 2 is \
             killed, and comes back empty",
        );
        let scale = Scale::new([Piece {
            from: 0.0,
            to: END as f64,
            left: 140.0,
            right: 836.0,
        }]);
        self.draw_marks(&mut svg, &scale);
        self.draw_lock(&mut svg, &scale);
        for master in 0..self.states.len() {
            self.draw_master(&mut svg, &scale, master);
        }
        self.draw_notes(&mut svg, &scale);
        self.draw_axis(&mut svg, &scale);
        legend(&mut svg);
        svg.finish()
    }

    /// Draws the vertical lines at which the state of the restarted master changes.
    fn draw_marks(&self, svg: &mut Svg, scale: &Scale) {
        let names = [
            ("end", "killed"),
            ("", "comes back empty"),
            ("mid", "votes again"),
        ];
        for ((at, _), (side, name)) in self.states[VICTIM].iter().skip(1).zip(names) {
            let x = scale.x(*at);
            svg.line("s-ink thin dashed", (x, LOCK - 18.0), (x, BOTTOM));
            svg.text(&format!("f-ink {side}"), (x, LOCK - 26.0), name);
        }
    }

    fn draw_lock(&self, svg: &mut Svg, scale: &Scale) {
        svg.text("f-ink bold", (24.0, LOCK + 4.5), "your lock");
        svg.text("f-soft", (24.0, LOCK + 34.5), "its renewals");
        let (left, right) = (scale.x(0.0), scale.x(END as f64));
        svg.bar("f-green", (left, right), LOCK, 26.0);
        let middle = (left + right) / 2.0;
        svg.text(
            "f-card bold mid",
            (middle, LOCK + 4.5),
            "held and valid all the time",
        );
        for (at, grants) in &self.renewals {
            let (x, colour) = (scale.x(*at), if *grants == 3 { "green" } else { "soft" });
            if x < right - 9.0 {
                svg.badge(colour, (x, LOCK + 30.0), &grants.to_string());
            }
        }
        for same in self.renewals.chunk_by(|(_, a), (_, b)| a == b) {
            let (from, to, grants) = (same[0].0, same[same.len() - 1].0, same[0].1);
            svg.figure(&format!(
                "Renewals from {from:.0} ms to {to:.0} ms: {grants} of 3 masters."
            ));
        }
    }

    fn draw_master(&self, svg: &mut Svg, scale: &Scale, master: usize) {
        let y = FIRST + ROW * master as f64;
        svg.text(
            "f-ink bold",
            (24.0, y + 4.5),
            &format!("master {}", master + 1),
        );
        let states = &self.states[master];
        for (at, (from, state)) in states.iter().enumerate() {
            let to = states.get(at + 1).map_or(END as f64, |(to, _)| *to);
            let (left, right) = (scale.x(from.max(0.0)), scale.x(to));
            let (colour, text) = state.look();
            svg.bar(&format!("f-{colour} tint"), (left, right), y, 24.0);
            svg.text("f-ink mid", ((left + right) / 2.0, y + 4.5), text);
            svg.figure(&format!(
                "Master {}, from {from:.0} ms to {to:.0} ms: {text}.",
                master + 1
            ));
        }
        for (from, to) in &self.keys[master] {
            svg.bar("f-blue", (scale.x(*from), scale.x(*to)), y + 18.0, 8.0);
        }
    }

    /// Says what happens to the key of the restarted master.
    fn draw_notes(&self, svg: &mut Svg, scale: &Scale) {
        let y = FIRST + ROW * VICTIM as f64 + 27.0;
        let [(_, lost), (back, _)] = self.keys[VICTIM][..] else {
            return;
        };
        svg.text("f-ink s-card halo", (scale.x(lost) + 10.0, y), "no key");
        let note = "the next renewal puts the key back";
        svg.text("f-ink s-card halo end", (scale.x(back) - 44.0, y), note);
    }

    fn draw_axis(&self, svg: &mut Svg, scale: &Scale) {
        for second in 0..=END / 1_000 {
            let x = scale.x(second as f64 * 1_000.0);
            svg.text("f-soft mid", (x, BOTTOM + 20.0), &format!("{second} s"));
        }
    }
}

impl State {
    /// Returns the colour and the text of the state.
    fn look(self) -> (&'static str, &'static str) {
        match self {
            Self::Down => ("red", "down"),
            Self::Quarantined => ("orange", "quarantine: no vote for max_ttl and the drift"),
            Self::Votes => ("green", "votes"),
        }
    }
}

fn legend(svg: &mut Svg) {
    let y = BOTTOM + 58.0;
    svg.bar("f-blue", (24.0, 48.0), y - 4.6, 8.0);
    svg.text("f-ink", (56.0, y), "the key is on the master");
    svg.badge("green", (252.0, y - 4.6), "n");
    svg.text(
        "f-ink",
        (268.0, y),
        "a renewal, and the number of masters that confirmed it",
    );
}

/// The heights of the rows of the lock and of the first master.
const LOCK: f64 = 124.0;
const FIRST: f64 = 196.0;
const ROW: f64 = 60.0;
const BOTTOM: f64 = FIRST + 2.0 * ROW + 30.0;

//! The timeline of a drill as SVG: acquisitions per second of each kind, and the faults.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::clock::{Nanos, SECOND};
use crate::episode::Outcome;
use crate::locks::KINDS;
use crate::plan::{Class, Fault};
use crate::spans::Span;

const LEFT: f64 = 270.0;
const WIDTH: f64 = 1_200.0;
const TOP: f64 = 60.0;
const HEIGHT: f64 = 220.0;
const LANE: f64 = 15.0;
const COLOURS: [&str; KINDS.len()] = ["#1f6fb4", "#d9730d", "#2e8540", "#8a3ffc", "#b81d5b"];
/// The most points of a line.
const POINTS: u64 = 400;

/// Draws the episodes. The background is white, so the picture can be read on a dark page, too.
pub fn draw(title: &str, outcomes: &[Outcome]) -> String {
    let (Some(first), Some(last)) = (outcomes.first(), outcomes.last()) else {
        return String::new();
    };
    let whole = Span::new(first.whole.from, last.whole.to);
    let done = outcomes.iter().flat_map(|one| one.done.iter());
    let faults: BTreeSet<_> = done.map(|done| done.event.fault).collect();
    let bottom = TOP + HEIGHT + 40.0 + LANE * faults.len() as f64;
    let mut picture = Picture {
        svg: String::new(),
        whole,
    };
    picture.put(format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" font-family="sans-serif" font-size="11" fill="#222222">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="10" y="20" font-size="15">{title}</text>"##,
        w = LEFT + WIDTH + 30.0,
        h = bottom + 20.0,
    ));
    for outcome in outcomes {
        picture.episode(outcome, bottom);
    }
    picture.axes(outcomes);
    picture.lanes(outcomes, &faults);
    picture.put("</svg>".to_owned());
    picture.svg
}

struct Picture {
    svg: String,
    whole: Span,
}

impl Picture {
    fn put(&mut self, line: String) {
        self.svg.push_str(&line);
        self.svg.push('\n');
    }

    fn x(&self, at: Nanos) -> f64 {
        LEFT + WIDTH * at.saturating_sub(self.whole.from) as f64 / self.whole.length() as f64
    }

    /// Marks the time of an episode by the colour of its class.
    fn episode(&mut self, outcome: &Outcome, bottom: f64) {
        let (colour, _) = class(outcome.class);
        let (x, to) = (self.x(outcome.whole.from), self.x(outcome.whole.to));
        self.put(format!(
            r#"<rect x="{x:.1}" y="{TOP}" width="{w:.1}" height="{h:.1}" fill="{colour}"/>"#,
            w = to - x,
            h = bottom - TOP,
        ));
        for violation in &outcome.violations {
            let text = violation
                .replace('&', "+")
                .replace('<', "(")
                .replace('>', ")");
            self.put(format!(
                r##"<rect x="{x:.1}" y="{TOP}" width="4" height="{HEIGHT}" fill="#c00000"><title>{text}</title></rect>"##
            ));
        }
    }

    /// Draws the legend, the axes, and a line for each kind of lock.
    fn axes(&mut self, outcomes: &[Outcome]) {
        let bin = (self.whole.length() / POINTS).max(SECOND);
        let bins = (self.whole.length() / bin) as usize + 1;
        let mut rates = [(); KINDS.len()].map(|()| vec![0.0_f64; bins]);
        for &(kind, at) in outcomes.iter().flat_map(|one| &one.grants) {
            let (Some(index), Some(at)) = (
                KINDS.iter().position(|known| *known == kind),
                at.checked_sub(self.whole.from),
            ) else {
                continue;
            };
            rates[index][((at / bin) as usize).min(bins - 1)] += SECOND as f64 / bin as f64;
        }
        let top = rates
            .iter()
            .flatten()
            .fold(1.0_f64, |top, rate| top.max(*rate));
        self.rulers(top);
        for (index, kind) in KINDS.iter().enumerate() {
            let points = rates[index].iter().enumerate().map(|(at, rate)| {
                let x = self
                    .x(self.whole.from + bin * at as u64 + bin / 2)
                    .min(LEFT + WIDTH);
                format!("{x:.1},{:.1}", TOP + HEIGHT * (1.0 - rate / top))
            });
            let points = points.collect::<Vec<_>>().join(" ");
            let (colour, x) = (COLOURS[index], LEFT + 110.0 * index as f64);
            self.put(format!(
                r#"<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>
<rect x="{x}" y="34" width="12" height="12" fill="{colour}"/><text x="{tx}" y="44">{kind}</text>"#,
                tx = x + 16.0
            ));
        }
        for (index, of) in [Class::InModel, Class::LateWriters, Class::OutOfModel]
            .into_iter()
            .enumerate()
        {
            let ((colour, name), x) = (class(of), LEFT + 380.0 + 190.0 * index as f64);
            self.put(format!(
                r##"<rect x="{x}" y="34" width="12" height="12" fill="{colour}" stroke="#888888"/><text x="{tx}" y="44">{name}</text>"##,
                tx = x + 16.0
            ));
        }
    }

    fn rulers(&mut self, top: f64) {
        for step in 0..=4 {
            let part = f64::from(step) / 4.0;
            let y = TOP + HEIGHT * (1.0 - part);
            self.put(format!(
                r##"<line x1="{LEFT}" x2="{to}" y1="{y:.1}" y2="{y:.1}" stroke="#bbbbbb" stroke-width="0.5"/><text x="{x}" y="{ty:.1}" text-anchor="end">{value:.0}</text>"##,
                to = LEFT + WIDTH,
                x = LEFT - 6.0,
                ty = y + 4.0,
                value = top * part
            ));
        }
        self.put(format!(
            r#"<text x="{x}" y="{y}" text-anchor="end">acquisitions per second</text>"#,
            x = LEFT - 40.0,
            y = TOP + HEIGHT / 2.0
        ));
        let seconds = self.whole.length() / SECOND;
        let step = [5, 10, 30, 60, 120, 300, 600]
            .into_iter()
            .find(|step| seconds / step <= 14);
        let step = step.unwrap_or(1_800);
        for at in (0..=seconds).step_by(step as usize) {
            let x = self.x(self.whole.from + at * SECOND);
            self.put(format!(
                r#"<text x="{x:.1}" y="{y}" text-anchor="middle">{m}:{s:02}</text>"#,
                y = TOP + HEIGHT + 18.0,
                m = at / 60,
                s = at % 60
            ));
        }
    }

    /// Draws a lane with the spans of each kind of fault.
    fn lanes(&mut self, outcomes: &[Outcome], faults: &BTreeSet<Fault>) {
        for (lane, fault) in faults.iter().enumerate() {
            let y = TOP + HEIGHT + 34.0 + LANE * lane as f64;
            let _ = writeln!(
                self.svg,
                r#"<text x="{x}" y="{ty}" text-anchor="end">{name}</text>"#,
                x = LEFT - 8.0,
                ty = y + 9.0,
                name = fault.name()
            );
            let done = outcomes.iter().flat_map(|one| &one.done);
            for done in done.filter(|done| done.event.fault == *fault) {
                let (x, to) = (self.x(done.span.from), self.x(done.span.to));
                self.put(format!(
                    r##"<rect x="{x:.1}" y="{y}" width="{w:.1}" height="10" fill="#7a3b8f" fill-opacity="0.75"/>"##,
                    w = (to - x).max(1.5)
                ));
            }
        }
    }
}

/// Returns the colour and the name of a class.
fn class(class: Class) -> (&'static str, &'static str) {
    match class {
        Class::InModel => ("#f3f7fb", "faults within the model"),
        Class::LateWriters => ("#fdf3dc", "and holders that write late"),
        Class::OutOfModel => ("#fbe3e0", "faults outside the model"),
    }
}

//! A bar chart as SVG: one group of bars per width, and one bar per contestant.

use std::fmt::Write;

const COLOURS: [&str; 6] = [
    "#4c566a", "#b48ead", "#d08770", "#a3be8c", "#5e81ac", "#bf616a",
];
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 60.0;
const BAR: f64 = 34.0;
const GAP: f64 = 30.0;

/// A group of bars under one label. `None` leaves a gap.
#[derive(Debug)]
pub struct Group {
    pub label: String,
    pub bars: Vec<Option<f64>>,
}

/// Draws the groups. `names` are the names of the bars in each group.
pub fn bars(title: &str, names: &[&str], groups: &[Group]) -> String {
    let group_width = BAR * names.len() as f64 + GAP;
    let width = LEFT + group_width * groups.len() as f64 + GAP;
    let top = groups
        .iter()
        .flat_map(|group| group.bars.iter().flatten())
        .fold(1.0_f64, |top, &value| top.max(value));
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{h}" font-family="sans-serif" font-size="11">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{LEFT}" y="20" font-size="15">{title}</text>
"##,
        h = HEIGHT + TOP + 40.0
    );
    legend(&mut svg, names);
    axis(&mut svg, top, width);
    for (i, group) in groups.iter().enumerate() {
        draw(&mut svg, group, LEFT + GAP + group_width * i as f64, top);
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, names: &[&str]) {
    for (i, name) in names.iter().enumerate() {
        let x = LEFT + 100.0 * i as f64;
        let colour = COLOURS[i % COLOURS.len()];
        put(
            svg,
            &format!(
                r#"<rect x="{x}" y="30" width="12" height="12" fill="{colour}"/><text x="{tx}" y="40">{name}</text>"#,
                tx = x + 16.0
            ),
        );
    }
}

/// Draws five horizontal lines with their values.
fn axis(svg: &mut String, top: f64, width: f64) {
    for step in 0..=4 {
        let part = f64::from(step) / 4.0;
        let y = TOP + HEIGHT * (1.0 - part);
        put(
            svg,
            &format!(
                r##"<line x1="{LEFT}" x2="{width}" y1="{y:.1}" y2="{y:.1}" stroke="#d8dee9"/><text x="{tx}" y="{y:.1}" text-anchor="end">{value:.0}</text>"##,
                tx = LEFT - 6.0,
                value = top * part
            ),
        );
    }
}

fn draw(svg: &mut String, group: &Group, left: f64, top: f64) {
    for (i, bar) in group.bars.iter().enumerate() {
        let Some(value) = *bar else { continue };
        let height = HEIGHT * value / top;
        let (x, y) = (left + BAR * i as f64, TOP + HEIGHT - height);
        let colour = COLOURS[i % COLOURS.len()];
        put(
            svg,
            &format!(
                r#"<rect x="{x:.1}" y="{y:.1}" width="{w}" height="{height:.1}" fill="{colour}"/><text x="{tx:.1}" y="{ty:.1}" text-anchor="middle" font-size="9">{value:.0}</text>"#,
                w = BAR - 4.0,
                tx = x + BAR / 2.0 - 2.0,
                ty = y - 3.0
            ),
        );
    }
    let middle = left + BAR * group.bars.len() as f64 / 2.0;
    put(
        svg,
        &format!(
            r#"<text x="{middle:.1}" y="{y}" text-anchor="middle" font-size="13">{label}</text>"#,
            y = TOP + HEIGHT + 22.0,
            label = group.label
        ),
    );
}

fn put(svg: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(svg, "{line}");
}

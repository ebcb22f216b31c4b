//! A writer for SVG pictures. A picture brings its own background, so it is readable on any page.

use std::fmt::Write;

/// The width of all pictures.
pub const WIDTH: f64 = 860.0;

/// Class names of colours: on a light and on a dark background. The hues are those of Okabe and
/// Ito, which colour-blind people can tell apart. They are darker or lighter here, for contrast.
const COLOURS: [(&str, &str, &str); 10] = [
    ("card", "#ffffff", "#0d1117"),
    ("ink", "#1f2328", "#f0f6fc"),
    ("soft", "#59636e", "#9198a1"),
    ("grid", "#d1d9e0", "#3d444d"),
    ("grey", "#8c959f", "#6e7681"),
    ("blue", "#0072b2", "#56b4e9"),
    ("green", "#007a59", "#2fbf93"),
    ("orange", "#b35900", "#e69f00"),
    ("red", "#b8410a", "#f0864a"),
    ("purple", "#9b4a86", "#d68fbd"),
];

const RULES: &str = "text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,\
sans-serif}.big{font-size:18px;font-weight:600}.bold{font-weight:600}.mid{text-anchor:middle}\
.end{text-anchor:end}.line{fill:none;stroke-width:2}.thin{fill:none;stroke-width:1}.dashed\
{stroke-dasharray:4 4}.tint{fill-opacity:.25}.halo{paint-order:stroke;stroke-width:5px;\
stroke-linejoin:round}";

pub type Point = (f64, f64);

/// A picture that is being drawn. Lengths are in pixels from the top left corner. A `class` is a
/// list of class names: `f-` or `s-` and a colour, to fill and to stroke, and names of [`RULES`].
#[derive(Debug)]
pub struct Svg {
    height: f64,
    title: String,
    /// The figures of the picture as text, for readers who do not see the picture.
    figures: String,
    body: String,
}

impl Svg {
    /// Begins a picture with its title and a line below the title.
    pub fn new(height: f64, title: &str, subtitle: &str) -> Self {
        let mut svg = Self {
            height,
            title: escaped(title),
            figures: format!("{}.\n", escaped(subtitle)),
            body: String::new(),
        };
        svg.text("f-ink big", (24.0, 36.0), title);
        svg.text("f-soft", (24.0, 59.0), subtitle);
        svg
    }

    /// Adds a line to the description.
    pub fn figure(&mut self, line: &str) {
        self.figures += &format!("{}\n", escaped(line));
    }

    pub fn text(&mut self, class: &str, (x, y): Point, text: &str) {
        let text = escaped(text);
        self.put(&format!(
            "<text class='{class}' x='{x:.1}' y='{y:.1}'>{text}</text>"
        ));
    }

    pub fn line(&mut self, class: &str, from: Point, to: Point) {
        self.path(class, &[from, to], false);
    }

    /// Draws a line that ends in the tip of an arrow.
    pub fn arrow(&mut self, colour: &str, from: Point, to: Point) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy).max(1.0);
        let (dx, dy) = (dx / length, dy / length);
        let back = |along: f64, aside: f64| {
            (
                to.0 - along * dx - aside * dy,
                to.1 - along * dy + aside * dx,
            )
        };
        self.line(&format!("s-{colour} line"), from, back(6.0, 0.0));
        let tip = [to, back(8.0, 3.8), back(8.0, -3.8)];
        self.path(&format!("f-{colour}"), &tip, true);
    }

    pub fn path(&mut self, class: &str, points: &[Point], is_closed: bool) {
        let points = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}"));
        let points = points.collect::<Vec<_>>().join("L");
        let end = if is_closed { "Z" } else { "" };
        self.put(&format!("<path class='{class}' d='M{points}{end}'/>"));
    }

    /// Draws a bar around the height `y`, from `left` to `right`.
    pub fn bar(&mut self, class: &str, (left, right): Point, y: f64, height: f64) {
        let (top, width) = (y - height / 2.0, (right - left).max(0.0));
        self.put(&format!(
            "<rect class='{class}' x='{left:.1}' y='{top:.1}' width='{width:.1}' \
             height='{height:.1}' rx='3'/>"
        ));
    }

    pub fn dot(&mut self, class: &str, (x, y): Point, radius: f64) {
        self.put(&format!(
            "<circle class='{class}' cx='{x:.1}' cy='{y:.1}' r='{radius:.1}'/>"
        ));
    }

    /// Draws a disc with a short text in it.
    pub fn badge(&mut self, colour: &str, at: Point, text: &str) {
        self.dot(&format!("f-{colour}"), at, 9.0);
        self.text("f-card bold mid", (at.0, at.1 + 4.6), text);
    }

    pub fn cross(&mut self, colour: &str, (x, y): Point) {
        let class = format!("s-{colour} line");
        self.line(&class, (x - 5.0, y - 5.0), (x + 5.0, y + 5.0));
        self.line(&class, (x - 5.0, y + 5.0), (x + 5.0, y - 5.0));
    }

    /// Draws a tear from top to bottom, for a scale that leaves out some time.
    pub fn tear(&mut self, x: f64, (top, bottom): Point) {
        let steps = ((bottom - top) / 12.0).round() as u32;
        let edge = |aside: f64| {
            let zigzag =
                move |step: u32| x + aside + if step.is_multiple_of(2) { -2.5 } else { 2.5 };
            (0..=steps).map(move |step| {
                let part = f64::from(step) / f64::from(steps);
                (zigzag(step), top + part * (bottom - top))
            })
        };
        let (left, right): (Vec<_>, Vec<_>) = (edge(-5.0).collect(), edge(5.0).collect());
        let both: Vec<_> = left.iter().chain(right.iter().rev()).copied().collect();
        self.path("f-card", &both, true);
        self.path("s-grey thin", &left, false);
        self.path("s-grey thin", &right, false);
    }

    /// Returns the picture as the text of a file.
    pub fn finish(self) -> String {
        let height = self.height;
        let (inner_width, inner_height) = (WIDTH - 1.0, height - 1.0);
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' \
             width='{WIDTH}' height='{height}' role='img' aria-labelledby='title desc'>\n\
             <title id='title'>{}</title>\n<desc id='desc'>\n{}</desc>\n<style>{}</style>\n\
             <rect class='f-card s-grid thin' style='fill-opacity:1' x='.5' y='.5' \
             width='{inner_width}' height='{inner_height}' rx='8'/>\n{}</svg>\n",
            self.title,
            self.figures,
            style(),
            self.body
        )
    }

    fn put(&mut self, element: &str) {
        self.body += element;
        self.body.push('\n');
    }
}

/// Returns the rules for all classes, with the colours of both schemes.
fn style() -> String {
    let mut light = String::new();
    let mut dark = String::new();
    for (name, on_light, on_dark) in COLOURS {
        for (rules, colour) in [(&mut light, on_light), (&mut dark, on_dark)] {
            let _ = write!(
                rules,
                ".f-{name}{{fill:{colour}}}.s-{name}{{stroke:{colour}}}"
            );
        }
    }
    // `.thin` and `.line` come before the colours, so that a shape can be filled and stroked.
    format!("{RULES}{light}@media(prefers-color-scheme:dark){{{dark}}}")
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

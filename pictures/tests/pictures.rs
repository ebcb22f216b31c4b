//! Checks the pictures: those of the repository, and new ones from real runs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use roxmltree::{Document, Node};

const PICTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/pictures");
const NAMES: [&str; 4] = ["hand-over", "peers", "restart", "round"];

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("quorlock-{name}-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Draws pictures into this folder.
    fn draw(&self, names: &[&str]) {
        let mut pictures = Command::new(env!("CARGO_BIN_EXE_pictures"));
        let output = pictures.args(names).arg("--to").arg(&self.0).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn real_runs_can_be_drawn() {
    let folder = Folder::new("pictures");
    folder.draw(&[]);
    for name in NAMES {
        check(&folder.0, name);
    }
}

#[test]
fn the_pictures_of_the_repository_are_sound() {
    for name in NAMES {
        check(Path::new(PICTURES), name);
    }
    let files = fs::read_dir(PICTURES).unwrap();
    assert_eq!(files.count(), 2 * NAMES.len() - 1);
}

#[test]
fn the_picture_of_peers_has_the_figures_of_its_page() {
    let folder = Folder::new("peers");
    folder.draw(&["peers"]);
    let [expected, found] = [&folder.0, Path::new(PICTURES)].map(|folder| {
        let picture = fs::read_to_string(folder.join("peers.svg"));
        picture.unwrap()
    });
    assert!(expected == found, "run: ./dev pictures peers");
}

#[test]
fn unknown_pictures_are_refused() {
    let mut pictures = Command::new(env!("CARGO_BIN_EXE_pictures"));
    let output = pictures.arg("square").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && error.contains("usage: pictures [round]"),
        "{error}"
    );
}

/// Checks that a picture is sound, and that its URI is this picture. Rustdoc does not show `peers`,
/// so this picture has no URI.
fn check(folder: &Path, name: &str) {
    let read = |end: &str| fs::read_to_string(folder.join(format!("{name}.{end}"))).unwrap();
    let svg = read("svg");
    let document = Document::parse(&svg).unwrap();
    for tag in ["title", "desc"] {
        let said = nodes(&document, tag).next().and_then(|node| node.text());
        assert!(said.is_some_and(|text| text.len() > 20), "{name}: no {tag}");
    }
    // A picture that names an address or a path would differ from machine to machine.
    for unwanted in ["127.0.0.1", "file:", "/home", "/tmp", "NaN", "inf"] {
        assert!(!svg.contains(unwanted), "{name} contains {unwanted}");
    }
    if name != "peers" {
        assert_eq!(decoded(&read("uri")), svg.trim_end(), "{name}");
    }
    check_labels(name, &document);
}

/// Checks that labels are within the picture and do not overlap.
fn check_labels(name: &str, document: &Document<'_>) {
    let number = |attribute| document.root_element().attribute(attribute);
    let [width, height] = ["width", "height"].map(|side| number(side).unwrap().parse().unwrap());
    let labels: Vec<_> = nodes(document, "text").map(Label::of).collect();
    for (at, label) in labels.iter().enumerate() {
        let is_inside = label.left >= 0.0 && label.right <= width && label.base <= height;
        assert!(is_inside, "{name}: {label:?} is outside");
        for other in &labels[..at] {
            assert!(!label.overlaps(other), "{name}: {label:?}, {other:?}");
        }
    }
}

/// The room that a text needs.
#[derive(Debug)]
#[expect(dead_code, reason = "the text is shown if a check fails")]
struct Label<'a> {
    text: &'a str,
    left: f64,
    right: f64,
    top: f64,
    base: f64,
}

impl<'a> Label<'a> {
    fn of(node: Node<'a, '_>) -> Self {
        let text = node.text().unwrap();
        let number = |attribute| node.attribute(attribute).unwrap().parse::<f64>().unwrap();
        let has = |class: &str| {
            let mut classes = node.attribute("class").unwrap().split(' ');
            classes.any(|name| name == class)
        };
        // The mean widths in a wide font, DejaVu Sans.
        let (letter, height) = match () {
            () if has("big") => (10.2, 18.0),
            () if has("bold") => (7.7, 13.0),
            () => (6.6, 13.0),
        };
        let width = letter * text.chars().count() as f64;
        let x = number("x");
        let left = match () {
            () if has("mid") => x - width / 2.0,
            () if has("end") => x - width,
            () => x,
        };
        let base = number("y");
        Self {
            text,
            left,
            right: left + width,
            top: base - 0.75 * height,
            base,
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.base
            && other.top < self.base
    }
}

fn nodes<'a, 'b>(document: &'b Document<'a>, tag: &str) -> impl Iterator<Item = Node<'b, 'a>> {
    let nodes = document.descendants();
    nodes.filter(move |node| node.has_tag_name(("http://www.w3.org/2000/svg", tag)))
}

/// Returns the picture that a `data:` URI has in it.
fn decoded(uri: &str) -> String {
    let data = uri.trim_end().strip_prefix("data:image/svg+xml,").unwrap();
    let mut parts = data.split('%');
    let mut bytes = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        let (byte, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(byte, 16).unwrap());
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).unwrap()
}

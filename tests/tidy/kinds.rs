//! Checks that each kind of lock can be had from coordinators and groups, and that the pages name
//! each.

use quorlock::__internals::KINDS;

use crate::source::read;

#[test]
fn each_face_has_a_method_for_each_kind() {
    for face in ["src/face/coordinator/locks.rs", "src/face/groups/mod.rs"] {
        for kind in KINDS {
            let method = format!("pub fn {}(&self, ", kind.as_str());
            assert!(read(face).contains(&method), "{face} has no {method}");
        }
    }
}

#[test]
fn the_label_of_metrics_and_the_json_have_a_word_for_each_kind() {
    for (page, start) in [
        ("docs/operations.md", "The label `kind` is "),
        ("cli/JSON.md", "| `kind` | string or null | "),
    ] {
        let page_text = read(page);
        let line = page_text.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("{page} has no line that starts with {start}"));
        for kind in KINDS {
            let word = format!("`{}`", kind.as_str());
            assert!(line.contains(&word), "{page} has no {word} in: {line}");
        }
    }
}

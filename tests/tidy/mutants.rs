//! Checks the wrong rules in `tests/mutants/`.

use std::{fs, path::Path, process::Command};

use crate::source::{ROOT, files, read};

/// `./dev mutants` builds and runs them, which takes much longer.
#[test]
fn every_mutant_applies_and_has_a_row_in_the_page() {
    let page = read("docs/proof.md");
    let root = fs::canonicalize(ROOT).unwrap();
    let mutants = files("tests/mutants", "patch");
    assert!(!mutants.is_empty());
    for path in mutants {
        // In a part of another repository, git would check nothing.
        let mut git = Command::new("git");
        git.current_dir(&root)
            .env("GIT_CEILING_DIRECTORIES", root.parent().unwrap());
        let checked = git.args(["apply", "--check", &path]).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{path}: {said}");
        let name = Path::new(&path).file_stem().unwrap().to_str().unwrap();
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}

//! Checks that each switch in `src/mutants.rs` breaks a rule somewhere, and that a test notices it.

use std::collections::BTreeSet;

use crate::source::{files, read};

#[test]
fn every_mutant_is_used_and_tested() {
    let sources: Vec<_> = files("src", "rs").iter().map(|path| read(path)).collect();
    let used = names(&sources, "mutant!(", ")");
    let tested = names(&sources, "Mutant::", ".breaks(");
    let simulated = names(&[read("src/mutants.rs")], " Self::", ",\n");
    assert!(!simulated.is_empty());
    assert_eq!(used, &tested | &simulated);
}

/// Returns the words between `before` and `after`.
fn names(texts: &[String], before: &str, after: &str) -> BTreeSet<String> {
    let starts = texts.iter().flat_map(|text| text.split(before).skip(1));
    let words = starts.filter_map(|start| start.split_once(after).map(|(word, _)| word));
    let is_word = |word: &&str| word.chars().all(char::is_alphanumeric);
    words.filter(is_word).map(str::to_owned).collect()
}

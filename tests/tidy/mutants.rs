//! Checks that each switch in `src/mutants.rs` breaks a rule somewhere, and that a test notices it.

use std::collections::BTreeSet;

use crate::source::{files, read};

#[test]
fn every_mutant_is_used_and_tested() {
    let sources: Vec<_> = files("src", "rs").iter().map(|path| read(path)).collect();
    let patched = names(&[read("tests/sim/patches.rs")], "mutant: Mutant::", ",\n");
    let used = &names(&sources, "mutant!(", "") | &patched;
    let tested = names(&sources, "Mutant::", ".breaks(");
    let simulated = names(&[read("src/mutants.rs")], " Self::", ",\n");
    assert!(!simulated.is_empty() && !patched.is_empty());
    assert_eq!(used, &tested | &simulated);
}

/// Returns the words with `before` on their left and `after` on their right.
fn names(texts: &[String], before: &str, after: &str) -> BTreeSet<String> {
    let starts = texts.iter().flat_map(|text| text.split(before).skip(1));
    let words = starts.filter_map(|start| {
        let (word, rest) = start.split_at(start.find(|c: char| !c.is_alphanumeric())?);
        rest.starts_with(after).then_some(word)
    });
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

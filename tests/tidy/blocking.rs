//! Checks that the types without async hide each method of their async types that such code cannot
//! use: one that waits, or one that makes another async type.

use std::collections::BTreeSet;

use crate::{
    assert_none,
    source::{Source, sources},
};

/// The types that the module `blocking` wraps.
const WRAPPED: [&str; 5] = [
    "Coordinator",
    "Guard",
    "HealthEvents",
    "Lock",
    "ReadWriteLock",
];

/// Only tests can call it.
const FOR_TESTS: &str = "Coordinator::of_kind";

#[test]
fn blocking_types_hide_what_waits_and_what_makes_async_types() {
    let (found, missing) = not_hidden(&sources());
    assert!(found > 20, "found {found} methods only");
    assert_none(&missing);
}

/// Returns the number of methods to hide, and those that are not hidden.
fn not_hidden(sources: &[Source]) -> (usize, Vec<String>) {
    let (mut to_hide, mut hidden) = (BTreeSet::new(), BTreeSet::new());
    for source in sources {
        if source.path.starts_with("src/face/blocking/") {
            hidden.extend(methods(source, |signature| !is_async(signature)));
        } else {
            to_hide.extend(methods(source, must_be_hidden));
        }
    }
    to_hide.remove(FOR_TESTS);
    let missing = to_hide.difference(&hidden).cloned().collect();
    (to_hide.len(), missing)
}

/// Returns the public methods of the wrapped types that `picks` accepts by their signature, such as
/// `Guard::name`.
fn methods(source: &Source, picks: impl Fn(&[&str]) -> bool) -> Vec<String> {
    let words = source.code.iter().map(|token| token.text.as_str());
    let words: Vec<_> = words.collect();
    let mut of = "";
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let length = words[at..].iter().position(|word| *word == "{");
        let header = &words[at..at + length.unwrap_or(0)];
        let begins_item = at == 0 || ["}", ";", "]"].contains(&words[at - 1]);
        if *word == "impl" && begins_item {
            of = header.iter().rfind(|word| **word != ">").unwrap(); // as in `Blocking<Lock>`
        }
        let name = header.iter().position(|word| *word == "fn");
        let is_method = *word == "pub" && name.is_some_and(|name| name < 3);
        if is_method && header.contains(&"self") && WRAPPED.contains(&of) && picks(header) {
            found.push(format!("{of}::{}", header[name.unwrap() + 1]));
        }
    }
    found
}

fn is_async(signature: &[&str]) -> bool {
    signature.contains(&"async")
}

/// A dereference gives no method that takes `self` by value.
fn must_be_hidden(signature: &[&str]) -> bool {
    let arrow = signature.iter().rposition(|word| *word == "->");
    let returned = arrow.map_or(&[][..], |arrow| &signature[arrow..]);
    let makes_async = |word: &&str| WRAPPED.contains(word) || ["Future", "Self"].contains(word);
    let takes_self = signature
        .windows(2)
        .any(|words| matches!(words, ["(" | "mut", "self"]));
    is_async(signature) || takes_self || returned.iter().any(makes_async)
}

#[test]
fn a_method_that_is_not_hidden_is_found() {
    let sources = [
        (
            "src/face/a.rs",
            "impl Lock { pub fn ttl(self) -> Self {} pub async fn wait<T>(&self, t: impl Fn() -> T) {} \
             pub fn name(&self) -> &str {} async fn own(&self) {} pub fn new() -> Self {} }\n\
             impl Coordinator { pub fn mutex(&self, name: impl AsRef<str>) -> Lock {} pub fn later(&self) -> impl Future {} }\n\
             impl fmt::Debug for Lock { fn fmt(&self) {} } impl Other { pub async fn a(&self) {} }",
        ),
        (
            "src/face/blocking/a.rs",
            "impl Blocking<lock::Lock> { pub fn wait(&self) {} } \
             impl Blocking<Coordinator> { pub async fn mutex(&self) {} }",
        ),
        (
            "src/driver/a.rs",
            "impl HealthEvents { pub async fn next(&mut self) {} }",
        ),
    ];
    let sources = sources.map(|(path, text)| Source::new(path, text));
    let missing = [
        "Coordinator::later",
        "Coordinator::mutex",
        "HealthEvents::next",
        "Lock::ttl",
    ];
    assert_eq!(not_hidden(&sources), (5, missing.map(String::from).into()));
}

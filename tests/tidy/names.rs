//! Checks that a name means one type, and that the pages name files, types and functions that
//! exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    assert_none,
    defined::Defined,
    source::{ROOT, Source, files, read, sources, sources_of_others},
    tokens::is_in_word,
};

/// The pages about the code. Here, types in backticks are types of this crate. Other pages also
/// name types of Redisson and of other libraries.
const ABOUT_CODE: &[&str] = &["docs/architecture.md", "CONTRIBUTING.md"];

/// Names that do not start a path in this crate.
const OUTSIDE: &[&str] = &[
    "clippy",
    "quorlock_check",
    "redis",
    "rustls",
    "std",
    "tokio",
    "tracing",
];

/// The targets of log events.
const LOG_TARGETS: &[&str] = &["quorlock::lock", "quorlock::master"];

/// Words in backticks that look like a type of this crate.
const NO_TYPES: &[&str] = &["MultiplexedConnection", "RLock", "Trait"];

/// Types that servers and memory masters each have.
const FOR_EACH_KIND: &[&str] = &["Dialer"];

/// Types of the blocking API, which have the names of their async counterparts.
const MIRRORED: (&str, &[&str]) = (
    "src/face/blocking/",
    &[
        "Coordinator",
        "Guard",
        "HealthEvents",
        "Lock",
        "ReadWriteLock",
    ],
);

/// The names that a page may use.
struct Known {
    defined: Defined,
    /// The last names of all files.
    files: BTreeSet<String>,
}

#[test]
fn pages_name_what_exists() {
    let [_, memory] = sources_of_others();
    let all: Vec<_> = sources().into_iter().chain(memory).collect();
    let known = Known::new(Defined::new(&all));
    let more = ["CONTRIBUTING.md", "README.md", "lua/README.md"].map(str::to_owned);
    let pages = files("docs", "md").into_iter().chain(more);
    let unknown = pages.flat_map(|page| known.unknown_names(&page, &read(&page)));
    assert_none(&unknown.collect::<Vec<_>>());
}

#[test]
fn a_name_means_one_type() {
    assert_none(&ambiguous_types(&sources()));
}

/// Finds names of types that are visible outside of their file and are defined in two files.
fn ambiguous_types(sources: &[Source]) -> Vec<String> {
    let mut files = BTreeMap::<_, Vec<_>>::new();
    for source in sources {
        let (folder, mirrored) = MIRRORED;
        let is_mirror = source.path.starts_with(folder);
        for tokens in source.code.windows(3) {
            let [before, keyword, name] = [0, 1, 2].map(|at| tokens[at].text.as_str());
            let is_type = ["enum", "struct", "trait", "type"].contains(&keyword);
            let is_expected =
                FOR_EACH_KIND.contains(&name) || is_mirror && mirrored.contains(&name);
            if is_type && ["pub", ")"].contains(&before) && !is_expected {
                files.entry(name).or_default().push(source.path.as_str());
            }
        }
    }
    files.retain(|_, files| files.len() > 1);
    let lines = files
        .iter()
        .map(|(name, files)| format!("{name}: {}", files.join(" ")));
    lines.collect()
}

impl Known {
    fn new(defined: Defined) -> Self {
        let rust = [
            "src",
            "check/src",
            "tests",
            "examples",
            "benches/src",
            "pictures/src",
        ]
        .map(|folder| files(folder, "rs"));
        let paths = rust.into_iter().flatten().chain(files("lua", "lua"));
        let last = |path: String| path.rsplit('/').next().unwrap().to_owned();
        Self {
            defined,
            files: paths.map(last).collect(),
        }
    }

    fn unknown_names(&self, page: &str, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (line, code) in code_spans(text) {
            let words = code.split_whitespace().flat_map(choices);
            for word in words.filter(|word| !self.knows(page, word)) {
                found.push(format!("{page}:{line}: `{word}` does not exist"));
            }
        }
        found
    }

    fn knows(&self, page: &str, word: &str) -> bool {
        let word = word.split('(').next().unwrap_or_default();
        let word = word.trim_matches(|c: char| !is_in_word(c) && !"./<".contains(c));
        let extensions = [".rs", ".lua", ".md", ".toml"];
        if word.contains("://")
            || word.contains('<')
            || word.starts_with("target/")
            || LOG_TARGETS.contains(&word)
        {
            return true;
        }
        if word.contains('/') {
            return is_path(page, word) || is_path(page, &format!("{word}.lua"));
        }
        if extensions.iter().any(|end| word.ends_with(end)) {
            return self.files.contains(word) || is_path(page, word);
        }
        let segments: Vec<_> = word.split("::").collect();
        let is_name = |segment: &&str| !segment.is_empty() && segment.chars().all(is_in_word);
        match segments.as_slice() {
            [first, .., owner, member] | [first @ owner, member]
                if segments.iter().all(is_name) =>
            {
                OUTSIDE.contains(first) || self.defined.has_member(owner, member)
            }
            [name] if is_type(name) && ABOUT_CODE.contains(&page) => {
                NO_TYPES.contains(name) || self.defined.has_word(name)
            }
            _ => true,
        }
    }
}

/// Returns the code in backticks with its line numbers. Leaves out code blocks.
fn code_spans(text: &str) -> Vec<(usize, &str)> {
    let mut spans = Vec::new();
    let mut line = 1;
    let mut is_block = false;
    for paragraph in text.split_inclusive("\n\n") {
        let fences = paragraph.matches("```").count();
        if fences == 0 && !is_block {
            // Every second piece is code.
            for (number, piece) in paragraph.split('`').enumerate() {
                if number % 2 == 1 {
                    spans.push((line, piece));
                }
                line += piece.matches('\n').count();
            }
        } else {
            line += paragraph.matches('\n').count();
        }
        is_block ^= fences % 2 == 1;
    }
    spans
}

/// Returns the words that a word with braces abbreviates. `a/{b,c}.rs` gives `a/b.rs` and `a/c.rs`.
fn choices(word: &str) -> Vec<String> {
    let parts = word
        .split_once('{')
        .and_then(|(start, rest)| Some((start, rest.split_once('}')?)));
    let Some((start, (names, end))) = parts else {
        return vec![word.to_owned()];
    };
    let names = names.split(',');
    names.map(|name| format!("{start}{name}{end}")).collect()
}

/// Returns whether a path exists in the package's directory, in `src`, in `lua`, or in the folder
/// of the page.
fn is_path(page: &str, path: &str) -> bool {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let folders = ["", "src", "lua", folder].map(|folder| Path::new(ROOT).join(folder));
    folders.iter().any(|folder| folder.join(path).exists())
}

fn is_type(word: &str) -> bool {
    let is_camel =
        word.starts_with(|c: char| c.is_uppercase()) && word.contains(|c: char| c.is_lowercase());
    is_camel && word.chars().all(is_in_word)
}

#[test]
fn a_name_that_does_not_exist_is_found() {
    let source = Source::new("src/a/b.rs", "struct Lock;\nimpl Lock { fn take() {} }");
    let known = Known::new(Defined::new(&[source]));
    let unknown = |page: &str, text: &str| known.unknown_names(page, text);
    for text in [
        "src/lib.rs",
        "lib.rs",
        "src/",
        "core/vote/round.rs",
        "docs/architecture.md",
        "architecture.md",
        "mutex/acquire",
        "lua/<kind>.lua",
        "Lock::take",
        "Lock::take(self)",
        "a::b::Lock",
        "Lock",
        "tokio::spawn",
        "cargo test -- a::b",
        "WRONGTYPE",
        "redis-server",
        "{src,tests}/",
        "redis://a",
        "quorlock:queue::ab",
        "a `\n\n```\nsrc/b.rs\n``` `",
    ] {
        assert_eq!(
            unknown("docs/architecture.md", &format!("`{text}`")),
            [""; 0],
            "{text}"
        );
    }
    for name in [
        "src/b.rs",
        "other.rs",
        "Lock::give",
        "b::walk",
        "Locks",
        "core/nothing",
        "a::c",
        "lib.md",
    ] {
        let text = format!("a\n\n`b`, `cargo\n{name}`");
        let found = unknown("docs/architecture.md", &text);
        assert_eq!(
            found,
            [format!("docs/architecture.md:3: `{name}` does not exist")]
        );
    }
    assert_eq!(unknown("docs/comparison.md", "`RedissonLock`"), [""; 0]);
}

#[test]
fn a_type_that_is_defined_twice_is_found() {
    let sources = [
        (
            "src/a.rs",
            "pub(crate) struct A; pub(super) enum B {} pub trait C {} struct D;",
        ),
        (
            "src/b.rs",
            "pub trait A {} struct B; fn c() {} pub struct D; pub struct Lock;",
        ),
        ("src/c.rs", "pub struct Lock;"),
        ("src/face/blocking/a.rs", "pub struct C; pub struct Guard;"),
        ("src/face/guard.rs", "pub struct Guard;"),
    ];
    let sources = sources.map(|(path, text)| Source::new(path, text));
    assert_eq!(
        ambiguous_types(&sources),
        [
            "A: src/a.rs src/b.rs",
            "C: src/a.rs src/face/blocking/a.rs",
            "Lock: src/b.rs src/c.rs",
        ]
    );
}

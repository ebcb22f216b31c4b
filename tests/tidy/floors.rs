//! Checks that dependencies point down only, and that each floor uses only the words that it may
//! use.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    assert_none,
    source::{Source, sources},
    tokens::is_at,
};

/// The floors from the lowest to the highest: a folder, and the parts of the crate that it may
/// name. A new folder needs a row.
const FLOORS: &[(&str, &[&str])] = &[
    ("src/core/", &["core"]),
    ("src/machine/", &["clock", "core", "machine", "meter"]),
    (
        "src/observe/",
        &["clock", "core", "machine", "meter", "observe"],
    ),
    (
        "src/master/",
        &[
            "clock", "core", "home", "machine", "master", "meter", "observe", "panics",
        ],
    ),
    (
        "src/driver/",
        &[
            "clock", "core", "driver", "home", "machine", "master", "meter", "observe", "panics",
        ],
    ),
];

/// The rows for single files.
const FILES: &[(&str, &[&str])] = &[
    ("src/clock.rs", &["core"]),
    ("src/face/fence.rs", &[]),
    ("src/home.rs", &[]),
    ("src/internals.rs", &["core", "face", "master"]),
    ("src/meter.rs", &["meter"]),
    ("src/panics.rs", &[]),
];

/// The face. This folder, and all other files directly in `src`, may name everything.
const FACE: &str = "src/face/";

/// Words, the files that may use them, and the reason why no other file may. `name::` is the crate
/// `name`.
const WORDS: &[(&str, &str, &str)] = &[
    (
        "redis::",
        "src/master/redis/ src/lib.rs",
        "only src/master/redis knows the redis crate",
    ),
    (
        "tokio::",
        // Tests may pause tokio's clock.
        "src/clock.rs src/driver/ src/master/ src/face/builder/",
        "the other floors know no runtime",
    ),
    (
        "parking_lot::",
        // Threads compare the clocks in turns. Groups open a coordinator when it is first needed.
        // The machine passes on a hold, in which the observer keeps the spans of renewals.
        "src/clock.rs src/driver/ src/master/ src/observe/ src/machine/out.rs src/face/groups/",
        "the other floors hold no locks",
    ),
    (
        "tracing::",
        // A variable that is no setting is no error, and nobody else would tell of it.
        // The machine keeps spans for the floors that write logs.
        "src/driver/ src/machine/out.rs src/master/ src/observe/ \
         src/face/builder/shared_settings.rs",
        "the other floors write no logs",
    ),
    (
        "async await",
        "src/driver/ src/master/ src/face/builder/open.rs src/face/coordinator/ src/face/detach.rs \
         src/face/groups/ src/face/guard/ src/face/lock/",
        "rules are functions of their arguments",
    ),
    (
        "Instant::now SystemTime",
        "src/clock.rs",
        "only clock.rs reads a clock",
    ),
    (
        "rand:: getrandom:: RandomState",
        "src/clock.rs",
        "only clock.rs draws random numbers",
    ),
    (
        "spawn spawn_blocking spawn_local JoinSet",
        // The system resolves a name only in a thread that it may block.
        "src/driver/context.rs src/master/redis/resolve.rs",
        "few files spawn, so that every task has one owner",
    ),
    (
        "sleep sleep_until",
        "src/driver/ src/master/",
        "only the files that talk to masters wait",
    ),
    (
        "majority",
        // The Sentinels of one master must agree where it is.
        "src/core/vote/quorum.rs src/master/redis/sentinel.rs",
        "only a quorum knows what a majority is",
    ),
    (
        "count_vote verdict",
        "src/core/ src/internals.rs src/machine/",
        "only the core and the machine count votes",
    ),
];

#[test]
fn dependencies_point_down_only() {
    assert_none(&over_all(&sources(), wrong_floors));
}

#[test]
fn words_keep_to_their_floors() {
    assert_none(&over_all(&sources(), wrong_words));
}

fn over_all(
    sources: &[Source],
    check: fn(&Source, &BTreeSet<Vec<String>>) -> Vec<String>,
) -> Vec<String> {
    let modules = sources.iter().map(Source::module).collect();
    let found = sources.iter().flat_map(|source| check(source, &modules));
    found.collect()
}

fn wrong_floors(source: &Source, modules: &BTreeSet<Vec<String>>) -> Vec<String> {
    let path = &source.path;
    let file = FILES.iter().find(|(file, _)| path == file);
    let row = file.or_else(|| FLOORS.iter().find(|(folder, _)| path.starts_with(folder)));
    let Some((_, allowed)) = row else {
        let is_face = path.starts_with(FACE);
        return if is_face || path.matches('/').count() == 1 {
            vec![]
        } else {
            vec![format!(
                "{path}:1: its folder has no row in tests/tidy/floors.rs"
            )]
        };
    };
    let mut wrong = BTreeMap::new();
    for named in source.paths(modules) {
        let part = named.segments.first().map_or("lib", |part| part);
        if !named.is_outside() && !allowed.contains(&part) {
            wrong.entry(part.to_owned()).or_insert(named.line);
        }
    }
    wrong
        .into_iter()
        .map(|(part, line)| format!("{path}:{line}: names {part}, but may name only {allowed:?}"))
        .collect()
}

fn wrong_words(source: &Source, modules: &BTreeSet<Vec<String>>) -> Vec<String> {
    let allows = |files: &str| files.split(' ').any(|file| source.path.starts_with(file));
    let mut wrong = Vec::new();
    for (words, _, why) in WORDS.iter().filter(|(_, files, _)| !allows(files)) {
        for word in words.split(' ') {
            let lines = match word.strip_suffix("::") {
                Some(name) => lines_with_crate(source, name, modules),
                None => lines_with_word(source, word),
            };
            let texts = lines.into_iter();
            wrong.extend(texts.map(|line| format!("{}:{line}: `{word}`: {why}", source.path)));
        }
    }
    wrong
}

fn lines_with_crate(source: &Source, name: &str, modules: &BTreeSet<Vec<String>>) -> Vec<usize> {
    let paths = source.paths(modules).into_iter();
    let named = paths.filter(|path| path.is_outside() && path.segments[1] == name);
    named.map(|path| path.line).collect()
}

fn lines_with_word(source: &Source, word: &str) -> Vec<usize> {
    let word = Source::new("", word).code;
    let texts: Vec<_> = word.iter().map(|token| token.text.as_str()).collect();
    let places = source.code.windows(texts.len());
    let found = places.filter(|tokens| is_at(tokens, &texts));
    found.map(|tokens| tokens[0].line).collect()
}

#[test]
fn a_name_from_the_wrong_floor_is_found() {
    found_are(
        wrong_floors,
        &[
            (
                "core/a",
                "use crate::{\n    core::x,\n    driver::y,\n};",
                "src/core/a.rs:3: names driver",
            ),
            (
                "core/a",
                "fn f() {\n    crate::master::f();\n}",
                "src/core/a.rs:2: names master",
            ),
            ("core/a", "use super::super::guard::Guard;", "names guard"),
            ("core/a", "use crate::Lock;", "names Lock"),
            (
                "master/redis/a",
                "use crate::error::ConfigError;",
                "names error",
            ),
            ("internals", "use crate::driver::x;", "names driver"),
            ("meter", "use crate::driver::clock;", "names driver"),
            ("other/a", "", "src/other/a.rs:1: its folder has no row"),
            (
                "core/a",
                "use super::Vote; use std::fmt; fn f() { Self::driver(); }",
                NONE,
            ),
            (
                "driver/a",
                "use crate::core::b; use super::claim::Claim as Driver; pub(crate) fn f() {}",
                NONE,
            ),
            ("lock", "use crate::{Guard, driver::x, master::y};", NONE),
        ],
    );
}

#[test]
fn a_word_on_the_wrong_floor_is_found() {
    found_are(
        wrong_words,
        &[
            ("core/a", "\nuse tokio::time;", "src/core/a.rs:2: `tokio::`"),
            ("core/a", "async fn f() {}", "`async`"),
            ("core/a", "f().await", "`await`"),
            (
                "driver/a",
                "let now = std::time::Instant::now();",
                "`Instant::now`",
            ),
            ("driver/a", "rand::rng()", "`rand::`"),
            ("driver/a", "tokio::spawn(async {})", "`spawn`"),
            ("master/mod", "use ::redis::Client;", "`redis::`"),
            ("driver/context", "redis::cmd(x)", "`redis::`"),
            ("master/redis/mod", "let need = majority(5);", "`majority`"),
            ("core/a", "let need = majority(5);", "`majority`"),
            ("driver/a", "round.count_vote(master, vote)", "`count_vote`"),
            (
                "error",
                "#[error(\"there is no tokio::runtime\")] // await",
                NONE,
            ),
            ("core/a", "const TEXT: &str = r#\"async \" await\"#;", NONE),
            (
                "master/mod",
                "#[cfg(feature = \"redis\")]\nmod redis;\nuse self::redis::Address;",
                NONE,
            ),
        ],
    );
}

/// Stands for a text in which nothing is wrong.
const NONE: &str = "";

/// Checks what a check finds in files: one finding, which has the last text of its row.
fn found_are(
    check: fn(&Source, &BTreeSet<Vec<String>>) -> Vec<String>,
    files: &[(&str, &str, &str)],
) {
    for (path, text, expected) in files {
        let source = Source::new(&format!("src/{path}.rs"), text);
        let found = over_all(&[source], check);
        let is_found = found.len() == 1 && found[0].contains(expected);
        let is_right = if *expected == NONE {
            found.is_empty()
        } else {
            is_found
        };
        assert!(is_right, "{text}: {found:?}");
    }
}

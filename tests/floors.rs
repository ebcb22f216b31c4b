//! The floors of `docs/architecture.md`: dependencies point down only, and nothing grows without end.
//!
//! Reads the sources. Tests in them are not counted, nor are comments and texts.

#![allow(clippy::unwrap_used, reason = "a failed test ends")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// What each file may name of this crate, from the lowest floor to the highest. A new file needs a place
/// here.
const FLOORS: &[(&str, &str)] = &[
    // The rules.
    ("core/", "core, error"),
    ("config.rs", "core, error"),
    ("error.rs", "core"),
    // What every floor above the rules may run code of the program's with.
    ("shield.rs", ""),
    // One master. It knows commands and votes; how many make a majority is not its business.
    (
        "master/",
        "master, core::bid, core::guard, core::command, core::script, core::quorum::Failure, core::quorum::Refusal, core::quorum::Vote, core::retry, core::timeout, shield",
    ),
    // All masters.
    ("clock.rs", ""),
    (
        "engine.rs",
        "clock, config, core, hold, live_round, master, owner, shield, turns, waiting, watchdog",
    ),
    (
        "engine/",
        "clock, core, engine, error, hold, live_round, master, owner, shield, turns, waiting",
    ),
    (
        "hold.rs",
        "clock, core, engine, live_round, master::Ask, owner, shield, watchdog",
    ),
    (
        "hold/",
        "clock, core, engine, error, hold, live_round, owner, shield",
    ),
    ("live_round.rs", "clock, core, engine, hold, master, shield"),
    ("owner.rs", "clock, core, engine::first_of, hold, shield"),
    ("turns.rs", "clock, core, engine, master, shield"),
    ("waiting.rs", "clock, core, engine, master, shield"),
    (
        "watchdog.rs",
        "clock, core::round, hold, live_round, shield",
    ),
    // What a user holds: no protocol, no counting.
    (
        "guard.rs",
        "core::round::Outcome, core::standing, core::votes, error, hold",
    ),
    (
        "lock.rs",
        "core::inspection, core::lease, core::name, engine, error, guard, hold, owner",
    ),
    // What puts it together, and shows it.
    (
        "coordinator.rs",
        "clock, config, core, engine, error, lock, master, owner, rustls",
    ),
    ("fence.rs", ""),
    ("internals.rs", "core, master"),
    (
        "lib.rs",
        "coordinator, core, error, fence, guard, lock, master, owner",
    ),
];

/// Words, the files that may use them, and why no others may.
const WORDS: &[(&str, &str, &str)] = &[
    (
        "tokio, tokio_rustls",
        "clock.rs, coordinator.rs, engine.rs, engine/, hold.rs, hold/, lib.rs, master/, owner.rs, turns.rs, waiting.rs, watchdog.rs",
        "the rules, and what a user holds, know no runtime",
    ),
    (
        "async, await, parking_lot, tracing",
        "clock.rs, coordinator.rs, engine.rs, engine/, guard.rs, hold.rs, hold/, live_round.rs, lock.rs, master/, owner.rs, turns.rs, waiting.rs, watchdog.rs",
        "the rules are functions of their arguments",
    ),
    (
        "Instant::now, SystemTime, Utc",
        // A memory master is a server, and has a clock of its own.
        "clock.rs, master/memory.rs",
        "only clock.rs reads a clock",
    ),
    (
        "rand, RandomState, getrandom",
        "clock.rs",
        "only clock.rs draws random numbers",
    ),
    (
        "spawn, spawn_blocking, spawn_local, JoinSet",
        "engine.rs",
        "only engine.rs spawns, so that every task has one owner",
    ),
    (
        "sleep, sleep_until, timeout(, interval",
        "clock.rs, config.rs, coordinator.rs, engine.rs, engine/, hold/, master/, owner.rs, turns.rs, waiting.rs, watchdog.rs",
        "only what drives masters waits",
    ),
    (
        "::redis, extern crate redis",
        "master/redis.rs, master/redis/",
        "only master/redis names the redis crate",
    ),
    (
        // In master/mod.rs this is the module.
        "redis::, use redis",
        "master/mod.rs, master/redis.rs, master/redis/",
        "only master/redis names the redis crate",
    ),
    (
        "majority, Tally, Verdict",
        "core/, coordinator.rs, internals.rs",
        "only the core counts",
    ),
];

/// Lines of a file without blank lines, comments and tests.
const FILE: usize = 330;
/// Lines of a function.
const FUNCTION: usize = 50;
/// Lines of nine out of ten functions.
const MOST_FUNCTIONS: usize = 20;
/// Branches and loops inside one another.
const NESTING: usize = 3;

#[test]
fn dependencies_point_down_only() {
    let broken: Vec<_> = sources().iter().flat_map(Source::broken_floors).collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn words_keep_to_their_floors() {
    let broken: Vec<_> = sources().iter().flat_map(Source::broken_words).collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn nothing_grows_without_end() {
    let sources = sources();
    let broken: Vec<_> = sources.iter().flat_map(Source::broken_budgets).collect();
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));

    let functions = sources.iter().flat_map(Source::functions);
    let mut lengths: Vec<_> = functions.map(|function| function.length).collect();
    lengths.sort_unstable();
    assert!(
        lengths[lengths.len() * 9 / 10] <= MOST_FUNCTIONS,
        "{lengths:?}"
    );
}

#[test]
fn what_is_on_the_wrong_floor_is_found() {
    for (path, text, expected) in [
        (
            "core/a.rs",
            "use crate::{\n    core::x,\n    engine::Engine,\n};",
            "core/a.rs:1: names engine::Engine",
        ),
        (
            "core/a.rs",
            "fn f() {\n    crate::master::f();\n}",
            "core/a.rs:2: names master::f",
        ),
        (
            "core/a.rs",
            "use super::super::hold::Hold;",
            "core/a.rs:1: names hold::Hold",
        ),
        (
            "master/a.rs",
            "use crate::core::{command::Command, quorum::{Vote, Tally}};",
            "names core::quorum::Tally",
        ),
        (
            "master/a.rs",
            "use crate::core::quorum;",
            "names core::quorum",
        ),
        (
            "guard.rs",
            "use crate::core::{round::{Outcome, Round}, votes::Votes};",
            "names core::round::Round",
        ),
        ("other.rs", "", "other.rs:1: has no floor"),
    ] {
        let broken = Source::new(path, text).broken_floors();
        assert!(
            broken.len() == 1 && broken[0].contains(expected),
            "{text}: {broken:?}"
        );
    }
    for (path, text) in [
        (
            "core/a.rs",
            "use super::quorum::Vote;\nuse crate::error::ConfigError;",
        ),
        (
            "core/a.rs",
            "/// See [`crate::Lock`].\n// crate::engine\nlet text = \"crate::engine\";",
        ),
        (
            "core/a.rs",
            "#[cfg(test)]\nmod tests {\n    use crate::engine;\n}",
        ),
        (
            "master/a.rs",
            "use super::{Ask, mailbox::Mailbox as Box};\npub(crate) fn f() {}",
        ),
    ] {
        assert_eq!(Source::new(path, text).broken_floors(), [""; 0], "{text}");
    }
}

#[test]
fn a_word_on_the_wrong_floor_is_found() {
    for (path, text, expected) in [
        (
            "core/a.rs",
            "\nuse tokio::time;",
            "src/core/a.rs:2: `tokio`",
        ),
        ("core/a.rs", "async fn f() {}", "`async`"),
        ("core/a.rs", "f().await", "`await`"),
        (
            "hold.rs",
            "let now = std::time::Instant::now();",
            "`Instant::now`",
        ),
        ("hold.rs", "rand::rng()", "`rand`"),
        ("guard.rs", "tokio::spawn(async {})", "`spawn`"),
        ("master/mod.rs", "use ::redis::Client;", "`::redis`"),
        ("engine.rs", "redis::cmd(x)", "`redis::`"),
        ("master/memory.rs", "let need = majority(5);", "`majority`"),
        ("lock.rs", "fn f(tally: &Tally) {}", "`Tally`"),
    ] {
        let broken = Source::new(path, text).broken_words();
        assert!(
            broken.iter().any(|broken| broken.contains(expected)),
            "{text}: {broken:?}"
        );
    }
    for (path, text) in [
        (
            "error.rs",
            "#[error(\"there is no tokio runtime\")] // await",
        ),
        (
            "core/a.rs",
            "let random = operand + strand; let c = '\"'; // rand",
        ),
        ("lib.rs", "#[cfg(feature = \"redis\")]\nmod x;"),
        ("core/a.rs", "const TEXT: &str = r#\"async \" await\"#;"),
        (
            "core/a.rs",
            "#[cfg(test)]\nmod tests {\n    use tokio::time;\n}",
        ),
    ] {
        assert_eq!(Source::new(path, text).broken_words(), [""; 0], "{text}");
    }
}

#[test]
fn what_is_too_large_is_found() {
    let function = |lines: usize| {
        format!(
            "    fn f() {{\n{}    }}\n",
            "        x();\n".repeat(lines - 2)
        )
    };
    let nested = |levels: usize| {
        let lines = |line: &dyn Fn(String) -> String| -> Vec<String> {
            (1..=levels)
                .map(|level| line("    ".repeat(level)))
                .collect()
        };
        let open = lines(&|indent| format!("{indent}if x {{\n"));
        let mut close = lines(&|indent| format!("{indent}}}\n"));
        close.reverse();
        format!("fn f() {{\n{}{}}}\n", open.concat(), close.concat())
    };
    for (text, expected) in [
        (function(FUNCTION + 1), "f has 51 lines"),
        ("x;\n".repeat(FILE + 1), "has 331 lines"),
        (nested(NESTING + 1), "a.rs:5: f nests 4 deep"),
    ] {
        let broken = Source::new("core/a.rs", &text).broken_budgets();
        assert!(
            broken.len() == 1 && broken[0].contains(expected),
            "{broken:?}"
        );
    }
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(2 * FILE));
    for text in [
        function(FUNCTION),
        "x;\n\n// why\n".repeat(FILE),
        tests,
        nested(NESTING),
        nested(NESTING + 1).replace("if x", "unsafe"),
    ] {
        assert_eq!(
            Source::new("core/a.rs", &text).broken_budgets(),
            [""; 0],
            "{text}"
        );
    }
}

/// A file of `src/`, as far as it is looked at.
struct Source {
    /// From `src/`.
    path: String,
    /// Its lines without comments, texts and tests.
    lines: Vec<String>,
}

struct Function {
    name: String,
    line: usize,
    length: usize,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = files(&root);
    let sources: Vec<_> = files
        .iter()
        .map(|file| {
            let path = file.strip_prefix(&root).unwrap().to_str().unwrap();
            Source::new(&path.replace('\\', "/"), &fs::read_to_string(file).unwrap())
        })
        .collect();
    let tests: BTreeSet<_> = sources.iter().flat_map(Source::test_modules).collect();
    let sources: Vec<_> = sources
        .into_iter()
        .filter(|source| !tests.contains(&source.path))
        .collect();
    assert!(
        sources.len() > 15,
        "only {} files of src/ were found",
        sources.len()
    );
    sources
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    found.sort();
    found
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let mut lines: Vec<_> = code(text).lines().map(str::to_owned).collect();
        let tests = lines.windows(2).position(|pair| {
            pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
        });
        lines.truncate(tests.unwrap_or(lines.len()));
        Self {
            path: path.to_owned(),
            lines,
        }
    }

    fn broken_floors(&self) -> Vec<String> {
        let Some((_, may)) = FLOORS.iter().find(|(file, _)| self.path.starts_with(file)) else {
            return vec![format!(
                "src/{}:1: has no floor: give it one in tests/floors.rs",
                self.path
            )];
        };
        self.names()
            .into_iter()
            .filter(|(_, name)| {
                let is_under = |floor| {
                    name.strip_prefix(floor)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
                };
                !may.split(", ").any(is_under)
            })
            .map(|(line, name)| {
                format!(
                    "src/{}:{line}: names {name}; its floor has [{may}]",
                    self.path
                )
            })
            .collect()
    }

    fn broken_words(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (words, files, why) in WORDS {
            if files.split(", ").any(|file| self.path.starts_with(file)) {
                continue;
            }
            for (number, line) in (1..).zip(&self.lines) {
                for word in words.split(", ").filter(|word| holds_word(line, word)) {
                    broken.push(format!("src/{}:{number}: `{word}`: {why}", self.path));
                }
            }
        }
        broken
    }

    fn broken_budgets(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let length = self
            .lines
            .iter()
            .filter(|line| !line.trim().is_empty())
            .count();
        if length > FILE {
            broken.push(format!(
                "src/{}:1: has {length} lines, more than {FILE}",
                self.path
            ));
        }
        for function in self.functions() {
            let Function { name, line, length } = &function;
            if *length > FUNCTION {
                broken.push(format!(
                    "src/{}:{line}: {name} has {length} lines, more than {FUNCTION}",
                    self.path
                ));
            }
            if let Some((line, depth)) = self.too_deep(&function) {
                broken.push(format!(
                    "src/{}:{line}: {name} nests {depth} deep, more than {NESTING}",
                    self.path
                ));
            }
        }
        broken
    }

    /// The functions with a body. The code is formatted: a body ends where a line ends it that is
    /// indented like the `fn`.
    fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            let Some(name) = function_name(line) else {
                continue;
            };
            let rest = self.lines[at..].iter();
            let Some(end) = rest.clone().position(|end| {
                indent(end) == indent(line) && end.trim_end().ends_with(['}', ';'])
            }) else {
                continue;
            };
            if !self.lines[at + end].ends_with(';') {
                functions.push(Function {
                    name,
                    line: at + 1,
                    length: end + 1,
                });
            }
        }
        functions
    }

    fn too_deep(&self, function: &Function) -> Option<(usize, usize)> {
        let mut open = Vec::new();
        let lines = (1..).zip(&self.lines);
        for (number, line) in lines.skip(function.line).take(function.length - 1) {
            if line.trim().is_empty() {
                continue;
            }
            while open.last().is_some_and(|last| *last >= indent(line)) {
                open.pop();
            }
            let branches = ["if", "else", "for", "while", "loop", "match"];
            if line.ends_with('{') && branches.iter().any(|word| holds_word(line, word)) {
                open.push(indent(line));
            }
            if open.len() > NESTING {
                return Some((number, open.len()));
            }
        }
        None
    }

    /// The paths inside this crate that the file names, with where.
    fn names(&self) -> Vec<(usize, String)> {
        let text = self.lines.join("\n");
        let mut names = Vec::new();
        for (start, _) in text
            .match_indices("crate::")
            .chain(text.match_indices("super::"))
        {
            let before = &text[..start];
            // `super::super::` is looked at once, from the first one on.
            if before.ends_with("super::") || before.ends_with(is_in_word) {
                continue;
            }
            let mut module = match self.path.split_once('/') {
                Some((folder, _)) => vec![folder, ""],
                None => vec![""],
            };
            let mut rest = &text[start..];
            if let Some(inside) = rest.strip_prefix("crate::") {
                module.clear();
                rest = inside;
            }
            while let Some(above) = rest.strip_prefix("super::") {
                module.pop();
                rest = above;
            }
            let line = before.matches('\n').count() + 1;
            let module = module.join("::");
            names.extend(paths(&module, rest).into_iter().map(|path| (line, path)));
        }
        names
    }

    /// The files of modules that are there for tests only.
    fn test_modules(&self) -> Vec<String> {
        let folder = match self.path.strip_suffix("mod.rs") {
            Some(folder) => folder.to_owned(),
            None if self.path == "lib.rs" => String::new(),
            None => self.path.replace(".rs", "/"),
        };
        self.lines
            .windows(2)
            .filter(|pair| {
                pair[0].starts_with("#[cfg(test") || pair[0].starts_with("#[cfg(all(test")
            })
            .filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'))
            .map(|module| format!("{folder}{module}.rs"))
            .collect()
    }
}

/// The paths that a `use` or an expression names at the start of `text`: `a::{b, c::{d, e as f}}` is `a::b`,
/// `a::c::d` and `a::c::e`.
fn paths(prefix: &str, text: &str) -> Vec<String> {
    let join = |name: &str| match (prefix, name) {
        ("", name) => name.to_owned(),
        (prefix, "self") => prefix.to_owned(),
        (prefix, name) => format!("{prefix}::{name}"),
    };
    if let Some(group) = text.strip_prefix('{') {
        return elements(group)
            .into_iter()
            .flat_map(|element| paths(prefix, element.trim()))
            .collect();
    }
    let end = text.find(|c| !is_in_word(c)).unwrap_or(text.len());
    match text[end..].strip_prefix("::") {
        Some(rest) => paths(&join(&text[..end]), rest),
        None if end == 0 => vec![],
        None => vec![join(&text[..end])],
    }
}

/// What stands between the commas of a group, up to its end.
fn elements(group: &str) -> Vec<&str> {
    let mut elements = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                elements.push(&group[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                elements.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    elements
}

fn function_name(line: &str) -> Option<String> {
    let (head, rest) = line.trim_start().split_once("fn ")?;
    let is_head = head
        .split_whitespace()
        .all(|word| word.starts_with("pub") || ["async", "const", "in", "unsafe"].contains(&word));
    let end = rest.find(|c| !is_in_word(c))?;
    (is_head && end > 0).then(|| rest[..end].to_owned())
}

fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let (before, after) = (&line[..start], &line[start + word.len()..]);
        !(word.starts_with(is_in_word) && before.ends_with(is_in_word)
            || word.ends_with(is_in_word) && after.starts_with(is_in_word))
    })
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// `text` without comments and with all string literals empty; its lines stay where they are.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (skipped, kept) = match c {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), ""),
            '/' if rest.starts_with("/*") => {
                (rest.find("*/").map_or(rest.len(), |end| end + 2), "")
            }
            '"' => (string_length(rest), "\"\""),
            'r' if !code.ends_with(is_in_word) && is_raw_string(rest) => (raw_length(rest), "\"\""),
            '\'' if char_length(rest) > 0 => (char_length(rest), "' '"),
            _ => {
                code.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
        };
        code.push_str(kept);
        code.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
        rest = &rest[skipped..];
    }
    code.lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

fn string_length(text: &str) -> usize {
    let mut escaped = true; // the opening quote
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn is_raw_string(text: &str) -> bool {
    text[1..].trim_start_matches('#').starts_with('"')
}

fn raw_length(text: &str) -> usize {
    let hashes = text[1..].find('"').unwrap_or(0);
    let end = format!("\"{}", "#".repeat(hashes));
    let start = 1 + hashes + 1;
    text[start..]
        .find(&end)
        .map_or(text.len(), |at| start + at + end.len())
}

/// Of a character literal; a lifetime has none.
fn char_length(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => text[2..].find('\'').map_or(0, |at| {
            // '\'' has one more.
            if text[2..].starts_with('\'') {
                4
            } else {
                at + 3
            }
        }),
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

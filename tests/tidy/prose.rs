//! Checks that comments and pages are in plain English and fit on a screen.

use crate::{
    assert_none,
    source::{Source, files, read},
    tokens::{Token, TokenKind, is_in_word},
};

/// The most columns of a line with a comment.
const WIDTH: usize = 100;

/// First words that a doc comment must not have. A doc comment says what its item is or does, so it
/// begins with a noun or a verb.
const HEADLESS: &[&str] = &[
    "How", "Of", "That", "What", "Whatever", "When", "Where", "Whether", "Which", "Who", "Whoever",
    "Whom", "Whose", "Why",
];
/// Words that may come before a word of `HEADLESS`, as in "For how long".
const PREPOSITIONS: &[&str] = &[
    "At", "By", "For", "From", "In", "Since", "To", "Until", "With",
];

/// Words and phrases that are not used, and why. A `-` at the end stands for any ending.
const AVOIDED: &[(&[&str], &str)] = &[
    (&["mend-"], "say \"fix\""),
    (&["nobody who"], "say \"no one may\""),
    (&["whoever"], "name who does it"),
    (&["behind"], "say \"after\" for an order"),
    (&["ahead of"], "say \"before\" for an order"),
    (
        &["he", "him", "his"],
        "a waiter, a master and a client are \"it\"",
    ),
    (&["patience"], "say \"waiter timeout\""),
    (&["watchdog"], "say \"renewer\""),
];

/// Avoided words, and words that allow them nearby. For example, clocks are behind, something is
/// left behind, a master is behind a proxy or behind Sentinel, and Redisson has a watchdog.
const ALLOWED: &[(&str, &[&str])] = &[
    ("ahead of", &["clock-", "counter-"]),
    (
        "behind",
        &[
            "clock-",
            "counter-",
            "feature",
            "leave-",
            "left",
            "proxy",
            "sentinel-",
        ],
    ),
    ("watchdog", &["redisson-"]),
];
/// The number of words that counts as close.
const CLOSE: usize = 8;

/// A comment, a string or a page.
struct Text {
    is_doc: bool,
    words: Vec<Word>,
}

struct Word {
    text: String,
    line: usize,
}

#[test]
fn comments_fit_on_a_screen() {
    let folders = [
        "src",
        "benches/src",
        "cli",
        "examples",
        "pictures/src",
        "tests",
    ];
    let rust = folders.iter().flat_map(|folder| files(folder, "rs"));
    let paths = rust.chain(files("lua", "lua"));
    let wide = paths.flat_map(|path| wide_comments(&path, &read(&path)));
    assert_none(&wide.collect::<Vec<_>>());
}

#[test]
fn doc_comments_begin_with_a_noun_or_a_verb() {
    let headless = [files("src", "rs"), files("cli/src", "rs")]
        .concat()
        .into_iter()
        .flat_map(|path| headless_openings(&path, &read(&path)));
    assert_none(&headless.collect::<Vec<_>>());
}

#[test]
fn avoided_words_are_not_used() {
    let pages = files("docs", "md");
    let more = ["README.md", "CONTRIBUTING.md", "lua/README.md"].map(str::to_owned);
    let rust = [files("src", "rs"), files("cli/src", "rs")].concat();
    let code = rust.into_iter().chain(files("lua", "lua"));
    let found = code
        .chain(pages)
        .chain(more)
        .flat_map(|path| avoided_words(&path, &read(&path)));
    assert_none(&found.collect::<Vec<_>>());
}

fn wide_comments(path: &str, text: &str) -> Vec<String> {
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    for (start, comment) in comments(path, text) {
        for line in start..=start + comment.matches('\n').count() {
            let columns = lines[line - 1].chars().count();
            // An address cannot be broken.
            if columns > WIDTH && !lines[line - 1].contains("://") {
                found.push(format!(
                    "{path}:{line}: the comment ends at column {columns}"
                ));
            }
        }
    }
    found
}

fn headless_openings(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for text in texts(path, text).iter().filter(|text| text.is_doc) {
        let [first, second, ..] = text.words.as_slice() else {
            continue;
        };
        let is_headless = HEADLESS.contains(&first.text.as_str());
        let is_headless_after = PREPOSITIONS.contains(&first.text.as_str())
            && second.text != "that"
            && HEADLESS
                .iter()
                .any(|word| word.to_lowercase() == second.text);
        let mut ends = text
            .words
            .iter()
            .filter(|word| word.text.ends_with(['.', '?', ':']));
        let is_question = ends.next().is_some_and(|word| word.text.ends_with('?'));
        if (is_headless || is_headless_after) && !is_question {
            let (line, first, second) = (first.line, &first.text, &second.text);
            found.push(format!(
                "{path}:{line}: begin with a noun or a verb, not with \"{first} {second}\""
            ));
        }
    }
    found
}

fn avoided_words(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for text in texts(path, text) {
        for at in 0..text.words.len() {
            for (phrase, why) in avoided_at(&text.words, at) {
                let line = text.words[at].line;
                found.push(format!("{path}:{line}: \"{phrase}\": {why}"));
            }
        }
    }
    found
}

fn avoided_at(words: &[Word], at: usize) -> impl Iterator<Item = (&'static str, &'static str)> {
    let phrases = AVOIDED
        .iter()
        .flat_map(|(phrases, why)| phrases.iter().map(move |p| (*p, *why)));
    phrases.filter(move |(phrase, _)| begins_with(&words[at..], phrase) && !is_allowed(words, at))
}

/// Returns whether an avoided word is allowed at this place.
fn is_allowed(words: &[Word], at: usize) -> bool {
    let close = at.saturating_sub(CLOSE)..words.len().min(at + CLOSE);
    let rows = ALLOWED
        .iter()
        .filter(|(phrase, _)| begins_with(&words[at..], phrase));
    rows.flat_map(|(_, neighbours)| *neighbours)
        .any(|neighbour| {
            close
                .clone()
                .any(|other| begins_with(&words[other..], neighbour))
        })
}

/// Returns whether words begin with the words of a phrase. Punctuation and case do not matter.
fn begins_with(words: &[Word], phrase: &str) -> bool {
    let phrase: Vec<_> = phrase.split(' ').collect();
    phrase.len() <= words.len()
        && phrase.iter().zip(words).all(|(expected, word)| {
            let word = word.text.trim_matches(|c| !is_in_word(c)).to_lowercase();
            match expected.strip_suffix('-') {
                Some(stem) => word.starts_with(stem),
                None => word == *expected,
            }
        })
}

/// Returns the comments, each with its first line.
fn comments(path: &str, text: &str) -> Vec<(usize, String)> {
    if path.ends_with(".lua") {
        let lines = (1..).zip(text.lines());
        return lines
            .filter_map(|(number, line)| Some((number, line[line.find("--")?..].to_owned())))
            .collect();
    }
    let tokens = Source::new(path, text).tokens.into_iter();
    let comments = tokens.filter(|token| token.kind == TokenKind::Comment);
    comments.map(|token| (token.line, token.text)).collect()
}

/// Returns the comments, strings and pages of a file as words. Comments on consecutive lines are
/// one text.
fn texts(path: &str, text: &str) -> Vec<Text> {
    let mut pieces: Vec<_> = match path.ends_with(".md") {
        true => return vec![page(text)],
        false => comments(path, text),
    };
    if path.ends_with(".rs") {
        let is_string = |token: &Token| token.kind == TokenKind::Literal;
        let strings = Source::new(path, text).tokens.into_iter().filter(is_string);
        pieces.extend(strings.map(|token| (token.line, token.text)));
    }
    let mut texts: Vec<Text> = Vec::new();
    let mut last = (0, "");
    for (start, piece) in &pieces {
        let content = piece.trim_start_matches(['/', '-', '!']);
        let marker = &piece[..piece.len() - content.len()];
        if marker.is_empty() || last != (start - 1, marker) {
            let is_doc = ["///", "//!"].contains(&marker);
            texts.push(Text {
                is_doc,
                words: vec![],
            });
        }
        last = (*start, marker);
        let text = texts.len() - 1;
        for (line, content) in (*start..).zip(content.lines()) {
            texts[text].words.extend(words(line, content));
        }
    }
    texts
}

/// Returns the words of a page without its code.
fn page(text: &str) -> Text {
    let mut is_code = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            found.extend(words(number, line));
        }
    }
    Text {
        is_doc: false,
        words: found,
    }
}

/// Returns the words of a line without its code in backticks.
fn words(line: usize, text: &str) -> Vec<Word> {
    let prose = text.split('`').step_by(2).collect::<Vec<_>>().join("``");
    let words = prose.split_whitespace();
    words
        .map(|word| Word {
            text: word.to_owned(),
            line,
        })
        .collect()
}

#[test]
fn a_wide_comment_is_found() {
    let wide = "x".repeat(WIDTH - 5);
    for (path, text, expected) in [
        (
            "a.rs",
            format!("\n/// y {wide}"),
            "a.rs:2: the comment ends at column 101",
        ),
        (
            "a.rs",
            format!("    // y\n    f(); // {wide}"),
            "a.rs:2: the comment ends at column 107",
        ),
        (
            "a.lua",
            format!("--  y {wide}"),
            "a.lua:1: the comment ends at column 101",
        ),
    ] {
        assert_eq!(wide_comments(path, &text), [expected]);
    }
    for text in [
        format!("///  {wide}"),
        format!("f(\"// {wide}\")"),
        format!("// a://{wide}"),
    ] {
        assert_eq!(wide_comments("a.rs", &text), [""; 0]);
    }
}

#[test]
fn a_headless_opening_is_found() {
    for (text, expected) in [
        (
            "f();\n/// What is sent.",
            "a.rs:2: begin with a noun or a verb, not with \"What is\"",
        ),
        (
            "//! For how long.",
            "a.rs:1: begin with a noun or a verb, not with \"For how\"",
        ),
    ] {
        assert_eq!(headless_openings("a.rs", text), [expected]);
    }
    for text in [
        "/// The value.\n/// What is sent is that.",
        "/// What is a lock? It is that.",
        "// What is sent.",
        "/// Forgets how.",
        "/// For a mutex, nothing.",
        "/// In that case, nothing.",
    ] {
        assert_eq!(headless_openings("a.rs", text), [""; 0]);
    }
}

#[test]
fn an_avoided_word_is_found() {
    for (path, text, expected) in [
        ("a.rs", "/// A fix.\n/// It Mends.", "a.rs:2: \"mend-\""),
        (
            "a.rs",
            "// It is there, nobody\n// who may.",
            "a.rs:1: \"nobody who\"",
        ),
        ("a.rs", "f(\"waits (behind b)\")", "a.rs:1: \"behind\""),
        ("a.lua", "x()\n-- that he sent", "a.lua:2: \"he\""),
        ("a.md", "# A\n\n| his |", "a.md:3: \"his\""),
    ] {
        let found = avoided_words(path, text);
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{text}: {found:?}"
        );
    }
    for (path, text) in [
        (
            "a.rs",
            "let mend = he.patience(); // `patience`, this, the amendment",
        ),
        ("a.rs", "// It waits, nobody.\nf();\n// who may."),
        (
            "a.rs",
            "/// Masters behind a proxy, and clocks that are behind.",
        ),
        ("a.md", "```\nhis\n```\n`he`"),
        ("a.md", "Redisson's own watchdog."),
    ] {
        assert_eq!(avoided_words(path, text), [""; 0], "{text}");
    }
}

//! Checks that comments fit on a screen.

use crate::{
    assert_none,
    source::{Source, files, read},
    tokens::TokenKind,
};

/// The most columns of a line with a comment.
const WIDTH: usize = 100;

#[test]
fn comments_fit_on_a_screen() {
    let folders = [
        "src",
        "check/src",
        "benches/src",
        "cli",
        "examples",
        "memory",
        "pictures/src",
        "tests",
    ];
    let rust = folders.iter().flat_map(|folder| files(folder, "rs"));
    let paths = rust.chain(files("lua", "lua"));
    let wide = paths.flat_map(|path| wide_comments(&path, &read(&path)));
    assert_none(&wide.collect::<Vec<_>>());
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

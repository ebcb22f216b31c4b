//! Checks the sizes of files and functions. Code that is too large usually lacks a type.

use crate::{
    assert_none,
    source::{Source, sources, sources_of_others},
    tokens::{Token, TokenKind, closing},
};

/// The most lines of a file, without imports, blank lines, comments and tests. Most files have
/// fewer than 300: only one type that is one subject may have this many.
const FILE: usize = 420;
/// The most lines of a function.
const FUNCTION: usize = 50;
/// The most lines of nine out of ten functions.
const MOST_FUNCTIONS: usize = 20;
/// The most branches and loops that may be nested.
const NESTING: usize = 3;

struct Function<'a> {
    name: &'a str,
    line: usize,
    length: usize,
    body: &'a [Token],
}

#[test]
fn files_and_functions_stay_small() {
    let mut sources = sources();
    sources.extend(sources_of_others().into_iter().flatten());
    let broken: Vec<_> = sources.iter().flat_map(too_large).collect();
    assert_none(&broken);

    let functions = sources.iter().flat_map(functions);
    let mut lengths: Vec<_> = functions.map(|function| function.length).collect();
    lengths.sort_unstable();
    let most = lengths[lengths.len() * 9 / 10];
    assert!(
        most <= MOST_FUNCTIONS,
        "one function in ten has more than {most} lines"
    );
}

fn too_large(source: &Source) -> Vec<String> {
    let path = &source.path;
    let mut broken = Vec::new();
    let mut check = |line: usize, name: &str, what: &str, value: usize, limit: usize| {
        if value > limit {
            broken.push(format!(
                "{path}:{line}: {name} has {value} {what}, more than {limit}"
            ));
        }
    };
    let imports = imports(&source.code);
    let mut lines: Vec<_> = source.code.iter().map(|token| token.line).collect();
    lines.dedup();
    check(1, "the file", "lines of code", lines.len() - imports, FILE);
    for function in functions(source) {
        let Function {
            name,
            line,
            length,
            body,
        } = function;
        check(line, name, "lines", length, FUNCTION);
        let (line, depth) = deepest(body);
        check(line, name, "branches in one another", depth, NESTING);
    }
    broken
}

/// Returns the number of lines of the imports.
fn imports(code: &[Token]) -> usize {
    let starts = code
        .iter()
        .enumerate()
        .filter(|(_, token)| token.text == "use");
    let lines = starts.filter_map(|(at, start)| {
        let end = code[at..].iter().find(|token| token.text == ";")?;
        Some(end.line - start.line + 1)
    });
    lines.sum()
}

/// The functions that have a body.
fn functions(source: &Source) -> Vec<Function<'_>> {
    let mut functions = Vec::new();
    let code = &source.code;
    for at in 1..code.len() {
        let (keyword, name) = (&code[at - 1], &code[at]);
        if keyword.text != "fn" || name.kind != TokenKind::Word {
            continue;
        }
        let mut open = at + 1;
        while open < code.len() && !["{", ";"].contains(&code[open].text.as_str()) {
            let is_bracket = ["(", "["].contains(&code[open].text.as_str());
            open = if is_bracket {
                closing(code, open)
            } else {
                open
            } + 1;
        }
        if code.get(open).is_some_and(|token| token.text == "{") {
            let end = closing(code, open);
            functions.push(Function {
                name: &name.text,
                line: keyword.line,
                length: code[end].line - keyword.line + 1,
                body: &code[open + 1..end],
            });
        }
    }
    functions
}

/// The deepest nesting of branches and loops, with its line.
fn deepest(body: &[Token]) -> (usize, usize) {
    let mut deepest = (0, 0);
    // The open brackets, each with whether a branch or a loop opened it.
    let mut open = vec![];
    // The number of open brackets at the last keyword whose block has not begun.
    let mut keyword = None;
    for (token, next) in body.iter().zip(body.iter().skip(1).chain(body.last())) {
        match token.text.as_str() {
            "for" if next.text == "<" => {}
            "if" | "else" | "for" | "while" | "loop" | "match" => keyword = Some(open.len()),
            ";" | "," | "=>" if keyword == Some(open.len()) => keyword = None,
            "(" | "[" => open.push(false),
            "{" => {
                open.push(keyword == Some(open.len()));
                keyword = keyword.filter(|_| !open[open.len() - 1]);
                let depth = open.iter().filter(|is_branch| **is_branch).count();
                if depth > deepest.1 {
                    deepest = (token.line, depth);
                }
            }
            ")" | "]" | "}" => {
                let was_branch = open.pop() == Some(true);
                // The bracket closed the pattern of an `if let` or a `for`.
                if was_branch && ["=", "in"].contains(&next.text.as_str()) {
                    keyword = Some(open.len());
                }
            }
            _ => {}
        }
    }
    deepest
}

#[test]
fn what_is_too_large_is_found() {
    let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    x();\n".repeat(lines - 2));
    let nested = |levels: usize| {
        let open = "if x {\n".repeat(levels);
        format!("fn f() {{\n{open}{}}}\n", "}\n".repeat(levels))
    };
    for (text, expected) in [
        (
            function(FUNCTION + 1),
            "src/a.rs:1: f has 51 lines, more than 50",
        ),
        ("x;\n".repeat(FILE + 1), "the file has 421 lines of code"),
        (
            nested(NESTING + 1),
            "src/a.rs:5: f has 4 branches in one another",
        ),
        (
            nested(NESTING + 1).replacen("if x", "for A { b } in c", 4),
            "src/a.rs:5: f has 4",
        ),
        (
            nested(NESTING + 1).replacen("if x", "while let A { b } = c", 4),
            "src/a.rs:5: f has 4",
        ),
    ] {
        let found = too_large(&Source::new("src/a.rs", &text));
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
    let closure = nested(NESTING + 1).replacen("if x {", "f(|| {", 1);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(2 * FILE));
    for text in [
        function(FUNCTION),
        tests,
        nested(NESTING),
        nested(NESTING + 1).replacen("if x", "unsafe", 1),
        format!("{})\n}}\n", &closure[..closure.len() - 3]),
        nested(NESTING).replacen("if x {", "match y { A if z => {", 1) + "}",
        "trait T { fn f() -> [u8; 3]; fn g(); }\nfn h(_: fn(u8)) {}".to_owned(),
    ] {
        let found = too_large(&Source::new("src/a.rs", &text));
        assert_eq!(found, [""; 0], "{text}");
    }
}

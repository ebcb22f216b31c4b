//! Checks that the pages name files and members of types that exist, and that the examples of the
//! recipes are parts of programs that the tests run.

use std::{collections::BTreeSet, path::Path};

use crate::{
    assert_none,
    source::{ROOT, files, read, sources, sources_of_others},
    tokens::{Token, TokenKind, closing, tokens},
};

/// The programs of the recipes.
const RECIPES: [&str; 2] = ["recipes/src/bin", "recipes/tests"];

#[test]
fn pages_name_files_that_exist() {
    let more = ["CONTRIBUTING.md", "README.md", "lua/README.md"].map(str::to_owned);
    let pages = files("docs", "md").into_iter().chain(more);
    let missing = pages.flat_map(|page| missing_files(&page, &read(&page)));
    assert_none(&missing.collect::<Vec<_>>());
}

/// Returns the paths in backticks that do not exist from the root, `src`, `lua` or the page on.
fn missing_files(page: &str, text: &str) -> Vec<String> {
    let here = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let exists = |path: &str| {
        let folders = ["", "src", "lua", here];
        let mut paths = folders
            .map(|folder| Path::new(ROOT).join(folder).join(path))
            .into_iter();
        paths.any(|path| path.exists() || path.with_extension("lua").exists())
    };
    let is_path = |word: &&str| {
        let ends = [".rs", ".lua", ".md", ".sh", ".toml", "/"];
        word.contains('/')
            && ends.iter().any(|end| word.ends_with(end))
            && word.starts_with(char::is_alphanumeric)
            && !word.contains("://")
            && !word.contains('<')
            && !word.starts_with("target/")
    };
    let spans = text.split('`').skip(1).step_by(2);
    let paths = spans.flat_map(str::split_whitespace).flat_map(choices);
    let paths = paths.filter(|path| is_path(&path.as_str()) && !exists(path));
    paths
        .map(|path| format!("{page}: `{path}` does not exist"))
        .collect()
}

/// Returns the words that a word with braces stands for. `a/{b,c}.rs` gives `a/b.rs` and `a/c.rs`.
fn choices(word: &str) -> Vec<String> {
    let parts = word.split_once('{');
    let parts = parts.and_then(|(start, rest)| Some((start, rest.split_once('}')?)));
    let Some((start, (names, end))) = parts else {
        return vec![word.to_owned()];
    };
    names
        .split(',')
        .map(|name| format!("{start}{name}{end}"))
        .collect()
}

#[test]
fn pages_name_members_that_exist() {
    let others = sources_of_others().into_iter().flatten();
    let sources = sources().into_iter().chain(others);
    let known: BTreeSet<_> = sources.flat_map(|source| members(&source.code)).collect();
    let pages = files("docs", "md").into_iter();
    let missing = pages.flat_map(|page| missing_members(&page, &read(&page), &known));
    assert_none(&missing.collect::<Vec<_>>());
}

/// Returns the members in backticks, such as `Round::vote`, that no type has.
fn missing_members(page: &str, text: &str, known: &BTreeSet<String>) -> Vec<String> {
    let end = |c: char| !c.is_alphanumeric() && c != '_' && c != ':';
    let spans = text.split('`').skip(1).step_by(2);
    let names = spans.filter_map(|span| span.split(end).next());
    let is_member = |name: &&str| name.starts_with(char::is_uppercase) && name.contains("::");
    names
        .filter(|name| is_member(name) && !known.contains(*name))
        .map(|name| format!("{page}: `{name}` does not exist"))
        .collect()
}

/// Returns the functions, variants and fields of types, each as `Type::member`.
fn members(code: &[Token]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, token) in code.iter().enumerate() {
        let is_impl = ["impl", "trait"].contains(&&*token.text);
        if !is_impl && !["enum", "struct"].contains(&&*token.text) {
            continue;
        }
        let length = code[at..]
            .iter()
            .position(|token| "{;(".contains(&token.text));
        let open = at + length.unwrap_or_default();
        let body = &code[open..=closing(code, open)];
        let is_word = |token: &&Token| token.kind == TokenKind::Word;
        for of_type in code[at + 1..open].iter().filter(is_word) {
            let words = (1..body.len()).filter(|at| !is_impl || body[at - 1].text == "fn");
            let words = words.map(|at| &body[at]).filter(is_word);
            found.extend(words.map(|word| format!("{}::{}", of_type.text, word.text)));
        }
    }
    found
}

#[test]
fn the_examples_of_recipes_are_parts_of_programs() {
    let programs = RECIPES.iter().flat_map(|folder| files(folder, "rs"));
    let programs: Vec<_> = programs.map(|path| unindented(&read(&path))).collect();
    let page = read("docs/recipes.md");
    let examples = page.split("\n```rust\n").skip(1);
    let examples: Vec<_> = examples
        .map(|rest| rest.split("\n```\n").next().unwrap())
        .collect();
    assert!(examples.len() > 3, "the examples were not found");
    for example in examples {
        // An empty line may stand for lines that are left out.
        for part in unindented(example).split("\n\n") {
            let is_known = programs.iter().any(|program| program.contains(part));
            assert!(is_known, "no program has these lines:\n{part}");
        }
    }
}

fn unindented(text: &str) -> String {
    text.lines().flat_map(|line| [line.trim(), "\n"]).collect()
}

#[test]
fn what_is_wrong_is_found() {
    let text = "`src/{lib,no}.rs`, src/no.rs `core/vote/`, `lua/mutex/`, `proof.md` `docs/no.md`";
    let expected = ["src/no.rs", "docs/no.md"];
    let expected = expected.map(|path| format!("docs/a.md: `{path}` does not exist"));
    assert_eq!(missing_files("docs/a.md", text), expected);

    let code =
        "struct A<B>(C); enum D { E } impl F for A<G> { fn h() { i } } fn j(k: impl L) { m }";
    let known = members(&tokens(code)).into_iter().collect();
    let text = "`A::h(..)`, `F::h`, `D::E`, `A::i`, `D::F`, A::no `redis::Client` `Vec`, `N::h`";
    let expected = ["A::i", "D::F", "N::h"];
    let expected = expected.map(|name| format!("docs/a.md: `{name}` does not exist"));
    assert_eq!(missing_members("docs/a.md", text, &known), expected);
}

//! Checks that the pages name files that exist, and that the examples of the recipes are parts of
//! programs that the tests run.

use std::path::Path;

use crate::{
    assert_none,
    source::{ROOT, files, read},
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
}

//! Checks that a name means one type, that the pages name files that exist, and that the examples
//! of the recipes are parts of programs that the tests run.

use std::{collections::BTreeMap, path::Path};

use crate::{
    assert_none,
    source::{ROOT, Source, files, read, sources},
};

/// Types of the blocking API, which have the names of their async counterparts.
const MIRRORS: &str = "src/face/blocking/";

/// The programs of the recipes.
const RECIPES: [&str; 2] = ["recipes/src/bin", "recipes/tests"];

#[test]
fn a_name_means_one_type() {
    assert_none(&ambiguous_types(&sources()));
}

/// Finds names of types that are visible outside of their file and are defined in two files.
fn ambiguous_types(sources: &[Source]) -> Vec<String> {
    let mut files = BTreeMap::<_, Vec<_>>::new();
    for source in sources.iter().filter(|one| !one.path.starts_with(MIRRORS)) {
        for tokens in source.code.windows(3) {
            let [before, keyword, name] = [0, 1, 2].map(|at| tokens[at].text.as_str());
            let is_type = ["enum", "struct", "trait", "type"].contains(&keyword);
            if is_type && ["pub", ")"].contains(&before) {
                files.entry(name).or_default().push(source.path.as_str());
            }
        }
    }
    files.retain(|_, files| files.len() > 1);
    let lines = files.iter();
    let lines = lines.map(|(name, files)| format!("{name}: {}", files.join(" ")));
    lines.collect()
}

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
    let sources = [
        (
            "src/a.rs",
            "pub(crate) struct A; pub(super) enum B {} pub trait C {} struct D;",
        ),
        (
            "src/b.rs",
            "pub trait A {} struct B; pub struct D; pub struct Lock;",
        ),
        ("src/face/blocking/a.rs", "pub struct C; pub struct Lock;"),
    ];
    let sources = sources.map(|(path, text)| Source::new(path, text));
    assert_eq!(ambiguous_types(&sources), ["A: src/a.rs src/b.rs"]);

    let text = "`src/{lib,no}.rs`, src/no.rs `core/vote/`, `lua/mutex/`, `proof.md` `docs/no.md`";
    let expected = ["src/no.rs", "docs/no.md"];
    let expected = expected.map(|path| format!("docs/a.md: `{path}` does not exist"));
    assert_eq!(missing_files("docs/a.md", text), expected);
}

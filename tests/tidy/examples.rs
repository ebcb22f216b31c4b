//! Checks the pages: GitHub must show their examples as rustdoc does, the examples of the recipes
//! must be parts of programs that the tests run, and rustdoc must know the links between pages.

use crate::{
    assert_none,
    source::{files, read},
};

/// The programs of the recipes.
const RECIPES: &[&str] = &["recipes/src/bin", "recipes/tests"];

#[test]
fn no_example_has_hidden_lines() {
    let pages = files("docs", "md").into_iter().chain(["README.md".into()]);
    let found: Vec<_> = pages
        .flat_map(|page| hidden_lines(&page, &read(&page)))
        .collect();
    assert_none(&found);
}

/// Rustdoc knows no files: `page!` in src/lib.rs has a definition of each label for it.
#[test]
fn links_to_other_pages_are_labels_that_rustdoc_knows() {
    let lib = read("src/lib.rs");
    let pages = files("docs", "md").into_iter();
    let found: Vec<_> = pages
        .flat_map(|page| broken_links(&page, &read(&page), &lib))
        .collect();
    assert_none(&found);
}

fn broken_links(page: &str, text: &str, lib: &str) -> Vec<String> {
    let is_page = |target: &str| {
        let file = target.split(['#', ')']).next().unwrap_or_default();
        file.ends_with(".md") && !file.contains('/')
    };
    let is_broken = |line: &str| match line.split_once("]: ") {
        Some((label, target)) if line.starts_with('[') => {
            is_page(target) && !lib.contains(&format!("\"{label}]: crate::"))
        }
        _ => line.split("](").skip(1).any(is_page),
    };
    let lines = text.lines().enumerate();
    let broken = lines.filter(|(_, line)| is_broken(line));
    let found = broken.map(|(at, _)| format!("{page}:{}: rustdoc cannot follow the link", at + 1));
    found.collect()
}

#[test]
fn a_link_that_rustdoc_cannot_follow_is_found() {
    let lib = "\"[b]: crate::docs::b\\n\",";
    let text = "[b][b] [c](c.md#d)\n[e](#e) [f](../f.md)\n[b]: b.md\n[g]: g.md#h\n[i]: i.svg\n";
    let found = broken_links("a.md", text, lib);
    let lines = found.iter().map(|one| one.split(':').nth(1).unwrap());
    assert_eq!(lines.collect::<Vec<_>>(), ["1", "4"]);
}

#[test]
fn the_examples_of_recipes_are_parts_of_programs() {
    let programs = RECIPES.iter().flat_map(|folder| files(folder, "rs"));
    let programs: Vec<_> = programs.map(|path| unindented(&read(&path))).collect();
    let page = read("docs/recipes.md");
    let examples = rust_blocks(&page);
    assert!(
        examples.len() > 3,
        "the examples of docs/recipes.md were not found"
    );
    // An empty line may stand for lines that are left out.
    let is_in_one = |part: &str| programs.iter().any(|program| program.contains(part));
    let is_known = |text: &str| unindented(text).split("\n\n").all(is_in_one);
    let unknown = examples.iter().filter(|(_, text)| !is_known(text));
    let found: Vec<_> = unknown
        .map(|(line, _)| format!("docs/recipes.md:{line}: no program has these lines"))
        .collect();
    assert_none(&found);
}

/// Returns the lines that rustdoc hides, and GitHub does not.
fn hidden_lines(path: &str, page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (first, text) in rust_blocks(page) {
        for (line, text) in (first..).zip(text.lines()) {
            if text == "#" || text.starts_with("# ") {
                found.push(format!("{path}:{line}: GitHub shows this line as it is"));
            }
        }
    }
    found
}

/// Returns the examples in Rust, each with the number of its first line.
fn rust_blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut block: Option<(usize, String)> = None;
    for (line, text) in (1..).zip(page.lines()) {
        match &mut block {
            None if text.starts_with("```rust") => block = Some((line + 1, String::new())),
            None => {}
            Some(_) if text == "```" => blocks.extend(block.take()),
            Some((_, block)) => {
                block.push_str(text);
                block.push('\n');
            }
        }
    }
    blocks
}

fn unindented(text: &str) -> String {
    text.lines().flat_map(|line| [line.trim(), "\n"]).collect()
}

#[test]
fn a_hidden_line_is_found() {
    let page = "# Title\n```rust\nlet a = 1;\n# let b = 2;\n```\n```sh\n# a comment\n```\n";
    assert_eq!(
        rust_blocks(page),
        [(3, "let a = 1;\n# let b = 2;\n".into())]
    );
    let found = hidden_lines("docs/a.md", page);
    assert_eq!(found, ["docs/a.md:4: GitHub shows this line as it is"]);
}

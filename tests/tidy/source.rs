//! The files of the crate, as tokens.

use std::{collections::BTreeSet, fs, path::Path};

use crate::tokens::{Token, closing, is_at, tokens};

/// The directory of the package.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A Rust file.
pub(crate) struct Source {
    /// The path from the package's directory, such as `src/core/vote/round.rs`.
    pub(crate) path: String,
    /// The tokens without comments and tests.
    pub(crate) code: Vec<Token>,
    /// The test modules that have a file of their own.
    test_modules: Vec<String>,
}

/// The sources of the crate without the files that hold tests only.
pub(crate) fn sources() -> Vec<Source> {
    sources_of("src")
}

/// The sources of the other crates: the command line, and the server in memory.
pub(crate) fn sources_of_others() -> [Vec<Source>; 2] {
    ["cli/src", "memory/src"].map(sources_of)
}

fn sources_of(folder: &str) -> Vec<Source> {
    let sources: Vec<_> = files(folder, "rs")
        .iter()
        .map(|path| Source::new(path, &read(path)))
        .collect();
    assert!(sources.len() > 15, "found {} files only", sources.len());
    without_test_files(sources)
}

fn without_test_files(sources: Vec<Source>) -> Vec<Source> {
    let tests: BTreeSet<_> = sources
        .iter()
        .flat_map(|source| {
            let module = source.module();
            let names = source.test_modules.iter().cloned();
            names.map(move |name| [module.clone(), vec![name]].concat())
        })
        .collect();
    let is_test = |source: &Source| tests.iter().any(|test| source.module().starts_with(test));
    sources.into_iter().filter(|s| !is_test(s)).collect()
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// The files under a folder whose names end with the extension, in order.
pub(crate) fn files(folder: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path, extension));
        } else if path.ends_with(&format!(".{extension}")) {
            found.push(path);
        }
    }
    found.sort();
    found
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let mut source = Self {
            path: path.to_owned(),
            code: tokens(text),
            test_modules: Vec::new(),
        };
        source.remove_tests();
        source
    }

    fn remove_tests(&mut self) {
        let starts = [
            ["#", "[", "cfg", "(", "test"],
            ["#", "[", "cfg", "(", "all"],
        ];
        let mut at = 0;
        while at < self.code.len() {
            let code = &self.code[at..];
            let is_test = starts.iter().any(|start| is_at(code, start))
                && code[4..7].iter().any(|token| token.text == "test");
            if !is_test {
                at += 1;
                continue;
            }
            let end = item_end(&self.code, at);
            let removed: Vec<_> = self.code.drain(at..=end).collect();
            if let [.., keyword, name, end] = removed.as_slice()
                && (keyword.text.as_str(), end.text.as_str()) == ("mod", ";")
            {
                self.test_modules.push(name.text.clone());
            }
        }
    }

    /// The path of the file's module: empty for `src/lib.rs` and `cli/src/main.rs`.
    pub(crate) fn module(&self) -> Vec<String> {
        let path = self.path.trim_start_matches("cli/");
        let path = path.trim_start_matches("src/").trim_end_matches(".rs");
        let names = path
            .split('/')
            .filter(|name| !["lib", "main", "mod"].contains(name));
        names.map(str::to_owned).collect()
    }
}

/// Returns the index of the last token of the item, field or variant that starts at `start`.
fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut at = start;
    let mut is_item = false;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "enum" | "fn" | "impl" | "struct" | "trait" | "use" => is_item = true,
            ";" => return at,
            "," if !is_item => return at,
            "{" if tokens[at - 1].text != "::" => return closing(tokens, at),
            "(" | "[" | "{" => at = closing(tokens, at),
            _ => {}
        }
        at += 1;
    }
    tokens.len() - 1
}

#[test]
fn tests_are_not_code() {
    let source = Source::new(
        "src/a.rs",
        "mod x;\n#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n#[cfg(all(test, feature = \"b\"))]\n\
         mod y;\n#[cfg(any(test, feature = \"b\"))]\nmod z;",
    );
    assert_eq!(source.test_modules, ["y"]);
    let words: Vec<_> = source
        .code
        .iter()
        .map(|token| token.text.as_str())
        .collect();
    assert_eq!(words.concat(), "modx;#[cfg(any(test,feature=\"b\"))]modz;");
    for tests in [
        "use crate::{b, c};",
        "fn f<A, B>() -> C<A, B> { d(); }",
        "e: u8,",
    ] {
        let source = Source::new("src/a.rs", &format!("f;\n#[cfg(test)]\n{tests}\ng;"));
        let words: Vec<_> = source
            .code
            .iter()
            .map(|token| token.text.as_str())
            .collect();
        assert_eq!(words.concat(), "f;g;");
    }
    let sources = ["src/a.rs", "src/a/y.rs", "src/a/y/w.rs", "src/a/x.rs"].map(|path| {
        Source::new(
            path,
            if path == "src/a.rs" {
                "#[cfg(test)] mod y;"
            } else {
                ""
            },
        )
    });
    let kept = without_test_files(sources.into());
    let kept: Vec<_> = kept.iter().map(|source| source.path.as_str()).collect();
    assert_eq!(kept, ["src/a.rs", "src/a/x.rs"]);
}

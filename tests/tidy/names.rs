//! The pages for contributors name files, types and functions that exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    assert_none,
    source::{ROOT, Source, read, sources},
    tokens::{TokenKind, closing, is_in_word},
};

const PAGES: &[&str] = &["docs/architecture.md", "CONTRIBUTING.md"];

/// Names that do not start a path in this crate.
const OUTSIDE: &[&str] = &["clippy", "redis", "rustls", "std", "tokio", "tracing"];

/// Words in backticks that look like a type of this crate.
const NO_TYPES: &[&str] = &["MultiplexedConnection", "RLock", "Trait"];

/// What the sources define.
#[derive(Default)]
struct Defined {
    /// The members of each type, and the items of each module by its last name.
    members: BTreeMap<String, BTreeSet<String>>,
    /// All words of the code.
    words: BTreeSet<String>,
}

#[test]
fn pages_name_what_exists() {
    let defined = Defined::new(&sources());
    let unknown = PAGES
        .iter()
        .flat_map(|page| unknown_names(page, &read(page), &defined));
    assert_none(&unknown.collect::<Vec<_>>());
}

fn unknown_names(page: &str, text: &str, defined: &Defined) -> Vec<String> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        // Every second piece is code.
        for code in text.split('`').skip(1).step_by(2) {
            let words = code.split([' ', '(']).flat_map(choices);
            let unknown = words.filter(|word| !defined.knows(word));
            found.extend(unknown.map(|word| format!("{page}:{line}: `{word}` does not exist")));
        }
    }
    found
}

/// The words that a word with braces stands for: `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn choices(word: &str) -> Vec<String> {
    let Some((start, rest)) = word.split_once('{') else {
        return vec![word.to_owned()];
    };
    let Some((names, end)) = rest.split_once('}') else {
        return vec![word.to_owned()];
    };
    let names = names.split(',');
    names.map(|name| format!("{start}{name}{end}")).collect()
}

impl Defined {
    fn new(sources: &[Source]) -> Self {
        let mut defined = Self::default();
        for source in sources {
            let words = source
                .code
                .iter()
                .filter(|token| token.kind == TokenKind::Word);
            defined.words.extend(words.map(|token| token.text.clone()));
            let module = source.module();
            if let [.., above, name] = [&["crate".to_owned()], module.as_slice()]
                .concat()
                .as_slice()
            {
                defined.add(above, name);
            }
            defined.add_items(source, module.last().map_or("crate", |name| name));
        }
        defined
    }

    fn add(&mut self, owner: &str, member: &str) {
        let members = self.members.entry(owner.to_owned()).or_default();
        members.insert(member.to_owned());
    }

    /// Adds the items of a module, and the members of its types.
    fn add_items(&mut self, source: &Source, module: &str) {
        let text = |at: usize| source.code.get(at).map_or("", |token| &token.text);
        let mut at = 0;
        while at < source.code.len() {
            let item = text(at);
            if item == "{" || item == "(" || item == "[" {
                at = closing(&source.code, at);
            }
            if [
                "const",
                "enum",
                "fn",
                "macro_rules",
                "static",
                "struct",
                "trait",
                "type",
            ]
            .contains(&item)
            {
                let name = text(at + usize::from(text(at + 1) == "!") + 1).to_owned();
                self.add(module, &name);
                self.members.entry(name).or_default();
            }
            if ["enum", "impl", "struct", "trait"].contains(&item) {
                at = self.add_members(source, at);
            }
            at += 1;
        }
    }

    /// Adds the members of the type whose item starts here, and returns where its body ends.
    fn add_members(&mut self, source: &Source, item: usize) -> usize {
        let code = &source.code;
        let text = |at: usize| code.get(at).map_or("", |token| &token.text);
        let mut open = item;
        while open < code.len() && !["{", ";"].contains(&text(open)) {
            open = if text(open) == "(" {
                closing(code, open)
            } else {
                open
            } + 1;
        }
        if text(open) != "{" {
            return open;
        }
        let Some(owner) = owner(
            &code[item..open]
                .iter()
                .map(|t| t.text.as_str())
                .collect::<Vec<_>>(),
        ) else {
            return closing(code, open);
        };
        let end = closing(code, open);
        let (mut at, mut before) = (open + 1, "{");
        while at < end {
            let is_associated = ["fn", "const", "type"].contains(&before);
            let is_field = text(item) == "struct" && text(at + 1) == ":";
            let is_variant = text(item) == "enum" && ["{", ",", "]"].contains(&before);
            if (is_associated || is_field || is_variant) && code[at].kind == TokenKind::Word {
                self.add(&owner, text(at));
            }
            if ["{", "(", "["].contains(&text(at)) {
                at = closing(code, at);
            }
            before = text(at);
            at += 1;
        }
        end
    }

    fn knows(&self, word: &str) -> bool {
        let word = word.trim_matches(|c: char| !is_in_word(c) && !"./".contains(c));
        let is_path = word.contains('/')
            || [".rs", ".lua", ".md", ".toml"]
                .iter()
                .any(|end| word.ends_with(end));
        if is_path {
            let folders = ["", "src", "lua"].map(|folder| Path::new(ROOT).join(folder));
            return word.contains("://") || folders.iter().any(|folder| folder.join(word).exists());
        }
        let segments: Vec<_> = word.split("::").collect();
        if let [.., owner, member] = segments.as_slice() {
            let members = self.members.get(*owner);
            return OUTSIDE.contains(&segments[0])
                || members.is_some_and(|members| members.contains(*member));
        }
        let is_type = word.starts_with(|c: char| c.is_uppercase())
            && word.contains(|c: char| c.is_lowercase())
            && word.chars().all(is_in_word);
        !is_type || NO_TYPES.contains(&word) || self.words.contains(word)
    }
}

/// The name of the type in the head of an item, such as `impl<T> fmt::Debug for Name<T>`.
fn owner(head: &[&str]) -> Option<String> {
    let named = match head.iter().rposition(|text| *text == "for") {
        Some(at) if head[0] == "impl" => &head[at + 1..],
        _ => &head[1..],
    };
    let mut depth = 0;
    let mut name = None;
    for text in named {
        match *text {
            "<" => depth += 1,
            ">" => depth -= 1,
            "where" | ":" if depth == 0 => break,
            _ if depth == 0 && text.starts_with(is_in_word) => name = Some((*text).to_owned()),
            _ => {}
        }
    }
    name
}

#[test]
fn a_name_that_does_not_exist_is_found() {
    let source = Source::new(
        "src/a/b.rs",
        "pub(crate) struct Lock<T> { #[x] held: bool }\nimpl<T: Fn(u8)> Lock<T> where T: A {\n\
         fn take(self) { fn inner() {} }\nconst MAX: u8 = 1; }\nimpl<'a> Drop for Lock<'a> {\n\
         fn drop(&mut self) {} }\nenum State { #[y] Held, Lost(u8), Free { since: u8 } }\nfn run() {}",
    );
    let defined = Defined::new(&[source]);
    for name in [
        "src/lib.rs",
        "lib.rs",
        "src/",
        "docs/architecture.md",
        "Lock::take",
        "Lock::held",
        "Lock::MAX",
        "Lock::drop",
        "State::Held",
        "State::Lost",
        "State::Free",
        "b::run",
        "a::b",
        "b::Lock",
        "Lock",
        "tokio::spawn",
        "cargo test",
        "WRONGTYPE",
        "redis-server",
        "{src,tests}/",
        "Lock::take(self)",
    ] {
        assert_eq!(
            unknown_names("a.md", &format!("`{name}`"), &defined),
            [""; 0],
            "{name}"
        );
    }
    for name in [
        "src/b.rs",
        "Lock::give",
        "Lock::inner",
        "State::since",
        "State::y",
        "b::walk",
        "Locks",
        "core/nothing",
        "cargo test a::c",
        "lib.md",
    ] {
        let found = unknown_names("a.md", &format!("\n, `{name}`"), &defined);
        assert!(
            found.len() == 1 && found[0].starts_with("a.md:2: "),
            "{name}: {found:?}"
        );
    }
}

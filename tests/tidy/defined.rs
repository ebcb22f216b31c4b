//! The types, members and functions that the sources define.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    source::Source,
    tokens::{TokenKind, closing, is_in_word},
};

/// The names that the sources define.
#[derive(Default)]
pub(crate) struct Defined {
    /// The members of each type, and the items of each module. A module is listed under its last
    /// name.
    members: BTreeMap<String, BTreeSet<String>>,
    /// All words of the code.
    words: BTreeSet<String>,
}

impl Defined {
    pub(crate) fn new(sources: &[Source]) -> Self {
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

    /// Returns whether a type or a module has this member.
    pub(crate) fn has_member(&self, owner: &str, member: &str) -> bool {
        let members = self.members.get(owner);
        members.is_some_and(|members| members.contains(member))
    }

    pub(crate) fn has_word(&self, word: &str) -> bool {
        self.words.contains(word)
    }
}

/// Returns the name of the type in the head of an item, such as `impl<T> fmt::Debug for Name<T>`.
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
fn members_of_types_and_modules_are_defined() {
    let source = Source::new(
        "src/a/b.rs",
        "pub(crate) struct Lock<T> { #[x] held: bool }\nimpl<T: Fn(u8)> Lock<T> where T: A {\n\
         fn take(self) { fn inner() {} }\nconst MAX: u8 = 1; }\nimpl<'a> Drop for Lock<'a> {\n\
         fn drop(&mut self) {} }\nenum State { #[y] Held, Lost(u8), Free { since: u8 } }\nfn run() {}",
    );
    let defined = Defined::new(&[source]);
    let has = |name: &&str| {
        let (owner, member) = name.split_once("::").unwrap();
        defined.has_member(owner, member)
    };
    for name in [
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
    ] {
        assert!(has(&name), "{name}");
    }
    for name in [
        "Lock::give",
        "Lock::inner",
        "Lock::x",
        "State::since",
        "State::y",
        "b::walk",
    ] {
        assert!(!has(&name), "{name}");
    }
}

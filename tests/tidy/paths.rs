//! Finds the paths that a file names, from the root of the crate.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    source::Source,
    tokens::{TokenKind, is_at},
};

/// A path such as `crate::core::round::Round`, as a `use` or an expression names it.
pub(crate) struct NamedPath {
    pub(crate) line: usize,
    pub(crate) segments: Vec<String>,
    /// The name that a `use` gives the item.
    alias: Option<String>,
}

impl NamedPath {
    /// Returns whether the path starts with the name of another crate, or of an item in the same
    /// file.
    pub(crate) fn is_outside(&self) -> bool {
        self.segments.first().is_some_and(String::is_empty)
    }
}

impl Source {
    /// Returns the paths that the code names, from the root of the crate. If a path starts with
    /// another crate or an item in the same file, its first segment is empty.
    pub(crate) fn paths(&self, modules: &BTreeSet<Vec<String>>) -> Vec<NamedPath> {
        let mut paths = Vec::new();
        let mut aliases = BTreeMap::new();
        // The inline modules that are open, with the depth of their braces.
        let mut inline: Vec<(String, usize)> = Vec::new();
        let (mut at, mut depth) = (0, 0);
        while at < self.code.len() {
            let token = &self.code[at];
            match token.text.as_str() {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    inline.retain(|(_, start)| *start < depth + 1);
                }
                "mod" if is_at(&self.code[at + 2..], &["{"]) => {
                    inline.push((self.code[at + 1].text.clone(), depth + 1));
                }
                _ => {}
            }
            if !self.starts_path(at) {
                at += 1;
                continue;
            }
            let inline = inline.iter().map(|(name, _)| name.clone());
            let module: Vec<_> = self.module().into_iter().chain(inline).collect();
            let mut named = Vec::new();
            let is_absolute = token.text == "::";
            let start = if is_absolute { at + 1 } else { at };
            let is_use = at > 0 && self.code[at - 1].text == "use";
            at = self.tree(start, &[], &mut named).max(at + 1);
            for mut path in named {
                path.segments = match is_absolute {
                    true => [vec![String::new()], path.segments].concat(),
                    false => resolve(path.segments, &module, modules, &aliases),
                };
                if is_use && let Some(alias) = &path.alias {
                    aliases.insert(alias.clone(), path.segments.clone());
                }
                paths.push(path);
            }
        }
        paths
    }

    fn starts_path(&self, at: usize) -> bool {
        let text = |at: usize| self.code.get(at).map_or("", |token| &token.text);
        let before = if at == 0 { "" } else { text(at - 1) };
        let is_word = self.code[at].kind == TokenKind::Word;
        let continues = before == "::" || before == "." || before == "in" && text(at - 2) == "(";
        match text(at) {
            "::" => before == "use" || self.code[at - 1].kind == TokenKind::Mark && before != ">",
            "use" => false,
            _ => is_word && !continues && (text(at + 1) == "::" || before == "use"),
        }
    }

    /// Reads the path or the tree of paths at a token. Returns where it ends.
    fn tree(&self, mut at: usize, prefix: &[String], found: &mut Vec<NamedPath>) -> usize {
        let text = |at: usize| self.code.get(at).map_or("", |token| &token.text);
        let mut segments = prefix.to_vec();
        loop {
            match text(at) {
                "{" => {
                    at += 1;
                    while text(at) != "}" {
                        at = self.tree(at, &segments, found).max(at + 1);
                        at += usize::from(text(at) == ",");
                    }
                    return at + 1;
                }
                "*" | "<" => break,
                "self" if !segments.is_empty() => at += 1,
                word => {
                    segments.push(word.to_owned());
                    at += 1;
                }
            }
            if text(at) != "::" {
                break;
            }
            at += 1;
        }
        let line = self.code[at - 1].line;
        let mut alias = segments.last().cloned();
        if text(at) == "as" {
            alias = Some(text(at + 1).to_owned());
            at += 2;
        }
        at += usize::from(text(at) == "*");
        found.push(NamedPath {
            line,
            segments,
            alias,
        });
        at
    }
}

/// Returns the path from the root of the crate, for a path that is written in `module`.
fn resolve(
    segments: Vec<String>,
    module: &[String],
    modules: &BTreeSet<Vec<String>>,
    aliases: &BTreeMap<String, Vec<String>>,
) -> Vec<String> {
    let child = [module, &segments[..1]].concat();
    let (start, skipped) = match segments[0].as_str() {
        "crate" => (vec![], 1),
        "self" => (module.to_vec(), 1),
        "super" => {
            let above = segments.iter().take_while(|name| *name == "super").count();
            (module[..module.len().saturating_sub(above)].to_vec(), above)
        }
        name => match aliases.get(name) {
            Some(path) => (path.clone(), 1),
            None if modules.contains(&child) => (child, 1),
            None => (vec![String::new()], 0),
        },
    };
    [start, segments[skipped..].to_vec()].concat()
}

#[test]
fn paths_are_read_from_the_root_of_the_crate() {
    let modules = [&["a"][..], &["a", "b"], &["a", "b", "c"]]
        .map(|path| path.iter().map(|name| (*name).to_owned()).collect());
    let modules = BTreeSet::from(modules);
    for (text, expected) in [
        ("use crate::x::{self, y as z, w::*};", "x x::y x::w"),
        ("use super::{super::f, b};", "f a::b"),
        ("pub use c::{D, e::F};", "a::b::c::D a::b::c::e::F"),
        ("fn f() -> crate::g::G { self::h::<u8>() }", "g::G a::b::h"),
        ("use crate::i as j; fn f() { j::k(); }", "i i::k"),
        ("mod m { use super::n; } use super::o;", "a::b::n a::o"),
        (
            "pub(in crate::a) use ::redis::Client; x.y::<u8>();",
            "::redis::Client",
        ),
        (
            "use std::fmt; impl fmt::Debug for A {}",
            "::std::fmt ::std::fmt::Debug",
        ),
    ] {
        let paths = Source::new("src/a/b.rs", text).paths(&modules);
        let paths: Vec<_> = paths.iter().map(|path| path.segments.join("::")).collect();
        assert_eq!(paths.join(" "), expected, "{text}");
    }
}

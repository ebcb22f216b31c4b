//! Names and key templates: no two locks share a key of any use, and all keys of a lock are in one
//! slot of a cluster.

use std::collections::BTreeSet;

use arbitrary::{Arbitrary, Unstructured};
use quorlock::{
    __internals::{KINDS, keys},
    ConfigError,
};

pub fn run(input: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(input)) else {
        return;
    };
    let template = input.template();
    let [one, other] = [&input.one, &input.other].map(Text::text);
    let found = [&one, &other].map(|name| keys(&template, KINDS[0], name));
    for (name, found) in [&one, &other].into_iter().zip(&found) {
        check(&template, name, found);
    }
    let [Ok(ones), Ok(others)] = found else {
        return;
    };
    if one == other {
        return assert_eq!(ones, others);
    }
    let all: BTreeSet<_> = ones.iter().chain(&others).collect();
    assert_eq!(
        all.len(),
        ones.len() + others.len(),
        "{template:?} {one:?} {other:?}: {ones:?} {others:?}"
    );
}

fn check(template: &str, name: &str, found: &Result<Vec<String>, ConfigError>) {
    let parts: Vec<_> = template.split("{name}").collect();
    let is_template = parts.len() == 2 && !template.starts_with(RESERVED);
    let key = parts.join(name);
    let is_name = !name.is_empty() && name.len() <= 64 * 1024;
    match found {
        Ok(keys) => {
            assert!(is_template && is_name, "{template:?} {name:?}");
            assert_eq!(keys[0], key);
            assert!(!key.starts_with(RESERVED), "{template:?} {name:?}");
            for companion in &keys[1..] {
                assert!(companion.starts_with(RESERVED), "{companion:?}");
                assert_eq!(slot(companion), slot(&key), "{companion:?} of {key:?}");
            }
            for kind in KINDS {
                let found = self::keys(template, kind, name);
                assert_eq!(found.as_ref(), Ok(keys), "{kind:?}");
            }
        }
        Err(error) => {
            let is_reserved = template.starts_with(RESERVED) || key.starts_with(RESERVED);
            assert!(
                !is_template || !is_name || is_reserved,
                "{template:?} {name:?}: {error}"
            );
        }
    }
}

/// The start of the keys that the crate keeps for itself.
const RESERVED: &str = "quorlock:";

#[derive(Arbitrary, Debug)]
struct Input {
    before: Text,
    after: Text,
    is_whole: bool,
    one: Text,
    other: Text,
}

impl Input {
    fn template(&self) -> String {
        let name = if self.is_whole { "{name}" } else { "" };
        format!("{}{name}{}", self.before.text(), self.after.text())
    }
}

/// A text, often with the marks that have a meaning in a key.
#[derive(Arbitrary, Debug)]
struct Text(Vec<Piece>);

#[derive(Arbitrary, Debug)]
enum Piece {
    Any(String),
    Close,
    Colon,
    Companion,
    Letter(bool),
    Neutral(u8),
    Open,
    Reserved,
    Variable,
}

impl Text {
    fn text(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Any(text) => text.clone(),
            Piece::Close => "}".into(),
            Piece::Colon => ":".into(),
            Piece::Companion => "quorlock:fence:".into(),
            Piece::Letter(is_a) => if *is_a { "a" } else { "b" }.into(),
            Piece::Neutral(number) => ["bmcq", "cbha", "maui"][usize::from(number % 3)].into(),
            Piece::Open => "{".into(),
            Piece::Reserved => RESERVED.into(),
            Piece::Variable => "{name}".into(),
        };
        self.0.iter().map(piece).collect()
    }
}

/// The slot of a key in a cluster, as the specification of Redis Cluster defines it.
fn slot(key: &str) -> u16 {
    let key = key.as_bytes();
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let length = key[open + 1..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[open + 1..open + 1 + length])
    });
    let mut crc = 0_u16;
    for byte in tag.unwrap_or(key) {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            crc ^= if carry { 0x1021 } else { 0 };
        }
    }
    crc % 16_384
}

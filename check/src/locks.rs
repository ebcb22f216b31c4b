//! The names of all locks that masters have.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use quorlock::{
    ConfigError, MasterSpec,
    tools::{ServerError, distinct, example_keys},
};
use redis::{Value, pipe};
use tokio::time::timeout;

use crate::{
    CheckSettings, Finding, Severity,
    cure::{after, said},
    link::{Link, bytes},
    table::{NO_EVAL, NO_SCRIPTS, NOT_NOW, UNLISTED},
};

const LOCKS: &str = include_str!("../lua/locks.lua");
/// The length of the longest name.
const LONGEST: usize = 1 << 16;

/// The locks of a master: see [`find_locks`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MasterLocks {
    /// The address.
    pub master: Arc<str>,
    /// The names.
    pub names: BTreeSet<String>,
    /// Whether the master has no other locks.
    pub is_all: bool,
    /// The reason why the master does not show its locks.
    failure: Option<Finding>,
}

/// Finds the names of the locks on each of these masters. Some may be left from locks that only a
/// minority ever had, or may be no locks.
///
/// Looks at all keys of the database, about 1,000 with each command. Ends if a master has shown
/// more than `most` names, and after the time `limit` and the dials. Writes nothing.
pub async fn find_locks(
    masters: &[MasterSpec],
    old_masters: &[MasterSpec],
    shared: &CheckSettings,
    most: usize,
    limit: Duration,
) -> Result<Vec<MasterLocks>, ConfigError> {
    example_keys(&shared.key_template)?;
    let distinct = distinct(masters, old_masters)?;
    let found = distinct.into_iter().map(async |(master, spec, _)| {
        let mut found = MasterLocks {
            master,
            names: BTreeSet::new(),
            is_all: false,
            failure: None,
        };
        let ended = found.find(&spec, shared, most, limit).await;
        found.failure = ended.err();
        found
    });
    Ok(join_all(found).await)
}

impl MasterLocks {
    /// Returns whether the master shows its locks only after someone has changed something.
    pub fn is_refused(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|finding| finding.severity == Severity::Critical)
    }

    /// Says why the master does not show its locks, and what to change.
    pub fn failure(&self) -> Option<String> {
        let Finding { value, fix, .. } = self.failure.as_ref()?;
        Some(match self.is_refused() {
            true => format!("{value}; {fix}"),
            false => value.clone(),
        })
    }

    async fn find(
        &mut self,
        spec: &MasterSpec,
        shared: &CheckSettings,
        most: usize,
        limit: Duration,
    ) -> Result<(), Finding> {
        let mut link = Link::open(spec, shared).await?;
        let parts = shared.key_template.split_once("{name}").unwrap_or_default();
        let pages = async {
            let (mut cursor, pattern) = ("0".to_owned(), pattern(parts));
            while !self.is_all && self.names.len() <= most {
                let keys;
                (cursor, keys) = page(&mut link, &cursor, &pattern).await?;
                self.names.extend(keys.filter_map(|key| name(&key, parts)));
                self.is_all = cursor == "0";
            }
            Ok(())
        };
        timeout(limit, pages).await.unwrap_or(Ok(()))
    }
}

/// Asks for the next keys. Returns the next cursor, and the keys. A key that is no text has no name
/// that anyone could give.
async fn page(
    link: &mut Link,
    cursor: &str,
    pattern: &str,
) -> Result<(String, impl Iterator<Item = String> + use<>), Finding> {
    let mut question = pipe();
    let eval = question.cmd("EVAL").arg(LOCKS).arg(0);
    eval.arg(cursor).arg(pattern);
    let mut answers = link.ask(&question).await?.into_iter();
    let page = answers.next().unwrap_or(Ok(Value::Nil));
    let page = bytes(&page.map_err(|error| refused(&error))?);
    let mut texts = page.into_iter().map(|text| String::from_utf8(text).ok());
    match texts.next().flatten() {
        Some(cursor) => Ok((cursor, texts.flatten())),
        None => Err(NOT_NOW.with("answered too little")),
    }
}

/// Returns the name of the lock with this key. `None` if no lock has it.
fn name(key: &str, (before, after): (&str, &str)) -> Option<String> {
    let name = key.strip_prefix(before)?.strip_suffix(after)?;
    let is_name = !key.starts_with("quorlock:") && (1..=LONGEST).contains(&name.len());
    is_name.then(|| name.to_owned())
}

/// Returns the finding about a server that does not list its keys.
fn refused(error: &str) -> Finding {
    let row = match ServerError::of(error) {
        ServerError::ScriptsDenied => UNLISTED.fixed_by(NO_SCRIPTS),
        ServerError::KeyDenied => UNLISTED.fixed_by("let its user read the keys of the locks"),
        kind if kind.is_denial() => UNLISTED,
        _ => NOT_NOW,
    };
    after(row, &said(error), NO_EVAL)
}

/// Returns the pattern of all keys of a template.
fn pattern((before, after): (&str, &str)) -> String {
    let escaped = |text: &str| {
        let is_special = |letter: char| "*?[]\\".contains(letter);
        let escape = |one| is_special(one).then_some('\\').into_iter().chain([one]);
        text.chars().flat_map(escape).collect::<String>()
    };
    format!("{}*{}", escaped(before), escaped(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_the_template_have_names() {
        assert_eq!(pattern(("locks:", "")), "locks:*");
        assert_eq!(pattern(("[a]?", "\\*")), r"\[a\]\?*\\\*");
        for (parts, key, expected) in [
            (("locks:", ""), "locks:a b", Some("a b")),
            (("locks:", ""), "locks:", None),
            (("locks:", ""), "Locks:a", None),
            (("a", "a"), "a", None),
            (("", ":lock"), "a:lock", Some("a")),
            (("", ""), "a", Some("a")),
            // The keys beside those of locks.
            (("", ""), "quorlock:queue:{a}", None),
            (("q", ""), "quorlock:queue:{a}", None),
        ] {
            assert_eq!(name(key, parts).as_deref(), expected, "{parts:?} {key}");
        }
    }
}

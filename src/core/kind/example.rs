//! The keys of the example lock, for the crate `quorlock-check` and for rules of ACLs.

use super::table;
use crate::core::{
    config_error::ConfigError,
    protocol::{companion::Companion, name::KeyTemplate},
};

/// A key of a lock, on each master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExampleKey {
    /// The purpose, such as `queue`, as in the name of the key: see
    /// [`docs::operations`](crate::docs::operations#rights). Empty for the key of the lock itself.
    pub purpose: &'static str,
    /// The type, as the command `TYPE` names it. Empty for the key of the lock itself, whose type
    /// depends on the kind.
    pub of_type: &'static str,
    /// The key.
    pub key: String,
}

/// Returns the keys of the lock `quorlock:check` under a
/// [template](crate::Builder::key_template), for all kinds of locks together. Nobody can acquire
/// this lock, so its keys are there to try the rights of a user. The first key is that of the lock
/// itself.
///
/// ```
/// let keys = quorlock::tools::example_keys("app:{name}")?;
/// assert_eq!(keys[0].key, "app:quorlock:check");
/// assert!(keys.iter().any(|one| one.key == "quorlock:queue:{app:quorlock:check}"));
/// # Ok::<(), quorlock::ConfigError>(())
/// ```
pub fn example_keys(key_template: &str) -> Result<Vec<ExampleKey>, ConfigError> {
    let lock = KeyTemplate::parse(key_template)?.example();
    let companion = |companion: &'static Companion| ExampleKey {
        purpose: companion.name,
        of_type: companion.of_type().unwrap_or_default(),
        key: lock.companion(companion).to_owned(),
    };
    let own = ExampleKey {
        purpose: "",
        of_type: "",
        key: lock.key().to_string(),
    };
    Ok([own]
        .into_iter()
        .chain(table::companion_keys().map(companion))
        .collect())
}

//! Lua scripts.

use std::sync::Arc;

/// The text of a Lua script, and its SHA-1, by which `EVALSHA` names it.
#[derive(Clone, Debug)]
pub struct Script {
    hash: Arc<str>,
    text: Arc<[u8]>,
}

impl Script {
    /// Returns the script with this text.
    #[must_use]
    pub fn new(text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        Self {
            hash: sha1(text).into(),
            text: text.into(),
        }
    }

    /// Returns the SHA-1 of the text, in lower-case hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }
}

pub(super) fn sha1(text: &[u8]) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

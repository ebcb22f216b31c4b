//! Lua scripts.

use std::{cell::RefCell, sync::Arc};

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
        /// The most scripts that a thread remembers.
        const MOST: usize = 100;
        thread_local! {
            static KNOWN: RefCell<Vec<Script>> = const { RefCell::new(Vec::new()) };
        }
        let text = text.as_ref();
        // Clients send the same texts again and again, and hashing a text takes longer than running
        // it.
        KNOWN.with_borrow_mut(|known| {
            if let Some(script) = known.iter().find(|script| *script.text == *text) {
                return script.clone();
            }
            let script = Self {
                hash: sha1(text).into(),
                text: text.into(),
            };
            if known.len() >= MOST {
                known.clear();
            }
            known.push(script.clone());
            script
        })
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

//! The names of owners.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::time::clock;
use crate::core::protocol::client_name::ClientName;

/// Names the owners of a coordinator.
#[derive(Debug)]
pub(crate) struct Owners {
    /// The name of the coordinator on the masters: a random UUID.
    process: String,
    /// The number of owners that were named so far.
    count: AtomicU64,
    client: Option<ClientName>,
}

impl Owners {
    pub(crate) fn new(client: Option<ClientName>) -> Self {
        Self {
            process: uuid(clock::random()),
            count: AtomicU64::new(0),
            client,
        }
    }

    /// Returns the ID of a new owner.
    pub(crate) fn name(&self) -> Arc<str> {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut id = format!("{}:{number}", self.process);
        if let Some(client) = &self.client {
            id.push(ClientName::MARK);
            id.push_str(client.as_str());
        }
        id.into()
    }

    /// Returns whether the owner `id` was named here. All claims of an owner at one name belong to
    /// one coordinator.
    pub(crate) fn have(&self, id: &str) -> bool {
        id.starts_with(&*self.process)
    }
}

/// Returns a random UUID from the random `bytes`.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40; // version 4
    bytes[8] = bytes[8] & 0x3f | 0x80; // the variant of RFC 9562
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}"); // writing to a string never fails
    }
    text
}

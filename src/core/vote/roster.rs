//! The masters of a coordinator, as rounds and errors name them.

use std::sync::Arc;

use super::{lists::Membership, quorum::Quorum};

/// The addresses of the masters that decide together, and what a majority of them is.
#[derive(Debug)]
pub(crate) struct Roster {
    pub(crate) masters: Box<[Arc<str>]>,
    pub(crate) quorum: Quorum,
}

impl Roster {
    pub(crate) fn new(masters: impl IntoIterator<Item = Arc<str>>, quorum: Quorum) -> Arc<Self> {
        Arc::new(Self {
            masters: masters.into_iter().collect(),
            quorum,
        })
    }

    /// Returns the address of each master, and its part in a change of the masters.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&Arc<str>, Membership)> {
        let masters = self.masters.iter().enumerate();
        masters.map(|(number, address)| (address, self.quorum.membership(number)))
    }
}

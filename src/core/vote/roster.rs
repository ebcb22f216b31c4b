//! The masters of a group, as rounds and errors name them.

use std::sync::Arc;

use super::{
    lists::{Membership, Tally},
    master_set::MasterSet,
    quorum::Quorum,
};

/// The addresses of the masters that decide together, and what a majority of them is.
#[derive(Debug)]
pub(crate) struct Roster {
    /// The ID of their group. `None` if the coordinator has no groups.
    pub(crate) group: Option<Arc<str>>,
    pub(crate) masters: Box<[Arc<str>]>,
    pub(crate) quorum: Quorum,
}

impl Roster {
    pub(crate) fn new(
        group: Option<Arc<str>>,
        masters: impl IntoIterator<Item = Arc<str>>,
        quorum: Quorum,
    ) -> Arc<Self> {
        Arc::new(Self {
            group,
            masters: masters.into_iter().collect(),
            quorum,
        })
    }

    /// Returns the address of each master, and its part in a change of the masters.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&Arc<str>, Membership)> {
        let masters = self.masters.iter().enumerate();
        masters.map(|(number, address)| (address, self.quorum.membership(number)))
    }

    /// Returns for each list how many of its masters are among `masters`.
    pub(crate) fn tallies(&self, masters: MasterSet) -> Vec<Tally> {
        let tallies = self.quorum.tallies(masters).map(|tally| Tally {
            group: self.group.clone(),
            ..tally
        });
        tallies.collect()
    }
}

//! The masters of a group, as rounds and errors name them.

use std::sync::Arc;

use super::{lists::Tally, master_set::MasterSet, quorum::Quorum};

/// The addresses of the masters that decide together.
#[derive(Debug)]
pub(crate) struct Roster {
    /// The ID of their group. `None` if the coordinator has no groups.
    pub(crate) group: Option<Arc<str>>,
    pub(crate) masters: Box<[Arc<str>]>,
}

impl Roster {
    pub(crate) fn new(
        group: Option<Arc<str>>,
        masters: impl IntoIterator<Item = Arc<str>>,
    ) -> Arc<Self> {
        let masters = masters.into_iter().collect();
        Arc::new(Self { group, masters })
    }

    /// Returns for each list of the `quorum` how many of its masters are among `masters`.
    pub(crate) fn tallies(&self, quorum: &Quorum, masters: MasterSet) -> Vec<Tally> {
        let tallies = quorum.tallies(masters).map(|tally| Tally {
            group: self.group.clone(),
            ..tally
        });
        tallies.collect()
    }
}

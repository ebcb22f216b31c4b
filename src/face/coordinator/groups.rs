//! The groups of a coordinator. Each has masters, tasks and waiters of its own.

use std::sync::Arc;

use crate::{
    core::{group::table::Table, vote::lists_id::ListsId},
    driver::{engine::Engine, masters::Masters},
};

/// All groups of a coordinator. A coordinator without groups has one. While the groups are changed,
/// there is one for each pair of a group and an old group.
pub(crate) struct Groups {
    pub(crate) table: Table,
    pub(crate) all: Vec<OpenGroup>,
    pub(crate) lists_id: ListsId,
}

/// One group, whose tasks run.
pub(crate) struct OpenGroup {
    pub(crate) engine: Arc<Engine>,
}

impl Groups {
    /// Returns the engine of the group that has the name.
    pub(crate) fn engine_of(&self, name: &str) -> &Arc<Engine> {
        &self.all[self.table.of(name)].engine
    }

    pub(crate) fn engines(&self) -> impl Iterator<Item = &Arc<Engine>> {
        self.all.iter().map(|group| &group.engine)
    }

    /// Returns the engine of the first group. All have the same settings and the same owners.
    pub(crate) fn first(&self) -> &Arc<Engine> {
        &self.all[0].engine
    }

    /// Returns the masters of each group.
    pub(crate) fn masters(&self) -> impl Iterator<Item = &Masters> {
        self.engines().map(|engine| engine.masters())
    }
}

//! The keys of one master that tasks of this process watch.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
};

/// A receiver of the changes of a key. A key changes when any client writes or deletes it, and when
/// it expires.
pub(crate) trait Watcher: Send + Sync + fmt::Debug {
    /// Handles a change on `master`. Also called when a change may have been missed, as when the
    /// connection breaks.
    fn on_change(&self, master: usize);
}

/// The watchers of the keys of one master. They stay when a connection breaks.
#[derive(Debug, Default)]
pub(in crate::master) struct Watchers(BTreeMap<Arc<str>, Vec<Weak<dyn Watcher>>>);

impl Watchers {
    pub(in crate::master) fn add(&mut self, key: &Arc<str>, watcher: Weak<dyn Watcher>) {
        self.0.entry(key.clone()).or_default().push(watcher);
    }

    pub(in crate::master) fn remove(&mut self, key: &Arc<str>, watcher: &Weak<dyn Watcher>) {
        let Some(watchers) = self.0.get_mut(key) else {
            return;
        };
        watchers.retain(|other| !other.ptr_eq(watcher));
        if watchers.is_empty() {
            self.0.remove(key);
        }
    }

    /// Returns the watchers of `key`, or of all keys if there is no `key`.
    pub(in crate::master) fn of(&self, key: Option<&str>) -> Vec<Arc<dyn Watcher>> {
        let lists = match key {
            Some(key) => self.0.get(key).into_iter().collect(),
            None => self.0.values().collect::<Vec<_>>(),
        };
        lists
            .into_iter()
            .flatten()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

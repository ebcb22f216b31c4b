//! A lock of several names.

use std::sync::Arc;

use super::Lock;
use crate::{
    core::{config_error::ConfigError, kind::LockKind, protocol::name::LockId},
    driver::context::Context,
    face::guard::MultiGuard,
};

impl Lock<MultiGuard> {
    /// Returns the lock of these names. `context_of` returns the context for a name.
    pub(crate) fn multi_mutex(
        first: &Arc<Context>,
        context_of: impl Fn(&str) -> Arc<Context>,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        let template = &first.config.key_template;
        let names = names.into_iter();
        let lock_ids = names.map(|name| template.lock_id(LockKind::Mutex, name.as_ref().into()));
        let lock_ids = lock_ids.collect::<Result<Vec<_>, _>>().and_then(in_order);
        let draft = Lock::new(first.clone(), LockKind::Mutex, "").draft;
        let mut lock = Self::of(draft);
        match lock_ids {
            Ok((first, others)) => {
                let others = others.into_iter();
                let others = others.map(|lock_id| (context_of(lock_id.name()), lock_id));
                lock.draft.others = others.collect();
                lock.draft.context = context_of(first.name());
                lock.draft.lock_id = Ok(first);
            }
            Err(error) => lock.draft.lock_id = Err(error),
        }
        lock
    }
}

/// Returns the first lock and the others, each once, in the order of their keys. All clients take
/// the locks in this order.
fn in_order(mut lock_ids: Vec<LockId>) -> Result<(LockId, Vec<LockId>), ConfigError> {
    let given = lock_ids.len();
    lock_ids.sort_unstable_by(|one, other| one.key().cmp(other.key()));
    lock_ids.dedup();
    let most = MOST_NAMES;
    if lock_ids.is_empty() || lock_ids.len() > most {
        let (given, range) = (format!("{given} names"), format!("from 1 to {most}"));
        return Err(ConfigError::out_of_range("lock", given, range));
    }
    Ok((lock_ids.remove(0), lock_ids))
}

/// The greatest number of names. A call asks for all of them at once, and each is a lock of its
/// own.
const MOST_NAMES: usize = 100;

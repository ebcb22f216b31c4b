//! A lock of several names.

use std::{iter, sync::Arc, time::Duration};

use super::{Draft, Lock};
use crate::{
    core::{config_error::ConfigError, error::AcquireError, kind::Kind, protocol::name::LockId},
    driver::{
        acquire::several,
        claim::{Level, ask::LockRequest},
        context::Context,
    },
    face::guard::{AllGuard, Guard},
};

impl Lock<AllGuard> {
    /// Returns the lock of these names. `context_of` returns the context for a name.
    pub(crate) fn mutex_all(
        first: &Arc<Context>,
        context_of: impl Fn(&str) -> Arc<Context>,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        let template = &first.config.key_template;
        let names = names.into_iter();
        let lock_ids = names.map(|name| template.lock_id(Kind::Mutex, name.as_ref().into()));
        let lock_ids = lock_ids.collect::<Result<Vec<_>, _>>().and_then(in_order);
        let draft = Lock::new(first.clone(), Kind::Mutex, "").draft;
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

impl Draft {
    pub(super) async fn try_acquire_all(&self, first: LockRequest) -> Result<Guard, AcquireError> {
        let acquired = several::try_acquire_all(&self.requests(first)).await;
        acquired.map(guard_of_all)
    }

    pub(super) async fn acquire_all(
        &self,
        first: LockRequest,
        limit: Option<Duration>,
    ) -> Result<Guard, AcquireError> {
        let acquired = several::acquire_all(&self.requests(first), limit).await;
        acquired.map(guard_of_all)
    }

    fn requests(&self, first: LockRequest) -> Vec<LockRequest> {
        let others = self.others.iter().map(|(context, lock_id)| LockRequest {
            context: context.clone(),
            lock_id: lock_id.clone(),
            ..first.clone()
        });
        iter::once(first.clone()).chain(others).collect()
    }
}

fn guard_of_all(mut levels: Vec<Level>) -> Guard {
    let others = levels.split_off(1);
    Guard::new(levels.remove(0), others)
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

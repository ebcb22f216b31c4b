//! A lock of several names.

use std::{sync::Arc, time::Duration};

use super::Lock;
use crate::{
    core::protocol::{kind::Kind, name::LockId},
    driver::{
        acquire::denied::NotAllAcquired,
        claim::{level::Level, request::LockRequest},
        engine::Engine,
    },
    face::{
        error::{AcquireError, ConfigError},
        guard::Guard,
    },
};

impl Lock {
    pub(crate) fn mutex_all(
        engine: Arc<Engine>,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        let template = &engine.config().key_template;
        let names = names.into_iter();
        let lock_ids = names.map(|name| template.lock_id(Kind::Mutex, name.as_ref().into()));
        let lock_ids = lock_ids.collect::<Result<Vec<_>, _>>().and_then(in_order);
        let mut lock = Self::new(engine, Kind::Mutex, "", None);
        match lock_ids {
            Ok((first, others)) => (lock.lock_id, lock.others) = (Ok(first), others),
            Err(error) => lock.lock_id = Err(error),
        }
        lock
    }

    pub(super) async fn try_acquire_all(&self, first: LockRequest) -> Result<Guard, AcquireError> {
        let requests = self.requests(first);
        let acquired = self.engine.try_acquire_all(&requests).await;
        self.guard_of_all(acquired, &requests)
    }

    pub(super) async fn acquire_all(
        &self,
        first: LockRequest,
        limit: Option<Duration>,
    ) -> Result<Guard, AcquireError> {
        let requests = self.requests(first);
        let acquired = self.engine.acquire_all(&requests, limit).await;
        self.guard_of_all(acquired, &requests)
    }

    fn requests(&self, first: LockRequest) -> Vec<LockRequest> {
        let others = self.others.iter().map(|lock_id| LockRequest {
            counter: self.is_fenced.then(|| lock_id.counter()),
            lock_id: lock_id.clone(),
            ..first.clone()
        });
        let others: Vec<_> = others.collect();
        [vec![first], others].concat()
    }

    fn guard_of_all(
        &self,
        acquired: Result<Vec<Level>, NotAllAcquired>,
        requests: &[LockRequest],
    ) -> Result<Guard, AcquireError> {
        let masters = self.engine.masters();
        let mut levels = acquired.map_err(|NotAllAcquired { at, error }| {
            AcquireError::from_driver(error, &requests[at], masters)
        })?;
        let others = levels.split_off(1);
        Ok(Guard::new(levels.remove(0), others))
    }
}

/// Returns the first lock and the others, each once. All clients take them in the order of their
/// keys.
fn in_order(mut lock_ids: Vec<LockId>) -> Result<(LockId, Vec<LockId>), ConfigError> {
    let given = lock_ids.len();
    if !mutant!(TakesAsGiven) {
        lock_ids.sort_unstable_by(|one, other| one.key().cmp(other.key()));
    }
    lock_ids.dedup();
    let most = MOST_NAMES;
    if lock_ids.is_empty() || lock_ids.len() > most {
        return Err(ConfigError::Names { given, most });
    }
    Ok((lock_ids.remove(0), lock_ids))
}

/// The greatest number of names. All are asked for at once, and each is a lock of its own.
const MOST_NAMES: usize = 100;

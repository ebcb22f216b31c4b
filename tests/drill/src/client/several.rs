//! Operations under two mutexes at once. Each name has notes of its own, as if two clients held the
//! two locks, so that every check sees them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use quorlock::Guard;
use tokio::time::sleep;

use super::{LONGEST_AFTER_LIMIT, LONGEST_CALL, Task, Terms, Way, write};
use crate::Result;
use crate::clock;
use crate::locks::{LockNumber, NODE_TIMEOUT, validity};
use crate::note::Note;

/// The time by which a call for several names may be late in addition: four node timeouts, which
/// may double.
const LONGER: Duration = Duration::from_millis(8 * NODE_TIMEOUT.as_millis() as u64);

impl Task {
    /// Acquires `locks`, adds an element to the set of each, and releases them.
    pub(super) async fn use_several(&mut self, locks: [LockNumber; 2]) -> Result<()> {
        let ops = locks.map(|lock| (self.ops.fetch_add(1, Ordering::Relaxed), lock));
        let terms = Terms::draw(self);
        let lock = self.locks.mutex_all(locks.map(LockNumber::name));
        let lock = if locks[0].is_fenced() {
            lock.fenced()
        } else {
            lock
        };
        let lock = lock.ttl(terms.ttl).renewal(terms.renewal);
        let way = Way::draw(&mut self.random);
        for (op, lock) in ops {
            write(&Note::Asked {
                op,
                at: clock::now(),
                lock,
                came: clock::came(),
                due: clock::now() + clock::nanos(way.limit() + LONGEST_AFTER_LIMIT + LONGER),
                reads: false,
            })?;
        }
        let guard = match way.acquire(&lock).await {
            Ok(guard) => guard,
            Err(why) => {
                let at = clock::now();
                let failed = |(op, _)| Note::Failed {
                    op,
                    at,
                    why: why.clone(),
                };
                return Ok(ops.map(failed).iter().try_for_each(write)?);
            }
        };
        let (at, valid_until) = (clock::now(), clock::of(guard.valid_until()));
        let asked = at.min(valid_until - clock::nanos(validity(terms.ttl)));
        for (op, lock) in ops {
            write(&Note::Got {
                op,
                at,
                lock,
                asked,
                valid_until,
                hold_until: 0,
                token: guard.fencing_token_of(&lock.name()).map(u64::from),
                slot: None,
                owner: String::from("several"),
            })?;
        }
        self.add_elements(ops, &guard, &terms).await?;
        let (at, valid_until) = (clock::now(), clock::of(guard.valid_until()));
        let ended = |(op, _)| Note::Ended {
            op,
            at,
            valid_until,
        };
        ops.map(ended).iter().try_for_each(write)?;
        let due = clock::now() + clock::nanos(LONGEST_CALL);
        let is_kept = guard.release().await.is_ok() && clock::now() < valid_until;
        let at = clock::now();
        let freed = |(op, _)| Note::Freed {
            op,
            at,
            due,
            is_kept,
        };
        Ok(ops.map(freed).iter().try_for_each(write)?)
    }

    async fn add_elements(
        &mut self,
        ops: [(u64, LockNumber); 2],
        guard: &Guard,
        terms: &Terms,
    ) -> Result<()> {
        let mut sets = Vec::new();
        for (_, lock) in ops {
            let token = guard.fencing_token_of(&lock.name()).map_or(0, u64::from);
            let resource = lock.resource(None);
            let Some(read) = self.store.read(resource, token).await? else {
                return Ok(()); // the lock is lost, and a later holder has been here
            };
            sets.push((resource, token, read));
        }
        sleep(terms.hold.unwrap_or_default()).await;
        for (resource, token, read) in sets {
            if self.is_careless || guard.is_valid() {
                let valid_until = clock::of(guard.valid_until());
                self.store.write(resource, token, read, valid_until).await?;
            }
        }
        Ok(())
    }
}

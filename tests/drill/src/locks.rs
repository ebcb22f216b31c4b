//! The locks of a drill. Each protects one resource in the store.

use std::time::Duration;

pub use quorlock::__internals::KINDS;
use quorlock::{
    __internals::{is_reentrant, plain},
    Builder, Coordinator, Lock, LockKind, Owner,
};
use serde::{Deserialize, Serialize};
use testkit::random::Random;

/// The number of locks of each kind. The second half is fenced.
const OF_EACH_KIND: usize = 4;
const LOCKS: usize = KINDS.len() * OF_EACH_KIND;
/// The number of permits of a semaphore.
const PERMITS: usize = 2;
/// The number of resources in the store. A semaphore has one for each slot.
pub const RESOURCES: usize = LOCKS * PERMITS;

pub const LEAST_TTL: Duration = Duration::from_millis(300);
pub const MOST_TTL: Duration = Duration::from_millis(2_500);
/// The least quarantine. The TTLs are shorter, so this is the quarantine.
pub const QUARANTINE: Duration = Duration::from_secs(3);
pub const RESPONSE_TIMEOUT: Duration = Duration::from_millis(200);

/// The number of a lock.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct LockNumber(pub usize);

impl LockNumber {
    pub fn all() -> impl Iterator<Item = Self> {
        (0..LOCKS).map(Self)
    }

    pub fn draw(random: &mut Random) -> Self {
        Self(random.index(LOCKS))
    }

    pub fn is_semaphore(self) -> bool {
        self.kind() == LockKind::Semaphore
    }

    /// Returns the other mutex, with a fence or without, that a client may acquire together with
    /// this one. `None` if this lock is no mutex.
    pub fn partner(self) -> Option<Self> {
        (self.kind() == LockKind::Mutex).then_some(Self(self.0 ^ 1))
    }

    /// Returns how many may hold the lock at once, apart from readers.
    pub fn permits(self) -> usize {
        if self.is_semaphore() { PERMITS } else { 1 }
    }

    /// Returns the number of the resource that a holder with this slot uses.
    pub fn resource(self, slot: Option<usize>) -> usize {
        self.0 * PERMITS + slot.unwrap_or_default()
    }

    /// Returns the lock that a resource belongs to.
    pub fn of_resource(resource: usize) -> Self {
        Self(resource / PERMITS)
    }

    /// Returns whether an owner can acquire the lock again while it holds it.
    pub fn has_levels(self) -> bool {
        is_reentrant(self.kind())
    }

    pub fn kind(self) -> LockKind {
        KINDS[self.0 / OF_EACH_KIND]
    }

    pub fn is_fenced(self) -> bool {
        self.0 % OF_EACH_KIND >= OF_EACH_KIND / 2
    }

    pub fn name(self) -> String {
        let fence = if self.is_fenced() { "fenced" } else { "plain" };
        format!("{}-{fence}-{}", self.kind(), self.0 % OF_EACH_KIND)
    }

    /// Returns whether the lock has readers. A fenced one has only writers in a drill.
    pub fn has_readers(self) -> bool {
        self.kind() == LockKind::ReadWrite && !self.is_fenced()
    }

    pub fn lock_of_reader(self, locks: &Coordinator, owner: &Owner) -> Lock {
        plain(locks.read_write(self.name()).owner(owner).read())
    }

    /// Returns this mutex and another one as one lock.
    pub fn lock_with(self, other: Self, locks: &Coordinator) -> Lock {
        let lock = locks.multi_mutex([self, other].map(Self::name)).plain();
        if self.is_fenced() {
            plain(lock.fenced())
        } else {
            lock
        }
    }

    pub fn lock(self, locks: &Coordinator, owner: &Owner) -> Lock {
        let lock = if self.is_semaphore() {
            locks.semaphore(self.name(), PERMITS).plain()
        } else {
            locks.of_kind(self.kind(), self.name(), owner)
        };
        if self.is_fenced() {
            plain(lock.fenced())
        } else {
            lock
        }
    }
}

/// Returns the settings of all clients. The rest of a lock's TTL after the drift is [`validity`].
pub fn settings() -> Builder {
    Coordinator::builder()
        .ttl(MOST_TTL)
        .max_ttl(MOST_TTL)
        .response_timeout(RESPONSE_TIMEOUT)
        .drift_ppm(DRIFT_PPM)
}

/// Returns the length of a validity that begins at the start of a round.
pub fn validity(ttl: Duration) -> Duration {
    ttl - ttl * DRIFT_PPM / 1_000_000 - Duration::from_millis(2)
}

const DRIFT_PPM: u32 = 10_000;

//! Contestants that use the other kinds of locks of quorlock, its fenced mutex, and its mutex with
//! quarantine. Each task has an owner of its own, if its lock needs one.

use quorlock::{
    Coordinator, FencedGuard, Guard, Lock, MultiGuard, PermitGuard,
    Quarantine::{self, Observed, Off},
    ReadGuard, WriteGuard,
};

use super::quorlock::Quorlock;
use crate::load::{Contestant, Result};

/// Defines a contestant like `Quorlock`, with another lock for its tasks and another way to acquire
/// it.
macro_rules! contestant {
    ($(#[$doc:meta])* $name:ident, $quarantine:expr, $lock:expr, $acquire:ident, $guard:ty) => {
        $(#[$doc])*
        pub struct $name(Quorlock);

        impl Contestant for $name {
            type Task = Lock<$guard>;

            async fn connect(urls: &[String]) -> Result<Self> {
                let quarantine: Quarantine = $quarantine;
                Ok(Self(Quorlock::guarded(urls, quarantine).await?))
            }

            fn task(&self, key: String) -> Lock<$guard> {
                let lock: fn(&Coordinator, String) -> Lock<$guard> = $lock;
                lock(self.0.locks(), key)
            }

            async fn cycle(lock: &mut Lock<$guard>) -> Result<()> {
                Ok(lock.$acquire().await?.release().await?)
            }

            async fn close(self) -> Result<()> {
                self.0.close().await
            }
        }
    };
}

/// The user of [`Scripted`], and its password.
pub const SCRIPTED: &str = "scripted";

/// A mutex that is released by the script, although the servers have a command for it. The crate
/// uses the script because its user lacks the right to that command.
pub struct Scripted(Quorlock);

impl Contestant for Scripted {
    type Task = Lock;

    async fn connect(urls: &[String]) -> Result<Self> {
        let login = format!("redis://{SCRIPTED}:{SCRIPTED}@");
        let urls: Vec<_> = urls
            .iter()
            .map(|url| url.replace("redis://", &login))
            .collect();
        Ok(Self(Quorlock::guarded(&urls, Off).await?))
    }

    fn task(&self, key: String) -> Lock {
        self.0.task(key)
    }

    async fn cycle(lock: &mut Lock) -> Result<()> {
        Quorlock::cycle(lock).await
    }

    async fn close(self) -> Result<()> {
        self.0.close().await
    }
}

contestant! {
    /// A reentrant lock, which is never reentered.
    Reentrant, Off, |locks, key| locks.reentrant(key, &locks.new_owner()), try_acquire, Guard
}

contestant! {
    /// A fair lock, acquired with `try_acquire`.
    Fair, Off, |locks, key| locks.fair(key), try_acquire, Guard
}

contestant! {
    /// A fair lock, acquired with `acquire`. Its first round is the same as that of `try_acquire`,
    /// and always wins in this bench.
    FairAcquire, Off, |locks, key| locks.fair(key), acquire, Guard
}

contestant! {
    /// The lock of a reader, alone.
    Reader, Off, |locks, key| locks.read_write(key).read(), try_acquire, ReadGuard
}

contestant! {
    /// The lock of a reader, with one name for all tasks.
    SharedReader, Off, |locks, _| locks.read_write("shared").read(), try_acquire, ReadGuard
}

contestant! {
    /// The lock of a writer.
    Writer, Off, |locks, key| locks.read_write(key).write(), try_acquire, WriteGuard
}

contestant! {
    /// A semaphore with free permits.
    Permit, Off, |locks, key| locks.semaphore(key, 4), try_acquire, PermitGuard
}

contestant! {
    /// Ten mutexes at once.
    TenNames, Off, |locks, key| locks.multi_mutex((0..10).map(|at| format!("{key}/{at}"))), try_acquire, MultiGuard
}

contestant! {
    /// A mutex with a fencing token.
    Fenced, Off, |locks, key| locks.mutex(key).fenced(), try_acquire, FencedGuard
}

contestant! {
    /// A mutex on masters that are watched for restarts.
    Guarded, Observed, |locks, key| locks.mutex(key), try_acquire, Guard
}

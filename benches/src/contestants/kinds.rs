//! This crate's other kinds of lock, an owner to every task, and its mutex with a fencing token or the restart guard.

use quorlock::{
    Coordinator, Guard, Lock,
    RestartGuard::{self, Observed, Off},
};

use super::quorlock::Quorlock;
use crate::load::{Contestant, Result};

/// A contestant that is `Quorlock` but for the lock of a task and how that is acquired.
macro_rules! contestant {
    ($(#[$doc:meta])* $name:ident, $guard:expr, $lock:expr, $acquire:ident, $has_token:expr) => {
        $(#[$doc])*
        pub struct $name(Quorlock);

        impl Contestant for $name {
            type Task = Lock;

            async fn connect(urls: &[String]) -> Result<Self> {
                let guard: RestartGuard = $guard;
                Ok(Self(Quorlock::guarded(urls, guard).await?))
            }

            fn task(&self, key: String) -> Lock {
                let lock: fn(&Coordinator, String) -> Lock = $lock;
                lock(self.0.locks(), key)
            }

            async fn cycle(lock: &mut Lock) -> Result<()> {
                give_back(lock.$acquire().await?, $has_token).await
            }

            async fn close(self) -> Result<()> {
                self.0.close().await
            }
        }
    };
}

contestant! {
    /// A reentrant lock, never entered twice.
    Reentrant, Off, |locks, key| locks.reentrant(key, &locks.owner()), try_acquire, false
}

contestant! {
    /// A fair lock, through `try_acquire`.
    Fair, Off, |locks, key| locks.fair(key, &locks.owner()), try_acquire, false
}

contestant! {
    /// A fair lock, through `acquire`: the first round is the same, and here it is the last.
    FairAcquire, Off, |locks, key| locks.fair(key, &locks.owner()), acquire, false
}

contestant! {
    /// A mutex with a fencing token.
    Fenced, Off, |locks, key| locks.mutex(key).fenced(), try_acquire, true
}

contestant! {
    /// A mutex on masters that are watched for restarts.
    Guarded, Observed, |locks, key| locks.mutex(key), try_acquire, false
}

async fn give_back(guard: Guard, has_token: bool) -> Result<()> {
    if guard.fencing_token().is_some() != has_token {
        return Err("a fencing token is missing, or was not asked for".into());
    }
    Ok(guard.release().await?)
}

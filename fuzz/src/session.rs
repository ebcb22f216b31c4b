//! The calls of a program, each of which must return in time.

use std::{fmt::Debug, future::Future, time::Duration};

use arbitrary::{Arbitrary, Unstructured};
use quorlock::{
    __internals::{KINDS, plain},
    Coordinator, Guard, Lock, LockKind, Owner, Quarantine,
};
use tokio::time::{Instant, sleep, timeout};

/// One call.
#[derive(Arbitrary, Debug)]
pub(crate) enum Call {
    Ready,
    OnGuard(GuardCall),
    OnLock(Name, LockCall),
    Sleep(u8),
}

/// A call on the guard that was won last.
#[derive(Arbitrary, Debug)]
pub(crate) enum GuardCall {
    Drop,
    Extend(u16),
    Lost,
    Release,
    Settled,
}

#[derive(Arbitrary, Debug)]
pub(crate) enum LockCall {
    AcquireWithin(u8),
    /// An acquisition that is dropped after some milliseconds.
    Dropped(u8),
    Inspect,
    IsHeld,
    TryAcquire,
}

/// The name and the kind of a lock.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Name {
    number: u8,
    is_fenced: bool,
    kind: AnyKind,
}

/// A kind of lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnyKind(pub(crate) LockKind);

impl<'a> Arbitrary<'a> for AnyKind {
    fn arbitrary(input: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let number = input.arbitrary::<u32>()? as usize;
        Ok(Self(KINDS[number % KINDS.len()]))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AnyQuarantine(pub(crate) Quarantine);

impl<'a> Arbitrary<'a> for AnyQuarantine {
    fn arbitrary(input: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let all = [Quarantine::Observed, Quarantine::Off, Quarantine::Strict];
        one_of(&all, input).map(Self)
    }
}

/// Chooses as an enum with these variants would be chosen.
pub(crate) fn one_of<T: Copy>(all: &[T], input: &mut Unstructured<'_>) -> arbitrary::Result<T> {
    let number = u64::from(input.arbitrary::<u32>()?);
    Ok(all[((number * all.len() as u64) >> 32) as usize])
}

impl Name {
    pub(crate) fn lock(self, locks: &Coordinator, owner: &Owner) -> Lock {
        let name = format!("n{}", self.number % 3);
        let lock = locks.of_kind(self.kind.0, name, owner);
        if self.is_fenced {
            plain(lock.fenced())
        } else {
            lock
        }
    }
}

/// A task that makes calls, one after the other. A call fails if it takes longer than its own limit
/// and `bound`.
pub(crate) struct Task<'a> {
    pub(crate) locks: &'a Coordinator,
    pub(crate) owner: Owner,
    pub(crate) guards: Vec<Guard>,
    pub(crate) bound: Duration,
}

impl Task<'_> {
    pub(crate) async fn make(mut self, calls: &[Call]) {
        for call in calls {
            match call {
                Call::Ready => drop(
                    self.within(call, self.locks.ready_within(Duration::ZERO))
                        .await,
                ),
                Call::OnGuard(call) => self.call_guard(call).await,
                Call::OnLock(name, call) => {
                    let lock = name.lock(self.locks, &self.owner);
                    let won = self.call_lock(&lock, call).await;
                    self.guards.extend(won);
                }
                Call::Sleep(time) => sleep(millis(*time)).await,
            }
        }
    }

    async fn call_guard(&mut self, call: &GuardCall) {
        let Some(guard) = self.guards.pop() else {
            return;
        };
        match call {
            GuardCall::Drop => return,
            GuardCall::Extend(ttl) => drop(self.within(call, guard.extend(millis(*ttl))).await),
            GuardCall::Lost => {
                guard.stop_renewing();
                within(call, guard.remaining() + self.bound, guard.lost()).await;
            }
            GuardCall::Release => return drop(self.within(call, guard.release()).await),
            GuardCall::Settled => drop(self.within(call, guard.all_votes()).await),
        }
        self.guards.push(guard);
    }

    /// Makes the call, and returns the guard that it won.
    async fn call_lock(&self, lock: &Lock, call: &LockCall) -> Option<Guard> {
        match call {
            LockCall::AcquireWithin(limit) => {
                let limit = millis(*limit);
                within(call, limit + self.bound, lock.acquire_within(limit))
                    .await
                    .ok()
            }
            LockCall::Dropped(limit) => timeout(millis(*limit), lock.acquire()).await.ok()?.ok(),
            LockCall::Inspect => {
                drop(self.within(call, lock.inspect()).await);
                None
            }
            LockCall::IsHeld => {
                drop(self.within(call, lock.is_held()).await);
                None
            }
            LockCall::TryAcquire => self.within(call, lock.try_acquire()).await.ok(),
        }
    }

    async fn within<T>(&self, what: impl Debug, call: impl Future<Output = T>) -> T {
        within(what, self.bound, call).await
    }
}

fn millis(count: impl Into<u64>) -> Duration {
    Duration::from_millis(count.into())
}

/// Returns the output of `call`. Fails if the call takes longer than `limit`.
pub(crate) async fn within<T>(
    what: impl Debug,
    limit: Duration,
    call: impl Future<Output = T>,
) -> T {
    let start = Instant::now();
    match timeout(limit, call).await {
        Ok(output) => output,
        Err(_) => panic!("{what:?} has not returned after {:?}", start.elapsed()),
    }
}

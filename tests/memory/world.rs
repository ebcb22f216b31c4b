//! The fixture of these tests: memory masters, a coordinator, and helpers.

use std::{future::poll_fn, mem, pin::Pin, task::Poll, thread, time::Duration};

use quorlock::{
    Builder, Coordinator, Fault, Guard, Lock, LockKind, MemoryMaster, Owner, Quarantine, Renewal,
    votes::Votes,
};
pub(crate) use testkit::times::{millis, seconds};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Masters and a coordinator that is connected to them.
pub(crate) struct World {
    pub(crate) masters: Vec<MemoryMaster>,
    pub(crate) locks: Coordinator,
}

impl World {
    pub(crate) async fn new(masters: usize) -> Self {
        Self::with(masters, |builder| builder).await
    }

    pub(crate) async fn with(masters: usize, set: impl FnOnce(Builder) -> Builder) -> Self {
        let masters = self::masters(masters);
        let locks = set(Coordinator::builder()
            .quarantine(Quarantine::Off)
            .masters(&masters))
        .build()
        .unwrap();
        sleep(millis(1)).await; // after this, all masters are connected
        Self { masters, locks }
    }

    /// The lock that most tests use.
    pub(crate) fn lock(&self) -> Lock {
        self.locks.mutex(NAME).renewal(Renewal::Off)
    }

    pub(crate) async fn guard(&self) -> Guard {
        self.lock().try_acquire().await.unwrap()
    }

    /// Closes the coordinator and waits for pending releases. Fails if this takes an hour.
    pub(crate) async fn close(&self) {
        let closing = timeout(seconds(3_600), self.locks.close());
        closing.await.unwrap();
    }

    /// Returns the masters' addresses, as they appear in messages.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let address = |master: &MemoryMaster| {
            let shown = format!("{master:?}");
            shown.split('"').nth(1).unwrap().to_owned()
        };
        self.masters.iter().map(address).collect()
    }

    /// Injects one fault into each master, starting with the first.
    pub(crate) fn inject(&self, faults: impl IntoIterator<Item = Fault>) {
        for (master, fault) in self.masters.iter().zip(faults) {
            master.inject(fault);
        }
    }

    pub(crate) fn inject_all(&self, fault: &Fault) {
        self.inject(self.masters.iter().map(|_| fault.clone()));
    }

    pub(crate) fn clear_faults(&self) {
        self.inject_all(&Fault::None);
    }

    /// Lets another client hold the lock on these masters.
    pub(crate) fn occupy(&self, masters: impl IntoIterator<Item = usize>, ttl: Duration) {
        for master in masters {
            self.masters[master].set(NAME, ANOTHER, Some(ttl));
        }
    }

    /// Returns who holds the lock on each master: `mine`, `another`, or an empty string for no one.
    pub(crate) fn holders(&self) -> Vec<&'static str> {
        let holder = |master: &MemoryMaster| match master.get(NAME) {
            Some(value) if value == ANOTHER => "another",
            Some(_) => "mine",
            None => "",
        };
        self.masters.iter().map(holder).collect()
    }

    /// Returns the TTL of the key on each master.
    pub(crate) fn ttls(&self) -> Vec<Option<Duration>> {
        self.masters
            .iter()
            .map(|master| master.pttl(NAME))
            .collect()
    }

    /// Returns the number of commands that each master has received.
    pub(crate) fn commands(&self) -> Vec<u64> {
        self.masters.iter().map(MemoryMaster::commands).collect()
    }

    /// Returns the number of commands that each master has received since `before`.
    pub(crate) fn commands_since(&self, before: &[u64]) -> Vec<u64> {
        let now = self.commands();
        now.iter()
            .zip(before)
            .map(|(now, then)| now - then)
            .collect()
    }
}

pub(crate) fn masters(count: usize) -> Vec<MemoryMaster> {
    (0..count).map(|_| MemoryMaster::new()).collect()
}

/// Acquires the lock with the default renewal.
pub(crate) async fn renewed_guard(world: &World) -> Guard {
    world.locks.mutex(NAME).try_acquire().await.unwrap()
}

/// Returns three masters and the guard of a lock that all of them have held for a second.
pub(crate) async fn held_for_a_second() -> (World, Guard) {
    let world = World::new(3).await;
    let guard = world.guard().await;
    assert_eq!(guard.all_votes().await.granted_count(), 3);
    sleep(seconds(1)).await;
    (world, guard)
}

/// Returns a lock of this kind, with the name that most tests use.
pub(crate) fn lock(kind: LockKind, locks: &Coordinator, owner: &Owner) -> Lock {
    locks.of_kind(kind, NAME, owner)
}

/// Returns the lock for an owner of its own.
pub(crate) fn own(kind: LockKind, locks: &Coordinator) -> Lock {
    lock(kind, locks, &locks.new_owner())
}

/// Waits until this number of waiters is in the queues of `lock`.
pub(crate) async fn until_queued(lock: &Lock, count: usize) {
    while lock.inspect().await.unwrap().waiters.len() != count {
        sleep(millis(1)).await;
    }
}

/// Returns each master's vote as text, or `-` if it has not voted.
pub(crate) fn said(votes: &Votes) -> Vec<String> {
    let text = |row: quorlock::votes::VoteRow<'_>| {
        let text = row.vote.map_or_else(|| "-".to_owned(), ToString::to_string);
        text.replace(row.master, "it")
    };
    votes.iter().map(text).collect()
}

/// Returns the validity that a TTL gives after the default drift allowance.
pub(crate) fn valid(ttl: Duration) -> Duration {
    ttl - ttl / 100 - millis(2)
}

/// Runs `future`, and returns how long it took.
pub(crate) async fn timed<T>(future: impl Future<Output = T>) -> (Duration, T) {
    let start = Instant::now();
    let output = future.await;
    (start.elapsed(), output)
}

/// Imitates a process that is killed after `time`. Its connections break, and no destructor runs.
/// The calling runtime does nothing meanwhile.
pub(crate) async fn killed_after(
    time: Duration,
    masters: &[MemoryMaster],
    life: impl AsyncFnOnce(Coordinator) + Send,
) {
    let born = Instant::now();
    let process = move || {
        let runtime = paused_runtime();
        let mut life = Box::pin(async { life(Coordinator::new(masters).unwrap()).await });
        let ended = runtime.block_on(async {
            // Advances the paused clock of the process to the time of the caller's paused clock.
            sleep_until(born).await;
            timeout(time, life.as_mut()).await
        });
        assert!(ended.is_err(), "the process ended before it was killed");
        mem::forget(life);
    };
    thread::scope(|scope| scope.spawn(process).join().unwrap());
    sleep_until(born + time).await;
}

pub(crate) fn paused_runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().start_paused(true).build().unwrap()
}

/// Polls `future` once. It must not be ready.
pub(crate) async fn start(future: Pin<&mut impl Future>) {
    let mut future = future;
    poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

pub(crate) fn delay(count: u64) -> Fault {
    Fault::Delay(millis(count))
}

pub(crate) fn error() -> Fault {
    Fault::ErrorReply("OOM no room".into())
}

/// The longest time until a master that is back has been dialled again and answers.
pub(crate) const REDIAL: Duration = millis(1_100);

pub(crate) use quorlock::__internals::KINDS;

pub(crate) const NAME: &str = "orders/42";

/// The token of another client.
pub(crate) const ANOTHER: &str = "another's token";

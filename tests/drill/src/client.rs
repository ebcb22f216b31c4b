//! A client process. Its tasks acquire locks, and add elements to the sets that the locks protect.

use std::io::{self, Read, Write};
use std::panic;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::{
    __internals::fencing_token_of, AcquireError, Coordinator, Guard, Lock, Quarantine, Renewal,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use testkit::random::Random;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::Result;
use crate::clock::{self, Nanos, WrongClock};
use crate::command;
use crate::locks::{LockNumber, MOST_TTL, RESPONSE_TIMEOUT, settings, validity};
use crate::note::Note;
use crate::store::StoreClient;

/// The number of tasks in a client. There are several tasks for each lock.
const TASKS: u64 = 4;

/// The instructions that a client gets at its start.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Orders {
    pub masters: Vec<String>,
    /// The old masters, while the masters are changed.
    pub old_masters: Vec<String>,
    pub store: PathBuf,
    #[serde(with = "quarantine")]
    pub quarantine: Quarantine,
    /// Set if holders write without checking their guards again.
    pub is_careless: bool,
    /// Set if the client runs on several threads.
    pub is_threaded: bool,
    /// The shortest TTL of its locks.
    pub least_ttl: Duration,
    /// The library that makes clocks wrong, and the wall clock of the client.
    #[serde(skip)]
    pub clock: Option<(PathBuf, WrongClock)>,
    /// The configuration file of the command line. If it is set, the client only runs commands.
    pub configuration: Option<PathBuf>,
    pub seed: u64,
}

impl Orders {
    /// Returns the orders that the client gets by its environment.
    pub fn environment(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        let clock = self.clock.iter();
        clock.flat_map(|(library, clock)| clock.environment(library))
    }
}

/// The quarantine has no text of its own in the library.
mod quarantine {
    use super::*;

    const ALL: [Quarantine; 3] = [Quarantine::Observed, Quarantine::Off, Quarantine::Strict];

    pub fn serialize<S: Serializer>(one: &Quarantine, to: S) -> Result<S::Ok, S::Error> {
        ALL.iter().position(|known| known == one).serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Quarantine, D::Error> {
        Option::<usize>::deserialize(from).map(|at| ALL[at.unwrap_or_default()])
    }
}

/// Works until the standard input ends.
pub fn run(orders: Orders) -> Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    // The client does not wait for the tasks of the crate, so it would not notice a panic in one.
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        print(info);
        process::abort();
    }));
    let mut runtime = if orders.is_threaded {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = runtime.worker_threads(2).enable_all().build()?;
    // A task of the runtime may run on any thread.
    let work = async move { tokio::spawn(work(orders)).await? };
    runtime.block_on(work)
}

async fn work(orders: Orders) -> Result<()> {
    let (sender, over) = watch::channel(());
    spawn_blocking(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        drop(sender);
    });
    if let Some(configuration) = &orders.configuration {
        return command::run_all(&orders, configuration, over).await;
    }
    let settings = settings().quarantine(orders.quarantine);
    let settings = settings
        .masters(&orders.masters)
        .old_masters(&orders.old_masters);
    let locks = settings.build()?;
    if orders.quarantine == Quarantine::Observed {
        // From then on, the client notices when a master has forgotten its locks.
        let lock = locks.mutex(format!("ready-{}", orders.seed));
        wait_for_all_grants(&lock, &over).await?;
    }
    write(&Note::Ready)?;
    let ops = Arc::new(AtomicU64::new(1));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let task = Task {
            locks: locks.clone(),
            store: StoreClient::connect(&orders.store).await?,
            is_careless: orders.is_careless,
            least_ttl: orders.least_ttl,
            random: Random::new(orders.seed ^ (task << 32)),
            ops: ops.clone(),
            over: over.clone(),
        };
        tasks.spawn(task.run());
    }
    tasks.spawn(probe(locks.clone(), orders.seed, over));
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    locks.close().await;
    Ok(())
}

/// Waits until all masters grant the lock.
async fn wait_for_all_grants(lock: &Lock, over: &watch::Receiver<()>) -> Result<()> {
    let mut why = "no attempt".to_owned();
    while over.has_changed().is_ok() {
        match lock.try_acquire().await {
            Ok(guard) => {
                let votes = guard.all_votes().await;
                let _ = guard.release().await; // a failed release stays owed
                if votes.granted_count() == votes.master_count() {
                    return Ok(());
                }
                why = votes.to_string();
            }
            Err(error) => why = error.to_string(),
        }
        sleep(Duration::from_millis(50)).await;
    }
    Err(format!("the client was never ready: {why}").into())
}

/// Acquires a lock that no one else uses, again and again.
async fn probe(locks: Coordinator, seed: u64, mut over: watch::Receiver<()>) -> Result<()> {
    let name = format!("probe-{seed}");
    let lock = locks.mutex(&name);
    while over.has_changed().is_ok() {
        if let Ok(guard) = lock.acquire_within(Duration::from_secs(1)).await {
            write(&Note::Probed { at: clock::now() })?;
            let _ = guard.release().await; // a failed release stays owed
        }
        let _ = timeout(PROBE_EVERY, over.changed()).await;
    }
    Ok(())
}

const PROBE_EVERY: Duration = Duration::from_millis(150);

/// Writes a note in one piece. The note survives the death of this process.
pub fn write(note: &Note) -> io::Result<()> {
    let line = serde_json::to_string(note)? + "\n";
    io::stdout().lock().write_all(line.as_bytes())?;
    io::stdout().flush()
}

/// Writes a note for each lock of an operation.
fn note(ops: &[(u64, LockNumber)], of: impl Fn(u64, LockNumber) -> Note) -> io::Result<()> {
    ops.iter().try_for_each(|(op, lock)| write(&of(*op, *lock)))
}

/// A task of the client.
struct Task {
    locks: Coordinator,
    store: StoreClient,
    is_careless: bool,
    least_ttl: Duration,
    random: Random,
    ops: Arc<AtomicU64>,
    /// Closed at the end of the work.
    over: watch::Receiver<()>,
}

impl Task {
    async fn run(mut self) -> Result<()> {
        while self.over.has_changed().is_ok() {
            self.one_operation().await?;
            let pause = Duration::from_millis(5 + self.random.below(90));
            let _ = timeout(pause, self.over.changed()).await;
        }
        Ok(())
    }

    /// Uses one lock, or two mutexes at once. Each name has notes of its own, as if two clients
    /// held the two locks, so that every check sees them.
    async fn one_operation(&mut self) -> Result<()> {
        let number = LockNumber::draw(&mut self.random);
        let is_double = self.random.is_one_in(3);
        let other = number.partner().filter(|_| is_double);
        let numbers = [number].into_iter().chain(other);
        let op = |number| (self.ops.fetch_add(1, Ordering::Relaxed), number);
        let ops: Vec<_> = numbers.map(op).collect();
        let owner = self.locks.new_owner();
        let mut terms = Terms::draw(self);
        let reads = number.has_readers() && !self.random.is_one_in(3);
        let (lock, longer) = match other {
            None if reads => (number.lock_of_reader(&self.locks, &owner), Duration::ZERO),
            None => (number.lock(&self.locks, &owner), Duration::ZERO),
            Some(other) => {
                (terms.min_hold, terms.extension) = (Duration::ZERO, None);
                (number.lock_with(other, &self.locks), LONGER)
            }
        };
        let lock = lock.ttl(terms.ttl).renewal(terms.renewal);
        let lock = lock.min_hold(terms.min_hold);
        let way = Way::draw(&mut self.random);
        let (at, came) = (clock::now(), clock::came());
        let due = at + clock::nanos(way.limit() + LONGEST_AFTER_LIMIT + longer);
        note(&ops, |op, lock| Note::Asked {
            op,
            at,
            lock,
            came,
            due,
            reads,
        })?;
        let guard = match way.acquire(&lock).await {
            Ok(guard) => guard,
            Err(why) => {
                let (at, why) = (clock::now(), || why.clone());
                let failed = |op, _| Note::Failed { op, at, why: why() };
                return Ok(note(&ops, failed)?);
            }
        };
        let (at, valid_until) = (clock::now(), clock::of(guard.valid_until()));
        let asked = at.min(valid_until - clock::nanos(validity(terms.ttl)));
        let hold_until = match terms.min_hold {
            Duration::ZERO => 0,
            time => asked + clock::nanos(time),
        };
        note(&ops, |op, lock| Note::Got {
            op,
            at,
            lock,
            asked,
            valid_until,
            hold_until,
            token: fencing_token_of(&guard, &lock.name()).map(u64::from),
            slot: guard.slot(),
            owner: owner.id().to_owned(),
        })?;
        let used = if reads { &[] } else { &ops[..] };
        self.add_elements(used, ops[0], &lock, &guard, &terms)
            .await?;
        let ended = clock::of(guard.valid_until());
        let latest = terms.latest_end(at, valid_until);
        // The call for several names extends the first locks while it waits for the others. A late
        // answer may come after the call.
        if ops.len() == 1 && ended > latest {
            return Err(format!("renewed by {} ns too far: {terms:?}", ended - latest).into());
        }
        let (at, valid_until) = (clock::now(), ended);
        note(&ops, |op, _| Note::Ended {
            op,
            at,
            valid_until,
        })?;
        if self.random.is_one_in(3) {
            drop(guard);
            return Ok(());
        }
        let due = clock::now() + clock::nanos(LONGEST_CALL);
        let is_released = guard.release().await.is_ok(); // a failed release stays owed
        let at = clock::now();
        let is_kept = is_released && at < ended;
        Ok(note(&ops, |op, _| Note::Freed {
            op,
            at,
            due,
            is_kept,
        })?)
    }

    /// Reads the sets of the locks in `written`, uses the guard, and writes each set back with one
    /// more element.
    async fn add_elements(
        &mut self,
        written: &[(u64, LockNumber)],
        (op, number): (u64, LockNumber),
        lock: &Lock,
        guard: &Guard,
        terms: &Terms,
    ) -> Result<()> {
        let mut sets = Vec::new();
        for (_, number) in written {
            let token = fencing_token_of(guard, &number.name());
            let (resource, token) = (number.resource(guard.slot()), token.map_or(0, u64::from));
            let Some(read) = self.store.read(resource, token).await? else {
                return Ok(()); // the lock is lost, and a later holder has been here
            };
            sets.push((resource, token, read));
        }
        self.use_guard(op, number, lock, guard, terms).await?;
        for (resource, token, read) in sets {
            if self.is_careless || guard.is_valid() {
                let valid_until = clock::of(guard.valid_until());
                self.store.write(resource, token, read, valid_until).await?;
            }
        }
        Ok(())
    }

    /// Holds the lock, in the way that the terms say.
    async fn use_guard(
        &mut self,
        op: u64,
        number: LockNumber,
        lock: &Lock,
        guard: &Guard,
        terms: &Terms,
    ) -> Result<()> {
        if terms.re_enters && number.has_levels() {
            self.re_enter(lock, guard).await?;
        }
        if let Some(ttl) = terms.extension {
            extend(op, guard, ttl).await?;
        }
        let hold = match terms.hold {
            Some(hold) => hold,
            // Ends in the last moment.
            None => {
                let left = guard.remaining();
                left.saturating_sub(Duration::from_millis(self.random.below(4)))
            }
        };
        sleep(hold).await;
        Ok(())
    }

    /// Acquires the lock a second time. The failure of a second round has no effect on the guard.
    async fn re_enter(&mut self, lock: &Lock, guard: &Guard) -> Result<()> {
        if let Ok(inner) = lock.try_acquire().await {
            // If the guard is lost, the second round has acquired the lock anew.
            let token = |guard: &Guard| fencing_token_of(guard, guard.name());
            if guard.is_valid() && token(&inner) != token(guard) {
                return Err("a second guard of one owner has another token".into());
            }
            sleep(Duration::from_millis(self.random.below(5))).await;
        }
        Ok(())
    }
}

/// Extends the lock by hand.
async fn extend(op: u64, guard: &Guard, ttl: Duration) -> Result<()> {
    let (from, wall) = (clock::now(), clock::wall_micros());
    let is_extended = guard.extend(ttl).await.is_ok();
    let (at, valid_until) = (clock::now(), clock::of(guard.valid_until()));
    let due = from + clock::nanos(LONGEST_CALL);
    let least = from + clock::nanos(validity(ttl));
    write(&Note::Extended { op, from, at, due })?;
    // If the wall clock is set forward, holders lose that much validity.
    let is_forward = clock::wall_micros() > wall + (at - from) / 1_000 + 1_000;
    if is_extended && !is_forward && valid_until + clock::MILLISECOND < least {
        return Err(format!("an extension by {ttl:?} ends {valid_until}, began {from}").into());
    }
    Ok(())
}

/// The details of an operation.
#[derive(Debug)]
struct Terms {
    ttl: Duration,
    renewal: Renewal,
    min_hold: Duration,
    re_enters: bool,
    /// The TTL of an extension by hand.
    extension: Option<Duration>,
    /// The time between reading and writing. `None` is until shortly before the validity ends.
    hold: Option<Duration>,
}

impl Terms {
    fn draw(task: &mut Task) -> Self {
        let least = task.least_ttl;
        let is_careless = task.is_careless;
        let random = &mut task.random;
        let draw_ttl = |random: &mut Random| {
            let more = (MOST_TTL - least).as_millis() as u64;
            match random.is_one_in(2) {
                true => least,
                false => least + Duration::from_millis(random.below(more + 1)),
            }
        };
        let ttl = draw_ttl(random);
        let renewal = match random.below(8) {
            0 => Renewal::Off,
            1 => Renewal::UpTo(Duration::from_millis(random.below(2_000))),
            _ => Renewal::Unlimited,
        };
        let min_hold = match random.below(12) {
            0 => Duration::from_millis(1 + random.below(MOST_TTL.as_millis() as u64 / 2)),
            _ => Duration::ZERO,
        };
        let hold = match random.below(100) {
            // The lock is renewed, perhaps several times.
            0 => Some(Duration::from_millis(random.below(4_000))),
            1..=4 if renewal == Renewal::Off => None,
            // The holder is probably in the middle of its work when it is stopped.
            5..=29 if is_careless => Some(Duration::from_millis(random.below(300))),
            _ => Some(Duration::from_millis(1 + random.below(15))),
        };
        Self {
            ttl,
            renewal,
            min_hold,
            re_enters: random.is_one_in(8),
            extension: random.is_one_in(10).then(|| draw_ttl(random)),
            hold,
        }
    }

    /// Returns the latest time at which the validity may end, as the settings of the renewal say.
    /// The guard was granted at `at`, and was valid until `valid_until`.
    fn latest_end(&self, at: Nanos, valid_until: Nanos) -> Nanos {
        match self.renewal {
            _ if self.re_enters || self.extension.is_some() => Nanos::MAX,
            Renewal::Off => valid_until + clock::MILLISECOND, // each reading has an error
            // A renewal that falls due just before the limit may be late, but not after the lease.
            Renewal::UpTo(limit) => valid_until.max(at + clock::nanos(limit + self.ttl * 2)),
            _ => Nanos::MAX,
        }
    }
}

/// A way to acquire a lock.
enum Way {
    /// Waits, and drops the future if that takes too long.
    Cancelled(Duration),
    /// Makes one attempt.
    Once,
    /// Waits for at most this time.
    Within(Duration),
}

impl Way {
    fn draw(random: &mut Random) -> Self {
        match random.below(20) {
            0 => Self::Cancelled(Duration::from_millis(random.below(60))),
            1 | 2 => Self::Once,
            _ => Self::Within(Duration::from_millis(500 + random.below(7_500))),
        }
    }

    fn limit(&self) -> Duration {
        match *self {
            Self::Once => Duration::ZERO,
            Self::Cancelled(limit) | Self::Within(limit) => limit,
        }
    }

    async fn acquire(self, lock: &Lock) -> Result<Guard, String> {
        let name = |error: AcquireError| {
            let text = format!("{:?}", error);
            let end = text.find([' ', '(']).unwrap_or(text.len());
            text[..end].to_owned()
        };
        match self {
            Self::Cancelled(limit) => match timeout(limit, lock.acquire()).await {
                Ok(acquired) => acquired.map_err(name),
                Err(_) => Err("Cancelled".to_owned()),
            },
            Self::Once => lock.try_acquire().await.map_err(name),
            Self::Within(limit) => lock.acquire_within(limit).await.map_err(name),
        }
    }
}

/// The longest time that a call takes after its limit: six response timeouts, which may double, and
/// the connect timeout. See [`Lock::acquire_within`].
const LONGEST_AFTER_LIMIT: Duration =
    Duration::from_millis(12 * RESPONSE_TIMEOUT.as_millis() as u64 + 1_000);

/// The time by which a call for two names may be late in addition: four response timeouts, which
/// may double.
const LONGER: Duration = Duration::from_millis(8 * RESPONSE_TIMEOUT.as_millis() as u64);

/// The longest time that a release or an extension takes. Its response timeout may double.
const LONGEST_CALL: Duration = Duration::from_millis(4 * RESPONSE_TIMEOUT.as_millis() as u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_that_goes_on_for_too_long_is_found() {
        let mut terms = Terms {
            ttl: Duration::from_nanos(100),
            renewal: Renewal::Off,
            min_hold: Duration::ZERO,
            re_enters: false,
            extension: None,
            hold: None,
        };
        assert_eq!(terms.latest_end(10, 105), 105 + clock::MILLISECOND);
        terms.renewal = Renewal::UpTo(Duration::from_nanos(50));
        assert_eq!(terms.latest_end(10, 105), 260);
        terms.extension = Some(terms.ttl);
        assert_eq!(terms.latest_end(10, 105), Nanos::MAX);
    }
}

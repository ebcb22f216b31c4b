//! A client process. Its tasks acquire locks, and add elements to the sets that the locks protect.

use std::io::{self, Read, Write};
use std::panic;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock::{AcquireError, Coordinator, Guard, Lock, RestartGuard};
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::Result;
use crate::clock::{self, Nanos};
use crate::locks::{LOCKS, LockNumber, NODE_TIMEOUT, settings};
use crate::note::Note;
use crate::random::Random;
use crate::store::StoreClient;

/// The number of tasks in a client. There are several tasks for each lock.
const TASKS: u64 = 4;

/// The instructions that a client gets at its start.
#[derive(Clone, Debug)]
pub struct Orders {
    pub masters: Vec<String>,
    pub store: PathBuf,
    pub guard: RestartGuard,
    pub is_durable: bool,
    /// Set if holders write without checking their guards again.
    pub is_careless: bool,
    pub seed: u64,
}

impl Orders {
    pub fn to_arguments(&self) -> Vec<String> {
        vec![
            self.masters.join(","),
            self.store.display().to_string(),
            format!("{:?}", self.guard),
            self.is_durable.to_string(),
            self.is_careless.to_string(),
            self.seed.to_string(),
        ]
    }

    pub fn parse(arguments: &[String]) -> Result<Self> {
        let [masters, store, guard, is_durable, is_careless, seed] = arguments else {
            return Err(format!("not the orders of a client: {arguments:?}").into());
        };
        let guards = [
            RestartGuard::Observed,
            RestartGuard::Off,
            RestartGuard::Strict,
        ];
        let named = guards
            .into_iter()
            .find(|known| format!("{known:?}") == *guard);
        Ok(Self {
            masters: masters.split(',').map(str::to_owned).collect(),
            store: store.into(),
            guard: named.ok_or("no such restart guard")?,
            is_durable: is_durable.parse()?,
            is_careless: is_careless.parse()?,
            seed: seed.parse()?,
        })
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work(orders))
}

async fn work(orders: Orders) -> Result<()> {
    let locks = settings()
        .masters(&orders.masters)
        .restart_guard(orders.guard)
        .durable_masters(orders.is_durable)
        .build()?;
    let (sender, over) = watch::channel(());
    spawn_blocking(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        drop(sender);
    });
    if orders.guard == RestartGuard::Observed {
        // From then on, the client notices when a master has forgotten its locks.
        wait_for_all_masters(&locks, orders.seed, over.clone()).await?;
    }
    write(&Note::Ready)?;
    let ops = Arc::new(AtomicU64::new(1));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let task = Task {
            locks: locks.clone(),
            store: StoreClient::connect(&orders.store).await?,
            is_careless: orders.is_careless,
            random: Random::new(orders.seed ^ (task << 32)),
            ops: ops.clone(),
            over: over.clone(),
        };
        tasks.spawn(task.run());
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    locks.close().await;
    Ok(())
}

/// Waits until all masters grant a lock.
async fn wait_for_all_masters(
    locks: &Coordinator,
    seed: u64,
    over: watch::Receiver<()>,
) -> Result<()> {
    let lock = locks.mutex(format!("ready-{seed}"));
    let mut why = "no attempt".to_owned();
    while over.has_changed().is_ok() {
        match lock.try_acquire().await {
            Ok(guard) => {
                let votes = guard.settled().await;
                let _ = guard.release().await; // a failed release stays owed
                if votes.granted_count() == locks.master_count() {
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

/// Writes a note in one piece. The note survives the death of this process.
fn write(note: &Note) -> io::Result<()> {
    io::stdout()
        .lock()
        .write_all(format!("{note}\n").as_bytes())?;
    io::stdout().flush()
}

/// A task of the client.
struct Task {
    locks: Coordinator,
    store: StoreClient,
    is_careless: bool,
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

    async fn one_operation(&mut self) -> Result<()> {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        let number = LockNumber(self.random.index(LOCKS));
        let owner = self.locks.owner();
        let lock = number.lock(&self.locks, &owner);
        let way = Way::draw(&mut self.random);
        write(&Note::Asked {
            op,
            at: clock::now(),
            lock: number,
            came: clock::wall_micros(),
            due: clock::now() + clock::nanos(way.limit() + LONGEST_AFTER_LIMIT),
        })?;
        let guard = match way.acquire(&lock).await {
            Ok(guard) => guard,
            Err(why) => {
                let at = clock::now();
                return Ok(write(&Note::Failed { op, at, why })?);
            }
        };
        write(&Note::Got {
            op,
            at: clock::now(),
            valid_until: clock::of(guard.valid_until()),
            token: guard.fencing_token(),
            owner: owner.id().to_owned(),
        })?;
        self.add_an_element(number, &lock, &guard).await?;
        write(&Note::Ended {
            op,
            at: clock::now(),
            valid_until: clock::of(guard.valid_until()),
        })?;
        if self.random.is_one_in(3) {
            drop(guard);
            return Ok(());
        }
        let due = clock::now() + clock::nanos(LONGEST_RELEASE);
        let _ = guard.release().await; // a failed release stays owed
        let at = clock::now();
        Ok(write(&Note::Freed { op, at, due })?)
    }

    /// Reads the set, waits, and writes it back with one more element.
    async fn add_an_element(
        &mut self,
        number: LockNumber,
        lock: &Lock,
        guard: &Guard,
    ) -> Result<()> {
        let token = guard.fencing_token().unwrap_or_default();
        let Some(read) = self.store.read(number, token).await? else {
            return Ok(()); // the lock is lost, and a later holder has been here
        };
        if self.random.is_one_in(8) && number.kind() != quorlock::Kind::Mutex {
            self.re_enter(lock, guard).await?;
        }
        sleep(self.draw_hold()).await;
        // A careful holder leaves a margin for the write. This lets it write in time even if the
        // machine is busy.
        if self.is_careless || guard.remaining() > MARGIN {
            let valid_until = clock::of(guard.valid_until());
            self.store.write(number, token, read, valid_until).await?;
        }
        Ok(())
    }

    /// Acquires the lock a second time. The failure of a second round has no effect on the guard.
    async fn re_enter(&mut self, lock: &Lock, guard: &Guard) -> Result<()> {
        if let Ok(inner) = lock.try_acquire().await {
            // If the guard is lost, the second round has acquired the lock anew.
            if guard.is_valid() && inner.fencing_token() != guard.fencing_token() {
                return Err("a second guard of one owner has another token".into());
            }
            sleep(Duration::from_millis(self.random.below(5))).await;
        }
        Ok(())
    }

    fn draw_hold(&mut self) -> Duration {
        if self.random.is_one_in(100) {
            // The lock is renewed, perhaps several times.
            Duration::from_millis(self.random.below(4_000))
        } else if self.is_careless && self.random.is_one_in(4) {
            // The holder is probably in the middle of its work when it is stopped.
            Duration::from_millis(self.random.below(300))
        } else {
            Duration::from_millis(1 + self.random.below(15))
        }
    }
}

/// The least validity that a careful holder needs for a write.
const MARGIN: Duration = Duration::from_millis(500);

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
            let text = format!("{:?}", error.last_attempt());
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

/// The longest time that a call takes after its limit: six node timeouts, which may double, and the
/// connect timeout. See [`Lock::acquire_within`].
const LONGEST_AFTER_LIMIT: Duration =
    Duration::from_millis(12 * NODE_TIMEOUT.as_millis() as u64 + 1_000);

/// The longest time that a release takes. Its node timeout may double.
const LONGEST_RELEASE: Duration = Duration::from_millis(4 * NODE_TIMEOUT.as_millis() as u64);

/// Returns when a lock was first asked for in the round that won it.
pub fn start_of_round(valid_until: Nanos) -> Nanos {
    valid_until - clock::nanos(crate::locks::validity_of_a_round())
}

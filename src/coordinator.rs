//! The handle on a set of masters, and how it is built.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    check::{Checker, Preflight},
    core::{
        config::{Config, Settings},
        master_set::MasterSet,
        name::Kind,
        quorum::majority,
        renewal::Renewal,
        restart::{RestartGuard, quarantine},
        retry::Backoff,
    },
    driver::{clock, engine::Engine},
    error::ConfigError,
    lock::Lock,
    master::{Mailbox, MasterConfig, MasterSpec, RestartTracker, Supervisor},
    owner::Owner,
};

/// A set of independent masters that hold locks together. Cheap to clone; clones share everything.
///
/// Each master has one connection and one background task, which dials it, notices when it hangs and
/// dials it again; a master that is down fails at once and costs the others nothing. One more task keeps
/// the locks that are held. The tasks end
/// when the last coordinator, lock and guard is gone and what was posted is delivered.
///
/// # Guarantees
///
/// At any instant at most one holder of a name (the guard of a mutex, or an [`Owner`] with all its guards)
/// [is valid](crate::Guard::is_valid), as long as clocks run at rates that differ by less than the
/// [drift](Builder::drift_ppm) and no master forgets a lock that has not expired.
/// Any majority of masters serves. See [`docs::guarantees`](crate::docs::guarantees).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use quorlock::{Coordinator, MemoryMaster};
///
/// let locks = Coordinator::builder()
///     .masters((0..5).map(|_| MemoryMaster::new())) // or ["redis://10.0.0.1", "redis://10.0.0.2", ..]
///     .ttl(Duration::from_secs(30))
///     .build()?;
/// let guard = locks.mutex("orders/42").acquire_within(Duration::from_secs(1)).await?;
/// assert!(guard.is_valid());
/// guard.release().await?;
/// locks.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Coordinator {
    engine: Arc<Engine>,
    checker: Arc<Checker>,
}

impl Coordinator {
    /// A coordinator of `masters` with all settings at their defaults. Must be called inside a tokio
    /// runtime, and starts to dial.
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn new(
        masters: impl IntoIterator<Item = impl Into<MasterSpec>>,
    ) -> Result<Self, ConfigError> {
        Self::builder().masters(masters).build()
    }

    /// A coordinator to be configured.
    pub fn builder() -> Builder {
        Builder {
            masters: Vec::new(),
            settings: Settings::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// The lock called `name`: on every master a string under that key, as `SET NX PX` writes it and most
    /// Redlock libraries do, so that they exclude each other.
    ///
    /// Not reentrant, not even for its holder: a task that acquires what it holds waits for itself.
    ///
    /// Sends nothing. A name that cannot be used is reported when the lock is acquired.
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.engine.clone(), Kind::Mutex, name.as_ref(), None)
    }

    /// A new owner for [`reentrant`](Self::reentrant) and [`fair`](Self::fair) locks: one for each job, as tasks that
    /// share an owner do not exclude each other. Sends nothing.
    ///
    /// Its locks are for this coordinator and its clones: with another one they fail with
    /// [`ForeignOwner`](ConfigError::ForeignOwner).
    pub fn owner(&self) -> Owner {
        Owner(Arc::new(self.engine.owner()))
    }

    /// The reentrant lock called `name`, to be held by `owner`, as often as it likes: every guard is one level,
    /// and the last one that is dropped gives the lock up.
    ///
    /// On every master a hash under that key, as Redisson's `RLock` writes it: its
    /// `RedissonRedLock` over these masters and this lock exclude each other, and wake each other's
    /// waiters. Its read-write lock is refused while this one is held. Its fair lock must not be
    /// mixed with either kind of ours, and its `getMultiLock(name, values)` takes a name that is
    /// held: see [`docs::guarantees`](crate::docs::guarantees#reentrant-locks).
    ///
    /// Acquiring it again is a round of its own, which extends the lock to the
    /// [ttl](Lock::ttl) that is asked for and never shortens it; the guards of one owner share their validity, and are
    /// lost together.
    ///
    /// Sends nothing. A name or an owner that cannot be used is reported when the lock is acquired; and so is a
    /// name that is held as another kind, by [`OtherKind`](crate::AcquireError::OtherKind). One that is free can be
    /// taken as any kind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{AcquireError, Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let owner = locks.owner();
    /// let lock = locks.reentrant("orders/42", &owner);
    /// let outer = lock.acquire().await?;
    /// let inner = lock.try_acquire().await?; // at once: the owner has it
    /// assert_eq!(inner.depth(), 2);
    ///
    /// let refused = locks.reentrant("orders/42", &locks.owner()).try_acquire().await;
    /// assert!(matches!(refused, Err(AcquireError::Contended { .. })));
    /// # drop((outer, inner));
    /// # Ok(()) }
    /// ```
    pub fn reentrant(&self, name: impl AsRef<str>, owner: &Owner) -> Lock {
        Lock::new(
            self.engine.clone(),
            Kind::Reentrant,
            name.as_ref(),
            Some(owner),
        )
    }

    /// The fair lock called `name`, to be held by `owner`: a [reentrant](Self::reentrant) one whose waiters are
    /// served in the order in which they came, across all processes and masters.
    ///
    /// LocalWaiters is a place in a queue on every master. It costs each of them a command about once a second for
    /// every waiter, and a waiter whose process died is passed over when the [patience](Builder::patience) is
    /// over. [`try_acquire`](Lock::try_acquire) takes no place, and passes nobody.
    ///
    /// A waiter to whom no majority of masters have answered in time for half its patience cannot
    /// win. It leaves the queues so that others can, and takes its old place when a majority
    /// answer.
    ///
    /// # Guarantees
    ///
    /// Of two waiters whom a majority of masters have heard of, the one who came first is served first. Everything
    /// else is as for a [reentrant](Self::reentrant) lock.
    ///
    /// # Not guaranteed
    ///
    /// Who came first goes by the waiters' clocks, which may be off by a second; those that are off
    /// by more go by the masters'. Masters that are down or have lost their queues may let a later
    /// one pass. After an outage that is longer than half the patience, a waiter that is back later
    /// may be passed by others. See [`docs::guarantees`](crate::docs::guarantees).
    ///
    /// Sends nothing. A name or an owner that cannot be used is reported when the lock is acquired; and so is a
    /// name that is held as another kind, by [`OtherKind`](crate::AcquireError::OtherKind). One that is free can be
    /// taken as any kind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let (mine, yours) = (locks.owner(), locks.owner());
    /// let guard = locks.fair("orders/42", &mine).acquire().await?;
    /// let next = locks.fair("orders/42", &yours);
    /// let waiting = tokio::spawn(async move { next.acquire().await });
    /// while locks.fair("orders/42", &mine).inspect().await?.queue != [yours.id()] {
    ///     tokio::task::yield_now().await;
    /// }
    /// guard.release().await?;
    /// // It is free, or the waiter has it already; nobody passes it.
    /// assert!(locks.fair("orders/42", &mine).try_acquire().await.is_err());
    /// assert!(waiting.await??.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn fair(&self, name: impl AsRef<str>, owner: &Owner) -> Lock {
        Lock::new(self.engine.clone(), Kind::Fair, name.as_ref(), Some(owner))
    }

    /// Asks all masters what they are, how they are set and what their user may do, and says what is dangerous about it,
    /// why, and what mends it: eviction, replicas, a server listed twice, missing rights, clocks that are apart. For a
    /// program's start, or a test of a deployment. What cannot be found out is a finding, too; no finding
    /// means that all is fine, with one exception: [`docs::operations`](crate::docs::operations).
    ///
    /// Nothing is changed, and nothing is refused because of it. The list of findings is there, too, and the rights that
    /// it takes: `+info` and `+config|get` besides those of locks.
    ///
    /// Waits for the first connections, up to the connect timeout, and takes two round trips then, or two node timeouts
    /// where a master does not answer.
    ///
    /// # Cancel safety
    ///
    /// Only looks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, Level, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let report = locks.check().await;
    /// if report.worst() >= Some(Severity::Unknown) {
    ///     eprintln!("{report}");
    /// }
    /// // Not from `Warn` on: locks go on while one master is in quarantine, and this should start then.
    /// assert!(report.worst() < Some(Severity::Refuse));
    /// # Ok(()) }
    /// ```
    pub async fn check(&self) -> Preflight {
        let (config, node_timeout) = (self.engine.config(), self.engine.node_timeout());
        self.checker.run(config, node_timeout).await
    }

    /// How many masters there are.
    pub fn master_count(&self) -> usize {
        self.engine.size()
    }

    /// How many masters make a majority.
    pub fn quorum(&self) -> usize {
        majority(self.engine.size())
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Refuses new acquisitions and waits until nothing is owed: every release that was posted has
    /// reached the masters that may hold the key, or their keys are gone by themselves, which takes
    /// the longest TTL in use at most, or twice the patience of a fair lock if that is longer.
    ///
    /// Where masters are down that may be long: put it under a [timeout](tokio::time::timeout). Join the tasks that
    /// hold or want locks first.
    ///
    /// This is the barrier for guards that were dropped. Guards that are still alive stay valid, are
    /// renewed, and can be extended and released; they are not waited for, nor are attempts under way. Whoever
    /// waits for a lock gets [`Closed`](crate::AcquireError::Closed) at the next attempt. Clones of the coordinator
    /// are closed with it; closing twice does no harm.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the coordinator closed, and what is owed is still delivered for as
    /// long as the runtime lives.
    pub async fn close(&self) {
        self.engine.close().await;
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("masters", &self.engine.addresses())
            .finish_non_exhaustive()
    }
}

/// Configures a [`Coordinator`]. Everything is checked by [`build`](Self::build), before anything is sent.
///
/// # Default
///
/// - ttl: 10 s
/// - node timeout: four round trips to the master, at least 50 ms, at most 1 s
/// - connect timeout: 1 s
/// - drift: 10,000 ppm (1 %), plus 2 ms
/// - retry delay: 10 ms to 200 ms
/// - key template: `{name}`
/// - renewal: up to 1 h
/// - patience: 3 s, or four node timeouts where that is longer
/// - restart guard: observed
/// - durable masters: no
/// - max ttl: 1 min
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    masters: Vec<MasterSpec>,
    settings: Settings,
    #[cfg(feature = "tls")]
    tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Builder {
    /// Adds one master: a URL, a [`MemoryMaster`](crate::MemoryMaster), or a ready `redis::Client`.
    ///
    /// Masters must be independent servers without replication between them. Three or five are usual: an
    /// even number survives no more failures than the odd one below it.
    pub fn master(mut self, master: impl Into<MasterSpec>) -> Self {
        self.masters.push(master.into());
        self
    }

    /// Adds several masters.
    pub fn masters(mut self, masters: impl IntoIterator<Item = impl Into<MasterSpec>>) -> Self {
        self.masters.extend(masters.into_iter().map(Into::into));
        self
    }

    /// How long a lock lives on the masters if nobody extends or releases it; a lock can have its own.
    ///
    /// Longer means fewer extensions, and a longer wait for others after a holder died. It must exceed the
    /// node timeout and the drift allowance together. Defaults to 10 s. Masters count in milliseconds:
    /// fractions are cut off.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// Sets how long one master may take to answer a command, from the send, before its vote counts
    /// as failed. 1 ms to 60 s.
    ///
    /// The default follows the round trip: four times the fastest answer of each master, at least
    /// 50 ms and at most 1 s. A timeout that is set here holds for all masters. It should be small
    /// against the TTL, and well above the round trip: a master that is further away never votes in
    /// time.
    ///
    /// A connection is given up after three node timeouts without a byte from the master, and after
    /// thirty without a whole reply.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.settings.node_timeout = Some(timeout);
        self
    }

    /// Sets how long a connection may take to be made, name resolution, TLS and login included.
    /// Defaults to 1 s; 1 ms to 60 s.
    ///
    /// The first commands of a coordinator wait for its first connections, this long at most, or
    /// until their outcome is certain. Later, a master without a connection fails at once.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// By how much clock rates may differ, in parts per million of the TTL; it is taken off every validity,
    /// with 2 ms for the granularity of Redis' expiry.
    ///
    /// It must cover the masters' wall clocks and the client's clock together. The default of 10,000
    /// (1 %) is the algorithm's usual one; a time daemon that may slew faster, as chrony does by default
    /// after a large step (up to 8.3 %), asks for 100,000.
    pub fn drift_ppm(mut self, ppm: u32) -> Self {
        self.settings.drift_ppm = ppm;
        self
    }

    /// The bounds of the random delay between two attempts when there is nothing better to wait for: too few
    /// masters answered, the vote was split, or no majority of them can tell of releases. The upper one is
    /// reached after a few failures. The lower one is also the least time between attempts of a waiter
    /// whom messages keep waking. Defaults to 10 ms and 200 ms.
    ///
    /// The lower one should be above the time that it takes to acquire a majority, so that contenders who
    /// split the vote come apart.
    pub fn retry_delay(mut self, least: Duration, most: Duration) -> Self {
        self.settings.retry_delay = (least, most);
        self
    }

    /// The bounds of the random time for which a waiter that is told of releases relies on that;
    /// then it tries again, as other libraries release a lock without a word, and messages get
    /// lost. Not for fair locks. Defaults to 500 ms and 1.5 s.
    ///
    /// By default a waiter notices a silent release after half a second on average, unless the TTL
    /// that it has seen ends before. Most other libraries poll each 50 to 300 ms, and are served
    /// more often than waiters of this crate while both wait for a lock that is never free for
    /// long: shorter bounds make that even.
    ///
    /// Every attempt costs each master two commands, and may split the vote of others. One waiter
    /// for each name and process polls, so the default costs each master about two commands a
    /// second for each of these.
    pub fn poll_interval(mut self, least: Duration, most: Duration) -> Self {
        self.settings.poll_interval = (least, most);
        self
    }

    /// Sets how long a lock is renewed while its guard lives. Defaults to
    /// [`Renewal::UpTo`] one hour. A lock can have a [setting of its own](Lock::renewal).
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.settings.renewal = renewal;
        self
    }

    /// How long a waiter of a fair lock may give no sign of life before the others pass it over. Waiters ask again
    /// three or four times in that time. Defaults to 3 s, or four node timeouts where that is longer; at least those.
    pub fn waiter_timeout(mut self, patience: Duration) -> Self {
        self.settings.patience = Some(patience);
        self
    }

    /// What is done about masters that may have forgotten locks. Defaults to
    /// [`Observed`](RestartGuard::Observed).
    pub fn restart_guard(mut self, guard: RestartGuard) -> Self {
        self.settings.restart_guard = guard;
        self
    }

    /// Whether every master keeps all it ever answered over any restart. Then one that restarts has its vote at once,
    /// with the locks that it had. Not so by default.
    ///
    /// Every dial checks what can be checked; a master that fails it is quarantined as ever, and the log says why.
    /// Say so only where the rest holds, too: see
    /// [`docs::guarantees`](crate::docs::guarantees#masters-that-keep-everything).
    pub fn durable_masters(mut self, durable: bool) -> Self {
        self.settings.durable_masters = durable;
        self
    }

    /// The longest TTL that a lock may have; asking for more is an error. A master that may have forgotten locks has
    /// no vote for so long, drift included, and all who use it must agree. Defaults to 1 min, or the [ttl](Self::ttl) where
    /// that is longer; without a [restart guard](Self::restart_guard) to 366 days.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.settings.max_ttl = Some(max_ttl);
        self
    }

    /// How keys are made of names: `{name}` stands for the name. Defaults to `{name}`; RedLock.net
    /// and pottery use `redlock:{name}`. Keys that begin with `quorlock:` are the crate's own, and
    /// refused.
    pub fn key_template(mut self, template: impl Into<String>) -> Self {
        self.settings.key_template = template.into();
        self
    }

    /// How `rediss://` masters are trusted, and what certificate is shown to them. Defaults to the system's
    /// trusted roots and no client certificate.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: impl Into<Arc<crate::rustls::ClientConfig>>) -> Self {
        self.tls = Some(config.into());
        self
    }

    /// Checks everything and starts to dial. Must be called inside a tokio runtime, with time and I/O
    /// enabled, which the connections live on from then on: it must be driven for as long as locks are used,
    /// also from other runtimes. Does not wait for any master: one that is not up yet is
    /// dialled again until it is.
    ///
    /// # Errors
    ///
    /// Every [`ConfigError`] but those that concern one lock. Nothing was sent.
    pub fn build(self) -> Result<Coordinator, ConfigError> {
        let config = Config::parse(self.settings)?;
        let addresses = check_masters(&self.masters)?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| ConfigError::NoRuntime)?;
        let terms = MasterConfig {
            node_timeout: config.node_timeout,
            connect_timeout: config.connect_timeout,
            redial: Backoff::between(Duration::from_millis(20), Duration::from_secs(1)),
            now: clock::monotonic,
            random: clock::random_u64,
            guarding: RestartTracker::new(
                config.restart_guard,
                config.durable_masters,
                clock::monotonic,
            ),
            quarantine: quarantine(config.max_ttl, config.drift),
            #[cfg(feature = "tls")]
            tls: self.tls,
        };
        let probes = self.masters.iter().enumerate();
        let probes = probes.filter_map(|(master, spec)| spec.probe(master, &terms));
        let checker = Checker::new(probes.collect(), runtime.clone(), clock::wall_micros);
        let masters: Vec<(Arc<Mailbox>, Supervisor)> = self
            .masters
            .into_iter()
            .zip(addresses)
            .enumerate()
            .map(|(master, (spec, address))| spec.open(master, address, &terms))
            .collect();
        Ok(Coordinator {
            engine: Arc::new(Engine::start(config, masters, &runtime)),
            checker: Arc::new(checker),
        })
    }
}

/// The masters' addresses, if there are masters and each is another server.
fn check_masters(masters: &[MasterSpec]) -> Result<Vec<Arc<str>>, ConfigError> {
    if masters.is_empty() {
        return Err(ConfigError::NoMasters);
    }
    if masters.len() > MasterSet::MOST {
        return Err(ConfigError::TooManyMasters {
            given: masters.len(),
            most: MasterSet::MOST,
        });
    }
    let mut addresses = Vec::<Arc<str>>::with_capacity(masters.len());
    for (place, master) in masters.iter().enumerate() {
        let address = master.address().map_err(|reason| ConfigError::BadMaster {
            master: place + 1,
            reason,
        })?;
        if let Some(first) = addresses.iter().position(|known| *known == address) {
            return Err(ConfigError::DuplicateMaster {
                first: first + 1,
                second: place + 1,
                address: address.to_string(),
            });
        }
        addresses.push(address);
    }
    Ok(addresses)
}

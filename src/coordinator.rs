//! The handle on a set of masters, and its builder.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    check::Preflight,
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

/// A set of independent masters that hold locks together.
///
/// A coordinator is cheap to clone, and all clones share everything.
///
/// Each master has one connection and one background task. The task connects to the master, notices
/// when the master hangs, and reconnects. A request to a master that is known to be down fails at
/// once and does not delay the others. One more task renews the locks that are held. The tasks end
/// when the last clone of the coordinator, the last lock and the last guard are gone and everything
/// that was posted is delivered.
///
/// # Guarantees
///
/// At any instant, at most one holder of a name [is valid](crate::Guard::is_valid), where a holder
/// is the guard of a mutex, or an [`Owner`] with all its guards. This holds as long as the rates of
/// the clocks differ by less than the [drift](Builder::drift_ppm), and no master forgets a lock
/// that has not expired. Any majority of the masters can serve. See
/// [`docs::guarantees`](crate::docs::guarantees).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use quorlock::{Coordinator, MemoryMaster};
///
/// let locks = Coordinator::builder()
///     .masters((0..5).map(|_| MemoryMaster::new())) // or ["redis://10.0.0.1", ..]
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
}

impl Coordinator {
    /// Creates a coordinator of `masters` with the [default settings](Builder), and starts to
    /// connect. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// See [`Builder::build`].
    pub fn new(
        masters: impl IntoIterator<Item = impl Into<MasterSpec>>,
    ) -> Result<Self, ConfigError> {
        Self::builder().masters(masters).build()
    }

    /// Returns a builder with the default settings and no masters.
    pub fn builder() -> Builder {
        Builder {
            masters: Vec::new(),
            settings: Settings::default(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Returns the mutex called `name`. Sends nothing.
    ///
    /// On every master a mutex is a string under the lock's key, written by `SET NX PX`. Most
    /// Redlock libraries use the same format, so their locks and these exclude each other.
    ///
    /// A mutex is not reentrant, not even for its holder: a task that acquires a mutex it holds
    /// waits for itself.
    ///
    /// A name that cannot be used is reported when the lock is acquired.
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(self.engine.clone(), Kind::Mutex, name.as_ref(), None)
    }

    /// Returns a new owner for [`reentrant`](Self::reentrant) and [`fair`](Self::fair) locks. Sends
    /// nothing.
    ///
    /// Make one owner for each job: tasks that share an owner do not exclude each other. The locks
    /// of another coordinator refuse this owner with [`ForeignOwner`](ConfigError::ForeignOwner);
    /// those of clones accept it.
    pub fn owner(&self) -> Owner {
        Owner(Arc::new(self.engine.owner()))
    }

    /// Returns the reentrant lock called `name`, to be held by `owner`. Sends nothing.
    ///
    /// The owner may acquire the lock as often as it likes. Each guard is one level, and dropping
    /// the last guard releases the lock. To acquire a held lock again takes a round of its own,
    /// which extends the lock to the [TTL](Lock::ttl) that is asked for and never shortens it. The
    /// guards of one owner share their validity, and they are lost together.
    ///
    /// On every master a reentrant lock is a hash under the lock's key, in the format of Redisson's
    /// `RLock`. So this lock and Redisson's `RedissonRedLock` over the same masters exclude each
    /// other and wake each other's waiters. While this lock is held, Redisson's read-write lock is
    /// refused. Do not use Redisson's fair lock under the name of a reentrant or fair lock of this
    /// crate. Redisson's `getMultiLock(name, values)` takes a name even if it is held: see
    /// [`docs::guarantees`](crate::docs::guarantees#reentrant-locks).
    ///
    /// A name or an owner that cannot be used is reported when the lock is acquired. So is a name
    /// that is held as another kind of lock, by [`OtherKind`](crate::AcquireError::OtherKind). A
    /// name that is free can be acquired as any kind.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{AcquireError, Coordinator, MemoryMaster};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let owner = locks.owner();
    /// let lock = locks.reentrant("orders/42", &owner);
    /// let outer = lock.acquire().await?;
    /// let inner = lock.try_acquire().await?; // does not wait: the owner has the lock
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

    /// Returns the fair lock called `name`, to be held by `owner`. Sends nothing.
    ///
    /// A fair lock is a [reentrant](Self::reentrant) lock whose waiters are served in the order in
    /// which they came, across all processes and masters.
    ///
    /// Each waiter has a position in a queue on every master. This costs every master about one
    /// command a second for each waiter. A waiter whose process died is passed over after the
    /// [waiter timeout](Builder::waiter_timeout). [`try_acquire`](Lock::try_acquire) does not
    /// queue, and does not pass the waiters in the queue.
    ///
    /// A waiter that no majority of masters has answered in time, for half the waiter timeout,
    /// cannot win. It leaves the queues so that others can win, and takes its old position when a
    /// majority answers again.
    ///
    /// A name or an owner that cannot be used is reported when the lock is acquired. So is a name
    /// that is held as another kind of lock, by [`OtherKind`](crate::AcquireError::OtherKind). A
    /// name that is free can be acquired as any kind.
    ///
    /// # Guarantees
    ///
    /// Of two waiters that a majority of masters has heard of, the one that came first is served
    /// first. Everything else is as for a [reentrant](Self::reentrant) lock.
    ///
    /// # Not guaranteed
    ///
    /// The order of arrival is decided by the waiters' clocks, which may be off by up to one
    /// second. If a clock is off by more, the masters' clocks decide. If masters are down or have
    /// lost their queues, a later waiter may be served first. After an outage that is longer than
    /// half the waiter timeout, waiters that come back later may be passed by others. See
    /// [`docs::guarantees`](crate::docs::guarantees#fair-locks).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// // The lock is free or the waiter has it already: no one else can get it before the waiter.
    /// assert!(locks.fair("orders/42", &mine).try_acquire().await.is_err());
    /// assert!(waiting.await??.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn fair(&self, name: impl AsRef<str>, owner: &Owner) -> Lock {
        Lock::new(self.engine.clone(), Kind::Fair, name.as_ref(), Some(owner))
    }

    /// Checks all masters and reports what is dangerous, why it is, and how to fix it.
    ///
    /// The check covers the servers, their settings and the rights of their user. It finds, for
    /// example, eviction, replicas, a server that is listed twice, missing rights, and clocks that
    /// differ. If something cannot be found out, that is a finding, too. So a report without
    /// findings means that all is well, with one exception:
    /// [`docs::operations`](crate::docs::operations#before-the-start) has it, and the list of
    /// findings.
    ///
    /// Call it when a program starts, or in a test of a deployment. It changes nothing on the
    /// masters, and no lock is refused because of a finding. It needs the rights `+info` and
    /// `+config|get` in addition to those that locks need.
    ///
    /// It waits for the first connections, for at most the connect timeout. Then it takes two round
    /// trips, or two node timeouts if a master does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the masters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster, Severity};
    /// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
    /// let report = locks.check().await;
    /// if report.worst() >= Some(Severity::Unknown) {
    ///     eprintln!("{report}");
    /// }
    /// // `Warn` should not stop a start: locks work while one master is in quarantine.
    /// assert!(report.worst() < Some(Severity::Refuse));
    /// # Ok(()) }
    /// ```
    pub async fn check(&self) -> Preflight {
        self.engine.check().await
    }

    /// Returns the number of masters.
    pub fn master_count(&self) -> usize {
        self.engine.masters().count()
    }

    /// Returns the number of masters that make a majority.
    pub fn quorum(&self) -> usize {
        majority(self.engine.masters().count())
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Refuses new acquisitions, and waits until all posted releases are delivered.
    ///
    /// A release is delivered when it has reached every master that may hold the key, or when the
    /// key has expired there. So this takes at most the longest TTL in use, or twice the [waiter
    /// timeout](Builder::waiter_timeout) of a fair lock if that is longer. If masters are down, it
    /// may take that long: put it under a [timeout](tokio::time::timeout).
    ///
    /// Call it at the end of a program, so that the releases of dropped guards arrive. Join the
    /// tasks that hold or want locks first. Guards that are still alive stay valid, are renewed,
    /// and can be extended and released. `close` does not wait for them, nor for attempts that are
    /// under way. Waiters get [`Closed`](crate::AcquireError::Closed) at their next attempt.
    /// Closing a coordinator closes all its clones; closing it again does no harm.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the coordinator closed. What is owed is still delivered, as long
    /// as the runtime lives.
    pub async fn close(&self) {
        self.engine.close().await;
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator")
            .field("masters", &self.engine.masters().addresses())
            .finish_non_exhaustive()
    }
}

/// A builder for a [`Coordinator`].
///
/// [`build`](Self::build) checks everything before anything is sent. The order of calls does not
/// matter.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`ttl`](Self::ttl) | 10 s |
/// | [`renewal`](Self::renewal) | up to 1 h |
/// | [`max_ttl`](Self::max_ttl) | 1 min, or the TTL if that is longer |
/// | [`node_timeout`](Self::node_timeout) | four round trips to the master, 50 ms to 1 s |
/// | [`connect_timeout`](Self::connect_timeout) | 1 s |
/// | [`drift_ppm`](Self::drift_ppm) | 10,000 ppm (1 %) |
/// | [`retry_delay`](Self::retry_delay) | 10 ms to 200 ms |
/// | [`poll_interval`](Self::poll_interval) | 500 ms to 1.5 s |
/// | [`waiter_timeout`](Self::waiter_timeout) | 3 s, or four node timeouts if that is longer |
/// | [`key_template`](Self::key_template) | `{name}` |
/// | [`restart_guard`](Self::restart_guard) | [`Observed`](RestartGuard::Observed) |
/// | [`durable_masters`](Self::durable_masters) | `false` |
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    masters: Vec<MasterSpec>,
    settings: Settings,
    #[cfg(feature = "tls")]
    tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Builder {
    /// Adds one master: a URL, a ready [`Client`](crate::redis::Client) of the `redis` crate, or a
    /// [`MemoryMaster`](crate::MemoryMaster).
    ///
    /// Masters must be independent servers without replication between them. Use three or five: an
    /// even number survives no more failures than the odd number below it.
    pub fn master(mut self, master: impl Into<MasterSpec>) -> Self {
        self.masters.push(master.into());
        self
    }

    /// Adds several masters: see [`master`](Self::master).
    pub fn masters(mut self, masters: impl IntoIterator<Item = impl Into<MasterSpec>>) -> Self {
        self.masters.extend(masters.into_iter().map(Into::into));
        self
    }

    /// Sets how long a lock lives on the masters unless it is extended or released. Defaults to 10
    /// s. A lock can have a [TTL of its own](Lock::ttl).
    ///
    /// A longer TTL means fewer renewals, and a longer wait for others after a holder has died. The
    /// TTL must exceed the node timeout and the drift allowance together. Masters count in
    /// milliseconds, so fractions of a millisecond are cut off.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// Sets how long one master may take to answer a command. The time starts when the command is
    /// sent, and the vote counts as failed when it is over. 1 ms to 60 s.
    ///
    /// The default follows the round trip: four times the fastest answer of each master, at least
    /// 50 ms and at most 1 s. A timeout that is set here applies to all masters. It should be short
    /// compared with the TTL, and well above the round trip: a master that is further away never
    /// votes in time.
    ///
    /// A connection is closed after three node timeouts without a byte from the master, and after
    /// thirty node timeouts without a complete reply.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.settings.node_timeout = Some(timeout);
        self
    }

    /// Sets how long it may take to connect, including name resolution, TLS and login. Defaults to
    /// 1 s; 1 ms to 60 s.
    ///
    /// The first commands of a coordinator wait for its first connections, for at most this time or
    /// until their outcome is certain. After that, a command to a master without a connection fails
    /// at once.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets by how much the rates of clocks may differ, in parts per million of the TTL. Defaults
    /// to 10,000 (1 %), the usual value for Redlock; below 1,000,000.
    ///
    /// This drift allowance is taken off every validity, together with 2 ms for the granularity of
    /// Redis' expiry. It must cover the masters' wall clocks and the client's clock together. Use
    /// 100,000 if a time daemon may slew a clock faster, as chrony does by default after a large
    /// step (by up to 8.3 %).
    pub fn drift_ppm(mut self, ppm: u32) -> Self {
        self.settings.drift_ppm = ppm;
        self
    }

    /// Sets the bounds of the random delay between two attempts when there is nothing better to
    /// wait for: too few masters answered, the vote was split, or no majority of masters can report
    /// releases. Defaults to 10 ms and 200 ms.
    ///
    /// The delay grows, and reaches the upper bound after a few failures. The lower bound is also
    /// the minimum time between two attempts of a waiter that messages keep waking. It should be
    /// above the time that it takes to acquire a majority, so that contenders do not split the vote
    /// again.
    pub fn retry_delay(mut self, least: Duration, most: Duration) -> Self {
        self.settings.retry_delay = (least, most);
        self
    }

    /// Sets the bounds of the random time for which a waiter relies on messages about releases.
    /// After that time it tries again, because other libraries release a lock without a message,
    /// and messages can get lost. Defaults to 500 ms and 1.5 s. Does not apply to fair locks.
    ///
    /// With the default a waiter notices a release without a message after half a second on
    /// average, unless the TTL that it has seen ends before. Most other libraries poll every 50 to
    /// 300 ms. If they and waiters of this crate wait for a lock that is never free for long, the
    /// others are served more often. Shorter bounds even that out.
    ///
    /// Every attempt costs each master two commands, and may split the vote of others. For each
    /// name only one waiter in a process polls, so the default costs each master about two commands
    /// a second for each name and process.
    pub fn poll_interval(mut self, least: Duration, most: Duration) -> Self {
        self.settings.poll_interval = (least, most);
        self
    }

    /// Sets how long a lock is renewed while its guard lives. Defaults to [`Renewal::UpTo`] one
    /// hour. A lock can have a [setting of its own](Lock::renewal).
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.settings.renewal = renewal;
        self
    }

    /// Sets how long a waiter of a fair lock may be silent before the others pass it over. Defaults
    /// to 3 s, or four node timeouts if that is longer; four node timeouts to 1 h.
    ///
    /// A waiter reports to the masters three or four times in this time.
    pub fn waiter_timeout(mut self, timeout: Duration) -> Self {
        self.settings.waiter_timeout = Some(timeout);
        self
    }

    /// Sets what to do about masters that may have forgotten locks. Defaults to
    /// [`Observed`](RestartGuard::Observed).
    pub fn restart_guard(mut self, guard: RestartGuard) -> Self {
        self.settings.restart_guard = guard;
        self
    }

    /// Sets whether every master keeps everything that it has ever confirmed over any restart. Then
    /// a master that restarts votes at once, with the locks that it had. Defaults to `false`.
    ///
    /// Each time it connects to a master, the coordinator checks what can be checked. A master that
    /// fails the check is quarantined as without this setting, and the log says why. Set it only if
    /// the other conditions hold, too: see
    /// [`docs::guarantees`](crate::docs::guarantees#masters-that-keep-everything).
    pub fn durable_masters(mut self, durable: bool) -> Self {
        self.settings.durable_masters = durable;
        self
    }

    /// Sets the longest TTL that a lock may have. A longer one is an error. Defaults to 1 min, or
    /// the [TTL](Self::ttl) if that is longer; without a [restart guard](Self::restart_guard) to
    /// 366 days.
    ///
    /// A master that may have forgotten locks has no vote for this time plus the drift allowance.
    /// All clients of the masters must agree on it.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.settings.max_ttl = Some(max_ttl);
        self
    }

    /// Sets how keys are made of names: `{name}` stands for the name. Defaults to `{name}`.
    /// RedLock.net and pottery use `redlock:{name}`.
    ///
    /// Keys that begin with `quorlock:` are reserved for the crate and refused.
    pub fn key_template(mut self, template: impl Into<String>) -> Self {
        self.settings.key_template = template.into();
        self
    }

    /// Sets which `rediss://` masters are trusted, and which certificate is shown to them. Defaults
    /// to the system's trusted roots and no client certificate.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: impl Into<Arc<crate::rustls::ClientConfig>>) -> Self {
        self.tls = Some(config.into());
        self
    }

    /// Checks all settings, creates the coordinator and starts to connect.
    ///
    /// Must be called inside a tokio runtime with time and I/O enabled. The connections live on
    /// that runtime, which must be driven as long as locks are used, also if they are used from
    /// other runtimes. Does not wait for any master: the coordinator keeps trying to connect to a
    /// master that is not up yet.
    ///
    /// # Errors
    ///
    /// Every [`ConfigError`] but those that concern a single lock. Nothing was sent.
    pub fn build(self) -> Result<Coordinator, ConfigError> {
        let config = Config::parse(self.settings)?;
        let addresses = check_masters(&self.masters)?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| ConfigError::NoRuntime)?;
        let master_config = MasterConfig {
            node_timeout: config.node_timeout,
            connect_timeout: config.connect_timeout,
            redial: Backoff::between(Duration::from_millis(20), Duration::from_secs(1)),
            now: clock::monotonic,
            random: clock::random_u64,
            restart_tracker: RestartTracker::new(
                config.restart_guard,
                config.durable_masters,
                clock::monotonic,
            ),
            quarantine: quarantine(config.max_ttl, config.drift),
            #[cfg(feature = "tls")]
            tls: self.tls,
        };
        let masters: Vec<(Arc<Mailbox>, Supervisor)> = self
            .masters
            .into_iter()
            .zip(addresses)
            .enumerate()
            .map(|(master, (spec, address))| spec.open(master, address, &master_config))
            .collect();
        Ok(Coordinator {
            engine: Arc::new(Engine::start(config, masters, &runtime)),
        })
    }
}

/// Returns the addresses of the masters. Each must be another server.
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
    for (index, master) in masters.iter().enumerate() {
        let address = master.address().map_err(|reason| ConfigError::BadMaster {
            master: index + 1,
            reason,
        })?;
        if let Some(first) = addresses.iter().position(|known| *known == address) {
            return Err(ConfigError::DuplicateMaster {
                first: first + 1,
                second: index + 1,
                address: address.to_string(),
            });
        }
        addresses.push(address);
    }
    Ok(addresses)
}

//! The settings of a coordinator.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use self::open::{Listed, Opener};
use super::coordinator::Coordinator;
use crate::{
    core::{
        config::{self, Config},
        config_error::ConfigError,
        protocol::{connection_name::ListsId, identity::ClientName, name::KeyTemplate},
        restart::Quarantine,
        time::{
            ResponseTimeout,
            lease::{Drift, Renewal, Ttl},
        },
    },
    driver::context::Owners,
    master::MasterSpec,
};

#[cfg(all(feature = "serde", feature = "tls"))]
mod certificates;
#[cfg(feature = "serde")]
pub(crate) mod environment;
pub(crate) mod open;
mod runtime;
#[cfg(feature = "serde")]
pub(crate) mod shared_settings;

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
            old_masters: Vec::new(),
            config: Config::of_defaults(),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// A builder for a [`Coordinator`], from [`Coordinator::builder`] or, with the feature `serde`,
/// from the [environment](Self::from_env).
///
/// [`build`](Self::build) returns the first error in the settings, before anything is sent. A
/// setting that cannot be used stays an error, even if it is set again. The order of the settings
/// does not matter.
///
/// # Defaults
///
/// | setting | default |
/// |---|---|
/// | [`ttl`](Self::ttl) | 10 s |
/// | [`renewal`](Self::renewal) | as long as the guard lives |
/// | [`max_ttl`](Self::max_ttl) | 1 min |
/// | [`response_timeout`](Self::response_timeout) | follows the answers of the master, 50 ms to 1 s |
/// | [`connect_timeout`](Self::connect_timeout) | 1 s |
/// | [`drift_ppm`](Self::drift_ppm) | 10,000 ppm (1 %) |
/// | [`retry_delay`](Self::retry_delay) | 10 ms to 200 ms |
/// | [`poll_interval`](Self::poll_interval) | 500 ms to 1.5 s |
/// | [`poll_only`](Self::poll_only) | `false` |
/// | [`silent_waiter_timeout`](Self::silent_waiter_timeout) | 3 s, or four response timeouts if that is longer |
/// | [`key_template`](Self::key_template) | `{name}` |
/// | [`client_name`](Self::client_name) | none |
/// | [`coordinator_name`](Self::coordinator_name) | none |
/// | [`quarantine`](Self::quarantine) | [`Observed`](Quarantine::Observed) |
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    pub(crate) masters: Vec<MasterSpec>,
    pub(crate) old_masters: Vec<MasterSpec>,
    /// The settings, or the first error in them.
    config: Result<Config, ConfigError>,
    #[cfg(feature = "tls")]
    tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Builder {
    /// Adds one master: a URL, or a [`MemoryMaster`](crate::MemoryMaster).
    ///
    /// Masters must be independent servers without replication between them. Use three or five
    /// masters. An even number of masters tolerates no more failures than the odd number below it.
    pub fn master(mut self, master: impl Into<MasterSpec>) -> Self {
        self.masters.push(master.into());
        self
    }

    /// Sets all masters, in place of those that were given before: see [`master`](Self::master).
    pub fn masters(mut self, masters: impl IntoIterator<Item = impl Into<MasterSpec>>) -> Self {
        self.masters = masters.into_iter().map(Into::into).collect();
        self
    }

    /// Sets all masters of the old list, for the time in which programs change from that list to a
    /// new one.
    ///
    /// Every decision then needs a majority of [`masters`](Self::masters) and a majority of the old
    /// masters. So locks of this program exclude those of programs with only the old masters, and
    /// those of programs with only the new masters. Locks of these other programs exclude each
    /// other only if the change follows the [order of
    /// steps](crate::docs::operations#change-the-masters).
    ///
    /// A master whose address is in both lists is asked once, with the URL in `masters`. Its vote
    /// counts in both lists. Both lists together may have at most 64 masters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorlock::{Coordinator, MemoryMaster};
    ///
    /// let [a, b, c, d, e, f] = [(); 6].map(|()| MemoryMaster::new());
    /// let builder = Coordinator::builder().masters([&a, &b, &c, &d, &f]);
    /// let locks = builder.old_masters([a, b, c, d, e]).build()?;
    /// # Ok(()) }
    /// ```
    pub fn old_masters(mut self, masters: impl IntoIterator<Item = impl Into<MasterSpec>>) -> Self {
        self.old_masters = masters.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long a lock lives on the masters unless it is extended or released. Defaults to
    /// 10 s. A lock can have a [TTL of its own](crate::Lock::ttl).
    ///
    /// A longer TTL means fewer renewals, but others wait longer after a holder has died. The TTL
    /// must be longer than the sum of the response timeout and the drift allowance. Masters count in
    /// milliseconds, so fractions of a millisecond are cut off.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.set(Ttl::whole(ttl), |config| &mut config.ttl)
    }

    /// Sets how long one master may take to answer a command, from 1 ms to 60 s. The time starts
    /// when the command is sent. If the master does not answer in this time, its vote counts as a
    /// failure.
    ///
    /// The default is different for each master, and follows its answers, even those that come too
    /// late: the smoothed time that they take, plus four times its variation, at least 50 ms and at
    /// most 1 s. A timeout that is set here applies to all masters, and never changes. It should be
    /// much shorter than the TTL, and much longer than the round trip to every master. A master
    /// with a longer round trip never votes in time.
    ///
    /// The connection of a master that owes a reply is closed after
    ///
    /// - three response timeouts without a byte, but with the default not within half a second.
    ///   After three response timeouts, the master gets no more requests;
    /// - one response timeout, if the connection was silent for a second before the unanswered
    ///   command, and that command is not an extension;
    /// - thirty response timeouts without a complete reply.
    pub fn response_timeout(self, timeout: Duration) -> Self {
        let timeout = config::timeout("response timeout", timeout, 60).map(ResponseTimeout::Fixed);
        self.set(timeout, |config| &mut config.response_timeout)
    }

    /// Sets how long it may take to connect to a master, including name resolution, TLS and login,
    /// from 1 ms to 60 s. Defaults to 1 s.
    ///
    /// The first commands of a coordinator wait for its first connections, for at most this time.
    /// The wait ends earlier if the outcome of the commands is certain. If a connection breaks
    /// after it has worked for a second, the commands that were not sent wait for the next
    /// connection, for at most a response timeout. After a failed dial, commands fail at once.
    ///
    /// If the lookup of a host takes longer than this time, the lookup goes on, and a later dial
    /// uses its result. If a host has several addresses, each address that does not answer delays
    /// the next one by 250 ms.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        let timeout = config::timeout("connect timeout", timeout, 60);
        self.set(timeout, |config| &mut config.connect_timeout)
    }

    /// Sets by how much the rates of clocks may differ, in parts per million of the TTL. Must be
    /// below 1,000,000. Defaults to 10,000 (1 %), the usual value for Redlock.
    ///
    /// The drift allowance is this part of the TTL plus 2 ms for the granularity of Redis' expiry.
    /// The drift allowance is subtracted from every validity. The setting must cover the errors of
    /// a master's wall clock and of the client's clock together. Use at least 1,000: the rates of
    /// two clocks differ by that much if time daemons slew them in opposite directions. Use 100,000
    /// if a time daemon may slew a clock by more than 1 %. By default, chrony slews a clock by up
    /// to 8.3 % to correct a large error.
    pub fn drift_ppm(self, ppm: u32) -> Self {
        self.set(Drift::from_ppm(ppm), |config| &mut config.drift)
    }

    /// Sets the bounds of the random delay between two attempts. Defaults to 10 ms and 200 ms. Each
    /// bound is at most 1 h. The delay applies when a waiter cannot wait for a change of the lock:
    /// if too few masters answered, if the vote was split, or if none of the masters that refused
    /// the lock reports changes.
    ///
    /// The delay grows, and reaches the upper bound after a few failures. The lower bound should be
    /// longer than the time that it takes to acquire a majority. Otherwise contenders may split the
    /// vote again.
    pub fn retry_delay(self, bounds: RangeInclusive<Duration>) -> Self {
        let delays = config::delays("retry delay", &bounds);
        self.set(delays, |config| &mut config.retry)
    }

    /// Sets the bounds of the random time after which a waiter tries again, even if no master has
    /// reported a change of the lock. Defaults to 500 ms and 1.5 s. Each bound is at most 1 h. The
    /// setting does not apply to locks with queues.
    ///
    /// Masters report every release, also a release by another library, and the waiter has a timer
    /// for the TTL. So polls matter only if something is unusual: for example, if a proxy swallows
    /// a report, or if a client died and left its key on a master.
    ///
    /// Every poll costs each master three commands, and may split the vote of other clients. For
    /// each name, only one waiter of a coordinator polls. So the default costs each master about
    /// three commands a second for each name and coordinator.
    pub fn poll_interval(self, bounds: RangeInclusive<Duration>) -> Self {
        let delays = config::delays("poll interval", &bounds);
        self.set(delays, |config| &mut config.poll)
    }

    /// Sets whether waiters poll like those of most other libraries. Defaults to `false`.
    ///
    /// Waiters of this crate are told of each release, so they usually win against clients of
    /// libraries that poll for the same locks. With `true`, waiters are told nothing: they ask
    /// again after a [`retry_delay`](Self::retry_delay), which should be about the delay of those
    /// clients. Set `true` in all programs that use this crate and share locks with such clients.
    /// The setting does not apply to locks with queues.
    pub fn poll_only(self, poll: bool) -> Self {
        self.set(Ok(poll), |config| &mut config.poll_only)
    }

    /// Sets how long a lock is renewed while its guard lives. Defaults to
    /// [`Renewal::Unlimited`]. A lock can have a [setting of its own](crate::Lock::renewal).
    ///
    /// There is no default limit, because a limit would take the lock from a long job in the middle
    /// of its work. Only a program knows how long its jobs may take. If a process ends, or is cut
    /// off from all masters, its locks end with their TTL in any case. So the limit is only for
    /// tasks that hang and keep a guard. Set the limit to more than the longest work. Without a
    /// limit, [break](crate::Coordinator::break_held) such a lock by hand.
    pub fn renewal(self, renewal: Renewal) -> Self {
        self.set(Ok(renewal), |config| &mut config.renewal)
    }

    /// Sets how long a waiter of a lock with queues (a fair or a read-write lock, or a semaphore)
    /// may be silent before other waiters are served in its place. Defaults to 3 s, and must be
    /// from 1 ms to 1 h. The timeout in use is never shorter than four response timeouts of the slowest
    /// master.
    ///
    /// A waiter sends a command to the masters three or four times in this time.
    pub fn silent_waiter_timeout(self, timeout: Duration) -> Self {
        let timeout = config::timeout("silent-waiter timeout", timeout, 60 * 60);
        self.set(timeout, |config| &mut config.silent_waiter_timeout)
    }

    /// Sets what to do about masters that may have forgotten locks. Defaults to
    /// [`Observed`](Quarantine::Observed).
    pub fn quarantine(self, quarantine: Quarantine) -> Self {
        self.set(Ok(quarantine), |config| &mut config.quarantine)
    }

    /// Sets the longest TTL that a lock may have. A longer [TTL](Self::ttl) is an error. Defaults
    /// to 1 min. Without a [quarantine](Self::quarantine), the default is 366 days.
    ///
    /// A master that may have forgotten locks has no vote for this time plus the drift allowance,
    /// but for at least 3 s. All clients of the masters must use the same value.
    pub fn max_ttl(self, max_ttl: Duration) -> Self {
        self.set(Ttl::whole(max_ttl).map(Some), |config| &mut config.max_ttl)
    }

    /// Sets the template for the keys of locks. A key is the template with the lock's name in place
    /// of `{name}`. Defaults to `{name}`. The libraries RedLock.net and pottery use
    /// `redlock:{name}`.
    ///
    /// Keys that begin with `quorlock:` are reserved for this crate, and so is the name
    /// `quorlock:check`. A lock with such a key or name is refused.
    pub fn key_template(self, template: impl Into<String>) -> Self {
        let template = KeyTemplate::parse(&template.into());
        self.set(template, |config| &mut config.key_template)
    }

    /// Sets the name under which the locks of this coordinator are shown, such as `web-3/812` (the
    /// host and the process ID): 1 to 64 graphic ASCII characters, without spaces. Defaults to no
    /// name.
    ///
    /// [`Holder::client`](crate::Holder::client) is this name. It tells a person which program
    /// holds a lock. It changes nothing else: two coordinators with the same name exclude each
    /// other.
    ///
    /// Masters store the name with every lock: after the token of a mutex, and at the end of the
    /// [ID](crate::Owner::id) of an owner. All users with read access to the locks can read the
    /// name, so it must not contain a secret. Another client may store any name, so a name proves
    /// nothing. This name is also the last part of the name of every connection to a Redis master:
    /// `quorlock:380f0cf4a1f8149b:26610b92:60000:web-3/812`. Between `quorlock` and this name are
    /// an ID of the lists of masters, an ID of the key template, and the longest TTL in
    /// milliseconds.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorlock::{Coordinator, MemoryMaster};
    ///
    /// let name = format!("web-3/{}", std::process::id());
    /// let locks = Coordinator::builder()
    ///     .masters((0..3).map(|_| MemoryMaster::new()))
    ///     .client_name(&name)
    ///     .build()?;
    /// let lock = locks.mutex("orders/42");
    /// let guard = lock.acquire().await?;
    /// let holder = lock.inspect().await?.holders.remove(0);
    /// assert_eq!(holder.client, Some(name));
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub fn client_name(self, name: impl Into<String>) -> Self {
        let name = ClientName::parse(name.into()).map(Some);
        self.set(name, |config| &mut config.client_name)
    }

    // For the command line: a program that takes no lock leaves nothing on the masters, so that a look
    // with other lists is no alarm.
    #[doc(hidden)]
    pub fn only_looks(self, only_looks: bool) -> Self {
        self.set(Ok(only_looks), |config| &mut config.only_looks)
    }

    /// Sets a name that tells this coordinator from others in the program. The metrics of its
    /// masters have a label `coordinator` with this name.
    /// [`MasterHealth::coordinator`](crate::health::MasterHealth::coordinator) is this name, too, and log messages
    /// about masters and majorities contain it. Defaults to no name.
    pub fn coordinator_name(self, name: impl Into<String>) -> Self {
        self.set(Ok(Some(name.into().into())), |config| {
            &mut config.coordinator
        })
    }

    /// Sets the TLS configuration for `rediss://` masters: the root certificates to trust, and the
    /// client certificate to present. By default, the trusted roots are those of the system, or
    /// those in the file that the environment variable `SSL_CERT_FILE` names, and there is no
    /// client certificate. If no master has such a URL, [`build`](Self::build) fails, because all
    /// connections would be plain.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use quorlock::{Coordinator, rustls};
    /// use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::CertificateDer};
    ///
    /// /// Trusts the authority that signed the certificates of the masters.
    /// fn builder(authority: CertificateDer<'static>) -> Result<quorlock::Builder, rustls::Error> {
    ///     let mut roots = RootCertStore::empty();
    ///     roots.add(authority)?; // more than one, while authorities change
    ///     let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
    ///         .with_safe_default_protocol_versions()?
    ///         .with_root_certificates(roots)
    ///         .with_no_client_auth(); // or with_client_auth_cert, for mutual TLS
    ///     Ok(Coordinator::builder().tls(config))
    /// }
    /// ```
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: impl Into<Arc<tokio_rustls::rustls::ClientConfig>>) -> Self {
        self.tls = Some(config.into());
        self
    }

    /// Creates the coordinator and starts to connect, if all settings can be used.
    ///
    /// Must be called inside a tokio runtime with time and I/O enabled. That
    /// [runtime](Coordinator#runtimes) must keep running as long as locks are used. On a
    /// current-thread runtime, must be called in a task, in `spawn_blocking`, or in the future of a
    /// `block_on`, and there not inside `tokio::task::unconstrained`. On a multi-thread runtime,
    /// [`enter`](tokio::runtime::Runtime::enter) is enough.
    ///
    /// This method does not wait for any master. If a master is not up yet, the coordinator keeps
    /// trying to connect to it.
    ///
    /// # Errors
    ///
    /// Any [`ConfigError`] except the errors about a single lock. Nothing was sent. If the runtime has
    /// no timers, the message of tokio's panic comes first.
    pub fn build(self) -> Result<Coordinator, ConfigError> {
        let listed = Listed::parse(self.masters.clone(), self.old_masters.clone())?;
        let opener = self.opener(listed.lists_id())?;
        opener.open(listed, None)
    }

    /// Checks all settings except the masters. The opened coordinators have this `lists_id`.
    pub(crate) fn opener(self, lists_id: ListsId) -> Result<Opener, ConfigError> {
        let config = self.config?;
        config.ttl(config.ttl.duration())?;
        Ok(Opener {
            runtime: runtime::current()?,
            owners: Arc::new(Owners::new(config.client_name.clone())),
            config,
            lists_id,
            #[cfg(feature = "tls")]
            tls: self.tls,
        })
    }

    /// Sets a field, unless an earlier setting or this one is wrong.
    fn set<T>(
        mut self,
        value: Result<T, ConfigError>,
        field: impl FnOnce(&mut Config) -> &mut T,
    ) -> Self {
        self.config = self.config.and_then(|mut config| {
            *field(&mut config) = value?;
            Ok(config)
        });
        self
    }
}

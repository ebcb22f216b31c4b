//! The addresses of a host.
//!
//! The system's lookup blocks its thread, for more than a minute if the name servers are silent. A
//! dial does not wait that long. When the dial has given up, the lookup goes on, and the next dial
//! of that host waits for the same lookup.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{clock, core::time::Tick};

pub(super) static LOOKUPS: Lookups = Lookups::new(
    |host| (host, 0).to_socket_addrs().map(Iterator::collect),
    clock::monotonic,
);

type LookUp = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// Looks up hosts, each on a thread of its own. No two threads look up the same host at the same
/// time.
pub(super) struct Lookups {
    look_up: LookUp,
    /// The clock, which a test of this file sets for all threads.
    now: fn() -> Tick,
    /// The hosts whose lookups are not over, and the hosts whose late answers are kept.
    hosts: Mutex<BTreeMap<String, watch::Sender<Option<Answer>>>>,
}

/// What a lookup found, and when.
type Answer = (Result<Vec<SocketAddr>, Arc<str>>, Tick);

impl Lookups {
    /// An answer that took longer than this is kept for one more dial. The dials that waited for it
    /// may have been given up, or may have too little time left.
    const LATE: Duration = Duration::from_millis(100);
    /// The time for which a late answer is kept. It is short, because a host may get another
    /// address.
    const KEPT: Duration = Duration::from_secs(30);

    const fn new(look_up: LookUp, now: fn() -> Tick) -> Self {
        Self {
            look_up,
            now,
            hosts: Mutex::new(BTreeMap::new()),
        }
    }

    /// Returns the addresses of a host. If this future is dropped, the lookup goes on.
    pub(super) async fn resolve(
        &'static self,
        host: &str,
        port: u16,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let mut answer = self.ask(host)?;
        let answer = answer.wait_for(Option::is_some).await;
        let answer = answer.ok().and_then(|answer| answer.clone());
        let (found, _) = answer.ok_or_else(|| io::Error::other("the lookup ended"))?;
        let mut found = found.map_err(|why| io::Error::other(&*why))?;
        for address in &mut found {
            address.set_port(port);
        }
        Ok(found)
    }

    /// Returns the receiver of the answer. The answer may be there already. A kept answer is handed
    /// out only once.
    fn ask(&'static self, host: &str) -> io::Result<watch::Receiver<Option<Answer>>> {
        let asked = (self.now)();
        let mut hosts = self.hosts.lock();
        let is_fresh = |(_, at): &Answer| asked.since(*at) < Self::KEPT;
        hosts.retain(|_, answer| answer.borrow().as_ref().is_none_or(is_fresh));
        if let Some(answer) = hosts.get(host).map(watch::Sender::subscribe) {
            if answer.borrow().is_some() {
                hosts.remove(host);
            }
            return Ok(answer);
        }
        let (thread, name) = (thread::Builder::new(), host.to_owned());
        let thread = thread.name("quorlock-resolve".to_owned());
        thread.spawn(move || self.look_up(&name, asked))?;
        let (sender, answer) = watch::channel(None);
        hosts.insert(host.to_owned(), sender);
        Ok(answer)
    }

    /// Looks up a host that was asked for at `asked`.
    fn look_up(&self, host: &str, asked: Tick) {
        let found = (self.look_up)(host);
        let found = found.map_err(|error| Arc::from(error.to_string()));
        let at = (self.now)();
        let is_late = at.since(asked) > Self::LATE;
        // No mutex is held while the sender is used, because wakers are code of the program, and may
        // panic.
        let mut hosts = self.hosts.lock();
        let answer = match is_late && found.is_ok() {
            true => hosts.get(host).cloned(),
            false => hosts.remove(host),
        };
        drop(hosts);
        if let Some(answer) = answer {
            answer.send_replace(Some((found, at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        pin::pin,
        sync::{
            LazyLock,
            atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        },
        task::{Context, Wake},
    };

    use parking_lot::Condvar;
    use tokio::{task::yield_now, time::timeout};

    use super::*;
    use crate::clock;

    /// The hosts whose lookups have begun, in order. A lookup ends when its host is in `ANSWERED`.
    static BEGUN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    static ANSWERED: (Mutex<BTreeSet<String>>, Condvar) =
        (Mutex::new(BTreeSet::new()), Condvar::new());

    fn look_up(host: &str) -> io::Result<Vec<SocketAddr>> {
        BEGUN.lock().push(host.to_owned());
        let (answered, changes) = &ANSWERED;
        changes.wait_while(&mut answered.lock(), |answered| !answered.contains(host));
        match host.starts_with("unknown") {
            true => Err(io::Error::other("no such host")),
            false => Ok(vec![([10, 0, 0, 1], 0).into()]),
        }
    }

    fn answer(host: &str) {
        ANSWERED.0.lock().insert(host.to_owned());
        ANSWERED.1.notify_all();
    }

    /// Returns the number of lookups of hosts whose names begin with `name`.
    fn begun(name: &str) -> usize {
        let begun = BEGUN.lock();
        begun.iter().filter(|host| host.starts_with(name)).count()
    }

    async fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            yield_now().await;
        }
    }

    impl Lookups {
        fn leaked() -> &'static Self {
            Self::leaked_with(clock::monotonic)
        }

        fn leaked_with(now: fn() -> Tick) -> &'static Self {
            Box::leak(Box::new(Self::new(look_up, now)))
        }

        /// Asks for a host, like a dial that is given up at once.
        async fn give_up(&'static self, host: &str) {
            let answer = timeout(Duration::ZERO, self.resolve(host, 7)).await;
            answer.unwrap_err();
        }

        /// Returns the number of lookups that are not over.
        fn lookups(&self) -> usize {
            let hosts = self.hosts.lock();
            hosts
                .values()
                .filter(|host| host.borrow().is_none())
                .count()
        }
    }

    #[tokio::test]
    async fn addresses_and_names_are_resolved() {
        let resolve = |host| LOOKUPS.resolve(host, 7);
        for host in ["127.0.0.1", "::1"] {
            let ip = host.parse().unwrap();
            assert_eq!(resolve(host).await.unwrap(), [SocketAddr::new(ip, 7)]);
        }
        let found = resolve("localhost").await.unwrap();
        let is_ours = |address: &SocketAddr| address.ip().is_loopback() && address.port() == 7;
        assert!(found.iter().all(is_ours), "{found:?}");
        assert!(!found.is_empty());
    }

    #[tokio::test]
    async fn dials_of_one_host_wait_for_one_lookup() {
        let lookups = Lookups::leaked();
        lookups.give_up("shared").await;
        let dial = |port| lookups.resolve("shared", port);
        let end = async {
            until(|| begun("shared") == 1).await;
            answer("shared");
        };
        let (one, other, ()) = tokio::join!(dial(1), dial(2), end);
        assert_eq!(one.unwrap(), [([10, 0, 0, 1], 1).into()]);
        assert_eq!(other.unwrap(), [([10, 0, 0, 1], 2).into()]);
        assert_eq!(begun("shared"), 1);
    }

    #[tokio::test]
    async fn a_late_answer_serves_one_dial_within_half_a_minute() {
        static START: LazyLock<Tick> = LazyLock::new(clock::monotonic);
        static PASSED: AtomicU64 = AtomicU64::new(0);
        let now = || *START + Duration::from_millis(PASSED.load(Relaxed));
        for (host, took, age, lookups_after) in [
            ("late", 101, 29_999, [1, 2, 3]),
            ("stale", 101, 30_000, [2, 3, 4]),
            // This answer is not late. The dials that waited for it had time for their other steps.
            ("prompt", 100, 0, [2, 3, 4]),
            ("unknown", 101, 0, [2, 3, 4]),
        ] {
            let lookups = Lookups::leaked_with(now);
            lookups.give_up(host).await;
            PASSED.fetch_add(took, Relaxed);
            answer(host);
            until(|| lookups.lookups() == 0).await;
            PASSED.fetch_add(age, Relaxed);
            for expected in lookups_after {
                let found = lookups.resolve(host, 7).await;
                assert_eq!(found.is_ok(), host != "unknown");
                assert_eq!(begun(host), expected, "{host}");
            }
            until(|| lookups.lookups() == 0).await;
            assert!(lookups.hosts.lock().is_empty());
        }
    }

    #[tokio::test]
    async fn silent_hosts_cost_a_thread_each_however_often_they_are_dialled() {
        let lookups = Lookups::leaked();
        let hosts: Vec<_> = (10..30).map(|n| format!("silent-{n}")).collect();
        for _ in 0..3 {
            for host in &hosts {
                lookups.give_up(host).await;
            }
            until(|| begun("silent") == hosts.len()).await;
        }
        // The lookup of the first host never ends. It must not delay the end of this runtime.
        for host in &hosts[1..] {
            answer(host);
        }
        until(|| lookups.lookups() == 1).await;
        assert_eq!(begun("silent"), hosts.len());
    }

    /// A waker of the program.
    struct Panics {
        lookups: &'static Lookups,
        saw_mutex_held: AtomicBool,
    }

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            let is_held = self.lookups.hosts.try_lock().is_none();
            self.saw_mutex_held.store(is_held, Relaxed);
            panic!("a waker of the program");
        }
    }

    #[tokio::test]
    async fn a_waker_may_panic_and_is_called_while_no_mutex_is_held() {
        let lookups = Lookups::leaked();
        let panics = Arc::new(Panics {
            lookups,
            saw_mutex_held: AtomicBool::default(),
        });
        let waker = panics.clone().into();
        let mut dial = pin!(lookups.resolve("woken", 7));
        let polled = dial.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        answer("woken");
        until(|| lookups.lookups() == 0).await;
        assert!(!panics.saw_mutex_held.load(Relaxed));
        dial.await.unwrap();
    }
}

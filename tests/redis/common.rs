//! Helpers that the tests share.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use quorlock::{
    Builder, Coordinator, Guard, Lock, Quarantine, Reason,
    votes::{Failure, VoteRow, Votes},
};
pub(crate) use testkit::server::{self, Server, skipped};
pub(crate) use testkit::times::millis;
use tokio::time::{sleep, timeout};

/// The time limit for one test, even on a slow machine. A test that hangs fails after this time.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(40);

/// A TTL that is longer than any test. With this TTL, a key that is gone was released.
pub(crate) const LONG: Duration = Duration::from_secs(600);

pub(crate) use quorlock::__internals::KINDS;

/// Runs `test` on `n` masters of its own. Skips the test if no server can be started.
pub(crate) fn with_masters(n: usize, test: impl AsyncFnOnce(Vec<Server>)) {
    with_own_masters(n, |masters| run(test(masters)));
}

/// Runs `test` like [`with_masters`], on masters of the server program and of each version whose
/// program is there, without a time limit.
pub(crate) fn on_each_version(n: usize, test: impl AsyncFn(&str, Vec<Server>)) {
    with_own_masters(n, |masters| {
        runtime().block_on(test("the server program", masters));
    });
    for version in ["redis-7.0", "redis-8.6", "valkey-9.1"] {
        if let Some(program) = server::version(version) {
            let masters = (0..n).map(|_| Server::start_version(&program)).collect();
            runtime().block_on(test(version, masters));
        }
    }
}

fn with_own_masters(n: usize, run: impl FnOnce(Vec<Server>)) {
    if !server::only_urls() {
        run(server::masters(n));
    }
}

/// Runs `test` on a runtime of its own. Fails if the test does not end in time.
pub(crate) fn run(test: impl Future<Output = ()>) {
    runtime().block_on(async {
        if timeout(TEST_TIMEOUT, test).await.is_err() {
            panic!("the test has not ended within {TEST_TIMEOUT:?}");
        }
    });
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Returns a builder with a long response timeout, for tests without slow masters. Even on a busy
/// machine, no master reaches this timeout.
pub(crate) fn patient() -> Builder {
    Coordinator::builder()
        .quarantine(Quarantine::Off)
        .response_timeout(Duration::from_secs(5))
        .connect_timeout(Duration::from_secs(5))
        .ttl(LONG)
}

/// Returns a builder with short timeouts, for tests with slow masters.
pub(crate) fn brisk() -> Builder {
    Coordinator::builder()
        .quarantine(Quarantine::Off)
        .response_timeout(Duration::from_millis(100))
        .connect_timeout(Duration::from_millis(200))
        .ttl(LONG)
}

/// Makes a user with these rules besides all rights on `master`. Returns the URL with this user.
pub(crate) fn url_as_user(master: &Server, rules: &str) -> String {
    let rules = format!("ACL SETUSER user reset on >pw ~* &* +@all {rules}");
    let words: Vec<_> = rules.split_whitespace().collect();
    assert_eq!(master.command(&words), "OK");
    format!("redis://user:pw@127.0.0.1:{}", master.port())
}

pub(crate) fn urls(masters: &[Server]) -> Vec<String> {
    masters.iter().map(Server::url).collect()
}

pub(crate) fn coordinator(builder: Builder, masters: &[Server]) -> Coordinator {
    builder.masters(urls(masters)).build().unwrap()
}

/// Closes `locks`. Fails if the close has to wait for a TTL.
pub(crate) async fn close_at_once(locks: &Coordinator) {
    let closed = timeout(TEST_TIMEOUT / 8, locks.close()).await;
    assert!(
        closed.is_ok(),
        "close waits for the TTL of a key that no master has"
    );
}

/// Fails if a master has any key.
#[track_caller]
pub(crate) fn assert_no_keys(masters: &[Server]) {
    for (number, master) in masters.iter().enumerate() {
        assert_eq!(
            master.command(&["KEYS", "*"]),
            "",
            "keys left on master {number}"
        );
    }
}

/// Returns the remaining TTL of `key` on `master` in milliseconds, or a negative number if there is
/// no key or no TTL.
#[track_caller]
pub(crate) fn pttl(master: &Server, key: &str) -> i64 {
    master.command(&["PTTL", key]).parse().unwrap()
}

/// Returns the number of keys whose next change `master` reports to a client.
#[track_caller]
pub(crate) fn watched(master: &Server) -> usize {
    let stats = master.command(&["INFO", "stats"]);
    let mut lines = stats.lines();
    let count = lines.find_map(|line| line.strip_prefix("tracking_total_keys:"));
    count.unwrap().trim().parse().unwrap()
}

/// Waits until every master reports the next change of a key.
pub(crate) async fn until_watched(masters: &[Server]) {
    until("a watched key", async || {
        masters
            .iter()
            .all(|master| watched(master) > 0)
            .then_some(())
    })
    .await;
}

/// Repeats `look` until it returns `Some`. This function is for events that nothing announces, for
/// example the work of a server or a reconnection.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < TEST_TIMEOUT / 2, "never: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the release of a lock has also reached the masters outside the majority.
pub(crate) async fn until_released(masters: &[Server], key: &str) {
    for master in masters {
        until("a release on all masters", async || {
            (master.command(&["EXISTS", key]) == "0").then_some(())
        })
        .await;
    }
}

/// Acquires and releases `lock` until `is_it` accepts the votes.
pub(crate) async fn until_votes(lock: &Lock, what: &str, is_it: impl Fn(&Votes) -> bool) -> Votes {
    until(what, async || {
        let guard = lock.try_acquire().await.ok()?;
        let votes = guard.all_votes().await;
        guard.release().await.ok()?;
        is_it(&votes).then_some(votes)
    })
    .await
}

/// Acquires `lock` until all masters grant it.
pub(crate) async fn acquire_on_all(lock: &Lock) -> Guard {
    until("a grant of all masters", async || {
        let guard = lock.try_acquire().await.ok()?;
        let votes = guard.all_votes().await;
        (votes.granted_count() == votes.master_count()).then_some(guard)
    })
    .await
}

/// Returns what an attempt says about masters that cannot be reached.
pub(crate) async fn refusal(locks: &Coordinator) -> String {
    let refused = locks.mutex("r").try_acquire().await.unwrap_err();
    assert!(*refused.reason() == Reason::NoQuorum, "{refused}");
    refused.to_string()
}

/// Acquires a lock once and releases it.
pub(crate) async fn lock_once(locks: &Coordinator) {
    let guard = locks.mutex("r").try_acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Returns the vote of `master`.
#[track_caller]
pub(crate) fn row(votes: &Votes, master: usize) -> VoteRow<'_> {
    votes.iter().nth(master).unwrap()
}

pub(crate) fn is_unreachable(votes: &Votes, master: usize) -> bool {
    matches!(row(votes, master).failure(), Some(Failure::Unreachable(_)))
}

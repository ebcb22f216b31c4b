//! Tests on masters that already run, from `QUORLOCK_TEST_URLS`, or on servers of our own.

#![allow(
    clippy::disallowed_methods,
    reason = "tests with real servers run in real time and spawn tasks"
)]
#![allow(
    clippy::unwrap_used,
    reason = "test helpers fail like tests, but clippy recognizes only tests themselves"
)]

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use quorlock::{Coordinator, Renewal};
use testkit::server::{self, Server};
use tokio::{task::yield_now, time::timeout};

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_lock_is_acquired_extended_and_released() {
    with_urls(async |urls| {
        let name = fresh_name();
        let ours = coordinator(&urls);
        let theirs = coordinator(&urls);
        let lock = ours
            .mutex(&*name)
            .ttl(Duration::from_secs(5))
            .renewal(Renewal::Off);
        let guard = lock.acquire_within(TEST_TIMEOUT).await.unwrap();
        let votes = guard.all_votes().await;
        assert_eq!(votes.granted_count(), urls.len(), "{votes}");
        for url in &urls {
            assert!((1..=5_000).contains(&pttl(url, &name)));
        }
        let refused = theirs.mutex(&*name).try_acquire().await.unwrap_err();
        assert!(refused.is_busy(), "{refused}");

        guard.extend(Duration::from_secs(30)).await.unwrap();
        let votes = guard.all_votes().await;
        assert_eq!(votes.granted_count(), urls.len(), "{votes}");
        for url in &urls {
            assert!(pttl(url, &name) > 5_000);
        }
        guard.release().await.unwrap();
        ours.close().await;
        for url in &urls {
            assert_eq!(pttl(url, &name), -2, "the key is still there");
        }
        drop(
            theirs
                .mutex(name)
                .acquire_within(TEST_TIMEOUT)
                .await
                .unwrap(),
        );
        theirs.close().await;
    });
}

#[test]
fn no_two_clients_hold_a_lock_at_once() {
    with_urls(async |urls| {
        let name = fresh_name();
        let all = [coordinator(&urls), coordinator(&urls)];
        let holders = Arc::new(AtomicU32::new(0));
        let tasks: Vec<_> = (0..10)
            .map(|number| {
                let lock = all[number % 2].mutex(&*name);
                let holders = holders.clone();
                tokio::spawn(async move {
                    for _ in 0..5 {
                        let guard = lock.acquire_within(TEST_TIMEOUT).await.unwrap();
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        yield_now().await;
                        holders.fetch_sub(1, Ordering::SeqCst);
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        for locks in all {
            locks.close().await;
        }
        for url in &urls {
            assert_eq!(pttl(url, &name), -2, "the key is still there");
        }
    });
}

fn with_urls(test: impl AsyncFnOnce(Vec<String>)) {
    let given = env::var("QUORLOCK_TEST_URLS").unwrap_or_default();
    let mut urls: Vec<_> = given
        .split(',')
        .filter(|url| !url.is_empty())
        .map(str::to_owned)
        .collect();
    let own = if urls.is_empty() {
        server::masters(3)
    } else {
        Vec::new()
    };
    urls.extend(own.iter().map(Server::url));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        if timeout(TEST_TIMEOUT, test(urls)).await.is_err() {
            panic!("the test has not ended within {TEST_TIMEOUT:?}");
        }
    });
}

fn coordinator(urls: &[String]) -> Coordinator {
    Coordinator::builder()
        .masters(urls)
        .response_timeout(Duration::from_secs(2))
        .connect_timeout(Duration::from_secs(5))
        .build()
        .unwrap()
}

/// Returns a name that no other run of the tests uses, because runs may share the masters.
fn fresh_name() -> String {
    format!("quorlock-test/{:032x}", rand::random::<u128>())
}

/// Returns the TTL of `key` as another kind of client sees it.
fn pttl(url: &str, key: &str) -> i64 {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    redis::cmd("PTTL").arg(key).query(&mut connection).unwrap()
}

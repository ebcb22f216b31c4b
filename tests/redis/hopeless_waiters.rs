//! Waiters for a fair lock that cannot win. On real servers, they step aside, and do not slow down
//! waiters that can win.

use std::{
    net::{Ipv4Addr, TcpListener},
    time::{Duration, Instant},
};

use quorlock::{Coordinator, Lock};
use testkit::proxy::Proxy;
use tokio::time::sleep;

use crate::common::{Server, brisk, coordinator, until, urls, with_masters};

fn fair(locks: &Coordinator) -> Lock {
    locks.fair("r", &locks.owner())
}

/// Counts how often a client gets the lock in four seconds. The client holds the lock for a moment
/// each time.
async fn grants(locks: &Coordinator) -> u32 {
    let start = Instant::now();
    let mut grants = 0;
    while start.elapsed() < Duration::from_secs(4) {
        let guard = fair(locks).acquire().await.unwrap();
        grants += 1;
        sleep(Duration::from_millis(10)).await;
        guard.release().await.unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    grants
}

/// Compares how often a near client gets the lock in two cases: alone, and next to a client that
/// cannot win.
async fn check(near: &Coordinator, hopeless: &Coordinator, first: &Server) {
    let alone = grants(near).await;
    let lock = fair(hopeless);
    // The waiter joins the queue while the lock is held.
    let held = fair(near).acquire().await.unwrap();
    let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
    let queued = || first.command(&["ZCARD", "quorlock:queue:{r}"]);
    until("a queued waiter", async || (queued() == "1").then_some(())).await;
    drop(held);
    // The waiter's ticket is the first. So this call returns only after the waiter has stepped
    // aside.
    let first = fair(near).acquire().await.unwrap();
    first.release().await.unwrap();
    let contended = grants(near).await;
    // The limit is low because other tests run meanwhile. If the waiter did not step aside, the
    // near client would get no grants.
    assert!(contended * 5 >= alone * 3, "{contended} of {alone}");
    assert!(!waiter.is_finished());
    waiter.abort();
}

/// The commands of the far waiter arrive and keep its position in the queue, but every answer to
/// them comes too late.
#[test]
fn a_waiter_that_is_too_far_away_does_not_hold_up_others() {
    with_masters(3, async |masters| {
        let delay = Duration::from_millis(80);
        let proxies: Vec<_> = masters
            .iter()
            .map(|master| Proxy::delay_requests(master.port(), delay))
            .collect();
        let near = coordinator(brisk().node_timeout(Duration::from_secs(1)), &masters);
        let far = brisk()
            .node_timeout(Duration::from_millis(50))
            .connect_timeout(Duration::from_secs(5))
            .masters(proxies.iter().map(Proxy::url))
            .build()
            .unwrap();
        sleep(Duration::from_secs(1)).await; // `far` is connected by then
        check(&near, &far, &masters[0]).await;
    });
}

/// Only two of three masters are up, so a majority needs both. The waiter reaches only one of them.
#[test]
fn a_waiter_that_is_cut_off_from_a_majority_does_not_hold_up_others() {
    with_masters(3, async |mut masters| {
        let nobody = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            format!("redis://127.0.0.1:{port}")
        };
        let near = coordinator(brisk().node_timeout(Duration::from_secs(1)), &masters);
        let part = [urls(&masters).swap_remove(0), nobody(), nobody()];
        let part = brisk().masters(part).build().unwrap();
        masters.pop(); // this master is gone
        check(&near, &part, &masters[0]).await;
    });
}

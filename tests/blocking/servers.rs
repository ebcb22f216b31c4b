//! The blocking API on real servers.

use std::thread;

use quorlock::blocking::Coordinator;
use testkit::server::{self, Server};

use crate::common::*;

fn connected(masters: &[Server]) -> Coordinator {
    let urls = masters.iter().map(Server::url);
    let locks = patient().masters(urls).build_blocking().unwrap();
    locks.all_ready(LIMIT).unwrap();
    locks
}

fn is_free(masters: &[Server], name: &str) -> bool {
    let exists = |master: &Server| master.command(&["EXISTS", name]) == "1";
    !masters.iter().any(exists)
}

#[test]
fn threads_lose_no_increment() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(3);
    let locks = [connected(&masters), connected(&masters)];
    assert_eq!(count_in_threads(&locks, 3, 10), 60);
}

#[test]
fn a_release_is_delivered_after_the_last_handle_is_dropped() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(3);
    let guard = acquire_on_all(&connected(&masters).mutex("r"));
    assert_eq!(masters[0].command(&["EXISTS", "r"]), "1");
    thread::spawn(|| drop(guard)).join().unwrap();
    until("the release", || is_free(&masters, "r"));
}

#[test]
fn nothing_is_left_after_close() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(3);
    let locks = connected(&masters);
    let guards = ["a", "b", "c"].map(|name| acquire_on_all(&locks.mutex(name)));
    drop(guards);
    locks.close().unwrap();
    for name in ["a", "b", "c"] {
        assert!(is_free(&masters, name));
    }
}

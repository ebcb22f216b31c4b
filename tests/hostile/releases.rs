//! Releases that a master answers with an error, or with what the command cannot have.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use quorlock::{Coordinator, Guard, Quarantine};
use testkit::hostile::{answers::honest, fake_server::Fake};
use tokio::time::{sleep, timeout};

use crate::own_process::{beside_others, run};

/// A master that answers every release with an error does not delay the other commands to it.
#[test]
fn acquisitions_go_on_at_a_master_that_refuses_releases() {
    beside_others(|| {
        run(async {
            let seen = Arc::new(AtomicUsize::new(0));
            let is_failing = Arc::new(AtomicBool::new(false));
            let fakes = [(); 3].map(|()| {
                let (seen, is_failing) = (seen.clone(), is_failing.clone());
                Fake::tcp(move |peer| {
                    while let Some(words) = peer.command() {
                        let fails =
                            is_failing.load(Ordering::Relaxed) && words[0].starts_with(b"EVAL");
                        if words[0] == b"SET" {
                            seen.fetch_add(1, Ordering::Relaxed);
                        }
                        let reply = if fails {
                            b"-BUSY no\r\n".to_vec()
                        } else {
                            honest(&words)
                        };
                        if peer.say(&reply).is_none() {
                            return;
                        }
                    }
                })
            });
            let locks = coordinator(fakes.iter().map(Fake::url));
            drop(on_all(&locks, "first").await); // takes a script, to try the rights
            is_failing.store(true, Ordering::Relaxed);
            let mut won = 0;
            for number in 0..50 {
                let lock = locks.mutex(format!("a{number}"));
                won += usize::from(timeout(PERIOD, lock.try_acquire()).await.unwrap().is_ok());
            }
            assert!(won >= 45, "{won} of 50 locks");
            // The last locks are won before the slowest master has read its command.
            let are_seen = async {
                while seen.load(Ordering::Relaxed) < 45 * 3 {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(PERIOD, are_seen).await.unwrap();
        });
    });
}

/// A reply that the command cannot have proves no release, so the release is sent again.
#[test]
fn a_native_release_with_a_reply_that_makes_no_sense_is_sent_again() {
    for (reply, is_proof) in [
        (&b":1\r\n"[..], true),
        (b":0\r\n", true),
        (
            b"-ERR Key should be of string type if conditions are specified\r\n",
            true,
        ),
        (b"$-1\r\n", false),
        (b":-1\r\n", false),
        (b"+OK\r\n", false),
        (b"-WRONGTYPE Operation against a key\r\n", false),
    ] {
        run(async {
            let sent = Arc::new(AtomicUsize::new(0));
            let count = sent.clone();
            let fake = Fake::tcp(move |peer| {
                while let Some(words) = peer.command() {
                    let answer = match (&*words[0], words.len()) {
                        (b"DELEX", 1) => b"-ERR wrong number of arguments\r\n",
                        (b"DELEX", _) if count.fetch_add(1, Ordering::Relaxed) == 0 => reply,
                        (b"DELEX", _) => b":1\r\n",
                        _ => &honest(&words),
                    };
                    if peer.say(answer).is_none() {
                        return;
                    }
                }
            });
            let locks = coordinator([fake.url()].into_iter());
            let released = on_all(&locks, "a").await.release().await;
            assert_eq!(released.is_ok(), is_proof, "{released:?}");
            locks.close().await; // waits for owed releases
            let sent = sent.load(Ordering::Relaxed);
            assert_eq!(
                sent,
                if is_proof { 1 } else { 2 },
                "{}",
                reply.escape_ascii()
            );
        });
    }
}

async fn on_all(locks: &Coordinator, name: &str) -> Guard {
    let lock = locks.mutex(name);
    let end = Instant::now() + PERIOD * 2;
    loop {
        let guard = lock.acquire_within(PERIOD).await.unwrap();
        if guard.all_votes().await.failed_count() == 0 {
            return guard;
        }
        assert!(Instant::now() < end, "some masters do not grant");
        let _ = guard.release().await;
    }
}

fn coordinator(urls: impl Iterator<Item = String>) -> Coordinator {
    Coordinator::builder()
        .masters(urls)
        .quarantine(Quarantine::Off)
        .ttl(Duration::from_secs(60))
        .build()
        .unwrap()
}

const PERIOD: Duration = Duration::from_secs(5);

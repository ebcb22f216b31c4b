//! A master that answers releases with an error for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::{Coordinator, Quarantine};

use super::answers::honest;
use super::fake_server::Fake;

/// A master that grants everything, and answers scripts with an error on demand.
#[derive(Debug)]
pub struct ErrorServer {
    fake: Fake,
    is_failing: Arc<AtomicBool>,
    failed: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
}

impl ErrorServer {
    pub fn start() -> Self {
        let (is_failing, failed, done) =
            <(Arc<AtomicBool>, Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let fake = {
            let (is_failing, failed, done) = (is_failing.clone(), failed.clone(), done.clone());
            Fake::tcp(move |peer| {
                while let Some(words) = peer.command() {
                    let mut reply = honest(&words);
                    if words[0].starts_with(b"EVAL") {
                        if is_failing.load(Ordering::Relaxed) {
                            failed.fetch_add(1, Ordering::Relaxed);
                            reply = b"-NOREPLICAS Not enough good replicas to write.\r\n".to_vec();
                        } else {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    if peer.say(&reply).is_none() {
                        return;
                    }
                }
            })
        };
        Self {
            fake,
            is_failing,
            failed,
            done,
        }
    }

    pub fn url(&self) -> String {
        self.fake.url()
    }

    /// Sets whether scripts are answered with an error from now on.
    pub fn fail(&self, fails: bool) {
        self.is_failing.store(fails, Ordering::Relaxed);
    }

    /// The number of scripts that were answered with an error.
    pub fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }

    /// The number of scripts that were answered normally.
    pub fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }
}

/// Counts the commands that one of three masters receives in `period`, while that master answers
/// `releases` releases with an error.
pub async fn commands_for(releases: usize, period: Duration) -> usize {
    let server = ErrorServer::start();
    let fakes = [Fake::honest(Duration::ZERO), Fake::honest(Duration::ZERO)];
    let locks = Coordinator::builder()
        .masters(fakes.iter().map(Fake::url))
        .master(server.url())
        .quarantine(Quarantine::Off)
        .ttl(Duration::from_secs(60))
        .build()
        .unwrap();
    let mut guards = Vec::new();
    while guards.len() < releases {
        let lock = locks.mutex(format!("r{}", guards.len()));
        let guard = lock.acquire_within(period).await.unwrap();
        if guard.settled().await.failed_count() == 0 {
            guards.push(guard);
        }
    }
    server.fail(true);
    drop(guards);
    tokio::time::sleep(period).await;
    server.failed()
}

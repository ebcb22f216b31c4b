//! Masters give replies that no server should give. Every call returns, and locks still work
//! through the other masters.

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use quorlock::{
    __internals::{KINDS, plain},
    Coordinator, MasterSpec, Quarantine, Reason,
};
use quorlock_check::{CheckSettings, check};
use testkit::hostile::{
    answers::{honest, subscription},
    fake_server::{Fake, Peer},
};
use tokio::time::timeout;

use crate::own_process::{in_own_process, run};

/// The reply to the words of a command.
type Reply = fn(&[Vec<u8>]) -> Vec<u8>;

#[test]
fn calls_return_when_all_masters_reply_nonsense() {
    in_own_process(|| {
        let replies: [Reply; 5] = [
            // The command without a reply must still get its vote.
            |_| subscription("subscribe", b"x"),
            |_| subscription("unsubscribe", b"x"),
            |words| match words[0].as_slice() {
                b"SUBSCRIBE" | b"UNSUBSCRIBE" => honest(words),
                _ => Vec::new(),
            },
            |words| honest(words).repeat(2),
            no_scripts,
        ];
        for reply in replies {
            run(all_calls_return(reply));
        }
    });
}

/// Knows no script, however often its text is sent.
fn no_scripts(words: &[Vec<u8>]) -> Vec<u8> {
    match words[0].as_slice() {
        b"EVAL" | b"EVALSHA" => b"-NOSCRIPT No matching script.\r\n".to_vec(),
        _ => honest(words),
    }
}

/// A command that is always answered with `NOSCRIPT` is not repeated for ever.
#[test]
fn a_master_without_scripts_is_not_sent_them_without_end() {
    in_own_process(|| {
        run(async {
            let fakes = [(); 3].map(|()| falsifying(no_scripts));
            let locks = coordinator(&fakes);
            drop(locks.mutex("a").try_acquire().await);
            tokio::time::sleep(Duration::from_secs(2)).await;
            let commands: usize = fakes.iter().map(Fake::commands).sum();
            // Each master gets the acquisition, the release, and the release with the whole
            // script. Each master also gets the pending release a few times.
            assert!(commands < 3 * 40, "{commands} commands for one lock in 2 s");
        });
    });
}

#[test]
fn calls_return_when_replies_belong_to_no_command() {
    in_own_process(|| {
        run(async {
            // The extra replies are sent before any lock command.
            let fakes = [(); 3].map(|()| {
                Fake::tcp(|peer| {
                    while let Some(words) = peer.command() {
                        let mut reply = honest(&words);
                        if words[0] == b"DELIFEQ" {
                            reply.extend_from_slice(b":1\r\n:1\r\n:1\r\n");
                        }
                        if peer.say(&reply).is_none() {
                            return;
                        }
                    }
                })
            });
            assert_calls_return(&coordinator(&fakes)).await;
        });
    });
}

/// The votes of other masters do not wait for a master that sends only nonsense.
#[test]
fn one_of_three_that_confirms_in_place_of_replies_costs_no_lock() {
    in_own_process(|| {
        run(async {
            let fakes = [
                Fake::honest(Duration::ZERO),
                Fake::honest(Duration::ZERO),
                falsifying(|_| subscription("subscribe", b"x")),
            ];
            let locks = coordinator(&fakes);
            let mut won = 0;
            for number in 0..20 {
                let lock = locks.mutex(format!("a{number}"));
                let tried = timeout(HANG, lock.try_acquire()).await.unwrap();
                if let Ok(guard) = tried {
                    won += 1;
                    timeout(HANG, guard.all_votes()).await.unwrap();
                    drop(timeout(HANG, guard.release()).await.unwrap());
                }
            }
            assert!(won >= 18, "{won} of 20 locks");
            timeout(HANG, locks.close()).await.unwrap();
        });
    });
}

/// The other masters would grant the slot too, because no one has it.
#[test]
fn no_guard_has_a_slot_beyond_the_permits() {
    in_own_process(|| {
        run(async {
            let fakes = [(); 3].map(|()| {
                falsifying(|words| match words[0].as_slice() {
                    b"EVAL" | b"EVALSHA" => b":3\r\n".to_vec(),
                    _ => honest(words),
                })
            });
            let locks = coordinator(&fakes);
            let within = locks.semaphore("a", 3).plain().acquire_within(HANG).await;
            assert_eq!(within.unwrap().slot(), Some(2));
            let beyond = locks.semaphore("b", 2).plain().try_acquire().await;
            assert!(
                matches!(&beyond, Err(error) if *error.reason() == Reason::NoQuorum),
                "{beyond:?}"
            );
        });
    });
}

/// The masters turn hostile while a guard is held. Calls on that guard return, too.
#[test]
fn calls_on_a_guard_return_when_masters_turn_hostile() {
    in_own_process(|| {
        run(async {
            let is_hostile = Arc::new(AtomicBool::new(false));
            let fakes = [(); 3].map(|()| {
                let is_hostile = is_hostile.clone();
                falsifying(move |words| match is_hostile.load(Ordering::Relaxed) {
                    true => subscription("subscribe", b"x"),
                    false => honest(words),
                })
            });
            let locks = coordinator(&fakes);
            let guard = locks.mutex("a").acquire_within(HANG).await.unwrap();
            is_hostile.store(true, Ordering::Relaxed);
            let calls = Calls::default();
            drop(calls.bounded("extend", guard.extend(TTL)).await);
            drop(calls.bounded("settled", guard.all_votes()).await);
            drop(calls.bounded("release", guard.release()).await);
            calls.bounded("close", locks.close()).await;
            assert_eq!(calls.hung(), [""; 0]);
        });
    });
}

/// Checks that every call returns while all masters give the replies of `reply`.
async fn all_calls_return(reply: Reply) {
    let fakes = [(); 3].map(|()| falsifying(reply));
    assert_calls_return(&coordinator(&fakes)).await;
    let masters = fakes.each_ref().map(|fake| MasterSpec::from(fake.url()));
    let (calls, shared) = (Calls::default(), CheckSettings::default());
    let checked = check(&masters, &[], &shared);
    drop(calls.bounded("check", checked).await);
    assert_eq!(calls.hung(), [""; 0]);
}

async fn assert_calls_return(locks: &Coordinator) {
    let calls = Calls::default();
    let owner = locks.new_owner();
    for round in 0..3 {
        let of_each_kind = KINDS.map(|kind| {
            let lock = |fenced| locks.of_kind(kind, format!("{fenced}{kind}"), &owner);
            [lock(""), plain(lock("fenced ").fenced())]
        });
        for lock in of_each_kind.as_flattened() {
            let what = |verb| format!("{verb} ({lock:?}), round {round}");
            let limit = Duration::from_millis(100);
            let guard = calls
                .bounded(&what("try_acquire"), lock.try_acquire())
                .await;
            drop(
                calls
                    .bounded(&what("acquire_within"), lock.acquire_within(limit))
                    .await,
            );
            drop(calls.bounded(&what("inspect"), lock.inspect()).await);
            drop(calls.bounded(&what("is_held"), lock.is_held()).await);
            if let Some(Ok(guard)) = guard {
                drop(calls.bounded(&what("extend"), guard.extend(TTL)).await);
                drop(calls.bounded(&what("settled"), guard.all_votes()).await);
                drop(calls.bounded(&what("release"), guard.release()).await);
            }
        }
    }
    calls.bounded("close", locks.close()).await;
    assert_eq!(calls.hung(), [""; 0], "of {} calls", calls.made());
}

/// Starts a server that answers the greeting, and then gives the replies of `reply`.
fn falsifying(reply: impl Fn(&[Vec<u8>]) -> Vec<u8> + Send + Sync + 'static) -> Fake {
    Fake::tcp(move |peer: &mut Peer| {
        let mut words = peer.greet();
        while let Some(asked) = words {
            if peer.say(&reply(&asked)).is_none() {
                return;
            }
            words = peer.command();
        }
    })
}

fn coordinator(fakes: &[Fake]) -> Coordinator {
    Coordinator::builder()
        .masters(fakes.iter().map(Fake::url))
        .quarantine(Quarantine::Off)
        .response_timeout(Duration::from_millis(50))
        .ttl(TTL)
        .silent_waiter_timeout(TTL)
        .build()
        .unwrap()
}

const TTL: Duration = Duration::from_secs(1);

/// The number of calls made, and the calls that did not return.
#[derive(Default)]
struct Calls {
    made: AtomicU64,
    hung: Mutex<Vec<String>>,
}

impl Calls {
    fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    fn hung(&self) -> Vec<String> {
        self.hung.lock().unwrap().clone()
    }

    /// Returns the output of `call`, or `None` if it takes longer than `HANG`.
    async fn bounded<T>(&self, what: &str, call: impl Future<Output = T>) -> Option<T> {
        self.made.fetch_add(1, Ordering::Relaxed);
        let returned = timeout(HANG, call).await.ok();
        if returned.is_none() {
            self.hung.lock().unwrap().push(what.to_owned());
        }
        returned
    }
}

/// The limit after which a call counts as hung. Every deadline in these runs is far below it.
const HANG: Duration = Duration::from_secs(5);

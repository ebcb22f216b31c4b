//! A future can be dropped at any point, and leaves nothing on the masters.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use quorlock::{Coordinator, Lock};
use tokio::time::timeout;

use crate::common::*;

/// The moment after its last poll at which a future is dropped.
#[derive(Clone, Copy, Debug)]
enum Moment {
    AtOnce,
    WhenWoken,
}

/// Polls `future` at most `polls` times and drops it. Returns its output if it completes.
async fn polled<T>(future: impl Future<Output = T>, polls: usize, moment: Moment) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match (future.as_mut().poll(cx), moment) {
            (Poll::Ready(done), _) => Poll::Ready(Some(done)),
            (Poll::Pending, Moment::AtOnce) if left == 0 => Poll::Ready(None),
            (Poll::Pending, _) => Poll::Pending,
        }
    })
    .await
}

/// Runs `step` with 0, 1, 2, ... polls until `step` returns that the future completed. Does this
/// with coordinators that are still connecting, and with coordinators that are connected. Fails if
/// a master has a key after a step.
async fn at_every_poll(
    masters: &[Server],
    mut step: impl AsyncFnMut(&Lock, usize, Moment) -> bool,
) {
    for moment in [Moment::AtOnce, Moment::WhenWoken] {
        for warm in [false, true] {
            let mut polls = 0;
            let mut completed = false;
            while !completed {
                let locks = coordinator(patient(), masters);
                if warm {
                    drop(acquire_on_all(&locks.mutex("warm")).await);
                }
                completed = step(&locks.mutex("r"), polls, moment).await;
                locks.close().await;
                for master in masters {
                    let left = master.command(&["GET", "r"]);
                    assert!(
                        left == "(nil)" || left == "theirs",
                        "{polls} polls, dropped {moment:?}, warm: {warm}"
                    );
                }
                polls += 1;
                assert!(polls < 200, "the future never completes");
            }
        }
    }
}

#[test]
fn dropped_acquisitions_of_a_free_lock_leave_nothing() {
    with_masters(3, async |masters| {
        at_every_poll(&masters, async |lock, polls, moment| {
            polled(lock.try_acquire(), polls, moment).await.is_some()
        })
        .await;
        at_every_poll(&masters, async |lock, polls, moment| {
            polled(lock.acquire_within(TEST_TIMEOUT), polls, moment)
                .await
                .is_some()
        })
        .await;
        at_every_poll(&masters, async |lock, polls, moment| {
            polled(lock.acquire(), polls, moment).await.is_some()
        })
        .await;
        assert_no_keys(&masters);
    });
}

/// Another client holds two of three masters, so each round is lost. The grant of the third master
/// must be given back.
#[test]
fn dropped_acquisitions_of_a_held_lock_leave_nothing() {
    with_masters(3, async |masters| {
        for master in &masters[..2] {
            master.command(&["SET", "r", "theirs"]);
        }
        at_every_poll(&masters, async |lock, polls, moment| {
            polled(lock.try_acquire(), polls, moment).await.is_some()
        })
        .await;
        at_every_poll(&masters, async |lock, polls, moment| {
            let limit = Duration::from_millis(50);
            polled(lock.acquire_within(limit), polls, moment)
                .await
                .is_some()
        })
        .await;
        at_every_poll(&masters, async |lock, polls, moment| {
            // `acquire` would never complete here.
            polled(lock.acquire(), polls, moment).await.is_some() || polls == 8
        })
        .await;
        assert_no_keys(&masters[2..]);
    });
}

/// One master has lost the key. The key is put back while the extension is dropped.
#[test]
fn dropped_extensions_leave_nothing() {
    with_masters(3, async |masters| {
        at_every_poll(&masters, async |lock, polls, moment| {
            let guard = acquire_on_all(lock).await;
            assert_eq!(masters[2].command(&["DEL", "r"]), "1");
            polled(guard.extend(LONG * 2), polls, moment)
                .await
                .is_some()
        })
        .await;
        assert_no_keys(&masters);
    });
}

#[test]
fn dropped_releases_leave_nothing() {
    with_masters(3, async |masters| {
        at_every_poll(&masters, async |lock, polls, moment| {
            let guard = acquire_on_all(lock).await;
            polled(guard.release(), polls, moment).await.is_some()
        })
        .await;
        assert_no_keys(&masters);
    });
}

#[test]
fn acquisitions_aborted_under_contention_leave_nothing() {
    with_masters(5, async |masters| {
        let locks = [
            coordinator(patient(), &masters),
            coordinator(patient(), &masters),
        ];
        let drops = (0..300).map(|number| {
            let locks = locks[number % 2].clone();
            tokio::spawn(async move {
                let moment = Duration::from_micros(rand::random_range(0..2_000));
                let _ = timeout(moment, hold_and_release(locks, number % 7)).await;
            })
        });
        for dropped in drops.collect::<Vec<_>>() {
            dropped.await.unwrap();
        }
        for locks in &locks {
            locks.close().await;
        }
        assert_no_keys(&masters);
    });
}

async fn hold_and_release(locks: Coordinator, name: usize) {
    let lock = locks.mutex(format!("r{name}"));
    loop {
        let guard = lock.acquire().await.unwrap();
        guard.extend(LONG * 2).await.unwrap();
        guard.release().await.unwrap();
    }
}

//! User code that this crate runs: wakers and `tracing` subscribers. They may panic or call back
//! into the crate.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use quorlock::{Coordinator, Fault, Guard, Lock, LockState, LostReason};
use testkit::on_event::OnEvent;
use tokio::time::{advance, sleep, timeout};
use tracing::subscriber::set_default;

use crate::world::{World, millis, paused_runtime, seconds};

/// A waker that calls a function whenever it is woken.
struct OnWake<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(wakes: impl Fn() + Send + Sync + 'static) -> Waker {
    Arc::new(OnWake(wakes)).into()
}

/// Runs `test` on a thread of its own, and fails if the thread does not end. Code that locks the
/// same mutex twice would wait forever.
pub(crate) fn assert_ends(test: impl AsyncFnOnce() + Send + 'static) {
    let (sender, ended) = mpsc::channel();
    let thread = thread::spawn(move || {
        paused_runtime().block_on(test());
        let _ = sender.send(());
    });
    match ended.recv_timeout(seconds(30)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test has not ended"),
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => thread.join().unwrap(),
    }
}

/// A master's task or the renewer finds the loss.
#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_at_a_loss_does_not_stop_renewals() {
    for in_watchdog in [false, true] {
        let is_armed = Arc::new(AtomicBool::new(true));
        let armed = is_armed.clone();
        let _listening = set_default(OnEvent(move |_, message: String| {
            if message.contains("lock lost") && armed.swap(false, Ordering::SeqCst) {
                panic!("a subscriber");
            }
        }));
        let world = World::with(3, |builder| builder.ttl(millis(600))).await;
        let victim = world.locks.mutex("victim").acquire().await.unwrap();
        if in_watchdog {
            advance(seconds(1)).await; // a stall that lasts longer than the validity
        } else {
            world
                .masters
                .iter()
                .for_each(|master| master.delete("victim"));
        }
        sleep(millis(500)).await;
        assert!(!is_armed.load(Ordering::SeqCst), "{in_watchdog}");
        assert!(matches!(victim.state(), LockState::Lost(_)));
        let other = world.locks.mutex("other").acquire().await.unwrap();
        assert_eq!(other.settled().await.granted_count(), 3, "{in_watchdog}");
        sleep(seconds(60)).await;
        assert_eq!(other.state(), LockState::Held, "{in_watchdog}");
        assert_eq!(other.settled().await.granted_count(), 3, "{in_watchdog}");
    }
}

/// The waker of `Guard::lost` reads the guard's state, or panics.
#[test]
fn a_waker_may_read_the_guard_that_is_lost() {
    assert_ends(async || {
        let world = World::new(3).await;
        let guard = Arc::new(world.guard().await);
        let woken = Arc::new(AtomicU32::new(0));
        let looks = {
            let (guard, woken) = (guard.clone(), woken.clone());
            waker(move || {
                assert!(!guard.is_valid());
                woken.fetch_add(1, Ordering::SeqCst);
                panic!("a waker");
            })
        };
        let mut lost = pin!(guard.lost());
        let is_lost = lost.as_mut().poll(&mut Context::from_waker(&looks));
        assert!(is_lost.is_pending());
        for master in &world.masters {
            master.delete(crate::world::NAME);
        }
        guard.extend(seconds(10)).await.unwrap_err();
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        assert_eq!(lost.await.reason, LostReason::Disowned);
    });
}

#[test]
fn a_subscriber_may_read_the_guard_that_is_lost() {
    assert_ends(async || {
        let guard = Arc::new(Mutex::new(None::<Arc<Guard>>));
        let seen = Arc::new(AtomicU32::new(0));
        let look = {
            let (guard, seen) = (guard.clone(), seen.clone());
            move |_, _: String| {
                let guard = guard.lock().unwrap().clone();
                if let Some(guard) = guard {
                    guard.is_valid();
                    guard.votes();
                    seen.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        let _listening = set_default(OnEvent(look));
        let world = World::new(3).await;
        let held = Arc::new(world.locks.mutex("r").acquire().await.unwrap());
        *guard.lock().unwrap() = Some(held.clone());
        world.inject_all(&Fault::Down);
        sleep(seconds(20)).await;
        assert_eq!(held.state(), LockState::Lost(LostReason::Expired));
        assert!(seen.load(Ordering::SeqCst) > 1);
        *guard.lock().unwrap() = None;
    });
}

/// The waker of one waiter starts a second wait for the same lock, and drops that wait.
#[test]
fn a_waker_may_wait_for_the_same_lock_when_the_coordinator_is_closed() {
    let mutex = |locks: &Coordinator| locks.mutex("r");
    let fair = |locks: &Coordinator| locks.fair("r", &locks.owner());
    let kinds: [fn(&Coordinator) -> Lock; 2] = [mutex, fair];
    for kind in kinds {
        assert_ends(async move || {
            let world = World::new(3).await;
            let holder = Coordinator::new(&world.masters).unwrap();
            let _held = kind(&holder).acquire().await.unwrap();
            let woken = Arc::new(AtomicU32::new(0));
            let waits = {
                let (lock, woken) = (kind(&world.locks), woken.clone());
                waker(move || {
                    let noop = Waker::noop();
                    let _ = pin!(lock.acquire()).poll(&mut Context::from_waker(noop));
                    woken.fetch_add(1, Ordering::SeqCst);
                })
            };
            let lock = kind(&world.locks);
            let mut waiter = Box::pin(lock.acquire());
            // After 100 ms, the waiter is queued or has subscribed.
            for _ in 0..100 {
                let waits = waiter.as_mut().poll(&mut Context::from_waker(&waits));
                assert!(matches!(waits, Poll::Pending));
                sleep(Duration::from_millis(1)).await;
            }
            let before = woken.load(Ordering::SeqCst);
            world.close().await;
            assert!(woken.load(Ordering::SeqCst) > before);
        });
    }
}

/// The task that acquires a lock may look at the guard when its waker is dropped. Code of the
/// program must not run while the claim is locked.
#[test]
fn the_waker_of_an_acquisition_may_read_the_guard_when_it_is_dropped() {
    /// The waker of a task that keeps its guard here.
    struct Looks(Arc<Mutex<Option<Arc<Guard>>>>);

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Looks {
        fn drop(&mut self) {
            let guard = self.0.lock().unwrap().clone();
            if let Some(guard) = guard {
                guard.is_valid();
            }
        }
    }

    assert_ends(async || {
        let world = World::new(1).await;
        let kept = Arc::<Mutex<Option<Arc<Guard>>>>::default();
        let holder = world.guard().await;
        let lock = world.locks.mutex(crate::world::NAME);
        let mut first = Box::pin(lock.acquire());
        assert!(timeout(millis(5), first.as_mut()).await.is_err());
        let mut second = Box::pin(lock.acquire());
        let mut poll = || {
            let waker = Waker::from(Arc::new(Looks(kept.clone())));
            second.as_mut().poll(&mut Context::from_waker(&waker))
        };
        assert!(poll().is_pending());
        drop(holder);
        drop(timeout(seconds(5), first).await.unwrap().unwrap());
        let guard = loop {
            if let Poll::Ready(acquired) = poll() {
                break Arc::new(acquired.unwrap());
            }
            sleep(millis(1)).await;
        };
        drop(second);
        *kept.lock().unwrap() = Some(guard.clone());
        sleep(seconds(15)).await; // the lock is renewed
        assert!(guard.is_valid());
        *kept.lock().unwrap() = None;
    });
}

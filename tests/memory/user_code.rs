//! User code that this crate runs: wakers and `tracing` subscribers. They may panic or call back
//! into the crate.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use futures::FutureExt as _;
use quorlock::{Coordinator, Fault, Guard, Lock, LockKind, LockState, LostReason};
use testkit::on_event::OnEvent;
use tokio::{
    spawn,
    task::JoinHandle,
    time::{Instant, advance, sleep, timeout},
};
use tracing::{Event, Metadata, Subscriber, span, subscriber::set_default};

use crate::world::{KINDS, REDIAL, World, error, millis, paused_runtime, seconds, start};

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

/// A subscriber that panics at the first message that contains `text`.
fn panics_at(text: &'static str) -> impl Subscriber + Send + Sync {
    let is_armed = AtomicBool::new(true);
    OnEvent(move |_, message: String| {
        if message.contains(text) && is_armed.swap(false, Ordering::SeqCst) {
            panic!("a subscriber");
        }
    })
}

/// A subscriber that calls a function whenever it is called, with the name of a new span.
struct OnCall<F>(F);

impl<F: Fn(Option<&str>) + Send + Sync + 'static> Subscriber for OnCall<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("quorlock")
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        (self.0)(Some(span.metadata().name()));
        span::Id::from_u64(1)
    }

    fn clone_span(&self, id: &span::Id) -> span::Id {
        (self.0)(None);
        id.clone()
    }

    fn try_close(&self, _: span::Id) -> bool {
        (self.0)(None);
        true
    }

    fn event(&self, _: &Event<'_>) {
        (self.0)(None);
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {
        (self.0)(None);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Polls `future` once. Its waker panics.
fn poll_with_bomb<T>(future: Pin<&mut impl Future<Output = T>>) {
    let bomb = waker(|| panic!("a waker"));
    assert!(future.poll(&mut Context::from_waker(&bomb)).is_pending());
}

/// Makes code of the program panic in a task of the coordinator.
async fn panic_in_task(world: &World, why: &str) {
    let victim = world.locks.mutex("victim").ttl(millis(600));
    let lose = |guard: &Guard| {
        let masters = world.masters.iter();
        masters.for_each(|master| master.delete("victim"));
        guard.extend(seconds(20)).now_or_never();
    };
    match why {
        "an event before a vote" => {
            let _listening = set_default(panics_at("master takes no locks"));
            world.inject_all(&error());
            victim.try_acquire().await.unwrap_err();
        }
        "an event of a connection that ends" => {
            let _listening = set_default(panics_at("master down"));
            world.inject([Fault::Down]);
            sleep(millis(10)).await;
        }
        "an event in a vote" => {
            let _listening = set_default(panics_at("lock lost"));
            let guard = victim.acquire().await.unwrap();
            lose(&guard);
            sleep(millis(10)).await;
        }
        "an event in the renewer" => {
            let _listening = set_default(panics_at("lock lost"));
            let _guard = victim.acquire().await.unwrap();
            advance(seconds(1)).await; // a stall that lasts longer than the validity
            sleep(millis(10)).await;
        }
        "a span of the renewer" => {
            let is_armed = Arc::new(AtomicBool::new(true));
            let bomb = is_armed.clone();
            let _listening = set_default(OnCall(move |span: Option<&str>| {
                if span == Some("renew") && bomb.swap(false, Ordering::SeqCst) {
                    panic!("a subscriber");
                }
            }));
            let guard = victim.acquire().await.unwrap();
            sleep(seconds(2)).await;
            assert!(!is_armed.load(Ordering::SeqCst) && guard.is_valid());
        }
        "the waker of a loss" => {
            let guard = victim.acquire().await.unwrap();
            let mut lost = pin!(guard.lost());
            poll_with_bomb(lost.as_mut());
            lose(&guard);
            sleep(millis(10)).await;
            assert_eq!(lost.await.reason, LostReason::TakenAway);
        }
        "the waker of a round" => {
            let mut attempt = pin!(victim.try_acquire());
            poll_with_bomb(attempt.as_mut());
            sleep(millis(10)).await;
            let _ = attempt.await.unwrap();
        }
        "one waker of several" => {
            world.inject([Fault::Delay(millis(10))]);
            let guard = victim.acquire().await.unwrap();
            let (mut first, second) = (pin!(guard.all_votes()), guard.all_votes());
            poll_with_bomb(first.as_mut());
            assert_eq!(second.await.granted_count(), 3);
        }
        "the waker of the first of several rounds" => {
            world.inject_all(&Fault::Hang);
            let other = world.locks.mutex("other");
            let (mut first, mut second) = (pin!(victim.try_acquire()), pin!(other.try_acquire()));
            poll_with_bomb(first.as_mut());
            start(second.as_mut()).await;
            sleep(millis(1)).await;
            world.inject_all(&Fault::Down);
            second.await.unwrap_err();
        }
        _ => unreachable!(),
    }
}

#[test]
fn a_panic_in_a_task_harms_no_other_call() {
    let lock = |locks: &Coordinator, kind: LockKind| {
        locks.of_kind(kind, format!("a {kind}"), &locks.new_owner())
    };
    // Without the vote of its only master, a round would never end.
    for (why, masters) in [
        ("an event before a vote", 1),
        ("an event of a connection that ends", 3),
        ("an event in a vote", 3),
        ("an event in the renewer", 3),
        ("a span of the renewer", 3),
        ("the waker of a loss", 3),
        ("the waker of a round", 3),
        ("one waker of several", 3),
        ("the waker of the first of several rounds", 1),
    ] {
        assert_ends(async move || {
            let world = World::new(masters).await;
            let holder = Coordinator::new(&world.masters).unwrap();
            let (mut held, mut waiters) = (Vec::new(), Vec::new());
            for kind in KINDS {
                let taken = lock(&holder, kind);
                held.push(taken.acquire().await.unwrap());
                let waiter = lock(&world.locks, kind);
                waiters.push(spawn(async move { waiter.acquire().await }));
            }
            let guard = world.locks.mutex("held").acquire().await.unwrap();
            sleep(seconds(1)).await;
            panic_in_task(&world, why).await;
            world.clear_faults();
            sleep(REDIAL).await;
            let goes_on = async {
                drop(world.locks.mutex("new").acquire().await.unwrap());
                guard.extend(seconds(20)).await.unwrap();
                assert_eq!(guard.state(), LockState::Held, "{why}");
                assert!(!waiters.iter().any(JoinHandle::is_finished), "{why}");
                held.clear();
                for waiter in waiters {
                    drop(waiter.await.unwrap().unwrap());
                }
                drop(guard);
                world.locks.close().await;
            };
            timeout(seconds(60), goes_on).await.expect(why);
            let left = world.masters.iter().map(|master| master.keys().len());
            assert_eq!(left.sum::<usize>(), 0, "{why}");
        });
    }
}

/// A waiter of the same coordinator is woken by the release itself, in the task of the holder.
#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_harms_no_release_of_the_lock_that_it_waits_for() {
    let world = World::new(3).await;
    let (guard, lock) = (world.guard().await, world.locks.mutex(crate::world::NAME));
    let mut waiter = pin!(lock.acquire());
    for _ in 0..20 {
        poll_with_bomb(waiter.as_mut());
        sleep(millis(1)).await;
    }
    guard.release().await.unwrap();
    drop(waiter.await.unwrap());
}

/// Several tasks wait for the same event, and the waker of the first one panics.
#[tokio::test(start_paused = true)]
async fn a_waker_that_panics_keeps_the_event_from_no_other_task() {
    let world = World::new(3).await;
    let guard = world.locks.mutex("victim").acquire().await.unwrap();
    let (mut first, mut other) = (pin!(guard.lost()), pin!(guard.lost()));
    poll_with_bomb(first.as_mut());
    start(other.as_mut()).await;
    let masters = world.masters.iter();
    masters.for_each(|master| master.delete("victim"));
    let begin = Instant::now();
    guard.extend(seconds(20)).await.unwrap_err();
    assert_eq!(other.await.reason, LostReason::TakenAway);
    world.inject_all(&Fault::Delay(millis(20)));
    drop(world.guard().await);
    let (mut first, mut other) = (pin!(world.locks.close()), pin!(world.locks.close()));
    poll_with_bomb(first.as_mut());
    start(other.as_mut()).await;
    other.await;
    assert!(begin.elapsed() < millis(200), "{:?}", begin.elapsed());
}

/// A program may wait for a loss in each of its requests, beside something else that ends first.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_loss_that_is_dropped_keeps_no_waker() {
    let world = World::new(3).await;
    let guard = world.guard().await;
    let idle = Arc::new(OnWake(|| ()));
    let waker = Waker::from(idle.clone());
    for _ in 0..100 {
        let mut lost = pin!(guard.lost());
        let polled = lost.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
    }
    assert_eq!(Arc::strong_count(&idle), 2);
}

/// The waker of `Guard::lost` reads the guard's state.
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
        assert_eq!(lost.await.reason, LostReason::TakenAway);
    });
}

#[test]
fn a_subscriber_may_read_the_guard_that_is_lost() {
    assert_ends(async || {
        let looks_at = Arc::<Mutex<Option<Arc<Guard>>>>::default();
        let seen = Arc::<AtomicU32>::default();
        let (guard, count) = (looks_at.clone(), seen.clone());
        let _listening = set_default(OnCall(move |_: Option<&str>| {
            let guard = guard.lock().unwrap().clone();
            if let Some(guard) = guard {
                guard.is_valid();
                guard.votes();
                count.fetch_add(1, Ordering::SeqCst);
            }
        }));
        let world = World::new(3).await;
        let held = Arc::new(world.locks.mutex("r").acquire().await.unwrap());
        *looks_at.lock().unwrap() = Some(held.clone());
        world.inject_all(&Fault::Down);
        sleep(seconds(20)).await;
        assert_eq!(held.state(), LockState::Lost(LostReason::Expired));
        assert!(seen.load(Ordering::SeqCst) > 1);
        *looks_at.lock().unwrap() = None;
    });
}

/// The subscriber drops the guard whose renewal has begun, and looks at another guard at each call.
#[test]
fn a_guard_may_be_dropped_while_the_span_of_its_renewal_opens() {
    assert_ends(async || {
        let [renewed, other] = [(); 2].map(|()| Arc::<Mutex<Option<Guard>>>::default());
        let (renews, looks_at) = (renewed.clone(), other.clone());
        let _listening = set_default(OnCall(move |span: Option<&str>| {
            let dropped = span.filter(|name| *name == "renew");
            let dropped = dropped.and_then(|_| renews.lock().unwrap().take());
            drop(dropped);
            if let Some(guard) = &*looks_at.lock().unwrap() {
                guard.is_valid();
            }
        }));
        let world = World::new(3).await;
        let kept = world.locks.mutex("kept").acquire().await.unwrap();
        let dropped = world.locks.mutex("r").acquire().await.unwrap();
        (*other.lock().unwrap(), *renewed.lock().unwrap()) = (Some(kept), Some(dropped));
        sleep(seconds(20)).await;
        assert!(renewed.lock().unwrap().is_none(), "it was not renewed");
        let kept = other.lock().unwrap().take().unwrap();
        assert_eq!(kept.state(), LockState::Held);
    });
}

/// The waker of one waiter starts a second wait for the same lock, and drops that wait.
#[test]
fn a_waker_may_wait_for_the_same_lock_when_the_coordinator_is_closed() {
    let mutex = |locks: &Coordinator| locks.mutex("r");
    let fair = |locks: &Coordinator| locks.fair("r");
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

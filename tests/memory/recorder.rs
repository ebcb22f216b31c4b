//! A recorder of metrics that calls back into the crate.

use std::{
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use quorlock::{Fault, Guard};
use tokio::time::sleep;

use crate::{
    user_code::assert_ends,
    world::{NAME, World, seconds},
};

/// A recorder that reads a guard whenever it records something.
#[derive(Clone, Default)]
struct Reader(Arc<State>);

#[derive(Default)]
struct State {
    guard: Mutex<Option<Arc<Guard>>>,
    reads: AtomicU32,
}

impl Reader {
    fn watch(&self, guard: Option<Arc<Guard>>) {
        let before = mem::replace(&mut *self.0.guard.lock().unwrap(), guard);
        drop(before); // after the unlock, because the drop records something
    }
}

impl State {
    fn read(&self) {
        let guard = self.guard.lock().unwrap().clone();
        if let Some(guard) = guard {
            guard.state();
            guard.votes();
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Recorder for Reader {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.0.clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.0.clone())
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.0.clone())
    }
}

impl CounterFn for State {
    fn increment(&self, _: u64) {
        self.read();
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for State {
    fn increment(&self, _: f64) {
        self.read();
    }

    fn decrement(&self, _: f64) {
        self.read();
    }

    fn set(&self, _: f64) {
        self.read();
    }
}

impl HistogramFn for State {
    fn record(&self, _: f64) {
        self.read();
    }
}

/// Commands to a master that is down fail while the call that posts them holds the state of the
/// lock. If their votes were counted there, the recorder would wait for that state forever.
#[test]
fn a_recorder_may_read_a_guard_while_a_master_is_down() {
    assert_ends(async || {
        let reader = Reader::default();
        let _recording = metrics::set_default_local_recorder(&reader);
        let world = World::new(3).await;
        let owner = world.locks.owner();
        let lock = world.locks.reentrant(NAME, &owner);
        let guard = Arc::new(lock.acquire().await.unwrap());
        reader.watch(Some(guard.clone()));
        world.inject([Fault::Down]);
        sleep(seconds(20)).await; // renewals
        guard.extend(seconds(10)).await.unwrap();
        drop(lock.acquire().await.unwrap());
        reader.watch(None);
        Arc::into_inner(guard).unwrap().release().await.unwrap();

        let guard = Arc::new(lock.acquire().await.unwrap());
        reader.watch(Some(guard.clone()));
        world.inject_all(&Fault::Down);
        guard.lost().await;
        drop(guard);
        reader.watch(None);
        assert!(reader.0.reads.load(Ordering::Relaxed) > 10);
    });
}

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

/// A recorder that calls this code whenever it records something.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Calls>);

struct Calls(Box<dyn Fn() + Send + Sync>);

impl Caller {
    pub(crate) fn new(call: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(Calls(Box::new(call))))
    }
}

impl Recorder for Caller {
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

impl CounterFn for Calls {
    fn increment(&self, _: u64) {
        self.0();
    }

    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Calls {
    fn increment(&self, _: f64) {
        self.0();
    }

    fn decrement(&self, _: f64) {
        self.0();
    }

    fn set(&self, _: f64) {
        self.0();
    }
}

impl HistogramFn for Calls {
    fn record(&self, _: f64) {
        self.0();
    }
}

/// A guard that is read whenever something is recorded.
#[derive(Default)]
struct Read {
    guard: Mutex<Option<Arc<Guard>>>,
    reads: AtomicU32,
}

impl Read {
    fn watch(&self, guard: Option<Arc<Guard>>) {
        let before = mem::replace(&mut *self.guard.lock().unwrap(), guard);
        drop(before); // after the unlock, because the drop records something
    }

    fn read(&self) {
        let guard = self.guard.lock().unwrap().clone();
        if let Some(guard) = guard {
            guard.state();
            guard.votes();
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Commands to a master that is down fail while the call that posts them holds the state of the
/// lock. If their votes were counted there, the recorder would wait for that state forever.
#[test]
fn a_recorder_may_read_a_guard_while_a_master_is_down() {
    assert_ends(async || {
        let reader = Arc::<Read>::default();
        let recorder = Caller::new({
            let reader = reader.clone();
            move || reader.read()
        });
        let _recording = metrics::set_default_local_recorder(&recorder);
        let world = World::new(3).await;
        let owner = world.locks.new_owner();
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
        assert!(reader.reads.load(Ordering::Relaxed) > 10);
    });
}

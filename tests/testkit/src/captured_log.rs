//! The events that the crate logs through `tracing`.

use std::sync::{Arc, Mutex};

use tracing::{
    Dispatch, Level,
    subscriber::{self, DefaultGuard},
};

use crate::on_event::OnEvent;

/// The events that this thread has logged.
#[derive(Clone, Debug, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<(Level, String)>>>);

impl CapturedLog {
    /// Captures events from now on, until the returned guard is dropped.
    pub fn listen() -> (Self, (DefaultGuard, Dispatch)) {
        let log = Self::default();
        let events = log.0.clone();
        let on_event = move |level, text| events.lock().unwrap().push((level, text));
        // With a single dispatcher, the first thread that reaches a log statement enables or
        // disables it for all threads. That thread may belong to a test that captures nothing. A
        // second dispatcher makes `tracing` ask on every thread.
        let second = Dispatch::new(OnEvent(on_event.clone()));
        (log, (subscriber::set_default(OnEvent(on_event)), second))
    }

    /// Returns the number of events since the last [`take`](Self::take) that have this level and
    /// text.
    pub fn count(&self, level: Level, text: &str) -> usize {
        let events = self.0.lock().unwrap();
        let is_it = |event: &&(Level, String)| event.0 == level && event.1.contains(text);
        events.iter().filter(is_it).count()
    }

    /// Returns the events since the last call.
    pub fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

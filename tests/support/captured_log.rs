//! What is said through `tracing`.

use std::{
    fmt::{self, Write},
    sync::{Arc, Mutex},
};

use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::{self, DefaultGuard},
};

/// Keeps what is said in this thread.
#[derive(Clone, Default)]
pub(crate) struct CapturedLog(Arc<Mutex<Vec<(Level, String)>>>);

impl CapturedLog {
    /// From here on, until what is returned is dropped.
    pub(crate) fn listen() -> (Self, (DefaultGuard, Dispatch)) {
        let said = Self::default();
        // With a single dispatcher, `tracing` lets the thread that is first at a line of code decide for all whether
        // anybody listens there, and other tests' threads do not.
        let second = Dispatch::new(said.clone());
        (said.clone(), (subscriber::set_default(said), second))
    }

    pub(crate) fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Subscriber for CapturedLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let level = *event.metadata().level();
        self.0.lock().unwrap().push((level, line.0));
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

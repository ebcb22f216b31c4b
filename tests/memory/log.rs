//! What is said through `tracing`, and how often.

use std::{
    fmt::{self, Write},
    sync::{Arc, Mutex},
};

use quorlock::Fault;
use tokio::time::sleep;
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span, subscriber,
};

use crate::world::{World, seconds};

#[tokio::test(start_paused = true)]
async fn an_outage_is_warned_of_once() {
    let said = Said::default();
    // With a single dispatcher, `tracing` lets the thread that is first at a line of code decide for all whether
    // anybody listens there, and other tests' threads do not.
    let _second = Dispatch::new(said.clone());
    let _said = subscriber::set_default(said.clone());
    let world = World::new(1).await;
    let master = &world.addresses()[0];
    for _outage in 0..2 {
        said.take();
        world.order([Fault::Down]);
        let _ = world.lock().try_acquire().await; // so that the loss of the connection is seen
        sleep(seconds(30)).await;
        let lines = said.take();
        let down = |level, message: &str| {
            let is_it = |line: &&(Level, String)| {
                line.0 == level && line.1.contains(message) && line.1.contains(master)
            };
            lines.iter().filter(is_it).count()
        };
        assert_eq!(down(Level::WARN, "master down"), 1, "{lines:?}");
        assert!(down(Level::DEBUG, "master still down") > 10, "{lines:?}");
        world.mend();
        sleep(seconds(2)).await;
    }
}

/// Keeps what is said in this thread.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<(Level, String)>>>);

impl Said {
    fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Subscriber for Said {
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

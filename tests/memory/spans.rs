//! The `tracing` spans of locks.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
};

use quorlock::Fault;
use tokio::time::sleep;
use tracing::{
    Dispatch, Event, Metadata, Subscriber,
    field::{Field, Visit},
    span, subscriber,
};

use crate::world::{NAME, World, delay, seconds};

/// A subscriber that writes down what happens to the spans of this crate, and which span an event
/// is in.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lines: Vec<String>,
    names: HashMap<u64, (&'static str, usize)>,
    entered: Vec<u64>,
}

impl State {
    fn name(&self, id: &span::Id) -> &'static str {
        self.names[&id.into_u64()].0
    }
}

impl Notes {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().lines)
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Filters by name see no span that is only asked for under another name.
        let is_known =
            metadata.is_event() || ["acquire", "hold", "renew"].contains(&metadata.name());
        metadata.target() == "quorlock::lock" && is_known
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut state = self.0.lock().unwrap();
        let name = attributes.metadata().name();
        let parent = attributes.parent().map(|parent| state.name(parent));
        let parent = parent.map_or_else(String::new, |parent| format!(" in {parent}"));
        // Subscribers that write JSON put the name of the span beside its fields.
        let fields = attributes.metadata().fields();
        let names_lock = fields.field("lock").is_some() && fields.field("name").is_none();
        let lacks = if names_lock { "" } else { ", lacks `lock`" };
        state.lines.push(format!("{name} begins{parent}{lacks}"));
        let id = state.names.len() as u64 + 1;
        state.names.insert(id, (name, 1));
        span::Id::from_u64(id)
    }

    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        let mut state = self.0.lock().unwrap();
        let mut text = Text(state.name(id).to_owned());
        values.record(&mut text);
        state.lines.push(text.0);
    }

    fn event(&self, event: &Event<'_>) {
        let mut state = self.0.lock().unwrap();
        let span = state.entered.last().map(|id| state.names[id].0);
        let mut text = Text(String::new());
        event.record(&mut text);
        let message = text.0.split(" message=").nth(1).unwrap();
        let message = message.split(" lock=").next().unwrap().to_owned();
        state.lines.push(match span {
            Some(span) => format!("{message}, in {span}"),
            None => message,
        });
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, id: &span::Id) {
        self.0.lock().unwrap().entered.push(id.into_u64());
    }

    fn exit(&self, id: &span::Id) {
        let mut state = self.0.lock().unwrap();
        let top = state.entered.pop();
        assert_eq!(top, Some(id.into_u64()), "spans are left in order");
    }

    fn clone_span(&self, id: &span::Id) -> span::Id {
        let mut state = self.0.lock().unwrap();
        state.names.get_mut(&id.into_u64()).unwrap().1 += 1;
        id.clone()
    }

    fn try_close(&self, id: span::Id) -> bool {
        let mut state = self.0.lock().unwrap();
        let (name, count) = state.names.get_mut(&id.into_u64()).unwrap();
        *count -= 1;
        let (name, is_closed) = (*name, *count == 0);
        if is_closed {
            state.lines.push(format!("{name} ends"));
        }
        is_closed
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

/// Runs `test` with a subscriber. A second one makes `tracing` ask on every thread whether a span
/// is enabled.
async fn noted(test: impl AsyncFnOnce(&Notes)) {
    let notes = Notes::default();
    let _second = Dispatch::new(Notes::default());
    let _listening = subscriber::set_default(notes.clone());
    test(&notes).await;
}

#[tokio::test(start_paused = true)]
async fn acquisitions_holds_and_renewals_are_spans() {
    noted(async |notes| {
        let world = World::new(3).await;
        let lock = world.locks.mutex(NAME);
        let guard = lock.acquire().await.unwrap();
        lock.try_acquire().await.unwrap_err();
        sleep(seconds(4)).await; // one renewal
        guard.release().await.unwrap();
        assert_eq!(
            notes.take(),
            [
                "acquire begins",
                "lock acquired, in acquire",
                "acquire outcome=\"acquired\"",
                "acquire ends",
                "hold begins",
                "acquire begins",
                "lock not acquired, in acquire",
                "acquire outcome=\"busy\"",
                "acquire ends",
                "renew begins in hold",
                "lock renewed, in hold",
                "renew outcome=\"confirmed\"",
                "renew ends",
                "hold end=\"released\"",
                "lock released, in hold",
                "hold ends",
            ]
        );
    })
    .await;
}

/// The answers to the renewal come after the response timeout.
#[tokio::test(start_paused = true)]
async fn the_span_of_a_renewal_that_failed_lasts_until_late_answers_confirm_it() {
    noted(async |notes| {
        let world = World::new(3).await;
        let _guard = world.locks.mutex(NAME).acquire().await.unwrap();
        world.inject_all(&delay(70));
        notes.take();
        sleep(seconds(4)).await; // one renewal
        assert_eq!(
            notes.take(),
            [
                "renew begins in hold",
                "renew outcome=\"failed\"",
                "lock renewed, in hold",
                "renew outcome=\"confirmed_late\"",
                "renew ends",
            ]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_with_the_loss() {
    noted(async |notes| {
        let world = World::new(3).await;
        let guard = world.locks.mutex(NAME).acquire().await.unwrap();
        world.inject_all(&Fault::Down);
        guard.lost().await;
        let lines = notes.take();
        let mut lines: Vec<_> = lines.iter().map(String::as_str).skip(5).collect();
        lines.dedup();
        let renewal = [
            "renew begins in hold",
            "renew outcome=\"failed\"",
            "renew ends",
        ];
        lines.retain(|line| !renewal.contains(line));
        let doubt = "lock in doubt: it could not be renewed";
        let first = lines.remove(0);
        assert!(first.starts_with(doubt), "{first}");
        assert_eq!(
            lines,
            ["lock lost, in hold", "hold end=\"lost\"", "hold ends"]
        );
        drop(guard);
    })
    .await;
}

/// A future that is dropped leaves its span, and a guard that is dropped outside a runtime, too.
#[tokio::test(start_paused = true)]
async fn spans_end_when_futures_and_guards_are_dropped() {
    noted(async |notes| {
        let world = World::new(3).await;
        let guard = world.locks.mutex(NAME).acquire().await.unwrap();
        world.inject([Fault::Hang, Fault::Hang]);
        {
            let lock = world.locks.mutex("another");
            let mut waiting = std::pin::pin!(lock.acquire());
            tokio::select! {
                biased;
                _ = waiting.as_mut() => {}
                () = sleep(seconds(1)) => {}
            }
        }
        drop(guard);
        let begun =
            |lines: &[String], what| lines.iter().filter(|line| line.ends_with(what)).count();
        let lines = notes.take();
        assert_eq!(begun(&lines, "begins"), 3, "{lines:#?}");
        assert_eq!(begun(&lines, "ends"), 3, "{lines:#?}");
    })
    .await;
}

//! The changes of the masters' states, one by one.

use std::task::Poll;

use futures::{Stream, StreamExt, stream};
use tokio::sync::watch;

use crate::{clock, core::view::MasterHealth, home::HomeProcess, machine::session::health::Health};

/// Returns the changes of the states in `states`, which change in the process `home`. The stream
/// ends after the sender of the states is dropped, and in any other process.
pub(crate) fn health_events(
    mut states: watch::Receiver<Box<[Health]>>,
    home: HomeProcess,
) -> impl Stream<Item = MasterHealth> + Send + Sync + Unpin + use<> {
    states.mark_changed(); // the present states are news
    // The stream owns what was read and not told yet, so a dropped `next()` loses no change.
    let told = Box::<[Health]>::default();
    let changes = stream::unfold((states, told), async |(mut states, told)| {
        states.changed().await.ok()?;
        let present = states.borrow_and_update().clone();
        let now = clock::monotonic();
        let is_news = |(master, health): &(usize, &Health)| {
            told.get(*master).is_none_or(|told| health.is_news(told))
        };
        let news = present.iter().enumerate().filter(is_news);
        let news: Vec<_> = news.map(|(_, health)| health.at(now)).collect();
        Some((stream::iter(news), (states, present)))
    });
    let mut changes = Box::pin(changes.flatten().fuse());
    stream::poll_fn(move |cx| match home.is_parent() {
        true => Poll::Ready(None),
        false => changes.poll_next_unpin(cx),
    })
}

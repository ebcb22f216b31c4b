//! The changes of the masters' states, one by one.

use std::collections::VecDeque;

use tokio::sync::watch;

use crate::{clock, core::view::MasterHealth, home::HomeProcess, machine::session::health::Health};

/// A receiver of the changes of the masters' states, from
/// [`Coordinator::health_events`](crate::Coordinator::health_events).
///
/// It begins with the present state of every master. Then it yields the new state of a master each
/// time that the master is connected, goes down, is quarantined, votes again, stops taking locks,
/// takes locks again, or [needs repair](MasterHealth::needs_repair) for another reason. If states
/// change faster than the program reads them, the receiver leaves out states in between.
///
/// It ends after the last clone of the coordinator, the last lock and the last guard are dropped.
/// It also ends in a process that was forked after the coordinator was made.
#[derive(Debug)]
#[must_use = "nothing is yielded until `next` is called"]
pub struct HealthEvents {
    states: watch::Receiver<Box<[Health]>>,
    /// The states that were read last. `news` has those of them that are new and were not returned
    /// yet.
    told: Box<[Health]>,
    news: VecDeque<MasterHealth>,
    home: HomeProcess,
}

impl HealthEvents {
    /// Returns the changes of the states in `states`, which change in the process `home`.
    pub(crate) fn new(mut states: watch::Receiver<Box<[Health]>>, home: HomeProcess) -> Self {
        states.mark_changed(); // the present states are news
        Self {
            states,
            told: Box::default(),
            news: VecDeque::new(),
            home,
        }
    }

    /// Returns the next change, or `None` after the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    pub async fn next(&mut self) -> Option<MasterHealth> {
        if self.home.is_parent() {
            return None;
        }
        while self.news.is_empty() {
            self.states.changed().await.ok()?;
            let present = self.states.borrow_and_update().clone();
            let told = &self.told;
            let is_news = |(master, health): &(usize, &Health)| {
                told.get(*master).is_none_or(|told| health.is_news(told))
            };
            let news = present.iter().enumerate().filter(is_news);
            let now = clock::monotonic();
            self.news.extend(news.map(|(_, health)| health.at(now)));
            self.told = present;
        }
        self.news.pop_front()
    }
}

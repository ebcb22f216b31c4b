//! The outages of one master, and when they are news.

use std::{
    mem,
    time::{Duration, Instant},
};

use super::link::Link;
use crate::{
    core::wait::pauses::Backoff,
    master::observer::{MasterEvent, MasterObserver},
};

/// The failures of a master since it last worked. The log gets one warning when an outage begins,
/// and one message when the master seems to work again.
///
/// An outage ends with a connection that works for at least a second. All failures before that
/// belong to the same outage. For example, a master that accepts every connection and never answers
/// has one outage, however often it is dialled.
#[derive(Debug, Default)]
pub(in crate::master) struct Outage {
    /// The number of dials that failed and connections that broke in this outage.
    failures: u32,
    /// The number of them since a connection last served for a while. Only these make the pause
    /// before the next dial longer.
    in_vain: u32,
    /// Set if the last connection was given up because the master was silent.
    is_silent: bool,
    /// Set if the last connection broke before it had worked for a second.
    was_useless: bool,
    /// Set if the last connection has worked, and its end is no failure of the master: the
    /// connection was idle, or the next dial must find out which locks are lost.
    has_ended_well: bool,
    /// Set once the log has said that the outage seems to be over.
    is_end_logged: bool,
}

impl Outage {
    /// Notes that a dial succeeded.
    pub(in crate::master) fn connected(&mut self, observer: &MasterObserver) {
        let is_news = !self.is_end_logged && !self.was_useless;
        self.is_end_logged |= is_news;
        observer.on(MasterEvent::Connected { is_news });
    }

    /// Notes whether the master has answered a command on the current connection.
    pub(in crate::master) fn polled(&mut self, observer: &MasterObserver, link: &Link) {
        if self.was_useless && !self.is_end_logged && link.has_answered {
            self.is_end_logged = true;
            observer.on(MasterEvent::AnswersAgain);
        }
    }

    /// Returns how many commands may be unanswered when the next connection begins. If the master
    /// was silent on the last connection, it gets only a few commands until it answers.
    pub(in crate::master) fn window(&self) -> usize {
        if self.is_silent {
            Link::CAREFUL_WINDOW
        } else {
            Link::WINDOW
        }
    }

    /// Notes that a connection ended at `now`. `was_given_up` is set if the master was silent for
    /// too long. Returns whether the connection has worked.
    pub(in crate::master) fn disconnected(
        &mut self,
        link: &Link,
        was_given_up: bool,
        now: Instant,
    ) -> bool {
        const LEAST: Duration = Duration::from_secs(1);
        /// A master whose connections break sooner gets fewer and fewer dials, even if it answers.
        const BRIEF: Duration = Duration::from_millis(50);
        let age = now.saturating_duration_since(link.began);
        self.is_silent = was_given_up;
        let has_worked = link.has_answered || !was_given_up;
        self.was_useless = !has_worked || age < LEAST;
        if !self.was_useless {
            (self.failures, self.in_vain) = (0, 0);
        } else if link.has_answered && !was_given_up && age >= BRIEF {
            self.in_vain = 0;
        }
        let was_idle = link.sent.is_empty() || link.liveness.silence().is_some();
        self.has_ended_well = !self.was_useless && (link.is_flushed || was_idle);
        !self.was_useless
    }

    /// Notes that a dial failed or that a connection broke. It is no failure if the connection has
    /// ended well. Returns the number of failures in this outage.
    pub(in crate::master) fn failed(&mut self, observer: &MasterObserver, why: &str) -> u32 {
        if mem::take(&mut self.has_ended_well) {
            observer.on(MasterEvent::ConnectsAgain { why });
            return self.failures;
        }
        let is_news = self.failures == 0;
        self.failures = self.failures.saturating_add(1);
        self.in_vain = self.in_vain.saturating_add(1);
        self.is_end_logged &= !is_news;
        observer.on(MasterEvent::Down { is_news, why });
        self.failures
    }

    /// Returns the pause before the next dial, after a failure.
    pub(in crate::master) fn pause(&self, redial: Backoff, random: u64) -> Duration {
        redial.delay(self.in_vain.saturating_sub(1), random)
    }
}

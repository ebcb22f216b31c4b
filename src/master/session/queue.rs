//! The contents of a mailbox: the requests and releases that wait, and what decides their fate.

use std::{
    sync::Arc,
    task::{Context, Waker},
    time::Instant,
};

use super::{listeners::Listeners, owed::Owed, request::Request};
use crate::core::vote::Failure;

/// The contents of a mailbox, which a mutex protects.
#[derive(Debug, Default)]
pub(in crate::master) struct Queue {
    pub(in crate::master) phase: Phase,
    pub(in crate::master) requests: Vec<Arc<Request>>,
    pub(in crate::master) owed: Owed,
    pub(in crate::master) listeners: Listeners,
    pub(in crate::master) waker: Option<Waker>,
    /// The end of the quarantine, if the master may have forgotten locks.
    pub(in crate::master) quarantine: Option<Instant>,
    pub(in crate::master) is_abandoned: bool,
}

/// The state of the connection, as far as requests matter.
#[derive(Debug, Default)]
pub(in crate::master) enum Phase {
    /// The first dial is under way. Requests wait until it is over.
    #[default]
    Dialling,
    /// There is no connection. Requests fail at once.
    Down(Failure),
    Serving,
}

impl Queue {
    /// Returns the failure of `request` if the request fails at once.
    pub(in crate::master) fn immediate_failure(
        &self,
        request: &Request,
        master: usize,
        now: fn() -> Instant,
    ) -> Option<Failure> {
        /// The most requests that wait for the first dial.
        const MAX_WAITING: usize = 4_096;
        if let Phase::Down(failure) = &self.phase {
            return Some(failure.clone());
        }
        if let Some(until) = self.quarantine
            && request.command.verb.quarantine_applies()
            && let left = until.saturating_duration_since(now())
            && !left.is_zero()
        {
            return Some(Failure::Quarantined { remaining: left });
        }
        let is_full = matches!(self.phase, Phase::Dialling) && self.requests.len() >= MAX_WAITING;
        (is_full && !request.is_owed_to(master)).then(|| {
            Failure::Unreachable("still connecting, and too many commands are waiting".into())
        })
    }

    pub(in crate::master) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Down(Failure::Closed))
    }

    pub(in crate::master) fn is_done(&self) -> bool {
        self.is_abandoned && self.requests.is_empty() && self.owed.is_empty()
    }

    /// Keeps `request` for the next connection if it is an owed release.
    pub(in crate::master) fn owe(&mut self, master: usize, request: &Arc<Request>) {
        if !self.is_closed() && request.is_owed_to(master) {
            self.owed.push(request.clone());
            self.wake();
        }
    }

    pub(in crate::master) fn set_waker(&mut self, cx: &Context<'_>) {
        match &self.waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => self.waker = Some(cx.waker().clone()),
        }
    }

    /// Wakes the supervisor. The lock may be held meanwhile, because the waker is tokio's and only
    /// schedules the task.
    pub(in crate::master) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

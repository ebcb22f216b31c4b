//! Announces the changes of a lock that was won.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use parking_lot::MutexGuard;

use super::{Claim, State, live_round::LiveRound};
use crate::{
    core::{kind::command::Command, view::lock_state::LostReason, vote::master_set::MasterSet},
    driver::observe::span::in_span,
    log,
    master::CountVotes,
};

/// The state while it is locked. A change is announced after the unlock, because the announcement
/// runs code of the program.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    /// The first field. It is dropped, and the state is unlocked, before the announcement.
    pub(super) state: MutexGuard<'a, State>,
    pub(super) announcement: Announcement<'a>,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Locked<'_> {
    /// Posts `command`, unlocks, and then casts the votes of the masters that failed at once. They
    /// may run code of the program. The claim is locked until the command is posted, so a release
    /// never overtakes an extension.
    pub(super) fn post<C: CountVotes + 'static>(
        self,
        to: MasterSet,
        command: Command,
        votes_to: C,
    ) {
        let masters = &self.announcement.claim.context.masters;
        let posted = masters.post_locked(to, command, votes_to);
        drop(self);
        drop(posted);
    }
}

/// Announces a change, if there is one, when dropped.
#[derive(Debug)]
pub(super) struct Announcement<'a> {
    pub(super) claim: &'a Claim,
    pub(super) event: Option<LockEvent>,
    /// A round that is no longer the newest. Dropping it drops wakers, which are code of the
    /// program.
    pub(super) retired: Option<Arc<LiveRound>>,
}

/// A change of a lock that was won.
#[derive(Debug)]
pub(super) enum LockEvent {
    /// A renewal or an extension has failed. The lock is still valid for this time.
    InDoubt {
        remaining: Duration,
        round: Arc<LiveRound>,
    },
    Lost(LostReason),
    /// A majority has confirmed a renewal or an extension. The lock may have been in doubt before.
    Renewed {
        validity: Duration,
        was_in_doubt: bool,
    },
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        let Some(event) = self.event.take() else {
            return;
        };
        let name = self.claim.name();
        let span = self.claim.hold_span();
        in_span(&span, || match &event {
            LockEvent::InDoubt { remaining, round } => {
                let votes = self.claim.votes(round);
                tracing::warn!(target: log::LOCK, %name, ?remaining, %votes, "lock in doubt: it could not be renewed");
            }
            LockEvent::Lost(reason) => {
                let votes = self.claim.votes(&self.claim.newest_round());
                let reason = reason.after(self.claim.stalled());
                tracing::warn!(target: log::LOCK, %name, %reason, %votes, "lock lost");
            }
            LockEvent::Renewed {
                validity,
                was_in_doubt: true,
            } => tracing::info!(target: log::LOCK, %name, ?validity, "lock no longer in doubt"),
            LockEvent::Renewed { validity, .. } => {
                tracing::debug!(target: log::LOCK, %name, ?validity, "lock renewed");
            }
        });
        if let LockEvent::Lost(reason) = event {
            self.claim.changed.notify();
            self.claim.count_loss(reason);
        }
    }
}

impl Claim {
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            state: self.state.lock(),
            announcement: Announcement {
                claim: self,
                event: None,
                retired: None,
            },
        }
    }
}

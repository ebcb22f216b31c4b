//! Matches the replies of a master to the commands that were sent.

use std::{mem, sync::Arc};

use super::{Cx, Session, link::Item};
use crate::{
    core::{
        protocol::Reply,
        restart::Quarantine,
        time::Tick,
        view::MasterState,
        vote::{CastVote, Failure, ServerError, Verb, Vote},
    },
    machine::out::{MasterEvent, Request},
};

impl Session {
    pub(in crate::machine) fn is_news(&self, vote: &CastVote) -> bool {
        vote.vote().is_failure() || self.health.known.error.is_some()
    }

    /// Handles a reply that may say something new about the master.
    pub(in crate::machine) fn on_news(
        &mut self,
        cx: &mut Cx<'_>,
        reply: &Reply<'_>,
        (request, vote, is_owed): (Arc<Request>, CastVote, bool),
        random: &impl Fn() -> u64,
    ) -> Result<(), Arc<str>> {
        let now = cx.now.monotonic;
        let checked = check_role(reply);
        match &checked {
            Ok(()) => self.note_fitness(cx, request.command.verb(), vote.vote()),
            Err(why) => self.change_state(cx, MasterState::Down(why.clone())),
        }
        let has_failed = vote.vote().is_failure();
        self.cast.push((request.votes_to, vote));
        if has_failed && (is_owed || cx.is_owed(&request)) {
            self.owed.failed(is_owed, now, random());
            self.given_up.push(request);
        } else {
            if is_owed {
                self.owed.succeeded();
            }
            self.ended.push(request);
        }
        checked
    }

    /// Notes what the answer to `verb` says about the master. After an error, the master counts as
    /// taking no locks until it grants a command that takes one. A server that is out of memory
    /// still releases and extends locks, so a grant of another command does not change this.
    fn note_fitness(&mut self, cx: &mut Cx<'_>, verb: Verb, vote: &Vote) {
        match vote {
            Vote::Grant if verb.takes() && self.health.known.error.is_some() => {
                self.takes_locks(cx);
            }
            Vote::Fail(Failure::ErrorReply(error))
                if ServerError::of(error).is_about_server(verb)
                    && self.health.known.error.as_ref() != Some(error) =>
            {
                self.takes_no_locks(cx, error);
            }
            _ => {}
        }
    }

    /// Handles the reply to a change of a subscription. After an error, waiters poll. Fails on any
    /// other reply.
    pub(in crate::machine) fn on_refused_change(
        &mut self,
        cx: &mut Cx<'_>,
        reply: &Reply<'_>,
    ) -> Result<(), Arc<str>> {
        let Reply::Error(error) = reply else {
            return Err("a reply came instead of the confirmation of a subscription".into());
        };
        if !mem::replace(&mut self.link.is_denial_logged, true) {
            let error = (&**error).into();
            cx.tell(MasterEvent::CallsNobody { error });
        }
        Ok(())
    }

    /// Handles the confirmation of a change of a subscription. Fails if the oldest command does not
    /// change the subscription to `channel`.
    pub(crate) fn on_confirmation(&mut self, channel: &str, now: Tick) -> Result<(), Arc<str>> {
        // The command is checked before it is removed. A command of another kind must stay, because
        // its own reply may still come.
        match self.link.sent.oldest() {
            Some(Item::Subscription(changed)) if **changed == *channel => {}
            _ => return Err("a subscription was confirmed out of order".into()),
        }
        self.link.pop(now)?;
        Ok(())
    }

    /// Handles the reply to a request to report changes. After an error, the master counts as one
    /// that reports nothing, and waiters poll. Fails on any other reply than `OK` or an error.
    pub(in crate::machine) fn on_caching(
        &mut self,
        cx: &mut Cx<'_>,
        reply: &Reply<'_>,
    ) -> Result<(), Arc<str>> {
        match reply {
            Reply::Ok => Ok(()),
            Reply::Error(error) => {
                if mem::replace(&mut self.reports_changes, false) {
                    let error = (&**error).into();
                    cx.tell(MasterEvent::ReportsNothing { error });
                }
                self.tell_all_keys(cx);
                Ok(())
            }
            _ => Err("a reply came that CLIENT CACHING does not have".into()),
        }
    }

    /// Tells the waiters of each key that the key may have changed without a report.
    pub(super) fn tell_all_keys(&self, cx: &mut Cx<'_>) {
        (cx.waiters).hear_of_all_keys(cx.master, cx.now.lease, cx.out);
    }

    /// Handles a report that all keys have changed: they were flushed, or replaced by those of
    /// another server. Always fails if quarantine is on. The replies that come later on the
    /// connection are then not read, and the next dial finds out which locks are lost.
    pub(crate) fn on_flushed(&mut self, cx: &mut Cx<'_>) -> Result<(), Arc<str>> {
        if self.config.quarantine == Quarantine::Off {
            self.tell_all_keys(cx);
            return Ok(());
        }
        self.link.is_flushed = true;
        Err("its keys may have been deleted or replaced".into())
    }

    /// Returns the oldest command, if it is a lock command.
    pub(crate) fn oldest(&self) -> Option<&Request> {
        match self.link.sent.oldest()? {
            Item::Request(request) => Some(request),
            Item::Caching | Item::Subscription(_) => None,
        }
    }

    /// Moves the oldest command to the end and returns it, if it may be sent again. Called when the
    /// server has not executed the command, because it does not know the script, or denies the
    /// plain command that was sent instead of the script.
    pub(crate) fn resend(&mut self, now: Tick) -> Option<Arc<Request>> {
        self.link.liveness.restart(now);
        self.link.sent.resend(self.reports_changes)
    }

    /// Returns whether the master is asked, together with `request`, to report the next change of
    /// the key.
    pub(crate) fn watches(&self, request: &Request) -> bool {
        request.command.watch && self.reports_changes
    }
}

/// Fails if the reply says that the master has become a replica. The next dial finds out whether it
/// is a master again, and which locks it may have forgotten meanwhile.
fn check_role(reply: &Reply<'_>) -> Result<(), Arc<str>> {
    match reply {
        Reply::Error(error) if ServerError::of(error).is_of_replica() => {
            Err("it has become a replica".into())
        }
        _ => Ok(()),
    }
}

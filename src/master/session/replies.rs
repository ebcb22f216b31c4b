//! Matches the replies of a master to the commands that were sent.

use std::{mem, panic::resume_unwind, sync::Arc};

use super::Session;
use crate::{
    clock,
    core::{
        protocol::{command::Reply, identity::Ticket},
        restart::Quarantine,
        time::tick::Tick,
        vote::{Failure, Verb, Vote, server_error::ServerError},
    },
    master::{
        observer::MasterEvent,
        session::{link::Item, listeners::Topic, request::Request},
    },
    panics::caught,
};

impl Session {
    /// Handles the reply to the oldest command, and casts the vote that the reply means. `now` was
    /// read after the reply came. Fails if no command is unanswered, if `reply` cannot be a reply
    /// to the oldest one, or if `reply` says that the master has become a replica.
    pub(crate) fn on_reply(&mut self, reply: &Reply<'_>, now: Tick) -> Result<(), Arc<str>> {
        let sent = self.link.pop(now)?;
        let request = match &sent.item {
            Item::Request(request) => request,
            Item::Subscription(_) => return self.on_refused_change(reply),
            Item::Caching => return self.on_caching(reply),
        };
        if self.link.measure(&sent, now) {
            self.mailbox.set_node_timeout(self.link.liveness.timeout());
        }
        let master = self.master();
        if let Reply::Text(text) = reply {
            request.votes_to.take_text(master, text);
        }
        let vote = request.vote(reply);
        if !vote.vote().is_failure() && !sent.is_owed && !self.link.is_unfit {
            self.mailbox.cast(request, vote, now); // says nothing new about the master
            return Ok(());
        }
        let checked = check_role(reply);
        // The health is updated before the vote is cast, so that a caller whose round ends sees the
        // new health.
        let noted = caught(|| {
            if vote.vote().is_failure() && (sent.is_owed || request.is_owed_to(master)) {
                let random = clock::random_u64();
                self.owed.failed(sent.is_owed, now, random);
                self.owe(request.clone());
            } else if sent.is_owed {
                self.owed.succeeded();
            }
            match &checked {
                Ok(()) => self.note_fitness(request.command.verb(), vote.vote()),
                Err(why) => self.config.health.ends(master, why),
            }
        });
        self.mailbox.cast(request, vote, now);
        noted.unwrap_or_else(|panic| resume_unwind(panic));
        checked
    }

    /// Notes what the answer to `verb` says about the master. After an error, the master counts as
    /// taking no locks until it grants a command that takes one. A server that is out of memory
    /// still releases and extends locks, so a grant of another command does not change this.
    fn note_fitness(&mut self, verb: Verb, vote: &Vote) {
        let health = &self.config.health;
        match vote {
            Vote::Grant if self.link.is_unfit && verb.takes() => {
                self.link.is_unfit = false;
                health.takes_locks(self.mailbox.master());
            }
            Vote::Fail(Failure::Rejected(error))
                if ServerError::of(error).is_about_server(verb) =>
            {
                self.link.is_unfit = true;
                health.takes_no_locks(self.mailbox.master(), error);
            }
            _ => {}
        }
    }

    /// Handles the reply to a change of a subscription. After an error, waiters poll. Fails on any
    /// other reply.
    fn on_refused_change(&mut self, reply: &Reply<'_>) -> Result<(), Arc<str>> {
        let Reply::Error(error) = reply else {
            return Err("a reply came instead of the confirmation of a subscription".into());
        };
        if !mem::replace(&mut self.link.is_denial_logged, true) {
            let observer = self.mailbox.observer();
            observer.on(MasterEvent::CallsNobody { error });
        }
        Ok(())
    }

    /// Handles the reply to a request to report changes. After an error, the master counts as one
    /// that reports nothing, and waiters poll. Fails on any other reply than `OK` or an error.
    fn on_caching(&self, reply: &Reply<'_>) -> Result<(), Arc<str>> {
        match reply {
            Reply::Ok => Ok(()),
            Reply::Error(error) => {
                if self.mailbox.reports_changes() {
                    self.log_no_reports(error);
                }
                self.mailbox.set_reports_changes(false);
                self.mailbox.tell_all_keys();
                Ok(())
            }
            _ => Err("a reply came that CLIENT CACHING does not have".into()),
        }
    }

    /// Notes whether the master reports changes over this connection.
    pub(crate) fn set_reports_changes(&self, reports: bool) {
        self.mailbox.set_reports_changes(reports);
        if !reports {
            self.log_no_reports("CLIENT TRACKING is refused");
        }
    }

    fn log_no_reports(&self, error: &str) {
        let observer = self.mailbox.observer();
        observer.on(MasterEvent::ReportsNothing { error });
    }

    /// Handles a report that `key` has changed. Without a `key`, any key may have changed.
    pub(crate) fn on_changed(&self, key: Option<&str>) {
        match key {
            Some(key) => self.mailbox.tell(&Topic::Key(key.into())),
            None => self.mailbox.tell_all_keys(),
        }
    }

    /// Handles a report that all keys have changed: they were flushed, or replaced by those of
    /// another server. Always fails if quarantine is on. The replies that come later on the
    /// connection are then not read, and the next dial finds out which locks are lost.
    pub(crate) fn on_flushed(&mut self) -> Result<(), Arc<str>> {
        if self.config.quarantine == Quarantine::Off {
            self.on_changed(None);
            return Ok(());
        }
        self.link.is_flushed = true;
        Err("its keys may have been deleted or replaced".into())
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

    /// Handles a published message, which is the ticket of the waiter whose turn it is.
    pub(crate) fn on_message(&self, ticket: &str) {
        self.mailbox.tell(&Topic::Turn(Ticket::of(ticket)));
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
        self.link.sent.resend(self.mailbox.reports_changes())
    }

    /// Returns whether the master is asked, together with `request`, to report the next change of
    /// the key.
    pub(crate) fn watches(&self, request: &Request) -> bool {
        request.command.watch && self.mailbox.reports_changes()
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

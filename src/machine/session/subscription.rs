//! The subscription to the channel on which a master calls waiters.

use std::{mem, sync::Arc};

use super::{Cx, Session, link::Item};
use crate::{
    core::{
        protocol::{command::Reply, identity::Ticket},
        time::tick::Tick,
    },
    machine::out::MasterEvent,
};

/// The beginning or the end of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) channel: Arc<str>,
    pub(crate) begins: bool,
}

impl Session {
    /// Sends a change of the subscription, if one is needed. The channel is subscribed while the
    /// waiter with the ticket `called` waits for its turn.
    pub(in crate::machine) fn resubscribe(&mut self, called: Option<&Ticket>) {
        if self.health.is_connected()
            && let Some(change) = self.take_change(called)
        {
            // A change replaces one that was not sent yet, because there is only one channel.
            self.change = Some(change);
            self.wake();
        }
    }

    /// Returns the change of the subscription that must be sent now, and counts it as sent.
    pub(super) fn take_change(&mut self, called: Option<&Ticket>) -> Option<Subscription> {
        let change = match (called, &self.channel) {
            (Some(ticket), None) => Subscription {
                channel: ticket.channel().into(),
                begins: true,
            },
            (None, Some(channel)) => Subscription {
                channel: channel.clone(),
                begins: false,
            },
            (Some(_), Some(_)) | (None, None) => return None,
        };
        self.channel = Some(change.channel.clone()).filter(|_| change.begins);
        Some(change)
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
}

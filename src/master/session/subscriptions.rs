//! The channels on which tasks of this process wait for messages from one master.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
};

/// A receiver of the messages on a channel. Any message may get lost, so messages are only hints.
pub(crate) trait Subscriber: Send + Sync + fmt::Debug {
    /// Handles a message that `master` has published on a subscribed channel.
    fn on_message(&self, master: usize, message: &str);
}

/// The beginning or the end of a subscription.
#[derive(Clone, Debug)]
pub(in crate::master) struct Change {
    pub(in crate::master) channel: Arc<str>,
    pub(in crate::master) begins: bool,
}

/// The subscribers to channels of one master. They stay when a connection breaks.
#[derive(Debug, Default)]
pub(in crate::master) struct Subscriptions {
    channels: BTreeMap<Arc<str>, Vec<Weak<dyn Subscriber>>>,
    is_connected: bool,
    /// The changes to send over the connection, in order.
    pub(in crate::master) changes: Vec<Change>,
}

impl Subscriptions {
    /// Subscribes `subscriber` to `channel`. Returns whether there is a change to send.
    pub(in crate::master) fn add(
        &mut self,
        channel: &Arc<str>,
        subscriber: Weak<dyn Subscriber>,
    ) -> bool {
        let subscribers = self.channels.entry(channel.clone()).or_default();
        subscribers.push(subscriber);
        subscribers.len() == 1 && self.change(channel, true)
    }

    /// Ends the subscription of `subscriber`. Returns whether there is a change to send.
    pub(in crate::master) fn remove(
        &mut self,
        channel: &Arc<str>,
        subscriber: &Weak<dyn Subscriber>,
    ) -> bool {
        let Some(subscribers) = self.channels.get_mut(channel) else {
            return false;
        };
        subscribers.retain(|other| !other.ptr_eq(subscriber));
        subscribers.is_empty() && {
            self.channels.remove(channel);
            self.change(channel, false)
        }
    }

    /// Adds a change to send. Does nothing without a connection, because the next connection
    /// subscribes to all channels when it begins. Returns whether there is a change to send.
    fn change(&mut self, channel: &Arc<str>, begins: bool) -> bool {
        if self.is_connected {
            let channel = channel.clone();
            self.changes.push(Change { channel, begins });
        }
        self.is_connected
    }

    /// Notes that there is a connection. Replaces the changes to send by one subscription for each
    /// channel.
    pub(in crate::master) fn connect(&mut self) {
        self.is_connected = true;
        let all = self.channels.keys().map(|channel| Change {
            channel: channel.clone(),
            begins: true,
        });
        self.changes = all.collect();
    }

    /// Notes that the connection is gone.
    pub(in crate::master) fn disconnect(&mut self) {
        self.is_connected = false;
        self.changes.clear();
    }

    /// Returns the subscribers of `channel`.
    pub(in crate::master) fn of(&self, channel: &str) -> Vec<Arc<dyn Subscriber>> {
        let subscribers = self.channels.get(channel).into_iter().flatten();
        subscribers.filter_map(Weak::upgrade).collect()
    }
}

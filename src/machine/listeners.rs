//! The listeners to the news of a master, and the subscription that they need.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
};

use crate::core::protocol::identity::Ticket;

/// A receiver of the news that masters send without being asked. News may get lost, so it is only a
/// hint.
pub(crate) trait Listener: Send + Sync + fmt::Debug {
    /// Handles news about `topic` from `master`. The news may be false: listeners of a key are also
    /// told when a change may have been missed, for example when the connection breaks.
    fn on_news(&self, master: usize, topic: &Topic);
}

/// News that a master sends without being asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// The key changes: any client writes or deletes it, or it expires. A master reports this only
    /// after a command that watches the key.
    Key(Arc<str>),
    /// It is the turn of the waiter with this ticket. A master publishes this on the channel of the
    /// waiter's coordinator. This variant comes last: see [`Listeners::called`].
    Turn(Ticket),
}

/// The beginning or the end of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) channel: Arc<str>,
    pub(crate) begins: bool,
}

/// The listeners to one master. They stay when a connection breaks.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    topics: BTreeMap<Topic, Vec<Weak<dyn Listener>>>,
    /// The channel to which the connection is subscribed.
    channel: Option<Arc<str>>,
}

impl Listeners {
    pub(crate) fn add(&mut self, topic: &Topic, listener: Weak<dyn Listener>) {
        self.topics.entry(topic.clone()).or_default().push(listener);
    }

    pub(crate) fn remove(&mut self, topic: &Topic, listener: &Weak<dyn Listener>) {
        let Some(listeners) = self.topics.get_mut(topic) else {
            return;
        };
        listeners.retain(|other| !other.ptr_eq(listener));
        if listeners.is_empty() {
            self.topics.remove(topic);
        }
    }

    /// Notes that there is a new connection, which is subscribed to nothing.
    pub(crate) fn connect(&mut self) {
        self.channel = None;
    }

    /// Returns the change of the subscription that must be sent now, and counts it as sent.
    pub(crate) fn take_change(&mut self) -> Option<Subscription> {
        let change = match (self.called(), &self.channel) {
            (Some(ticket), None) => Subscription {
                // All tickets of a coordinator have the same channel.
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

    /// Returns the listeners to `topic`.
    pub(crate) fn of(&self, topic: &Topic) -> Vec<Arc<dyn Listener>> {
        let listeners = self.topics.get(topic).into_iter().flatten();
        listeners.filter_map(Weak::upgrade).collect()
    }

    /// Returns all listeners, each with its topic.
    pub(crate) fn all(&self) -> Vec<(Topic, Arc<dyn Listener>)> {
        let topics = self.topics.iter();
        let all = topics.flat_map(|(topic, listeners)| {
            let listeners = listeners.iter().filter_map(Weak::upgrade);
            listeners.map(|listener| (topic.clone(), listener))
        });
        all.collect()
    }

    /// Returns the ticket of a waiter that waits for its turn, if there is one.
    fn called(&self) -> Option<&Ticket> {
        match self.topics.last_key_value()?.0 {
            Topic::Turn(ticket) => Some(ticket),
            Topic::Key(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Deaf;

    impl Listener for Deaf {
        fn on_news(&self, _: usize, _: &Topic) {}
    }

    /// The letters are events. `+`: a waiter with a ticket comes. `-`: one leaves. `k`: a listener
    /// to a key comes. `c`: there is a new connection.
    #[test]
    fn the_channel_is_subscribed_while_anyone_waits_for_a_turn() {
        let deaf = Arc::new(Deaf);
        let listener = Arc::downgrade(&deaf) as Weak<dyn Listener>;
        let mut listeners = Listeners::default();
        let mut waiters = Vec::new();
        for (step, (letter, expected)) in [
            ('k', None),
            ('+', Some(true)),
            ('+', None),
            ('c', Some(true)),
            ('-', None),
            ('-', Some(false)),
            ('c', None),
        ]
        .into_iter()
        .enumerate()
        {
            match letter {
                '+' => {
                    let turn = Topic::Turn(Ticket::new(step as u64, "u:1"));
                    listeners.add(&turn, listener.clone());
                    waiters.push(turn);
                }
                '-' => listeners.remove(&waiters.pop().unwrap(), &listener),
                'k' => listeners.add(&Topic::Key("r".into()), listener.clone()),
                _ => listeners.connect(),
            }
            let change = listeners.take_change();
            let change =
                change.map(|change| (&*change.channel == "quorlock:turn:u", change.begins));
            assert_eq!(change, expected.map(|begins| (true, begins)), "{step}");
        }
        assert_eq!(listeners.all().len(), 1);
    }
}

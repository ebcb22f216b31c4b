//! The one task that looks after one master: dials, sends in order, matches replies, gives up in time.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::time::{Sleep, sleep, sleep_until, timeout};

use super::{Ask, Mailbox, Terms, in_flight::InFlight, mailbox::Change};

/// Opens connections to one master.
pub(super) trait Dial: Send + 'static {
    type Connection: Connection;

    /// The supervisor sets the deadline.
    fn dial(&mut self) -> impl Future<Output = Result<Dialled<Self::Connection>, Arc<str>>> + Send;
}

/// A connection that was just made.
pub(super) struct Dialled<C> {
    pub(super) connection: C,
    /// How long ago the master may have forgotten locks, if that is known.
    pub(super) age: Option<Duration>,
}

/// An open connection: replies come in the order of sends.
pub(super) trait Connection: Send {
    /// Takes a command for sending to this connection's `master`. Nothing needs to leave before the next poll.
    fn send(&mut self, ask: &Ask, master: usize);

    /// The master has not answered for too long: what it has not received yet should never reach it.
    fn give_up(&mut self) {}

    /// Subscribes to a channel, or not any more. Confirmed in the order of replies, or refused by one.
    fn listen(&mut self, channel: &str, listen: bool);

    /// Moves what can be moved both ways, giving each reply to `in_flight`. Ready when the connection is
    /// broken, with the reason.
    fn poll(&mut self, cx: &mut Context<'_>, in_flight: &mut InFlight<'_>) -> Poll<Arc<str>>;
}

/// Serves `mailbox` until nobody needs it any more.
///
/// While the master is down its asks fail at once, so that a dead master costs callers nothing.
pub(super) fn supervise<D: Dial>(
    dialer: D,
    mailbox: Arc<Mailbox>,
    terms: Terms,
) -> impl Future<Output = ()> + Send {
    // Made here, not when first polled: a runtime may end before that.
    let closing = CloseOnDrop(mailbox);
    async move {
        let closing = closing;
        look_after(dialer, &closing.0, &terms).await;
    }
}

async fn look_after<D: Dial>(mut dialer: D, mailbox: &Mailbox, terms: &Terms) {
    let mut failures = 0;
    loop {
        let dial = timeout(terms.connect_timeout, dialer.dial());
        let Some(dialled) = unless_abandoned(mailbox, dial).await else {
            return;
        };
        let why = match dialled {
            Ok(Ok(dialled)) => {
                failures = 0;
                tracing::info!(master = %mailbox.address(), "connected");
                let left = dialled.age.map(|age| terms.quarantine.saturating_sub(age));
                if let Some(left) = left.filter(|left| !left.is_zero()) {
                    let master = mailbox.address();
                    tracing::warn!(%master, ?left, "it may have forgotten locks: no vote until they are over");
                    mailbox.quarantine((terms.now)() + left);
                }
                let Some(why) = serve(dialled.connection, mailbox, terms).await else {
                    return;
                };
                why
            }
            Ok(Err(why)) => {
                mailbox.down([], &why);
                why
            }
            Err(_) => {
                let why = format!("no connection in {:?}", terms.connect_timeout).into();
                mailbox.down([], &why);
                why
            }
        };
        if failures == 0 {
            tracing::warn!(master = %mailbox.address(), %why, "master down");
        } else {
            // Once is enough for an outage.
            tracing::debug!(master = %mailbox.address(), %why, "master still down");
        }
        let pause = sleep(terms.redial.delay(failures, (terms.random)()));
        if unless_abandoned(mailbox, pause).await.is_none() {
            return;
        }
        failures = failures.saturating_add(1);
    }
}

/// Runs `step`, giving up in time what waits in the mailbox meanwhile. `None` when nobody needs the
/// master any more.
async fn unless_abandoned<T>(mailbox: &Mailbox, step: impl Future<Output = T>) -> Option<T> {
    let mut step = pin!(step);
    let mut alarm = Alarm::new();
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(done) = step.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            let Some(at) = ready!(mailbox.poll_next_expiry(cx)) else {
                return Poll::Ready(None);
            };
            mailbox.expire(ready!(alarm.poll(cx, at)));
        }
    })
    .await
}

/// Serves one connection until it breaks, with the reason; `None` when nobody needs it any more.
async fn serve<C: Connection>(
    mut connection: C,
    mailbox: &Mailbox,
    terms: &Terms,
) -> Option<Arc<str>> {
    let mut in_flight = InFlight::new(mailbox, terms);
    in_flight.rejected = mailbox.serve();
    let mut alarm = Alarm::new();
    let (mut fresh, mut changes) = (Vec::new(), Vec::new());
    let why = poll_fn(|cx| {
        loop {
            in_flight.send_rejected(&mut connection, terms);
            mailbox.take(cx, &mut fresh, &mut changes);
            send_all(
                &mut connection,
                &mut in_flight,
                terms,
                &mut fresh,
                &mut changes,
            );
            if let Poll::Ready(why) = connection.poll(cx, &mut in_flight) {
                return Poll::Ready(Some(why));
            }
            if in_flight.is_empty() && mailbox.is_done() {
                return Poll::Ready(None);
            }
            if in_flight.is_first_rejection() {
                continue;
            }
            let Some(at) = in_flight.next_expiry() else {
                return Poll::Pending;
            };
            let now = ready!(alarm.poll(cx, at));
            in_flight.expire(now);
            if in_flight.is_stuck(now) {
                connection.give_up();
                return Poll::Ready(Some("no answer to anything, given up".into()));
            }
        }
    })
    .await;
    if let Some(at) = in_flight.heard {
        terms.guarding.heard(mailbox.master(), at);
    }
    if let Some(why) = &why {
        mailbox.down(in_flight.take_unanswered(), why);
    }
    why
}

/// Most polls are for a reply, and find nothing to send.
fn send_all(
    connection: &mut impl Connection,
    in_flight: &mut InFlight<'_>,
    terms: &Terms,
    asks: &mut Vec<Arc<Ask>>,
    changes: &mut Vec<Change>,
) {
    if !changes.is_empty() {
        for change in changes.drain(..) {
            connection.listen(&change.channel, change.listen);
            in_flight.push_change(change.channel, (terms.now)());
        }
    }
    if !asks.is_empty() {
        for ask in asks.drain(..) {
            connection.send(&ask, in_flight.master());
            in_flight.push(ask);
        }
    }
}

/// A timer that is set anew only when it fires: most of what it is set for is answered long before.
struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    armed: bool,
}

impl Alarm {
    fn new() -> Self {
        Self {
            sleep: None,
            armed: false,
        }
    }

    /// Ready not later than `at`, with an instant that has passed; perhaps much earlier, when it was set
    /// for something that is no longer there.
    fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<Instant> {
        let at = tokio::time::Instant::from_std(at);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if !self.armed || at < sleep.deadline() {
            sleep.as_mut().reset(at);
            self.armed = true;
        }
        ready!(sleep.as_mut().poll(cx));
        self.armed = false;
        Poll::Ready(sleep.deadline().into_std())
    }
}

/// Whatever ends the supervisor, also the end of its runtime: nobody is left waiting for a vote.
struct CloseOnDrop(Arc<Mailbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

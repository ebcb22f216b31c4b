//! The one task that looks after one master: dials, sends in order, matches replies, gives up in time.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::{
    task::yield_now,
    time::{Sleep, sleep, sleep_until},
};

use super::{
    Mailbox, MasterConfig, Request,
    dial_error::{DialError, in_time},
    in_flight::InFlight,
};
use crate::user_code::shielded;

/// Opens connections to one master.
pub(super) trait Dial: Send + 'static {
    type Connection: Connection;

    /// The supervisor sets the deadline.
    fn dial(&mut self)
    -> impl Future<Output = Result<Dialled<Self::Connection>, DialError>> + Send;
}

/// A connection that was just made.
pub(super) struct Dialled<C> {
    pub(super) connection: C,
    /// How long the master took to answer a question.
    pub(super) round_trip: Duration,
    /// How long ago the master may have forgotten locks, if that is known.
    pub(super) age: Option<Duration>,
}

/// An open connection: replies come in the order of sends.
pub(super) trait Connection: Send {
    /// Takes a command for sending to this connection's `master`. Nothing needs to leave before the next poll.
    fn send(&mut self, ask: &Request, master: usize);

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
    terms: MasterConfig,
) -> impl Future<Output = ()> + Send {
    // Made here, not when first polled: a runtime may end before that.
    let closing = CloseOnDrop(mailbox);
    async move {
        let closing = closing;
        look_after(dialer, &closing.0, &terms).await;
    }
}

async fn look_after<D: Dial>(mut dialer: D, mailbox: &Mailbox, terms: &MasterConfig) {
    // An outage ends with an answer, or with a connection that lasts. A master that takes
    // connections and answers nothing is one outage, however often it is dialled.
    let mut outage = Outage::default();
    loop {
        let dial = in_time(terms.connect_timeout, dialer.dial());
        let Some(dialled) = unless_abandoned(mailbox, dial).await else {
            return;
        };
        let why = match dialled {
            Ok(dialled) => {
                outage.connected(mailbox);
                quarantine(mailbox, terms, dialled.age);
                let Some(broken) = serve(dialled, &mut outage, mailbox, terms).await else {
                    return;
                };
                outage.broken(&broken);
                broken.why
            }
            Err(error) => {
                let why = error.to_string().into();
                mailbox.down([], &why);
                why
            }
        };
        let failures = outage.failed(mailbox, &why);
        let pause = sleep(terms.redial.delay(failures, (terms.random)()));
        if unless_abandoned(mailbox, pause).await.is_none() {
            return;
        }
    }
}

/// What has gone wrong with a master since it was last in order. The log has one warning about it,
/// and one message when it is over or seems to be.
#[derive(Debug, Default)]
struct Outage {
    /// Dials that failed and connections that broke.
    failures: u32,
    /// The last connection was given up.
    is_silent: bool,
    /// The last connection broke before it was of any use.
    is_short: bool,
    /// The log has said that it seems to be over.
    is_said: bool,
}

impl Outage {
    fn connected(&mut self, mailbox: &Mailbox) {
        let master = mailbox.address();
        if self.is_said || self.is_short {
            shielded(|| tracing::debug!(%master, "connected"));
        } else {
            self.is_said = true;
            shielded(|| tracing::info!(%master, "connected"));
        }
    }

    fn heard(&mut self, in_flight: &InFlight<'_>, mailbox: &Mailbox) {
        if self.is_short && !self.is_said && in_flight.heard.is_some() {
            self.is_said = true;
            let master = mailbox.address();
            shielded(|| tracing::info!(%master, "it answers again"));
        }
    }

    /// A master that did not answer is sent little until it does.
    fn window(&self) -> usize {
        if self.is_silent {
            InFlight::CAREFUL_WINDOW
        } else {
            InFlight::WINDOW
        }
    }

    /// An outage is over when a connection was good for a while: a master that comes and goes has
    /// one.
    fn broken(&mut self, broken: &Broken) {
        const WHILE: Duration = Duration::from_secs(1);
        self.is_silent = broken.was_given_up;
        let is_good = broken.has_answered || !broken.was_given_up;
        self.is_short = !is_good || broken.lasted < WHILE;
        if !self.is_short {
            self.failures = 0;
        }
    }

    /// Returns how many failures there were before this one. Once is enough for a warning.
    fn failed(&mut self, mailbox: &Mailbox, why: &Arc<str>) -> u32 {
        let (before, master) = (self.failures, mailbox.address());
        self.failures = before.saturating_add(1);
        if before == 0 {
            self.is_said = false;
            shielded(|| tracing::warn!(%master, %why, "master down"));
        } else {
            shielded(|| tracing::debug!(%master, %why, "master still down"));
        }
        before
    }
}

/// Takes the master's vote away for as long as locks may be held that it forgot `age` ago.
fn quarantine(mailbox: &Mailbox, terms: &MasterConfig, age: Option<Duration>) {
    let left = age.map(|age| terms.quarantine.saturating_sub(age));
    if let Some(left) = left.filter(|left| !left.is_zero()) {
        let master = mailbox.address();
        shielded(|| {
            tracing::warn!(%master, ?left, "it may have forgotten locks: no vote until they are over");
        });
        mailbox.quarantine((terms.now)() + left);
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

/// How a connection ended.
struct Broken {
    why: Arc<str>,
    /// The master was silent for too long.
    was_given_up: bool,
    has_answered: bool,
    lasted: Duration,
}

/// Serves one connection until it breaks; `None` when nobody needs it any more.
async fn serve<C: Connection>(
    dialled: Dialled<C>,
    outage: &mut Outage,
    mailbox: &Mailbox,
    terms: &MasterConfig,
) -> Option<Broken> {
    let mut connection = dialled.connection;
    let mut in_flight = InFlight::new(mailbox, terms, dialled.round_trip, outage.window());
    let mut alarm = Alarm::new();
    let (mut fresh, mut changes) = (Vec::new(), Vec::new());
    let ended = poll_fn(|cx| {
        // More rounds than this would keep other tasks waiting.
        for _ in 0..8 {
            mailbox.take(cx, &mut fresh, &mut changes);
            in_flight.send(&mut connection, &mut fresh, &mut changes);
            if let Poll::Ready(why) = connection.poll(cx, &mut in_flight) {
                return Poll::Ready(Some((why, false)));
            }
            outage.heard(&in_flight, mailbox);
            if in_flight.is_empty() && mailbox.is_done() {
                return Poll::Ready(None);
            }
            if in_flight.send_more(&mut connection) {
                continue;
            }
            let Some(at) = in_flight.next_expiry() else {
                return Poll::Pending;
            };
            let now = ready!(alarm.poll(cx, at));
            if in_flight.forgives(now) {
                return give_way(cx);
            }
            note_heard(&in_flight, mailbox, terms);
            if let Some(why) = give_up_late(&mut in_flight, &mut connection, now) {
                return Poll::Ready(Some((why, true)));
            }
        }
        give_way(cx)
    })
    .await;
    note_heard(&in_flight, mailbox, terms);
    let (why, was_given_up) = ended?;
    mailbox.down_after(&mut in_flight, &why);
    Some(Broken {
        why,
        was_given_up,
        has_answered: in_flight.heard.is_some(),
        lasted: in_flight.age(),
    })
}

/// Lets other tasks run, and the runtime look after timers and sockets, before this one goes on. A
/// task that just woke itself would be polled many times before that.
pub(super) fn give_way<T>(cx: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(yield_now()).poll(cx);
    Poll::Pending
}

/// Gives up votes whose deadline is over at `now`. Returns why the connection is given up, if it
/// is.
fn give_up_late(
    in_flight: &mut InFlight<'_>,
    connection: &mut impl Connection,
    now: Instant,
) -> Option<Arc<str>> {
    in_flight.expire(now);
    in_flight.is_stuck(now).then(|| {
        connection.give_up();
        "no answer to anything, given up".into()
    })
}

/// Notes the last answer for the guard. Not only when the connection ends: other coordinators of
/// this process go by it, too.
fn note_heard(in_flight: &InFlight<'_>, mailbox: &Mailbox, terms: &MasterConfig) {
    if let Some(at) = in_flight.heard {
        terms.guarding.heard(mailbox.master(), at);
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

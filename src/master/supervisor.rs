//! The one task that looks after one master: dials, sends in order, matches replies, gives up in time.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::time::{Sleep, sleep, sleep_until, timeout};

use super::{Ask, Mailbox, Terms};
use crate::core::{
    command::Reply,
    quorum::{Failure, Vote},
};

/// After so many node timeouts without any answer a connection is given up: what piles up in it would
/// otherwise be executed when the master comes back to life.
const NODE_TIMEOUTS_TO_LIVE: u32 = 3;

/// Opens connections to one master.
pub(super) trait Dial: Send + 'static {
    type Connection: Connection;

    /// The supervisor sets the deadline.
    fn dial(&mut self) -> impl Future<Output = Result<Self::Connection, Arc<str>>> + Send;
}

/// An open connection: replies come in the order of sends.
pub(super) trait Connection: Send {
    /// Takes a command for sending. Nothing needs to leave before the next poll.
    fn send(&mut self, ask: &Ask);

    /// Moves what can be moved both ways, giving each reply to `in_flight`. Ready when the connection is
    /// broken, with the reason.
    fn poll(&mut self, cx: &mut Context<'_>, in_flight: &mut InFlight) -> Poll<Arc<str>>;
}

/// Serves `mailbox` until nobody needs it any more.
///
/// While the master is down its asks fail at once, so that a dead master costs callers nothing.
pub(super) async fn supervise<D: Dial>(mut dialer: D, mailbox: Arc<Mailbox>, terms: Terms) {
    let _closing = CloseOnDrop(&mailbox);
    let mut failures = 0;
    loop {
        let dial = timeout(terms.connect_timeout, dialer.dial());
        let Some(dialled) = unless_abandoned(&mailbox, dial).await else {
            return;
        };
        let why = match dialled {
            Ok(Ok(connection)) => {
                failures = 0;
                tracing::info!(master = %mailbox.address(), "connected");
                let Some(why) = serve(connection, &mailbox, &terms).await else {
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
        tracing::warn!(master = %mailbox.address(), %why, "master down");
        let pause = sleep(terms.redial.delay(failures, (terms.random)()));
        if unless_abandoned(&mailbox, pause).await.is_none() {
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
    let mut in_flight = InFlight::new(mailbox.master(), terms);
    in_flight.rejected = mailbox.serve();
    let mut alarm = Alarm::new();
    let mut fresh = Vec::new();
    let why = poll_fn(|cx| {
        loop {
            in_flight.send_rejected(&mut connection, terms);
            mailbox.take_asks(cx, &mut fresh);
            for ask in fresh.drain(..) {
                connection.send(&ask);
                in_flight.push(ask);
            }
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
                return Poll::Ready(Some("no answer to anything, given up".into()));
            }
        }
    })
    .await;
    if let Some(why) = &why {
        mailbox.down(in_flight.take_unanswered(), why);
    }
    why
}

/// Commands that were sent and not answered, oldest first.
#[derive(Debug)]
pub(super) struct InFlight {
    master: usize,
    node_timeout: Duration,
    asks: VecDeque<Sent>,
    /// How many of the oldest have been given up on. They stay, as their replies may still come.
    expired: usize,
    /// What is owed to the master, and was answered with an error or not sent yet.
    rejected: VecDeque<Arc<Ask>>,
    /// When to send that again, and how often it was.
    retry: Option<(Instant, u32)>,
}

#[derive(Debug)]
struct Sent {
    ask: Arc<Ask>,
    deadline: Instant,
    /// Its vote has been cast.
    expired: bool,
}

impl InFlight {
    fn new(master: usize, terms: &Terms) -> Self {
        Self {
            master,
            node_timeout: terms.node_timeout,
            asks: VecDeque::new(),
            expired: 0,
            rejected: VecDeque::new(),
            retry: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.asks.is_empty() && self.rejected.is_empty()
    }

    fn push(&mut self, ask: Arc<Ask>) {
        self.asks.push_back(Sent {
            deadline: ask.deadline,
            ask,
            expired: false,
        });
    }

    /// Whether something may be sent again at once.
    fn is_first_rejection(&self) -> bool {
        !self.rejected.is_empty() && self.retry.is_none()
    }

    /// Sends what is owed once more, when it is time: at once over a new connection, and after a pause
    /// when it was answered with an error. Forgets what the master need not be told any more.
    ///
    /// Votes on it have been cast, and it gets as much time as a new command.
    fn send_rejected(&mut self, connection: &mut impl Connection, terms: &Terms) {
        if self.rejected.is_empty() {
            return;
        }
        let now = (terms.now)();
        let tries = match self.retry {
            None => 0,
            Some((at, _)) if now < at => return,
            Some((_, tries)) => tries,
        };
        let pause = terms.redial.delay(tries, (terms.random)());
        self.retry = Some((now + pause, tries.saturating_add(1)));
        for ask in mem::take(&mut self.rejected) {
            if ask.owed_to(self.master).is_some_and(|until| until > now) {
                connection.send(&ask);
                self.asks.push_back(Sent {
                    deadline: now + self.node_timeout,
                    ask,
                    expired: true,
                });
            }
        }
    }

    /// Casts the vote that `reply` to the oldest command means. An error when nothing was asked.
    pub(super) fn answer(&mut self, reply: &Reply<'_>) -> Result<(), Arc<str>> {
        let Some(sent) = self.asks.pop_front() else {
            return Err("a reply to nothing".into());
        };
        self.expired = self.expired.saturating_sub(1);
        let vote = sent.ask.command.vote(reply);
        if matches!(vote, Vote::Fail(_)) && sent.ask.owed_to(self.master).is_some() {
            self.rejected.push_back(sent.ask.clone());
        }
        sent.ask.counter.count(self.master, vote);
        Ok(())
    }

    /// Puts the oldest command behind all others and returns it, to be sent once more.
    #[cfg(feature = "redis")]
    pub(super) fn again(&mut self) -> Option<&Ask> {
        let sent = self.asks.pop_front()?;
        self.expired = self.expired.saturating_sub(1);
        self.asks.push_back(sent);
        self.asks.back().map(|sent| &*sent.ask)
    }

    /// When the next command must be given up on, or else the connection, or what was rejected sent
    /// again.
    fn next_expiry(&self) -> Option<Instant> {
        let asks = match self.asks.get(self.expired) {
            Some(sent) => Some(sent.deadline),
            None => self.end_of_patience(),
        };
        let retry = self.retry.filter(|_| !self.rejected.is_empty());
        asks.into_iter().chain(retry.map(|(at, _)| at)).min()
    }

    fn expire(&mut self, now: Instant) {
        while let Some(sent) = self.asks.get_mut(self.expired) {
            if sent.deadline > now {
                return;
            }
            self.expired += 1;
            if !sent.expired {
                sent.expired = true;
                let failure = Failure::TimedOut(self.node_timeout);
                sent.ask.counter.count(self.master, Vote::Fail(failure));
            }
        }
    }

    fn is_stuck(&self, now: Instant) -> bool {
        self.end_of_patience().is_some_and(|end| end <= now)
    }

    fn end_of_patience(&self) -> Option<Instant> {
        let oldest = self.asks.front()?.deadline;
        oldest.checked_add(self.node_timeout * (NODE_TIMEOUTS_TO_LIVE - 1))
    }

    /// What was sent without an answer, and whether its vote is still open.
    fn take_unanswered(&mut self) -> impl Iterator<Item = (Arc<Ask>, bool)> + use<> {
        let rejected = mem::take(&mut self.rejected);
        mem::take(&mut self.asks)
            .into_iter()
            .map(|sent| (sent.ask, !sent.expired))
            .chain(rejected.into_iter().map(|ask| (ask, false)))
    }
}

impl Drop for InFlight {
    /// When a runtime ends its tasks, callers on another one may still wait.
    fn drop(&mut self) {
        for (ask, is_open) in self.take_unanswered() {
            if is_open {
                ask.counter.count(self.master, Vote::Fail(Failure::Closed));
            }
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
struct CloseOnDrop<'a>(&'a Mailbox);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

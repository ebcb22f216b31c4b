//! The supervisor of one master. It dials the master, sends requests in order, and matches replies
//! with requests. It gives up requests and connections that take too long.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Poll, ready},
    time::Duration,
};

use tokio::time::sleep;

use super::{
    connection::{Connection, Dial, Dialled},
    in_flight::InFlight,
    mailbox::Mailbox,
    outage::Outage,
    task::{LazyTimer, poll_yield},
};
use crate::master::{
    config::MasterConfig,
    dial_error::in_time,
    health::HealthBoard,
    restart::quarantine::{self, Quarantine},
};

/// Serves `mailbox` until nothing is left to deliver and nothing more will be posted.
///
/// Requests fail at once while the master is down, so callers do not wait.
pub(in crate::master) fn supervise<D: Dial>(
    dialer: D,
    mailbox: Arc<Mailbox>,
    config: MasterConfig,
) -> impl Future<Output = ()> + Send {
    // `closing` is created outside the future. The mailbox is then closed even if the runtime drops
    // the future without polling it.
    let closing = CloseOnDrop {
        mailbox,
        health: config.health.clone(),
    };
    async move {
        let closing = closing;
        run(dialer, &closing.mailbox, &config).await;
    }
}

async fn run<D: Dial>(mut dialer: D, mailbox: &Mailbox, config: &MasterConfig) {
    let (mut outage, observer) = (Outage::default(), mailbox.observer());
    loop {
        let dial = in_time(config.connect_timeout, dialer.dial());
        let Some(dialled) = unless_done(mailbox, dial).await else {
            return;
        };
        let (why, refusal) = match dialled {
            Ok(dialled) => {
                outage.connected(observer);
                if let Some(loss) = dialled.loss {
                    quarantine::begin(mailbox, config, loss);
                }
                let (master, until) = (mailbox.master(), mailbox.quarantined_until());
                config.health.connected(master, dialled.round_trip, until);
                let Some(why) = serve(dialled, &mut outage, mailbox, config).await else {
                    return;
                };
                (why, None)
            }
            Err(error) => {
                let why = error.to_string().into();
                if mailbox.node_timeout().is_none() {
                    mailbox.set_node_timeout(config.node_timeout.least());
                }
                mailbox.down([], &why);
                (why, error.refusal())
            }
        };
        if outage.is_none(observer, &why) {
            continue;
        }
        let failures = outage.failed(observer, &why);
        let why = (&why, refusal);
        config.health.down(mailbox.master(), why, failures);
        let mut pause = outage.pause(config.redial, (config.random)());
        if mutant!(RedialsAtOnce) {
            pause = Duration::from_millis(1);
        }
        let pause = sleep(pause);
        if unless_done(mailbox, pause).await.is_none() {
            return;
        }
    }
}

/// Runs `step` and returns its output. Meanwhile, gives up releases in the mailbox that are no
/// longer owed. Returns `None` if the mailbox is done before `step` is.
async fn unless_done<T>(mailbox: &Mailbox, step: impl Future<Output = T>) -> Option<T> {
    let mut step = pin!(step);
    let mut timer = LazyTimer::new(mailbox.clock());
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(output) = step.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            let Some(at) = ready!(mailbox.poll_next_expiry(cx)) else {
                return Poll::Ready(None);
            };
            ready!(timer.poll(cx, at));
            mailbox.expire(at);
        }
    })
    .await
}

/// Serves one connection until the connection breaks or is given up, and returns the reason.
/// Returns `None` once the mailbox is done.
async fn serve<C: Connection>(
    dialled: Dialled<C>,
    outage: &mut Outage,
    mailbox: &Mailbox,
    config: &MasterConfig,
) -> Option<Arc<str>> {
    let mut connection = dialled.connection;
    let mut in_flight = InFlight::new(mailbox, config, dialled.round_trip, outage.window());
    in_flight.set_reports_changes(dialled.reports_changes);
    let mut timer = LazyTimer::new(config.now);
    let mut requests = Vec::new();
    let mut quarantine = Quarantine::of(mailbox);
    let ended = poll_fn(|cx| {
        // More iterations in one poll would delay other tasks.
        for _ in 0..8 {
            let change = mailbox.take(cx, &mut requests);
            in_flight.send(&mut connection, &mut requests, change);
            if let Poll::Ready(why) = connection.poll(cx, &mut in_flight) {
                return Poll::Ready(Some((why, false)));
            }
            outage.polled(mailbox.observer(), in_flight.last_reply.is_some());
            if in_flight.is_empty() && mailbox.is_done() {
                return Poll::Ready(None);
            }
            if in_flight.send_more(&mut connection) {
                continue;
            }
            let Some(at) = quarantine.or_earlier(in_flight.next_expiry()) else {
                return Poll::Pending;
            };
            ready!(timer.poll(cx, at));
            if quarantine.ends(at, mailbox, config) {
                continue;
            }
            let Some(until) = in_flight.judged_until(at) else {
                return poll_yield(cx);
            };
            track_reply(&in_flight, mailbox, config);
            if in_flight.expire(until) {
                connection.give_up();
                let why = "no reply for too long, connection given up";
                return Poll::Ready(Some((why.into(), true)));
            }
        }
        poll_yield(cx)
    })
    .await;
    track_reply(&in_flight, mailbox, config);
    Some(disconnect(&mut in_flight, outage, ended?))
}

/// Ends a connection, which may have been given up. Returns the reason.
fn disconnect(
    in_flight: &mut InFlight<'_>,
    outage: &mut Outage,
    (why, was_given_up): (Arc<str>, bool),
) -> Arc<str> {
    in_flight.disconnect(&why);
    let has_answered = in_flight.last_reply.is_some();
    let (was_flushed, age) = (in_flight.is_flushed, in_flight.age());
    outage.disconnected(was_given_up, was_flushed, has_answered, age);
    why
}

/// Tells the restart tracker when the last reply came. All coordinators of this process share this
/// time, so it is also updated while the connection lasts.
fn track_reply(in_flight: &InFlight<'_>, mailbox: &Mailbox, config: &MasterConfig) {
    if let Some(at) = in_flight.last_reply {
        config.restart_tracker.heard(mailbox.master(), at);
    }
}

/// Closes the mailbox when the supervisor ends or is dropped. No task then waits for a vote that is
/// never cast.
struct CloseOnDrop {
    mailbox: Arc<Mailbox>,
    health: HealthBoard,
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.mailbox.close();
        self.health.closed(self.mailbox.master());
    }
}

//! The supervisor of one master. It dials the master, sends requests in order, and matches replies
//! with requests. It gives up requests and connections that take too long.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::{Poll, ready},
};

use tokio::time::sleep;

use super::{
    config::MasterConfig,
    redis::{Dialer, RedisConnection},
    session::{Session, mailbox::Mailbox, outage::Outage},
    task::{LazyTimer, poll_yield},
};
use crate::core::restart::Loss;

/// Serves `mailbox` until nothing is left to deliver and nothing more will be posted.
///
/// Requests fail at once while the master is down, so callers do not wait. It is down after a dial
/// that failed, and after a connection that broke soon. But a connection that has worked may break
/// while nobody needs it. Then the next dial comes at once, or soon if the connection was given up,
/// and requests wait for it, each for at most a node timeout.
pub(super) fn supervise(
    dialer: Dialer,
    mailbox: Arc<Mailbox>,
    config: MasterConfig,
) -> impl Future<Output = ()> + Send {
    // The session is created outside the future. It then ends even if the runtime drops the future
    // without polling it.
    let session = Session::new(mailbox, config);
    async move {
        let mut session = session;
        run(dialer, &mut session).await;
    }
}

async fn run(dialer: Dialer, session: &mut Session) {
    let mut outage = Outage::default();
    loop {
        let Some(dialled) = unless_done(session, dialer.dial()).await else {
            return;
        };
        let (why, refusal, has_worked, was_given_up) = match dialled {
            Ok(dialled) => {
                let Some((why, was_given_up)) = serve(dialled, &mut outage, session).await else {
                    return;
                };
                let now = (session.config.now)();
                let has_worked = outage.disconnected(&session.link, was_given_up, now);
                (why, None, has_worked, was_given_up)
            }
            Err(error) => (error.to_string().into(), error.refusal(), false, false),
        };
        if has_worked {
            session.interrupt(&why);
        } else {
            session.disconnect(&why);
        }
        let (mailbox, config) = (&session.mailbox, &session.config);
        let failures = outage.failed(mailbox.observer(), &why);
        let why = (&why, refusal);
        config.health.down(mailbox.master(), why, failures);
        // A master that stood still must not get the dials of all its clients at the same moment.
        if has_worked && !was_given_up {
            continue;
        }
        let pause = outage.pause(config.redial, (config.random)());
        if unless_done(session, sleep(pause)).await.is_none() {
            return;
        }
    }
}

/// Runs `step` and returns its output. Meanwhile, keeps what is posted, as long as it may wait for
/// a connection. Returns `None` if nothing is left to deliver before `step` ends.
async fn unless_done<T>(session: &mut Session, step: impl Future<Output = T>) -> Option<T> {
    let mut step = pin!(step);
    let mut timer = LazyTimer::new(session.config.now);
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(output) = step.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            let is_last = session.take(cx);
            let next = session.expire_unconnected();
            if is_last && session.is_empty() {
                return Poll::Ready(None);
            }
            let Some(at) = next else {
                return Poll::Pending;
            };
            ready!(timer.poll(cx, at));
        }
    })
    .await
}

/// Serves one connection, whose dial found this `loss`, until the connection breaks or is given up.
/// Returns the reason, and whether the connection was given up. Returns `None` once nothing is left
/// to deliver and nothing more will be posted.
async fn serve(
    (mut connection, loss): (RedisConnection, Option<Loss>),
    outage: &mut Outage,
    session: &mut Session,
) -> Option<(Arc<str>, bool)> {
    outage.connected(session.mailbox.observer());
    session.connect(
        connection.round_trip,
        loss,
        connection.reports_changes,
        outage.window(),
    );
    let mut timer = LazyTimer::new(session.config.now);
    poll_fn(|cx| {
        // More iterations in one poll would delay other tasks.
        for _ in 0..8 {
            let is_last = session.take(cx);
            session.send(&mut connection);
            if let Poll::Ready(why) = connection.poll(cx, session) {
                return Poll::Ready(Some((why, false)));
            }
            outage.polled(session.mailbox.observer(), &session.link);
            if is_last && session.is_empty() {
                return Poll::Ready(None);
            }
            if session.send(&mut connection) {
                continue;
            }
            let Some(at) = session.next_expiry() else {
                return Poll::Pending;
            };
            ready!(timer.poll(cx, at));
            if session.ends_quarantine(at) {
                continue;
            }
            let Some(until) = session.judged_until(at) else {
                return poll_yield(cx);
            };
            if session.expire(until) {
                connection.give_up();
                let why = "no reply for too long, connection given up";
                return Poll::Ready(Some((why.into(), true)));
            }
        }
        poll_yield(cx)
    })
    .await
}

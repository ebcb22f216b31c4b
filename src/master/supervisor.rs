//! The supervisor of one master. It dials the master, sends requests in order, and matches replies
//! with requests. It gives up requests and connections that take too long.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

use super::{
    connect_error::ConnectError,
    redis::{Dialer, RedisConnection, wire::poll_yield},
    shared::Shared,
};
use crate::{
    clock,
    core::{
        restart::DataLoss,
        time::{Backoff, Tick},
    },
    machine::{
        out::MasterEvent,
        session::{Cx, Session},
    },
};

/// Serves a master until every request is delivered, and no more can be posted.
///
/// While the master is down, requests fail at once, so callers do not wait. A master is down after
/// a dial that failed, and after a connection that broke within a second. After a connection that
/// has worked for longer, the next dial comes at once, or soon if the connection was given up.
/// Requests wait for that dial, each for at most a response timeout.
///
/// The caller creates the port, so that the session ends even if the runtime drops this future
/// before the first poll.
pub(super) async fn supervise(dialer: Dialer, port: Port) {
    let mut outage = Outage::default();
    loop {
        let Some(dialled) = unless_done(&port, dialer.dial(&port.machine, port.master)).await
        else {
            return;
        };
        let ended = match dialled {
            Ok(dialled) => serve(dialled, &dialer, &mut outage, &port).await,
            Err(error) => Some(Ended::DialFailed(error)),
        };
        let Some(ended) = ended else {
            return;
        };
        let (why, refusal) = match &ended {
            Ended::Broke(why) => (why.clone(), None),
            Ended::DialFailed(error) => (error.to_string().into(), error.refusal()),
            Ended::GivenUp => ("no reply for too long, connection given up".into(), None),
        };
        let has_worked = port.with(|session, cx| {
            let has_worked = outage.note(&ended, &why, session, cx);
            session.disconnect(cx, &why, has_worked);
            session.health.note_outage(outage.failures, refusal);
            has_worked
        });
        // A master that stood still must not get the dials of all its clients at the same moment.
        if has_worked && !matches!(ended, Ended::GivenUp) {
            continue;
        }
        let failures = outage.in_vain.saturating_sub(1);
        let pause = REDIAL.delay(failures, clock::random_u64());
        if unless_done(&port, sleep(pause)).await.is_none() {
            return;
        }
    }
}

const REDIAL: Backoff = Backoff::between(Duration::from_millis(20), Duration::from_secs(1));

/// One master of a machine.
pub(super) struct Port {
    pub(super) machine: Arc<Shared>,
    pub(super) master: usize,
}

impl Port {
    fn with<T>(&self, act: impl FnOnce(&mut Session, &mut Cx<'_>) -> T) -> T {
        (self.machine).with(|machine, now| machine.serve(self.master, now, act))
    }
}

impl Drop for Port {
    /// Casts the open votes, because a runtime may drop this task, or the task may panic, while
    /// callers wait.
    fn drop(&mut self) {
        if !self.machine.home.is_parent() {
            self.with(Session::close);
        }
    }
}

/// Runs `step` and returns its output. Keeps the requests that are posted meanwhile, as long as
/// they may wait for a connection. Returns `None` as soon as nothing is left to deliver and nothing
/// more will be posted, even if `step` has not ended.
async fn unless_done<T>(port: &Port, step: impl Future<Output = T>) -> Option<T> {
    let mut step = pin!(step);
    let mut timer = LazyTimer::default();
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(output) = step.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            port.with(|session, step| {
                session.set_waker(cx.waker());
                session.expire_unconnected(step);
            });
            // The votes may have decided what is owed.
            let (next, is_done) =
                port.with(|session, step| (session.next_of_backlog(step), session.is_done(step)));
            if is_done {
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

/// Serves one connection until it breaks or is given up. `loss` is the loss of data that its dial
/// found. Returns `None` once nothing is left to deliver and nothing more will be posted.
async fn serve(
    (mut connection, loss): (RedisConnection, Option<DataLoss>),
    dialer: &Dialer,
    outage: &mut Outage,
    port: &Port,
) -> Option<Ended> {
    port.with(|session, cx| {
        outage.connected(session, cx);
        session.connect(cx, connection.round_trip, loss, connection.reports_changes);
    });
    let mut timer = LazyTimer::default();
    let is_noted = connection.last_heard.is_some() && !port.machine.config.only_looks;
    let mut looks = Box::pin(dialer.look_each_minute(&port.machine, port.master, is_noted));
    poll_fn(|cx| {
        let _ = looks.as_mut().poll(cx);
        // More iterations in one poll would delay other tasks.
        for _ in 0..8 {
            let (has_acted, next) = match exchange(cx, &mut connection, outage, port) {
                Ok(exchanged) => exchanged,
                Err(ended) => return Poll::Ready(ended),
            };
            if has_acted {
                continue;
            }
            let Some(at) = next else {
                return Poll::Pending;
            };
            ready!(timer.poll(cx, at));
            match port.with(|session, step| on_deadline(session, step, at)) {
                Some(true) => {
                    connection.give_up();
                    return Poll::Ready(Some(Ended::GivenUp));
                }
                Some(false) => {}
                None => return poll_yield(cx),
            }
        }
        poll_yield(cx)
    })
    .await
}

/// Reads and writes, and then lets the session send what waits. Returns whether it sent anything or
/// gave anything up, and when to look at the session next. Fails if the connection has ended, and returns how. A
/// connection that is no longer needed ends with `None`.
fn exchange(
    cx: &mut Context<'_>,
    connection: &mut RedisConnection,
    outage: &mut Outage,
    port: &Port,
) -> Result<(bool, Option<Tick>), Option<Ended>> {
    let polled = connection.poll(cx, &port.machine, port.master);
    port.with(|session, step| {
        connection.note_read(&mut session.link);
        if let Poll::Ready(why) = polled {
            return Err(Some(Ended::Broke(why)));
        }
        outage.polled(session, step);
        if session.is_done(step) {
            return Err(None);
        }
        session.set_waker(cx.waker());
        let has_sent = session.send(step, connection);
        // Once what was given up is settled, the session may be done.
        let has_acted = has_sent || !session.is_settled();
        Ok((has_acted, session.next_wake(step)))
    })
}

/// Does what is due at `at`. Returns whether to give the connection up. `None` if replies may have
/// arrived that must be read first.
fn on_deadline(session: &mut Session, step: &mut Cx<'_>, at: Tick) -> Option<bool> {
    if session.end_quarantine(step, at) {
        return Some(false);
    }
    let liveness = &mut session.link.liveness;
    let until = liveness.judge_deadline(at, step.now.monotonic)?;
    Some(session.expire(step, until))
}

/// Why the supervisor has no connection.
enum Ended {
    /// The connection broke, for this reason.
    Broke(Arc<str>),
    DialFailed(ConnectError),
    /// The supervisor gave up the connection, because the master was silent for too long.
    GivenUp,
}

/// The failures of a master since it last worked. The log gets one warning when an outage begins,
/// and one message when the master seems to work again.
///
/// An outage ends with a connection that works for at least a second. All failures before that
/// belong to the same outage. For example, a master that accepts every connection and never answers
/// has one outage, however often it is dialled. For other outages, such as those of a quorum, see
/// [`OutageLog`](crate::core::time::OutageLog).
#[derive(Default)]
struct Outage {
    /// The number of dials that failed and connections that broke in this outage.
    failures: u32,
    /// The number of failures since a connection last worked for a while. Only these failures make
    /// the pause before the next dial longer.
    in_vain: u32,
    /// Set if the last connection broke before it had worked for a second.
    was_useless: bool,
    /// Set once the log has said that the outage seems to be over.
    is_end_logged: bool,
}

impl Outage {
    fn connected(&mut self, session: &Session, cx: &mut Cx<'_>) {
        let is_first = !session.health.has_connected();
        let is_news = !self.is_end_logged && !self.was_useless;
        self.is_end_logged |= is_news;
        cx.tell(MasterEvent::Connected { is_first, is_news });
    }

    /// Notes whether the master has answered a command on the current connection.
    fn polled(&mut self, session: &Session, cx: &mut Cx<'_>) {
        if self.was_useless && !self.is_end_logged && session.link.has_answered {
            self.is_end_logged = true;
            cx.tell(MasterEvent::AnswersAgain);
        }
    }

    /// Notes how a dial or the connection of `session` has ended. Returns whether a working
    /// connection has ended.
    ///
    /// The end of a working connection is no failure of the master if the connection was idle, or
    /// if the master may have lost its keys.
    fn note(&mut self, ended: &Ended, why: &Arc<str>, session: &Session, cx: &mut Cx<'_>) -> bool {
        const LEAST: Duration = Duration::from_secs(1);
        /// A connection that breaks earlier than this makes the next pause longer, even if the
        /// master answers.
        const BRIEF: Duration = Duration::from_millis(50);
        let (link, why) = (&session.link, why.clone());
        let age = cx.now.monotonic.since(link.began);
        let has_worked = match ended {
            Ended::Broke(_) => age >= LEAST,
            Ended::DialFailed(_) => false,
            Ended::GivenUp => link.has_answered && age >= LEAST,
        };
        if !matches!(ended, Ended::DialFailed(_)) {
            self.was_useless = !has_worked;
        }
        if has_worked {
            (self.failures, self.in_vain) = (0, 0);
            let was_idle = link.sent.is_empty() || link.liveness.silence().is_some();
            if link.is_flushed || was_idle {
                cx.tell(MasterEvent::ConnectsAgain { why });
                return true;
            }
        } else if matches!(ended, Ended::Broke(_)) && link.has_answered && age >= BRIEF {
            self.in_vain = 0;
        }
        let is_news = self.failures == 0;
        self.failures = self.failures.saturating_add(1);
        self.in_vain = self.in_vain.saturating_add(1);
        self.is_end_logged &= !is_news;
        cx.tell(MasterEvent::Down { is_news, why });
        has_worked
    }
}

/// A timer that is reset only after it fired, or for an earlier deadline. Most replies come in
/// time, so it would be wasteful to reset the timer for each deadline.
#[derive(Default)]
struct LazyTimer {
    /// The deadline for which the timer is set.
    set: Option<(Tick, Pin<Box<Sleep>>)>,
}

impl LazyTimer {
    /// Resolves at `at`. If the timer is still set for an earlier deadline, first waits for that
    /// deadline.
    fn poll(&mut self, cx: &mut Context<'_>, at: Tick) -> Poll<()> {
        loop {
            self.set.take_if(|(deadline, _)| at < *deadline);
            let (_, timer) = self.set.get_or_insert_with(|| {
                let left = at.since(clock::monotonic());
                (at, Box::pin(sleep(left)))
            });
            ready!(timer.as_mut().poll(cx));
            self.set = None;
            if at <= clock::monotonic() {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_from_an_idle_time_does_not_count() {
        let (start, second) = (clock::monotonic(), Duration::from_secs(1));
        let mut timer = LazyTimer::default();
        poll_fn(|cx| {
            assert!(timer.poll(cx, start + second).is_pending());
            Poll::Ready(())
        })
        .await;
        sleep(3 * second).await;
        poll_fn(|cx| timer.poll(cx, start + 5 * second)).await;
        assert_eq!(clock::monotonic(), start + 5 * second);
    }
}

use std::{
    future::ready,
    io,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    time::sleep,
};

use super::*;
use crate::{
    MasterSpec, MemoryMaster,
    clock::{monotonic, tests::ByHand},
    core::{
        kind::Kind,
        protocol::{
            command::{Reply, fixture::command},
            connection_name::ConnectionName,
        },
        restart::{DataLoss, Quarantine, Sign},
        time::{NodeTimeout, tick::Tick},
        vote::{
            SlotVote, Verb, Vote,
            lists::{Membership, Roster},
            quorum::Quorum,
        },
        wait::pauses::Backoff,
    },
    master::{
        MasterObserver, health::HealthBoard, restart::DistinctServers,
        session::request::VoteCounter,
    },
};

const TIMEOUT: Duration = Duration::from_millis(50);
const CONNECT: Duration = Duration::from_secs(1);
const OWED: Duration = Duration::from_secs(60);

/// An event on a connection, from the client or from the server.
#[derive(Clone, Debug)]
enum Event {
    Bytes,
    Confirm(bool),
    Message,
    /// The server does not know the script.
    NoScript,
    Post {
        verb: Verb,
        is_owed: bool,
    },
    Reply(&'static str),
    Subscribe,
}

fn any_event() -> impl Strategy<Value = Event> {
    let verb = prop::sample::select(vec![Verb::Acquire, Verb::Extend, Verb::Release]);
    let reply = prop::sample::select(vec!["ok", "1", "0", "nil", "-OOM no room", "text", "other"]);
    prop_oneof![
        6 => (verb, any::<bool>()).prop_map(|(verb, is_owed)| Event::Post { verb, is_owed }),
        1 => Just(Event::Subscribe),
        4 => reply.prop_map(Event::Reply),
        3 => Just(Event::NoScript),
        1 => any::<bool>().prop_map(Event::Confirm),
        1 => Just(Event::Message),
        1 => Just(Event::Bytes),
    ]
}

proptest! {
    /// Every command gets a vote, whatever the server sends or does not send. The vote comes before
    /// the time limits of the send and of the answer are over, or when the connection breaks.
    #[test]
    fn every_command_gets_a_vote_by_its_deadline((window, events) in any_connection()) {
        check_votes(window, events)?;
    }
}

/// Returns a window, and events with the milliseconds before each.
fn any_connection() -> impl Strategy<Value = (usize, Vec<(u64, Event)>)> {
    (
        1..6usize,
        prop::collection::vec((0..40u64, any_event()), 1..80),
    )
}

fn check_votes(window: usize, events: Vec<(u64, Event)>) -> Result<(), TestCaseError> {
    let _clock = ByHand::start();
    let mut wire = FakeWire::default();
    let mut session = connected(window);
    let mut posted = Vec::new();
    let mut is_broken = false;
    for (gap, event) in events {
        for _ in 0..gap {
            ByHand::pass(Duration::from_millis(1));
            is_broken |= poll(&mut session, &mut wire);
        }
        is_broken |= apply(event, &mut session, &mut wire, &mut posted).is_err();
        prop_assert!(wire.in_flight <= Link::MOST_IN_WINDOW);
        if is_broken {
            break;
        }
        // Each command is sent at most twice.
        prop_assert!(wire.resent <= posted.len());
        for (request, limit) in &posted {
            let Counted { at, votes, .. } = &*request.votes_to.0;
            prop_assert!(*at + *limit > monotonic() || *votes.lock() > 0);
        }
    }
    session.disconnect(&"broken".into());
    for (request, _) in &posted {
        prop_assert!(*request.votes_to.0.votes.lock() > 0);
    }
    Ok(())
}

/// A process that was stalled during a dial has measured a long round trip.
#[test]
fn a_stall_during_the_dial_does_not_make_a_connection_patient() {
    let _clock = ByHand::start();
    let (mut wire, mut posted) = (FakeWire::default(), Vec::new());
    let mut session = session();
    session.connect(60 * CONNECT, None, true, 1);
    let (verb, is_owed) = (Verb::Acquire, false);
    let post = Event::Post { verb, is_owed };
    apply(post, &mut session, &mut wire, &mut posted).unwrap();
    while !poll(&mut session, &mut wire) {
        ByHand::pass(Duration::from_millis(1));
        assert!(ByHand::elapsed() < 7 * CONNECT);
    }
}

/// This process was stalled while the reply was in its socket. The master has kept up.
#[test]
fn a_stall_fails_no_command_that_waits_for_room() {
    let _clock = ByHand::start();
    let (mut wire, mut posted) = (FakeWire::default(), Vec::new());
    let mut session = connected(1);
    for _ in 0..2 {
        let (verb, is_owed) = (Verb::Acquire, false);
        let post = Event::Post { verb, is_owed };
        apply(post, &mut session, &mut wire, &mut posted).unwrap();
    }
    ByHand::set(TIMEOUT * 2);
    session.send(&mut wire);
    session.on_reply(&Reply::Ok, monotonic()).unwrap();
    assert!(session.send(&mut wire));
    assert_eq!(*posted[1].0.votes_to.0.votes.lock(), 0);
}

/// Here the runtime notices the deadline of a command before it notices the reply in the socket.
#[tokio::test(start_paused = true)]
async fn a_reply_that_has_arrived_is_read_before_time_is_judged() {
    let server = MemoryMaster::new();
    let connect = move || {
        let stream = server.connect();
        ready(stream.map(|stream| LateSocket {
            stream,
            sent: None,
            late_reads: 0,
        }))
    };
    let (mailbox, supervisor) = MasterSpec::from_stream("redis://late", connect).open(0, &config());
    let votes = Votes::default();
    let command = command(Kind::Mutex, Verb::Acquire, 1);
    let request = Arc::new(Request::new(command, monotonic(), votes.clone()));
    assert!(mailbox.post(request).is_none());
    tokio::join!(supervisor, async {
        sleep(TIMEOUT * 2).await;
        mailbox.abandon();
    });
    assert_eq!(*votes.0.lock(), [Vote::Grant]);
}

#[derive(Clone, Default)]
struct Votes(Arc<Mutex<Vec<Vote>>>);

impl VoteCounter for Votes {
    fn count(&self, _: usize, vote: SlotVote, _: Tick) {
        self.0.lock().push(vote.into_vote());
    }
}

/// A stream on which the reply to the first lock command is seen only in the second read after the
/// deadline of the command.
struct LateSocket {
    stream: DuplexStream,
    /// The time of the last command.
    sent: Option<Tick>,
    late_reads: usize,
}

impl AsyncRead for LateSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(sent) = self.sent {
            self.late_reads += usize::from(sent + TIMEOUT <= monotonic());
            if self.late_reads < 2 {
                return Poll::Pending;
            }
        }
        Pin::new(&mut self.stream).poll_read(cx, space)
    }
}

impl AsyncWrite for LateSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let is_greeting = bytes.windows(5).any(|word| word == b"HELLO");
        self.sent = (!is_greeting).then(monotonic);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A deadline that is always "now" would make the supervisor poll every millisecond, and would
/// never be judged.
#[test]
fn a_release_that_is_no_longer_owed_sets_no_timer() {
    let _clock = ByHand::start();
    let (mut wire, mut posted) = (FakeWire::default(), Vec::new());
    let mut session = connected(1);
    let (verb, is_owed) = (Verb::Release, true);
    let post = Event::Post { verb, is_owed };
    apply(post, &mut session, &mut wire, &mut posted).unwrap();
    let owed = request(verb, is_owed);
    session.owe(owed.clone());
    owed.votes_to.0.is_owed.store(false, Ordering::Relaxed);
    session.send(&mut wire);
    assert_eq!(Arc::strong_count(&owed), 1);
    assert!(session.next_wake() > Some(monotonic()));
}

/// After an error reply, releases are sent one at a time, each after a pause, until one succeeds.
#[test]
fn owed_releases_are_paced_by_the_replies() {
    let _clock = ByHand::start();
    let mut wire = FakeWire::default();
    let mut session = connected(Link::WINDOW);
    let mut posted = Vec::new();
    for _ in 0..100 {
        let (verb, is_owed) = (Verb::Release, true);
        let post = Event::Post { verb, is_owed };
        apply(post, &mut session, &mut wire, &mut posted).unwrap();
    }
    let mut answer = |error: bool, until: u64, wire: &mut FakeWire| {
        let before = wire.sent;
        while ByHand::elapsed() < Duration::from_millis(until) {
            while wire.in_flight > 0 {
                wire.in_flight -= 1;
                let reply = if error {
                    Reply::Error("OOM".into())
                } else {
                    Reply::Int(1)
                };
                session.on_reply(&reply, monotonic()).unwrap();
                session.send(wire);
            }
            ByHand::pass(Duration::from_millis(1));
            assert!(!poll(&mut session, wire));
        }
        wire.sent - before
    };
    let resent = answer(true, 10_000, &mut wire);
    assert!((10..=40).contains(&resent), "{resent}");
    assert_eq!(answer(false, 11_100, &mut wire), 100);
}

/// A master that answers one release after the other gets all of them. Releases that wait have not
/// failed, however many there are. Other commands fail if they are not sent in time.
#[test]
fn releases_that_wait_for_room_have_not_failed() {
    let _clock = ByHand::start();
    let (mut wire, mut posted) = (FakeWire::default(), Vec::new());
    let mut session = connected(Link::WINDOW);
    for _ in 0..50_000 {
        let (verb, is_owed) = (Verb::Release, true);
        let post = Event::Post { verb, is_owed };
        apply(post, &mut session, &mut wire, &mut posted).unwrap();
    }
    let (verb, is_owed) = (Verb::Acquire, false);
    let post = Event::Post { verb, is_owed };
    apply(post, &mut session, &mut wire, &mut posted).unwrap();
    let (acquisition, _) = posted.pop().unwrap();
    for at in 1..=1_000 {
        ByHand::set(Duration::from_millis(at));
        for _ in 0..wire.in_flight.min(100) {
            wire.in_flight -= 1;
            session.on_reply(&Reply::Int(1), monotonic()).unwrap();
        }
        assert!(!poll(&mut session, &mut wire));
    }
    assert_eq!(wire.sent, 50_000);
    assert_eq!(*acquisition.votes_to.0.votes.lock(), 1);
    // If the releases were owed, they would be sent once more.
    assert!(session.is_empty());
}

/// A late release gets its vote before it is sent. After that, it is owed, and sent like other owed
/// releases.
#[test]
fn a_late_release_gets_its_vote_and_is_owed() {
    let _clock = ByHand::start();
    let (mut wire, mut posted) = (FakeWire::default(), Vec::new());
    let mut session = connected(1);
    for _ in 0..4 {
        let (verb, is_owed) = (Verb::Release, true);
        let post = Event::Post { verb, is_owed };
        apply(post, &mut session, &mut wire, &mut posted).unwrap();
    }
    let mut advance = |until: Duration, session: &mut Session| {
        while ByHand::elapsed() < until {
            ByHand::pass(Duration::from_millis(1));
            poll(session, &mut wire);
        }
        wire.sent
    };
    advance(TIMEOUT, &mut session);
    assert_eq!((session.late.len(), session.owed.is_empty()), (3, true));
    let (second, _) = &posted[2];
    second.votes_to.0.is_owed.store(false, Ordering::Relaxed);
    assert_eq!(advance(TIMEOUT + CONNECT, &mut session), 1);
    for (release, _) in &posted[1..] {
        assert_eq!(*release.votes_to.0.votes.lock(), 1);
    }
    assert_eq!((session.late.len(), session.owed.is_empty()), (0, false));
    // The release that is no longer owed is not sent.
    for sent in [2, 3, 3] {
        session.on_reply(&Reply::Int(1), monotonic()).unwrap();
        assert_eq!(advance(ByHand::elapsed() + TIMEOUT, &mut session), sent);
        if sent == 3 && session.is_empty() {
            break;
        }
    }
    assert!(session.is_empty());
}

/// Requests wait for the first dial. While the master is down, requests fail at once, but releases
/// wait for the next connection. So do releases that were sent and have no reply.
#[test]
fn a_release_outlives_connections() {
    let _clock = ByHand::start();
    let mut session = session();
    let post = |verb, session: &mut Session| {
        let request = request(verb, true);
        let failure = session.mailbox.post(request.clone());
        session.take(&Context::from_waker(Waker::noop()));
        (request.votes_to.0.clone(), failure.is_some())
    };
    let (acquisition, has_failed) = post(Verb::Acquire, &mut session);
    assert!(!has_failed && *acquisition.votes.lock() == 0);
    session.disconnect(&"refused".into());
    assert_eq!(*acquisition.votes.lock(), 1);

    for connection in 1..4 {
        let (_, has_failed) = post(Verb::Acquire, &mut session);
        assert!(has_failed);
        let (_, has_failed) = post(Verb::Release, &mut session);
        assert!(has_failed);
        session.connect(Duration::ZERO, None, true, Link::WINDOW);
        let (release, has_failed) = post(Verb::Release, &mut session);
        assert!(!has_failed);
        let mut wire = FakeWire::default();
        session.send(&mut wire);
        assert_eq!(wire.sent, 2 * connection);
        session.disconnect(&"broken".into());
        assert_eq!(*release.votes.lock(), 1);
    }
}

/// Something has arrived, perhaps the end of the stream. After a silence, it is read before
/// anything is sent, because the runtime may lag behind the socket.
#[test]
fn after_a_silence_nothing_is_sent_before_what_has_arrived_is_read() {
    for (silence, sent) in [(CONNECT - TIMEOUT, 1), (CONNECT, 0)] {
        let _clock = ByHand::start();
        let mut wire = FakeWire::default();
        let mut session = connected(Link::WINDOW);
        ByHand::set(silence);
        wire.has_input = true;
        let request = request(Verb::Acquire, false);
        assert!(session.mailbox.post(request.clone()).is_none());
        session.take(&Context::from_waker(Waker::noop()));
        session.send(&mut wire);
        assert_eq!(wire.sent, sent, "{silence:?}");
        assert_eq!(session.next_wake(), Some(monotonic() + TIMEOUT));
        wire.has_input = false;
        session.send(&mut wire);
        assert_eq!((wire.sent, *request.votes_to.0.votes.lock()), (1, 0));
    }
}

/// Something on the way to the master may have forgotten a connection that was silent before the
/// command. The error reports the silence, and the next command gets another connection.
#[test]
fn a_connection_that_was_silent_is_given_up_sooner() {
    let long = CONNECT * 600;
    for (silence, verb, shown, timeouts) in [
        (long, Verb::Acquire, Some(long), 1),
        (TIMEOUT, Verb::Acquire, None, 3),
        (long, Verb::Extend, None, 3),
    ] {
        let _clock = ByHand::start();
        let mut wire = FakeWire::default();
        let mut session = connected(Link::WINDOW);
        ByHand::set(silence);
        let votes = Votes::default();
        let command = command(Kind::Mutex, verb, 1);
        let request = Arc::new(Request::new(command, monotonic(), votes.clone()));
        assert!(session.mailbox.post(request).is_none());
        session.take(&Context::from_waker(Waker::noop()));
        let start = monotonic();
        while !poll(&mut session, &mut wire) {
            ByHand::pass(Duration::from_millis(1));
        }
        assert_eq!(monotonic().since(start), TIMEOUT * timeouts);
        let late = Failure::TimedOut {
            after: TIMEOUT,
            round_trip: Duration::ZERO,
            silence: shown,
        };
        assert_eq!(*votes.0.lock(), [Vote::Fail(late)]);
    }
}

/// Returns a connection with a measured timeout, over which `count` commands were sent.
fn measured(round_trip: u64, count: usize, wire: &mut FakeWire) -> Session {
    ByHand::set(Duration::ZERO);
    let mut session = session();
    session.config.node_timeout = NodeTimeout::Measured;
    session.connect(Duration::from_millis(round_trip), None, true, Link::WINDOW);
    post(count, &mut session, wire);
    session
}

fn post(count: usize, session: &mut Session, wire: &mut FakeWire) {
    for _ in 0..count {
        let request = request(Verb::Acquire, false);
        assert!(session.mailbox.post(request).is_none());
    }
    session.take(&Context::from_waker(Waker::noop()));
    session.send(wire);
}

/// Lets the time pass, and returns the timeout after an answer.
fn timeout_after(time: u64, session: &mut Session, wire: &mut FakeWire) -> u128 {
    for _ in 0..time {
        ByHand::pass(Duration::from_millis(1));
        assert!(!poll(session, wire));
    }
    session.on_reply(&Reply::Ok, monotonic()).unwrap();
    session.mailbox.node_timeout().unwrap().as_millis()
}

#[test]
fn one_answer_of_a_round_trip_is_measured_even_if_it_is_late() {
    let _clock = ByHand::start();
    let mut wire = FakeWire::default();
    let mut session = measured(1, 128, &mut wire);
    assert_eq!(timeout_after(60, &mut session, &mut wire), 68);
    assert_eq!(timeout_after(0, &mut session, &mut wire), 68);
    post(1, &mut session, &mut wire); // only its answer is measured next
    for _ in 0..126 {
        assert_eq!(timeout_after(0, &mut session, &mut wire), 68);
    }
    assert_eq!(timeout_after(60, &mut session, &mut wire), 111);
}

#[test]
fn a_stall_of_this_process_and_a_command_that_was_sent_again_are_not_measured() {
    let _clock = ByHand::start();
    let mut wire = FakeWire::default();
    let mut session = measured(1, 2, &mut wire);
    ByHand::set(Duration::from_millis(300));
    assert_eq!(timeout_after(0, &mut session, &mut wire), 50);
    let due = session.next_wake().unwrap();
    assert_eq!(session.judge_deadline(due), None); // the stall is noticed
    assert_eq!(timeout_after(30, &mut session, &mut wire), 50);
    post(1, &mut session, &mut wire);
    session.resend(monotonic()).unwrap();
    assert_eq!(timeout_after(60, &mut session, &mut wire), 50);
}

/// The master gets no requests after 150 ms, and its connection is given up after half a second.
#[test]
fn a_master_that_is_silent_has_half_a_second_for_its_first_answer() {
    let _clock = ByHand::start();
    let mut wire = FakeWire::default();
    let mut session = measured(1, 1, &mut wire);
    for at in 1..500 {
        ByHand::set(Duration::from_millis(at));
        assert!(!poll(&mut session, &mut wire));
        if [100, 151, 450].contains(&at) {
            post(1, &mut session, &mut wire);
        }
        if at == 450 {
            assert_eq!(wire.sent, 2);
            session.on_reply(&Reply::Ok, monotonic()).unwrap();
            post(1, &mut session, &mut wire);
            assert_eq!(wire.sent, 3);
        }
    }
    let mut session = measured(1, 1, &mut wire);
    while !poll(&mut session, &mut wire) {
        ByHand::pass(Duration::from_millis(1));
    }
    assert_eq!(ByHand::elapsed(), Duration::from_millis(500));
}

/// What was sent fails, and is not sent again. What was not sent waits for one dial.
#[test]
fn a_request_that_was_not_sent_waits_for_the_first_dial() {
    for is_dialled in [true, false] {
        let _clock = ByHand::start();
        let mut wire = FakeWire::default();
        let mut session = connected(1);
        let requests = [(); 3].map(|()| request(Verb::Acquire, false));
        let post = |number: usize, session: &mut Session| {
            assert!(session.mailbox.post(requests[number].clone()).is_none());
            session.take(&Context::from_waker(Waker::noop()));
        };
        let votes = || {
            let requests = requests.each_ref();
            requests.map(|request| *request.votes_to.0.votes.lock())
        };
        post(0, &mut session); // the only one for which the window has room
        post(1, &mut session);
        session.send(&mut wire);
        session.interrupt(&"broken".into());
        assert!(!session.mailbox.is_serving());
        post(2, &mut session);
        assert_eq!((wire.sent, votes()), (1, [1, 0, 0]));
        if is_dialled {
            session.connect(Duration::ZERO, None, true, Link::WINDOW);
            session.send(&mut wire);
            assert_eq!((wire.sent, votes()), (3, [1, 0, 0]));
        } else {
            session.disconnect(&"refused".into());
            assert_eq!((wire.sent, votes()), (1, [1, 1, 1]));
            let late = request(Verb::Acquire, false);
            assert!(session.mailbox.post(late).is_some());
        }
    }
}

/// A request waits for at most one node timeout. After that time, a release is owed.
#[test]
fn the_wait_for_a_dial_ends_in_time() {
    let _clock = ByHand::start();
    let mut session = connected(Link::WINDOW);
    ByHand::set(CONNECT);
    session.interrupt(&"broken".into());
    let requests = [Verb::Acquire, Verb::Release].map(|verb| request(verb, true));
    for request in &requests {
        assert!(session.mailbox.post(request.clone()).is_none());
    }
    session.take(&Context::from_waker(Waker::noop()));
    assert_eq!(session.expire_unconnected(), Some(monotonic() + TIMEOUT));
    for (elapsed, count) in [(TIMEOUT / 2, 0), (TIMEOUT, 1)] {
        ByHand::set(CONNECT + elapsed);
        assert!(session.expire_unconnected().is_some());
        assert_eq!(
            requests
                .each_ref()
                .map(|request| *request.votes_to.0.votes.lock()),
            [count; 2]
        );
    }
    assert!(session.posts.requests.is_empty() && session.late.is_empty());
    let mut wire = FakeWire::default();
    session.connect(Duration::ZERO, None, true, Link::WINDOW);
    session.send(&mut wire);
    assert_eq!(wire.sent, 1);
    assert_eq!(
        requests.map(|request| *request.votes_to.0.votes.lock()),
        [1; 2]
    );
}

/// The next dial has found that the master may have forgotten locks.
#[test]
fn a_request_that_waited_for_a_dial_obeys_the_quarantine() {
    let _clock = ByHand::start();
    let mut session = connected(Link::WINDOW);
    session.config.quarantine_length = CONNECT;
    session.interrupt(&"broken".into());
    let request = request(Verb::Acquire, false);
    assert!(session.mailbox.post(request.clone()).is_none());
    session.take(&Context::from_waker(Waker::noop()));
    let (age, sign) = (Duration::ZERO, Sign::Restarted);
    session.connect(
        Duration::ZERO,
        Some(DataLoss { age, sign }),
        true,
        Link::WINDOW,
    );
    let mut wire = FakeWire::default();
    session.send(&mut wire);
    assert_eq!((wire.sent, *request.votes_to.0.votes.lock()), (0, 1));
}

/// Only a limited number of requests wait for the first dial.
#[test]
fn the_number_of_requests_that_wait_is_bounded() {
    let _clock = ByHand::start();
    let mut session = session();
    let cx = Context::from_waker(Waker::noop());
    let mut failed = 0;
    for _ in 0..Session::MOST_WAITING + 10 {
        let request = request(Verb::Acquire, false);
        assert!(session.mailbox.post(request.clone()).is_none());
        session.take(&cx);
        failed += *request.votes_to.0.votes.lock();
    }
    assert_eq!(failed, 10);
    assert!(session.mailbox.post(request(Verb::Release, true)).is_none());
    session.take(&cx);
    assert_eq!(session.posts.requests.len(), Session::MOST_WAITING + 1);
}

/// Requests that would take or keep a lock are not sent, even if they were posted before the
/// quarantine began.
#[test]
fn a_quarantined_master_gets_only_releases() {
    let _clock = ByHand::start();
    let mut session = session();
    session.config.quarantine_length = CONNECT;
    let (age, sign) = (Duration::ZERO, Sign::Earlier);
    let (mut wire, mut requests) = (FakeWire::default(), Vec::new());
    for verb in [Verb::Acquire, Verb::Extend, Verb::Release] {
        let request = request(verb, verb == Verb::Release);
        assert!(session.mailbox.post(request.clone()).is_none());
        requests.push(request);
    }
    session.take(&Context::from_waker(Waker::noop()));
    session.connect(
        Duration::ZERO,
        Some(DataLoss { age, sign }),
        true,
        Link::WINDOW,
    );
    session.send(&mut wire);
    let votes = requests
        .iter()
        .map(|request| *request.votes_to.0.votes.lock());
    assert_eq!((wire.sent, votes.collect()), (1, vec![1, 1, 0]));
}

/// If there are too many releases, the oldest one is given up. The log says so once.
#[test]
fn the_number_of_owed_releases_is_bounded() {
    let _clock = ByHand::start();
    let mut owed = Owed::default();
    let oldest = request(Verb::Release, true);
    assert!(!owed.push(oldest.clone()));
    for _ in 0..32_767 {
        assert!(!owed.push(request(Verb::Release, true)));
    }
    assert_eq!(Arc::strong_count(&oldest), 2);
    for must_log in [true, false] {
        assert_eq!(owed.push(request(Verb::Release, true)), must_log);
    }
    assert_eq!(Arc::strong_count(&oldest), 1);
    ByHand::set(Duration::from_secs(61));
    owed.expire(0, monotonic());
    assert!(owed.is_empty());
}

/// Does one iteration of the supervisor's loop. Returns whether the connection must be given up.
fn poll(session: &mut Session, wire: &mut FakeWire) -> bool {
    session.send(wire);
    let now = monotonic();
    if session.next_wake().is_none_or(|at| at > now) {
        return false;
    }
    session.expire(now)
}

fn apply(
    event: Event,
    session: &mut Session,
    wire: &mut FakeWire,
    posted: &mut Vec<(Arc<Request<Counter>>, Duration)>,
) -> Result<(), Arc<str>> {
    let now = monotonic();
    match event {
        Event::Post { verb, is_owed } => {
            let request = request(verb, is_owed);
            assert!(session.mailbox.post(request.clone()).is_none());
            session.take(&Context::from_waker(Waker::noop()));
            session.send(wire);
            let limit = match () {
                () if session.posts.requests.is_empty() => TIMEOUT,
                () if request.is_owed_to(0) => CONNECT + TIMEOUT * 2,
                () => TIMEOUT * 2,
            };
            posted.push((request, limit));
        }
        Event::Subscribe => {
            let change = Subscription {
                channel: "channel".into(),
                begins: true,
            };
            session.posts.change = Some(change);
            session.send(wire);
        }
        Event::Reply(reply) => {
            let reply = match reply {
                "ok" => Reply::Ok,
                "1" => Reply::Int(1),
                "0" => Reply::Int(0),
                "nil" => Reply::Nil,
                "text" => Reply::Text("held 5 1 0 somebody".into()),
                "other" => Reply::Other,
                error => Reply::Error(error.into()),
            };
            wire.in_flight = wire.in_flight.saturating_sub(1);
            return session.on_reply(&reply, now);
        }
        Event::NoScript => {
            if session.resend(now).is_some() {
                wire.resent += 1;
                return Ok(());
            }
            wire.in_flight = wire.in_flight.saturating_sub(1);
            return session.on_reply(&Reply::Error("NOSCRIPT".into()), now);
        }
        Event::Confirm(is_ours) => {
            let channel = if is_ours { "channel" } else { "another" };
            return session.on_confirmation(channel, now);
        }
        Event::Message => session.on_message("0"),
        Event::Bytes => {
            session.link.liveness.on_bytes(now);
        }
    }
    Ok(())
}

/// Counts what is sent.
#[derive(Default)]
struct FakeWire {
    has_input: bool,
    sent: usize,
    in_flight: usize,
    resent: usize,
}

impl Transmit for FakeWire {
    fn send(&mut self, _: &Request) {
        self.sent += 1;
        self.in_flight += 1;
    }

    fn send_caching(&mut self) {}

    fn has_input(&self) -> bool {
        self.has_input
    }

    fn send_change(&mut self, _: &Subscription) {}
}

struct Counted {
    at: Tick,
    is_owed: AtomicBool,
    votes: Mutex<u32>,
}

struct Counter(Arc<Counted>);

impl VoteCounter for Counter {
    fn count(&self, _: usize, _: SlotVote, _: Tick) {
        *self.0.votes.lock() += 1;
    }

    fn owed_until(&self, _: usize) -> Option<Tick> {
        let is_owed = self.0.is_owed.load(Ordering::Relaxed);
        is_owed.then(|| self.0.at + OWED)
    }
}

fn request(verb: Verb, is_owed: bool) -> Arc<Request<Counter>> {
    let counted = Counted {
        at: monotonic(),
        is_owed: AtomicBool::new(is_owed && verb == Verb::Release),
        votes: Mutex::new(0),
    };
    Arc::new(Request::new(
        command(Kind::Mutex, verb, 1),
        monotonic(),
        Counter(Arc::new(counted)),
    ))
}

/// Returns a session with a connection whose first window is `window`.
fn connected(window: usize) -> Session {
    let mut session = session();
    session.connect(Duration::ZERO, None, true, window);
    session
}

/// Returns a session before its first dial.
fn session() -> Session {
    Session::new(Arc::new(mailbox()), config())
}

fn mailbox() -> Mailbox {
    Mailbox::new(0, MasterObserver::new(None, "m".into(), Membership::Stays))
}

fn config() -> MasterConfig {
    MasterConfig {
        connection_name: ConnectionName::fixture(),
        node_timeout: NodeTimeout::Fixed(TIMEOUT),
        connect_timeout: CONNECT,
        redial: Backoff::between(Duration::from_millis(20), Duration::from_secs(1)),
        servers: DistinctServers::new(1),
        quarantine: Quarantine::Off,
        quarantine_length: Duration::ZERO,
        health: HealthBoard::new(&Roster::new(["m".into()], Quorum::of(1)), None),
    }
}

use std::{
    future::ready,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use proptest::prelude::*;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    time::sleep,
};

use super::*;
use crate::{
    MasterSpec, MemoryMaster,
    clock::{monotonic, random_u64, tests::ByHand},
    core::{
        kind::{Access, LockKind},
        protocol::{Reply, Ticket, command::fixture::command},
        restart::Sign,
        time::ResponseTimeout,
        vote::{MasterSet, Quorum, Roster, Verb},
    },
    driver::round_handle::RoundHandle,
    machine::{
        Machine, Now, RoundId,
        claim::{Claim, step::Step},
        fixture::config,
        waiters::Topic,
    },
    master::Shared,
};

const TIMEOUT: Duration = Duration::from_millis(50);
const CONNECT: Duration = Duration::from_secs(1);
const OWED: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
enum Event {
    Bytes,
    Confirm(bool),
    Message,
    NoScript,
    Post { verb: Verb, is_owed: bool },
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
    let mut rig = Rig::connected(window);
    let mut posted = Vec::new();
    let mut is_broken = false;
    for (gap, event) in events {
        for _ in 0..gap {
            ByHand::pass(Duration::from_millis(1));
            is_broken |= rig.poll();
        }
        is_broken |= apply(event, &mut rig, &mut posted).is_err();
        prop_assert!(rig.wire.in_flight <= Link::MOST_IN_WINDOW);
        if is_broken {
            break;
        }
        // Each command is sent at most twice.
        prop_assert!(rig.wire.resent <= posted.len());
        for (round, deadline) in &posted {
            prop_assert!(*deadline > monotonic() || rig.has_vote(*round));
        }
    }
    rig.step(|session, cx, _| session.disconnect(cx, &"broken".into(), false));
    for (round, _) in &posted {
        prop_assert!(rig.has_vote(*round));
    }
    // Every request ends, and with its round the round that it undoes.
    rig.step(|session, cx, _| session.close(cx));
    for (round, _) in posted {
        rig.machine.drop_round(round);
    }
    let Machine { rounds, claims, .. } = &rig.machine;
    prop_assert_eq!((rounds.len(), claims.len()), (0, 0));
    prop_assert_eq!(rounds.pending_until(), None);
    Ok(())
}

/// A process that was stalled during a dial has measured a long round trip.
#[test]
fn a_stall_during_the_dial_does_not_make_a_connection_patient() {
    let _clock = ByHand::start();
    let mut rig = Rig::new();
    rig.connect(60 * CONNECT, None, 1);
    rig.ask(Verb::Acquire, false);
    while !rig.poll() {
        ByHand::pass(Duration::from_millis(1));
        assert!(ByHand::elapsed() < 7 * CONNECT);
    }
}

/// This process was stalled while the reply was in its socket. The master has kept up.
#[test]
fn a_stall_fails_no_command_that_waits_for_room() {
    let _clock = ByHand::start();
    let mut rig = Rig::connected(1);
    let [_, second] = [(); 2].map(|()| rig.ask(Verb::Acquire, false));
    ByHand::set(TIMEOUT * 2);
    rig.send();
    rig.reply(&Reply::Ok).unwrap();
    assert!(rig.send());
    assert_eq!(rig.votes(second), 0);
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
    let roster = roster();
    let shared = Arc::new(Shared::new(roster, config(TIMEOUT)));
    let supervisor =
        MasterSpec::with_connector("redis://late", connect).open(0, "n".to_owned(), &shared);
    let command = command(LockKind::Mutex, Verb::Acquire, 1);
    let round = shared.with(|machine, now| machine.ask(command, None, now));
    tokio::join!(supervisor, async {
        sleep(TIMEOUT * 2).await;
        shared.lock(Machine::abandon);
    });
    let round = RoundHandle::new(&shared, round);
    assert_eq!(round.voted(0).await, Vote::Grant); // a late answer would not count
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

#[test]
fn a_server_under_two_addresses_is_refused() {
    let roster = Roster::new(["a:1", "b:1"].map(Arc::from), Quorum::of(2));
    let mut machine = Machine::new(roster, config(TIMEOUT), monotonic());
    let mut meet = |master, run_id| machine.meet(master, run_id);
    meet(0, "a").unwrap();
    meet(1, "b").unwrap();
    assert_eq!(meet(1, "a"), Err(0));
    // The servers have swapped addresses.
    meet(0, "b").unwrap();
    meet(1, "a").unwrap();
    // Server b has restarted.
    meet(0, "c").unwrap();
    assert!(meet(1, "c").is_err());
    meet(0, "c").unwrap();
}

/// A deadline that is always "now" would make the supervisor poll every millisecond, and would
/// never be judged.
#[test]
fn a_release_that_is_no_longer_owed_sets_no_timer() {
    let _clock = ByHand::start();
    let mut rig = Rig::connected(1);
    rig.ask(Verb::Release, true);
    let (round, release) = rig.request(Verb::Release, true);
    rig.step(|session, _, _| session.given_up.push(release));
    rig.machine.disown(round);
    assert!(!rig.step(|session, _, _| session.owed.is_empty()));
    rig.send();
    assert!(rig.step(|session, _, _| session.owed.is_empty()));
    assert!(rig.next_wake() > Some(monotonic()));
}

/// After an error reply, releases are sent one at a time, each after a pause, until one succeeds.
#[test]
fn owed_releases_are_paced_by_the_replies() {
    let _clock = ByHand::start();
    let mut rig = Rig::connected(Link::WINDOW);
    for _ in 0..100 {
        rig.ask(Verb::Release, true);
    }
    let mut answer = |error: bool, until: u64| {
        let before = rig.wire.sent;
        while ByHand::elapsed() < Duration::from_millis(until) {
            while rig.wire.in_flight > 0 {
                rig.wire.in_flight -= 1;
                let reply = if error {
                    Reply::Error("OOM".into())
                } else {
                    Reply::Int(1)
                };
                rig.reply(&reply).unwrap();
                rig.send();
            }
            ByHand::pass(Duration::from_millis(1));
            assert!(!rig.poll());
        }
        rig.wire.sent - before
    };
    let resent = answer(true, 10_000);
    assert!((10..=40).contains(&resent), "{resent}");
    assert_eq!(answer(false, 11_100), 100);
}

/// A master that answers one release after the other gets all of them. Releases that wait have not
/// failed, however many there are. Other commands fail if they are not sent in time.
#[test]
fn releases_that_wait_for_room_have_not_failed() {
    let _clock = ByHand::start();
    let mut rig = Rig::connected(Link::WINDOW);
    for _ in 0..50_000 {
        rig.ask(Verb::Release, true);
    }
    let acquisition = rig.ask(Verb::Acquire, false);
    for at in 1..=1_000 {
        ByHand::set(Duration::from_millis(at));
        for _ in 0..rig.wire.in_flight.min(100) {
            rig.wire.in_flight -= 1;
            rig.reply(&Reply::Int(1)).unwrap();
        }
        assert!(!rig.poll());
    }
    assert_eq!(rig.wire.sent, 50_000);
    assert_eq!(rig.votes(acquisition), 1);
    // If the releases were owed, they would be sent once more.
    assert!(rig.session().is_empty());
}

/// A late release gets its vote before it is sent. After that, it is owed, and sent like other owed
/// releases.
#[test]
fn a_late_release_gets_its_vote_and_is_owed() {
    let _clock = ByHand::start();
    let mut rig = Rig::connected(1);
    let releases = [(); 4].map(|()| rig.ask(Verb::Release, true));
    let advance = |until: Duration, rig: &mut Rig| {
        while ByHand::elapsed() < until {
            ByHand::pass(Duration::from_millis(1));
            rig.poll();
        }
        let session = rig.session();
        let left = (session.late.len(), session.owed.is_empty());
        (rig.wire.sent, left)
    };
    assert_eq!(advance(TIMEOUT, &mut rig), (1, (3, true)));
    rig.machine.disown(releases[2]);
    assert_eq!(advance(TIMEOUT + CONNECT, &mut rig), (1, (0, false)));
    for release in &releases[1..] {
        assert_eq!(rig.votes(*release), 1);
    }
    // The release that is no longer owed is not sent.
    for sent in [2, 3, 3] {
        rig.reply(&Reply::Int(1)).unwrap();
        let until = ByHand::elapsed() + TIMEOUT;
        assert_eq!(advance(until, &mut rig).0, sent);
        if sent == 3 && rig.session().is_empty() {
            break;
        }
    }
    assert!(rig.session().is_empty());
}

/// The acquisition was not sent, so the master has nothing to release. Both are given up in one
/// step.
#[test]
fn a_release_is_not_owed_if_its_acquisition_was_not_sent() {
    for is_lost in [false, true] {
        let _clock = ByHand::start();
        let mut rig = Rig::connected(1);
        rig.ask(Verb::Acquire, false); // the only one for which the window has room
        let claim = rig.machine.claim_for(OWED, MasterSet::ALL, now());
        let leave =
            |claim: &mut Claim, step: &mut Step<'_>| claim.leave(step, Access::Exclusive, false).0;
        let release = rig.machine.step(claim, now(), leave);
        rig.settle();
        assert_eq!(rig.session().waiting.len(), 2);
        if is_lost {
            rig.step(|session, cx, _| session.disconnect(cx, &"broken".into(), false));
            rig.step(|session, cx, _| session.expire_unconnected(cx));
        } else {
            ByHand::set(TIMEOUT);
            rig.poll(); // gives up the acquisition
            rig.poll();
        }
        assert_eq!(rig.votes(release), 1, "{is_lost}");
        let session = rig.session();
        assert!(
            session.owed.is_empty() && session.late.is_empty(),
            "{is_lost}"
        );
    }
}

/// Requests wait for the first dial. While the master is down, requests fail at once, but releases
/// wait for the next connection. So do releases that were sent and have no reply.
#[test]
fn a_release_outlives_connections() {
    let _clock = ByHand::start();
    let mut rig = Rig::new();
    let acquisition = rig.post(Verb::Acquire, true);
    assert_eq!(rig.votes(acquisition), 0);
    rig.step(|session, cx, _| session.disconnect(cx, &"refused".into(), false));
    assert_eq!(rig.votes(acquisition), 1);

    for connection in 1..4 {
        for verb in [Verb::Acquire, Verb::Release] {
            let request = rig.post(verb, true);
            assert_eq!(rig.votes(request), 1);
        }
        rig.connect(Duration::ZERO, None, Link::WINDOW);
        let release = rig.post(Verb::Release, true);
        assert_eq!(rig.votes(release), 0);
        rig.wire.sent = 0;
        rig.send();
        assert_eq!(rig.wire.sent, 2 * connection);
        rig.step(|session, cx, _| session.disconnect(cx, &"broken".into(), false));
        assert_eq!(rig.votes(release), 1);
    }
}

/// A dial follows at once, and the release is sent again.
#[test]
fn a_release_outlives_a_connection_that_has_worked() {
    let _clock = ByHand::start();
    let mut rig = Rig::connected(Link::WINDOW);
    let release = rig.ask(Verb::Release, true);
    rig.step(|session, cx, _| session.disconnect(cx, &"broken".into(), true));
    assert_eq!(rig.votes(release), 1);
    rig.connect(Duration::ZERO, None, Link::WINDOW);
    rig.send();
    assert_eq!(rig.wire.sent, 2);
}

/// Something has arrived, perhaps the end of the stream. After a silence, it is read before
/// anything is sent, because the runtime may lag behind the socket.
#[test]
fn after_a_silence_nothing_is_sent_before_what_has_arrived_is_read() {
    for (silence, sent) in [(CONNECT - TIMEOUT, 1), (CONNECT, 0)] {
        let _clock = ByHand::start();
        let mut rig = Rig::connected(Link::WINDOW);
        ByHand::set(silence);
        rig.wire.has_input = true;
        let request = rig.ask(Verb::Acquire, false);
        assert_eq!(rig.wire.sent, sent, "{silence:?}");
        assert_eq!(rig.next_wake(), Some(monotonic() + TIMEOUT));
        rig.wire.has_input = false;
        rig.send();
        assert_eq!((rig.wire.sent, rig.votes(request)), (1, 0));
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
        let mut rig = Rig::connected(Link::WINDOW);
        ByHand::set(silence);
        let request = rig.post(verb, false);
        let start = monotonic();
        while !rig.poll() {
            ByHand::pass(Duration::from_millis(1));
        }
        assert_eq!(monotonic().since(start), TIMEOUT * timeouts);
        let late = Failure::TimedOut {
            after: TIMEOUT,
            round_trip: Duration::ZERO,
            silence: shown,
        };
        assert_eq!(rig.cast, [(request, Vote::Fail(late))]);
    }
}

/// Returns a connection with a measured timeout, over which `count` commands were sent.
fn measured(round_trip: u64, count: usize) -> Rig {
    ByHand::set(Duration::ZERO);
    let mut rig = Rig::new();
    Arc::make_mut(&mut rig.session().config).response_timeout = ResponseTimeout::Measured;
    rig.connect(Duration::from_millis(round_trip), None, Link::WINDOW);
    post(count, &mut rig);
    rig
}

fn post(count: usize, rig: &mut Rig) {
    for _ in 0..count {
        rig.post(Verb::Acquire, false);
    }
    rig.send();
}

/// Lets the time pass, and returns the timeout after an answer.
fn timeout_after(time: u64, rig: &mut Rig) -> u128 {
    for _ in 0..time {
        ByHand::pass(Duration::from_millis(1));
        assert!(!rig.poll());
    }
    rig.reply(&Reply::Ok).unwrap();
    rig.session().response_timeout().unwrap().as_millis()
}

#[test]
fn one_answer_of_a_round_trip_is_measured_even_if_it_is_late() {
    let _clock = ByHand::start();
    let mut rig = measured(1, 128);
    assert_eq!(timeout_after(60, &mut rig), 68);
    assert_eq!(timeout_after(0, &mut rig), 68);
    post(1, &mut rig); // only its answer is measured next
    for _ in 0..126 {
        assert_eq!(timeout_after(0, &mut rig), 68);
    }
    assert_eq!(timeout_after(60, &mut rig), 111);
}

#[test]
fn a_stall_of_this_process_and_a_command_that_was_sent_again_are_not_measured() {
    let _clock = ByHand::start();
    let mut rig = measured(1, 2);
    ByHand::set(Duration::from_millis(300));
    assert_eq!(timeout_after(0, &mut rig), 50);
    let due = rig.next_wake().unwrap();
    let liveness = &mut rig.session().link.liveness;
    assert_eq!(liveness.judge_deadline(due, monotonic()), None); // the stall is noticed
    assert_eq!(timeout_after(30, &mut rig), 50);
    post(1, &mut rig);
    rig.session().resend(monotonic()).unwrap();
    assert_eq!(timeout_after(60, &mut rig), 50);
}

/// The master gets no requests after 150 ms, and its connection is given up after half a second.
#[test]
fn a_master_that_is_silent_has_half_a_second_for_its_first_answer() {
    let _clock = ByHand::start();
    let mut rig = measured(1, 1);
    for at in 1..500 {
        ByHand::set(Duration::from_millis(at));
        assert!(!rig.poll());
        if [100, 151, 450].contains(&at) {
            post(1, &mut rig);
        }
        if at == 450 {
            assert_eq!(rig.wire.sent, 2);
            rig.reply(&Reply::Ok).unwrap();
            post(1, &mut rig);
            assert_eq!(rig.wire.sent, 3);
        }
    }
    let mut rig = measured(1, 1);
    while !rig.poll() {
        ByHand::pass(Duration::from_millis(1));
    }
    assert_eq!(ByHand::elapsed(), Duration::from_millis(500));
}

/// What was sent fails, and is not sent again. What was not sent waits for one dial.
#[test]
fn a_request_that_was_not_sent_waits_for_the_first_dial() {
    for is_dialled in [true, false] {
        let _clock = ByHand::start();
        let mut rig = Rig::connected(1);
        let mut requests = Vec::new();
        let votes = |rig: &Rig, requests: &[RoundId]| {
            let votes = requests.iter().map(|request| rig.votes(*request));
            (rig.wire.sent, Vec::from_iter(votes))
        };
        requests.push(rig.post(Verb::Acquire, false)); // the only one for which the window has room
        requests.push(rig.post(Verb::Acquire, false));
        rig.send();
        rig.step(|session, cx, _| session.disconnect(cx, &"broken".into(), true));
        assert!(!rig.session().health.is_connected());
        requests.push(rig.post(Verb::Acquire, false));
        assert_eq!(votes(&rig, &requests), (1, vec![1, 0, 0]));
        if is_dialled {
            rig.connect(Duration::ZERO, None, Link::WINDOW);
            rig.send();
            assert_eq!(votes(&rig, &requests), (3, vec![1, 0, 0]));
        } else {
            rig.step(|session, cx, _| session.disconnect(cx, &"refused".into(), false));
            assert_eq!(votes(&rig, &requests), (1, vec![1, 1, 1]));
            let late = rig.post(Verb::Acquire, false);
            assert_eq!(rig.votes(late), 1);
        }
    }
}

/// A request waits for at most one response timeout. After that time, a release is owed.
#[test]
fn the_wait_for_a_dial_ends_in_time() {
    let _clock = ByHand::start();
    let mut rig = Rig::connected(Link::WINDOW);
    ByHand::set(CONNECT);
    rig.step(|session, cx, _| session.disconnect(cx, &"broken".into(), true));
    let requests = [Verb::Acquire, Verb::Release].map(|verb| rig.post(verb, true));
    let expire = |rig: &mut Rig| {
        rig.step(|session, cx, _| session.expire_unconnected(cx));
        rig.step(|session, cx, _| session.next_of_backlog(cx))
    };
    assert_eq!(expire(&mut rig), Some(monotonic() + TIMEOUT));
    for (elapsed, count) in [(TIMEOUT / 2, 0), (TIMEOUT, 1)] {
        ByHand::set(CONNECT + elapsed);
        assert!(expire(&mut rig).is_some());
        assert_eq!(requests.map(|request| rig.votes(request)), [count; 2]);
    }
    let session = rig.session();
    assert!(session.waiting.is_empty() && session.late.is_empty());
    rig.connect(Duration::ZERO, None, Link::WINDOW);
    rig.send();
    assert_eq!(rig.wire.sent, 1);
    assert_eq!(requests.map(|request| rig.votes(request)), [1; 2]);
}

/// The next dial has found that the master may have forgotten locks.
#[test]
fn a_request_that_waited_for_a_dial_obeys_the_quarantine() {
    let _clock = ByHand::start();
    let mut rig = Rig::connected(Link::WINDOW);
    rig.step(|session, cx, _| session.disconnect(cx, &"broken".into(), true));
    let request = rig.post(Verb::Acquire, false);
    let (age, sign) = (Duration::ZERO, Sign::Restarted);
    rig.connect(Duration::ZERO, Some(DataLoss { age, sign }), Link::WINDOW);
    rig.send();
    assert_eq!((rig.wire.sent, rig.votes(request)), (0, 1));
}

/// Only a limited number of requests wait for the first dial.
#[test]
fn the_number_of_requests_that_wait_is_bounded() {
    let _clock = ByHand::start();
    let mut rig = Rig::new();
    let requests = (0..Session::MOST_WAITING + 10).map(|_| rig.post(Verb::Acquire, false));
    let requests = Vec::from_iter(requests);
    let (waiting, failed) = requests.split_at(Session::MOST_WAITING);
    assert!(!waiting.iter().any(|request| rig.has_vote(*request)));
    assert!(failed.iter().all(|request| rig.has_vote(*request)));
    let release = rig.post(Verb::Release, true);
    assert_eq!(rig.votes(release), 0);
    assert_eq!(rig.session().waiting.len(), Session::MOST_WAITING + 1);
}

/// Requests that would take or keep a lock are not sent, even if they were posted before the
/// quarantine began.
#[test]
fn a_quarantined_master_gets_only_releases() {
    let _clock = ByHand::start();
    let mut rig = Rig::new();
    let (age, sign) = (Duration::ZERO, Sign::Earlier);
    let requests = [Verb::Acquire, Verb::Extend, Verb::Release]
        .map(|verb| rig.post(verb, verb == Verb::Release));
    rig.connect(Duration::ZERO, Some(DataLoss { age, sign }), Link::WINDOW);
    rig.send();
    let votes = requests.map(|request| rig.votes(request));
    assert_eq!((rig.wire.sent, votes), (1, [1, 1, 0]));
}

/// If there are too many releases, the oldest one is given up. The log says so once.
#[test]
fn the_number_of_owed_releases_is_bounded() {
    let _clock = ByHand::start();
    let mut rig = Rig::new();
    let (mut owed, mut ended) = (Owed::default(), Vec::new());
    let (_, oldest) = rig.request(Verb::Release, true);
    assert!(!owed.push(oldest.clone(), &mut ended));
    for _ in 0..32_767 {
        assert!(!owed.push(rig.request(Verb::Release, true).1, &mut ended));
    }
    assert!(ended.is_empty());
    for must_log in [true, false] {
        let (_, release) = rig.request(Verb::Release, true);
        assert_eq!(owed.push(release, &mut ended), must_log);
    }
    assert!(ended.len() == 2 && Arc::ptr_eq(&ended[0], &oldest));
    ByHand::set(Duration::from_secs(61));
    rig.step(|_, cx, _| owed.expire(cx, &mut ended));
    assert!(owed.is_empty());
    assert_eq!(ended.len(), 32_770);
}

/// A machine with one master, and the connection to that master.
struct Rig {
    machine: Machine,
    wire: FakeWire,
    /// The votes that were cast, each with its round.
    cast: Vec<(RoundId, Vote)>,
}

impl Rig {
    /// Returns a machine before its first dial.
    fn new() -> Self {
        Self {
            machine: Machine::new(roster(), config(TIMEOUT), monotonic()),
            wire: FakeWire::default(),
            cast: Vec::new(),
        }
    }

    /// Returns a machine with a connection whose first window is `window`.
    fn connected(window: usize) -> Self {
        let mut rig = Self::new();
        rig.connect(Duration::ZERO, None, window);
        rig
    }

    fn connect(&mut self, round_trip: Duration, loss: Option<DataLoss>, window: usize) {
        self.step(|session, cx, _| {
            session.connect(cx, round_trip, loss, true);
            session.link.window = window;
        });
    }

    fn session(&mut self) -> &mut Session {
        &mut self.machine.sessions[0]
    }

    /// Lets the session take a step, and counts the votes that it casts.
    fn step<T>(&mut self, act: impl FnOnce(&mut Session, &mut Cx<'_>, &mut FakeWire) -> T) -> T {
        let (machine, wire) = (&mut self.machine, &mut self.wire);
        let done = machine.serve(0, now(), |session, cx| act(session, cx, wire));
        self.settle();
        done
    }

    fn settle(&mut self) {
        let cast = self.machine.sessions[0].cast.iter();
        let cast = cast.map(|(to, vote)| (to.round, vote.vote().clone()));
        self.cast.extend(cast);
        self.machine.settle(now());
        assert!(self.machine.sessions[0].cast.is_empty());
    }

    /// Posts a command. It may fail at once.
    fn post(&mut self, verb: Verb, is_owed: bool) -> RoundId {
        let owed = owed(verb, is_owed);
        let command = command(LockKind::Mutex, verb, 1);
        let round = self.machine.ask_any(command, owed, now());
        self.settle();
        if let Some(vote) = self.machine.rounds.of(round).vote(0) {
            self.cast.push((round, vote.clone()));
        }
        round
    }

    /// Posts a command, and sends what there is to send.
    fn ask(&mut self, verb: Verb, is_owed: bool) -> RoundId {
        let round = self.post(verb, is_owed);
        self.send();
        round
    }

    /// Returns a request that is not posted.
    fn request(&mut self, verb: Verb, is_owed: bool) -> (RoundId, Arc<Request>) {
        let (round, votes_to) = self.machine.open_any(verb, owed(verb, is_owed), now());
        self.settle();
        let command = command(LockKind::Mutex, verb, 1);
        let request = Request::new(command, monotonic(), votes_to);
        (round, Arc::new(request))
    }

    fn send(&mut self) -> bool {
        self.step(|session, cx, wire| session.send(cx, wire))
    }

    fn reply(&mut self, reply: &Reply<'_>) -> Result<(), Arc<str>> {
        let done = (self.machine).reply(0, reply, now(), &random_u64);
        self.settle();
        done
    }

    fn next_wake(&mut self) -> Option<Tick> {
        self.step(|session, cx, _| session.next_wake(cx))
    }

    /// Does one iteration of the supervisor's loop. Returns whether the connection must be given
    /// up.
    fn poll(&mut self) -> bool {
        self.send();
        let now = monotonic();
        if self.next_wake().is_none_or(|at| at > now) {
            return false;
        }
        self.step(|session, cx, _| session.expire(cx, now))
    }

    /// Returns the number of votes that were cast on a command.
    fn votes(&self, round: RoundId) -> usize {
        let votes = self.cast.iter().filter(|(to, _)| *to == round).count();
        assert_eq!(votes > 0, self.has_vote(round));
        votes
    }

    fn has_vote(&self, round: RoundId) -> bool {
        self.machine.rounds.of(round).vote(0).is_some()
    }
}

fn apply(event: Event, rig: &mut Rig, posted: &mut Vec<(RoundId, Tick)>) -> Result<(), Arc<str>> {
    match event {
        Event::Post { verb, is_owed } => {
            let (round, at) = (rig.ask(verb, is_owed), monotonic());
            let limit = match () {
                () if rig.session().waiting.is_empty() => TIMEOUT,
                () if owed(verb, is_owed).is_some() => CONNECT + TIMEOUT * 2,
                () => TIMEOUT * 2,
            };
            posted.push((round, at + limit));
        }
        Event::Subscribe => {
            let change = Subscription {
                channel: "channel".into(),
                begins: true,
            };
            rig.session().change = Some(change);
            rig.send();
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
            rig.wire.in_flight = rig.wire.in_flight.saturating_sub(1);
            return rig.reply(&reply);
        }
        Event::NoScript => {
            if rig.session().resend(monotonic()).is_some() {
                rig.wire.resent += 1;
                return Ok(());
            }
            rig.wire.in_flight = rig.wire.in_flight.saturating_sub(1);
            return rig.reply(&Reply::Error("NOSCRIPT".into()));
        }
        Event::Confirm(is_ours) => {
            let channel = if is_ours { "channel" } else { "another" };
            return rig.session().on_confirmation(channel, monotonic());
        }
        Event::Message => rig.step(|_, cx, _| cx.hear(&Topic::Turn(Ticket::of("0")))),
        Event::Bytes => rig.session().link.liveness.on_bytes(monotonic()),
    }
    Ok(())
}

/// The letters are events. `+`: a waiter with a ticket comes. `-`: one leaves. `k`: a waiter that
/// watches a key comes. `c`: there is a new connection.
#[test]
fn the_channel_is_subscribed_while_anyone_waits_for_a_turn() {
    let mut rig = Rig::connected(Link::WINDOW);
    let mut called = Vec::new();
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
        let machine = &mut rig.machine;
        match letter {
            '+' | 'k' => {
                let waiter = machine.waiters.add_alone(now().lease);
                let topic = match letter {
                    '+' => Topic::Turn(Ticket::new(step as u64, "u:1")),
                    _ => Topic::Key("r".into()),
                };
                machine.listen(waiter, &topic);
                called.extend(Some(waiter).filter(|_| letter == '+'));
            }
            '-' => machine.leave(called.pop().unwrap(), now()),
            _ => rig.connect(Duration::ZERO, None, Link::WINDOW),
        }
        rig.send();
        let expected = expected.map(|begins| ("quorlock:turn:u".into(), begins));
        let change = rig.wire.change.take();
        assert_eq!(change.map(|it| (it.channel, it.begins)), expected, "{step}");
    }
}

/// Counts what is sent.
#[derive(Default)]
struct FakeWire {
    change: Option<Subscription>,
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

    fn send_change(&mut self, change: &Subscription) {
        self.change = Some(change.clone());
    }
}

/// Returns the time for which a command is owed. Only a release is owed.
fn owed(verb: Verb, is_owed: bool) -> Option<Duration> {
    (is_owed && verb == Verb::Release).then_some(OWED)
}

fn now() -> Now {
    let monotonic = monotonic();
    Now {
        lease: monotonic.with(Duration::ZERO),
        monotonic,
    }
}

fn roster() -> Arc<Roster> {
    Roster::new(["m".into()], Quorum::of(1))
}

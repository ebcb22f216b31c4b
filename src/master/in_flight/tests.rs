#![expect(clippy::disallowed_methods, reason = "an origin for the clock")]

use std::{cell::Cell, sync::LazyLock, task::Context, task::Poll};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::{
    core::{
        command::{Verb, fixture::command},
        name::Kind,
        restart::RestartGuard,
        retry::Backoff,
        timeout::NodeTimeout,
    },
    master::{CountVotes, RestartTracker, supervisor::Connection},
};

const TIMEOUT: Duration = Duration::from_millis(50);

/// What happens to a connection, from the client or from the server.
#[derive(Clone, Debug)]
enum Event {
    Post {
        verb: Verb,
        is_owed: bool,
    },
    Listen,
    Reply(&'static str),
    /// The server does not know the script.
    NoScript,
    Confirm(bool),
    Message,
    Bytes,
}

fn any_event() -> impl Strategy<Value = Event> {
    let verb = prop::sample::select(vec![Verb::Acquire, Verb::Extend, Verb::Release]);
    let reply = prop::sample::select(vec!["ok", "1", "0", "nil", "-OOM no room", "text", "other"]);
    prop_oneof![
        6 => (verb, any::<bool>()).prop_map(|(verb, is_owed)| Event::Post { verb, is_owed }),
        1 => Just(Event::Listen),
        4 => reply.prop_map(Event::Reply),
        3 => Just(Event::NoScript),
        1 => any::<bool>().prop_map(Event::Confirm),
        1 => Just(Event::Message),
        1 => Just(Event::Bytes),
    ]
}

proptest! {
    /// Whatever a server sends or withholds, in whatever order: a command has its vote when the
    /// time to send it and the time to answer it are over, or the connection is broken.
    #[test]
    fn every_command_gets_a_vote_by_its_deadline(
        window in 1..6usize,
        events in prop::collection::vec((0..40u64, any_event()), 1..80),
    ) {
        set_clock(Duration::ZERO);
        let terms = terms();
        let mailbox = Mailbox::new(0, "m".into(), clock, TIMEOUT);
        let mut wire = Wire::default();
        let mut in_flight = InFlight::new(&mailbox, &terms, Duration::ZERO, window);
        let mut posted = Vec::new();
        let mut is_broken = false;
        for (gap, event) in events {
            for _ in 0..gap {
                set_clock(ELAPSED.get() + Duration::from_millis(1));
                is_broken |= turn(&mut in_flight, &mut wire);
            }
            is_broken |= happen(event, &mut in_flight, &mut wire, &mut posted).is_err();
            prop_assert!(wire.in_flight <= InFlight::MOST);
            if is_broken {
                break;
            }
            // Scripts are sent twice at most.
            prop_assert!(wire.again <= posted.len());
            for (ask, limit) in &posted {
                let BallotReply { at, votes, .. } = &*ask.counter.0;
                prop_assert!(*at + *limit > clock() || *votes.lock() > 0);
            }
        }
        mailbox.down_after(&mut in_flight, &"broken".into());
        for (ask, _) in &posted {
            prop_assert!(*ask.counter.0.votes.lock() > 0);
        }
    }
}

/// A release that is answered with an error is sent again after a pause, alone, until it succeeds.
#[test]
fn what_is_owed_is_paced_by_the_answers() {
    set_clock(Duration::ZERO);
    let terms = terms();
    let mailbox = Mailbox::new(0, "m".into(), clock, TIMEOUT);
    let mut wire = Wire::default();
    let mut in_flight = InFlight::new(&mailbox, &terms, Duration::ZERO, InFlight::WINDOW);
    let mut posted = Vec::new();
    for _ in 0..100 {
        let (verb, is_owed) = (Verb::Release, true);
        let post = Event::Post { verb, is_owed };
        happen(post, &mut in_flight, &mut wire, &mut posted).unwrap();
    }
    let mut answer = |error: bool, until: u64, wire: &mut Wire| {
        let before = wire.sent;
        while ELAPSED.get() < Duration::from_millis(until) {
            while wire.in_flight > 0 {
                wire.in_flight -= 1;
                let reply = if error {
                    Reply::Error("OOM")
                } else {
                    Reply::Int(1)
                };
                in_flight.answer(&reply, clock()).unwrap();
                in_flight.send_more(wire);
            }
            set_clock(ELAPSED.get() + Duration::from_millis(1));
            assert!(!turn(&mut in_flight, wire));
        }
        wire.sent - before
    };
    let again = answer(true, 10_000, &mut wire);
    assert!((10..=40).contains(&again), "{again}");
    assert_eq!(answer(false, 11_100, &mut wire), 100);
}

/// The oldest is given up for the newest, and the log says so once.
#[test]
fn what_is_owed_is_bounded() {
    set_clock(Duration::ZERO);
    let mut owed = Owed::new();
    let (oldest, is_owed) = (ask(Verb::Release, true), true);
    owed.push(oldest.clone());
    for _ in 0..32_767 {
        owed.push(ask(Verb::Release, is_owed));
    }
    assert_eq!(owed.expire(0, clock()).0.len(), 0);
    for is_news in [true, false] {
        owed.push(ask(Verb::Release, is_owed));
        let (gone, news) = owed.expire(0, clock());
        assert_eq!((gone.len(), news), (1, is_news));
    }
    assert_eq!(Arc::strong_count(&oldest), 1);
    set_clock(Duration::from_secs(61));
    assert_eq!(owed.expire(0, clock()).0.len(), 32_768);
    assert!(owed.is_empty());
}

/// One millisecond of the supervisor. Returns whether it gives the connection up.
fn turn(in_flight: &mut InFlight<'_>, wire: &mut Wire) -> bool {
    in_flight.send(wire, &mut Vec::new(), &mut Vec::new());
    let now = clock();
    if in_flight.next_expiry().is_none_or(|at| at > now) {
        return false;
    }
    in_flight.expire(now);
    in_flight.is_stuck(now)
}

fn happen(
    event: Event,
    in_flight: &mut InFlight<'_>,
    wire: &mut Wire,
    posted: &mut Vec<(Arc<Request<Counter>>, Duration)>,
) -> Result<(), Arc<str>> {
    let now = clock();
    match event {
        Event::Post { verb, is_owed } => {
            let ask = ask(verb, is_owed);
            let before = wire.sent;
            in_flight.send(wire, &mut vec![ask.clone()], &mut Vec::new());
            // Twice as long if it has to wait until it is sent.
            let is_sent = wire.sent > before;
            posted.push((ask, TIMEOUT * if is_sent { 1 } else { 2 }));
        }
        Event::Listen => {
            let change = Change {
                channel: "channel".into(),
                listen: true,
            };
            in_flight.send(wire, &mut Vec::new(), &mut vec![change]);
        }
        Event::Reply(reply) => {
            let reply = match reply {
                "ok" => Reply::Ok,
                "1" => Reply::Int(1),
                "0" => Reply::Int(0),
                "nil" => Reply::Nil,
                "text" => Reply::Text("held 5 1 0 somebody".into()),
                "other" => Reply::Other,
                error => Reply::Error(error),
            };
            wire.in_flight = wire.in_flight.saturating_sub(1);
            return in_flight.answer(&reply, now);
        }
        Event::NoScript => {
            #[cfg(feature = "redis")]
            if in_flight.again(now).is_some() {
                wire.again += 1;
                return Ok(());
            }
            wire.in_flight = wire.in_flight.saturating_sub(1);
            return in_flight.answer(&Reply::Error("NOSCRIPT"), now);
        }
        Event::Confirm(is_ours) => {
            let channel = if is_ours { "channel" } else { "another" };
            return in_flight.confirmed(channel, now);
        }
        Event::Message => in_flight.message("channel", "0"),
        Event::Bytes => {
            #[cfg(feature = "redis")]
            in_flight.on_bytes(now);
        }
    }
    Ok(())
}

/// Counts what is sent.
#[derive(Default)]
struct Wire {
    sent: usize,
    in_flight: usize,
    again: usize,
}

impl Connection for Wire {
    fn send(&mut self, _: &Request, _: usize) {
        self.sent += 1;
        self.in_flight += 1;
    }

    fn listen(&mut self, _: &str, _: bool) {}

    fn poll(&mut self, _: &mut Context<'_>, _: &mut InFlight<'_>) -> Poll<Arc<str>> {
        Poll::Pending
    }
}

struct BallotReply {
    at: Instant,
    is_owed: bool,
    votes: Mutex<u32>,
}

struct Counter(Arc<BallotReply>);

impl CountVotes for Counter {
    fn count(&self, _: usize, _: Vote, _: Instant) {
        *self.0.votes.lock() += 1;
    }

    fn owed_until(&self, _: usize) -> Option<Instant> {
        let ttl = Duration::from_secs(60);
        self.0.is_owed.then(|| self.0.at + ttl)
    }
}

fn ask(verb: Verb, is_owed: bool) -> Arc<Request<Counter>> {
    let ballot = BallotReply {
        at: clock(),
        is_owed: is_owed && verb == Verb::Release,
        votes: Mutex::new(0),
    };
    Arc::new(Request::new(
        command(Kind::Mutex, verb, 1),
        crate::core::master_set::MasterSet::NONE,
        clock(),
        Counter(Arc::new(ballot)),
    ))
}

fn terms() -> MasterConfig {
    MasterConfig {
        node_timeout: NodeTimeout::Fixed(TIMEOUT),
        connect_timeout: Duration::from_secs(1),
        redial: Backoff::between(Duration::from_millis(20), Duration::from_secs(1)),
        now: clock,
        random: || u64::MAX / 2,
        guarding: RestartTracker::new(RestartGuard::Off, false, clock),
        quarantine: Duration::ZERO,
        #[cfg(feature = "tls")]
        tls: None,
    }
}

thread_local! {
    static ELAPSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn set_clock(elapsed: Duration) {
    ELAPSED.set(elapsed);
}

fn clock() -> Instant {
    *ORIGIN + Duration::from_secs(3_600) + ELAPSED.get()
}

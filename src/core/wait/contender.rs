//! The way in which a waiter contends for a lock: when it asks, which master it asks first, and
//! when it gives way.

use std::{
    mem,
    time::{Duration, Instant},
};

use super::{
    false_reports::{Expiry, FalseReports},
    retry::Backoff,
    rivals::Rivals,
};
use crate::core::vote::{master_set::MasterSet, obstacle::Obstacle};

/// A waiter, from its first attempt to its last one. It is told of events, and says what
/// the waiter does [`Next`].
///
/// The clients that wait for a lock notice a release at about the same time. If all of them asked
/// all masters, each would get some masters, and none a majority. So if there are several such
/// clients, they ask one master first, and only the client that gets this master asks the others.
#[derive(Debug)]
pub(crate) struct Contender {
    /// The delay before a retry if no master says when the lock may be free.
    retry: Backoff,
    /// The delay before a retry if masters say earlier when the lock may be free.
    poll: Backoff,
    /// The last event. It led to the attempt that is under way, or to the last one.
    event: Event,
    /// The obstacle to the last attempt, and whether masters granted the lock for a moment.
    obstacle: Option<(mem::Discriminant<Obstacle>, bool)>,
    /// The number of attempts in a row that met this obstacle, without the first one.
    repeats: u32,
    false_reports: FalseReports,
    /// The time that the last attempt took.
    took: Duration,
    /// `true` if other clients are likely to make an attempt at the end of the wait, too.
    is_contested: bool,
}

/// Something that happens to a waiter, and leads to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The waiter has come.
    Came,
    /// Masters have reported a change. One of the masters in `first` may be asked first.
    Changed {
        first: MasterSet,
        /// `true` if one of them must be asked before the others.
        must_ask_first: bool,
    },
    /// The waiter has given way to the waiters of other processes.
    GaveWay,
    /// The waiter has left the lock to clients that poll.
    LeftToPollers,
    /// A guard of this process has released the lock.
    Released,
    /// The wait is over, and nothing has happened. The lock is likely to be free on these masters.
    Silence { free: MasterSet },
    /// The waiter before this one, in the same process, is done.
    Turn {
        /// `true` if a guard of this process has released the lock.
        is_released: bool,
    },
}

/// Something that a waiter does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Makes an attempt. Asks one of these masters before the others. If there are none, asks all
    /// masters at once.
    Ask(MasterSet),
    /// Lets the waiters of other processes go first, for this time. They need it to notice that the
    /// lock is free, and to ask for it.
    GiveWay(Duration),
    /// Leaves the lock to clients that poll, for this time.
    LeaveToPollers(Duration),
}

/// An attempt that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedAttempt<'a> {
    pub(crate) obstacle: &'a Obstacle,
    /// `true` if masters granted the lock for a moment, although another client holds it.
    pub(crate) took_some: bool,
    /// `true` if a majority of masters tell the waiter when the lock may be free.
    pub(crate) is_heard: bool,
    /// The expiry of the lock on the master whose reports count.
    pub(crate) expiry: Option<Expiry>,
    pub(crate) took: Duration,
}

/// A wait before the next attempt. Both times are counted from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The time during which no report of a master ends the wait.
    pub(crate) pause: Duration,
    /// The time after which the wait ends without an event. If `end` is not after `pause`, no event
    /// can end the wait.
    pub(crate) end: Duration,
}

impl Contender {
    /// The time that is added to a TTL to be sure that the key is gone. A key lives to the end of
    /// its last millisecond.
    const EXPIRY_MARGIN: Duration = Duration::from_millis(2);

    pub(crate) fn new(retry: Backoff, poll: Backoff) -> Self {
        Self {
            retry,
            poll,
            event: Event::Came,
            obstacle: None,
            repeats: 0,
            false_reports: FalseReports::default(),
            took: Duration::ZERO,
            is_contested: false,
        }
    }

    /// Returns what the waiter does after `event`. `hears` says whether a majority of masters
    /// report changes. The waiters of other processes probably have the same rights as this one.
    /// `pollers` is the time for which waiters leave the lock to clients that poll.
    pub(crate) fn on(
        &mut self,
        event: Event,
        rivals: &Rivals,
        hears: bool,
        pollers: Option<Duration>,
        now: Instant,
    ) -> Next {
        self.event = event;
        if let Some(time) = pollers
            && event != Event::LeftToPollers
        {
            return Next::LeaveToPollers(time);
        }
        let likely = |first| {
            if rivals.are_likely() {
                first
            } else {
                MasterSet::NONE
            }
        };
        Next::Ask(match event {
            Event::Released | Event::Turn { is_released: true }
                if rivals.is_run_over(hears, now) =>
            {
                return Next::GiveWay(self.time_to_give_way(hears));
            }
            Event::Came if rivals.are_certain() => MasterSet::ALL,
            Event::Changed {
                first,
                must_ask_first: true,
            } => first,
            Event::Changed { first, .. } => likely(first),
            Event::Silence { free } if self.is_contested => likely(free),
            // Others probably have the lock: the waiter before this one, or those who went first.
            Event::GaveWay | Event::LeftToPollers | Event::Turn { .. } => MasterSet::ALL,
            // The commands of this waiter come right after the release, so it gets all masters.
            Event::Released => MasterSet::NONE,
            Event::Came | Event::Silence { .. } => MasterSet::NONE,
        })
    }

    /// Notes in `rivals` the result of an attempt. If it was won, other clients still had the lock
    /// on the masters in `Ok`.
    pub(crate) fn note(
        &self,
        result: Result<MasterSet, &Obstacle>,
        rivals: &mut Rivals,
        now: Instant,
    ) {
        match (self.event, result.is_ok()) {
            (Event::Released | Event::Turn { .. }, true) => rivals.note_hand_over(now),
            (Event::GaveWay, is_won) => rivals.note_way(is_won),
            // The waiter may have been refused because of a guard of this process.
            (Event::Turn { .. }, false) => {}
            (Event::Came | Event::Changed { .. } | Event::Silence { .. }, false) => {}
            (Event::Came | Event::Changed { .. } | Event::Silence { .. }, true)
            | (Event::Released, false)
            | (Event::LeftToPollers, _) => rivals.end_run(),
        }
        match (self.event, result) {
            (_, Err(Obstacle::Split)) | (Event::Changed { .. }, Err(Obstacle::HeldFor(_))) => {
                rivals.note_met(true);
            }
            (Event::Changed { .. } | Event::Came | Event::Silence { .. }, Ok(held)) => {
                rivals.note_met(!held.is_empty());
            }
            // These attempts do not tell.
            (Event::GaveWay | Event::LeftToPollers | Event::Released | Event::Turn { .. }, _)
            | (Event::Came | Event::Changed { .. } | Event::Silence { .. }, Err(_)) => {}
        }
    }

    /// Returns whether the result of an attempt shows that clients of other processes want the
    /// lock. A lock that waiters of this process release to each other shows none.
    pub(crate) fn shows_others(&self, result: Result<MasterSet, &Obstacle>) -> bool {
        let was_held = (self.obstacle)
            .is_some_and(|(obstacle, _)| obstacle == mem::discriminant(&Obstacle::HeldFor(None)));
        match (self.event, result) {
            (_, Err(Obstacle::Split)) => true,
            // Another process has released the lock. A release by this one is another event.
            (Event::Changed { .. } | Event::Silence { .. }, Ok(_)) if was_held => true,
            (_, Ok(held)) => !held.is_empty(),
            (_, Err(_)) => false,
        }
    }

    /// Returns the wait after an attempt that `failed`.
    pub(crate) fn wait_after(&mut self, failed: FailedAttempt<'_>, random: u64) -> Wait {
        if let Some(expiry) = failed.expiry {
            let is_reported = matches!(self.event, Event::Changed { .. });
            self.false_reports.note(expiry, is_reported);
        }
        self.took = failed.took;
        self.note_obstacle(&failed);
        let delay = self.retry.delay(self.repeats, random);
        let (pause, end, is_contested) = match failed.obstacle {
            Obstacle::NoQuorum
            | Obstacle::OtherKind
            | Obstacle::OwnerBusy
            | Obstacle::TooSlow(_) => (delay, delay, false),
            // No majority can vote before the quarantine ends. The delay after the quarantine is
            // random, so waiters do not all come back at once.
            Obstacle::Quarantined(left) => (delay, left.saturating_add(delay), true),
            // A waiter that came back at once would contend with the same clients again.
            Obstacle::Queued | Obstacle::Split => (delay, delay, true),
            Obstacle::HeldFor(left) => {
                let poll = if failed.is_heard {
                    self.poll.spread(random)
                } else {
                    delay
                };
                let expiry = left.map_or(Duration::MAX, |left| {
                    left.saturating_add(Self::EXPIRY_MARGIN)
                });
                let end = expiry.min(poll);
                // Several clients may each take some masters and give them back. A client that came
                // back at once would contend with the same clients again.
                let pause = if failed.took_some {
                    delay
                } else {
                    self.pause_when_refused(end)
                };
                (pause, end, expiry <= poll)
            }
        };
        self.is_contested = is_contested;
        Wait { pause, end }
    }

    /// Returns the wait of a waiter in the queues of a fair lock. It hears from the masters, and
    /// polls to keep its position.
    ///
    /// Waiters that split the votes give back their grants, and so call each other. Without a
    /// pause, they would do that at the speed of the network.
    pub(super) fn wait_in_queue(&mut self, obstacle: &Obstacle, random: u64) -> Wait {
        let failed = FailedAttempt {
            obstacle,
            took_some: false,
            is_heard: true,
            expiry: None,
            took: Duration::ZERO,
        };
        let poll = self.poll.spread(random);
        let end = self.wait_after(failed, random).end.min(poll);
        let pause = match obstacle {
            Obstacle::Split => end / 2,
            _ => Duration::ZERO,
        };
        Wait { pause, end }
    }

    /// Counts the attempts in a row that met the same obstacle.
    fn note_obstacle(&mut self, failed: &FailedAttempt<'_>) {
        let obstacle = Some((mem::discriminant(failed.obstacle), failed.took_some));
        self.repeats = if self.obstacle == obstacle {
            self.repeats.saturating_add(1)
        } else {
            0
        };
        self.obstacle = obstacle;
    }

    /// Returns the pause of a waiter that is refused because others hold the lock. It limits the
    /// attempts while others release the lock and take it again, and even more while masters report
    /// changes that did not happen.
    fn pause_when_refused(&self, end: Duration) -> Duration {
        if self.repeats < 3 {
            return Duration::ZERO;
        }
        let growth = 2_u32.saturating_pow(self.false_reports.count());
        let pause = (self.retry.least() / 10).saturating_mul(growth);
        pause.min(self.poll.least()).min(end)
    }

    /// Returns for how long this waiter gives way.
    fn time_to_give_way(&self, hears: bool) -> Duration {
        const LEAST: Duration = Duration::from_millis(5);
        const MOST: Duration = Duration::from_millis(100);
        if hears {
            (self.took * 2).clamp(LEAST, MOST)
        } else {
            self.retry.most().min(self.poll.least()) + self.took
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// A contender and its rivals.
    struct Story {
        contender: Contender,
        rivals: Rivals,
        hears: bool,
        pollers: Option<Duration>,
        now: Instant,
    }

    impl Story {
        /// Delays are in the middle of their ranges: retries come after 15 ms, 25 ms and later 105
        /// ms, and polls after 1 s.
        const RANDOM: u64 = u64::MAX / 2 + 1;

        fn new() -> Self {
            let retry = Backoff::new(millis(10), millis(200)).unwrap();
            let poll = Backoff::new(millis(500), millis(1_500)).unwrap();
            Self {
                contender: Contender::new(retry, poll),
                rivals: Rivals::default(),
                hears: true,
                pollers: None,
                #[expect(clippy::disallowed_methods, reason = "an origin for the stories")]
                now: Instant::now(),
            }
        }

        /// Checks the answers to the events of a story, one on each line.
        fn check(&mut self, story: &str) {
            for line in story.trim().lines() {
                let (event, expected) = line.split_once("->").unwrap_or((line, ""));
                let words: Vec<_> = event.split_whitespace().collect();
                assert_eq!(self.tell(&words), expected.trim(), "{line} in {story}");
            }
        }

        fn tell(&mut self, words: &[&str]) -> String {
            self.step(match *words {
                ["came"] => Event::Came,
                ["gave", "way"] => Event::GaveWay,
                ["left"] => Event::LeftToPollers,
                ["released"] => Event::Released,
                ["turn"] => Event::Turn { is_released: false },
                ["turn", "released"] => Event::Turn { is_released: true },
                ["silence", free] => Event::Silence {
                    free: masters(free),
                },
                ["changed", first, ref rest @ ..] => Event::Changed {
                    first: masters(first),
                    must_ask_first: !rest.is_empty(),
                },
                ["won", ref beside @ ..] => {
                    let held = beside.first().map_or(MasterSet::NONE, |held| masters(held));
                    self.contender.note(Ok(held), &mut self.rivals, self.now);
                    return String::new();
                }
                ["later", time] => {
                    self.now += millis(time.parse().unwrap());
                    return String::new();
                }
                [reason, ref rest @ ..] => return self.fail(reason, rest),
                [] => panic!("an empty line"),
            })
        }

        fn step(&mut self, event: Event) -> String {
            match (self.contender).on(event, &self.rivals, self.hears, self.pollers, self.now) {
                Next::Ask(MasterSet::NONE) => "all at once".to_owned(),
                Next::Ask(MasterSet::ALL) => "any first".to_owned(),
                Next::Ask(first) => {
                    let first = (0..9_u8).filter(|master| first.contains((*master).into()));
                    let digits = first.map(|master| char::from(b'0' + master));
                    format!("{} first", digits.collect::<String>())
                }
                Next::GiveWay(time) => format!("way {}", time.as_millis()),
                Next::LeaveToPollers(time) => format!("leave {}", time.as_millis()),
            }
        }

        /// Notes a failed attempt that took 20 ms. Returns the pause and the end of the wait.
        fn fail(&mut self, reason: &str, rest: &[&str]) -> String {
            let left = |rest: &[&str]| rest.first()?.parse().ok().map(millis);
            let obstacle = match reason {
                "busy" => Obstacle::OwnerBusy,
                "held" => Obstacle::HeldFor(left(rest)),
                "no-quorum" => Obstacle::NoQuorum,
                "other-kind" => Obstacle::OtherKind,
                "quarantine" => Obstacle::Quarantined(left(rest).unwrap()),
                "queued" => Obstacle::Queued,
                "split" => Obstacle::Split,
                "too-slow" => Obstacle::TooSlow(millis(9)),
                other => panic!("{other} is no reason"),
            };
            let contender = &mut self.contender;
            contender.note(Err(&obstacle), &mut self.rivals, self.now);
            let left = if let Obstacle::HeldFor(left) = obstacle {
                left
            } else {
                None
            };
            let expiry = Expiry::new(0, left, self.now, self.now);
            let failed = FailedAttempt {
                obstacle: &obstacle,
                took_some: rest.contains(&"took"),
                is_heard: !rest.contains(&"unheard"),
                expiry: rest.contains(&"seen").then_some(expiry),
                took: millis(20),
            };
            let wait = contender.wait_after(failed, Self::RANDOM);
            format!("{}..{}", wait.pause.as_millis(), wait.end.as_millis())
        }
    }

    /// Returns the masters with these digits.
    fn masters(digits: &str) -> MasterSet {
        digits
            .bytes()
            .map(|digit| usize::from(digit - b'0'))
            .collect()
    }

    #[test]
    fn the_wait_depends_on_the_obstacle_and_on_how_often_it_was_met() {
        for story in [
            "no-quorum -> 15..15 \n no-quorum -> 25..25 \n split -> 15..15",
            "other-kind -> 15..15",
            "busy -> 15..15 \n busy -> 25..25",
            "too-slow -> 15..15",
            "queued -> 15..15",
            "quarantine 3000 -> 15..3015",
            "split -> 15..15 \n split -> 25..25 \n split -> 45..45 \n split -> 85..85",
            "held -> 0..1000",
            "held 700 -> 0..702",
            "held 7000 -> 0..1000",
            "held unheard -> 0..15 \n held unheard -> 0..25",
            "held 7 unheard -> 0..9",
            // The lock is released and taken again.
            "held -> 0..1000 \n held -> 0..1000 \n held -> 0..1000 \n held -> 1..1000",
            // Others took some masters, too.
            "held took -> 15..1000 \n held took -> 25..1000 \n held -> 0..1000",
        ] {
            Story::new().check(story);
        }
    }

    #[test]
    fn false_reports_lengthen_the_pause() {
        let mut story = Story::new();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            story.tell(&["changed", "0"]);
            pauses.push(story.tell(&["held", "9000", "seen"]));
        }
        let expected = [0, 0, 0, 8, 16, 32, 64, 128, 256, 500, 500, 500];
        assert_eq!(pauses, expected.map(|pause| format!("{pause}..1000")));
        story.check("held 100 -> 102..102"); // no later than the expiry
    }

    #[test]
    fn a_waiter_asks_one_master_first_if_it_expects_rivals() {
        for story in [
            "came -> all at once \n changed 12 -> all at once \n silence 12 -> all at once",
            "changed 12 must -> 12 first",
            "turn -> any first",
            "released -> all at once",
            // A split vote shows a rival, and so does a lock that is taken just after its release.
            "split -> 15..15 \n silence 012 -> 012 first \n released -> all at once",
            "changed 1 -> all at once \n held -> 0..1000 \n changed 1 -> 1 first",
            "came -> all at once \n held -> 0..1000 \n changed 1 -> all at once",
            "came -> all at once \n won 2 \n came -> any first",
            "released -> all at once \n won 2 \n came -> all at once",
            // The time at which a lock expires is known to all, and the time of a poll is not.
            "split -> 15..15 \n held 700 -> 0..702 \n silence 12 -> 12 first",
            "split -> 15..15 \n held 7000 -> 0..1000 \n silence 12 -> all at once",
        ] {
            Story::new().check(story);
        }
    }

    #[test]
    fn a_waiter_gives_way_after_a_run() {
        let mut story = Story::new();
        for _ in 0..8 {
            story.check("released -> all at once \n won");
        }
        story.check("turn -> any first \n released -> way 5 \n gave way -> any first");
        story.check("held -> 0..1000 \n released -> all at once");
        // A run also ends after some time. The rivals need more time if attempts are slow.
        story.check("won \n later 99 \n turn released -> any first \n won \n later 1");
        story.check("turn released -> way 40 \n gave way -> any first \n won");
        // No one came, so the next run is longer.
        story.check("released -> all at once \n won \n later 199 \n released -> all at once");
        story.check("later 1 \n released -> way 40");
        // A release by another process ends a run.
        story.check("changed 1 -> all at once \n won \n released -> all at once");
    }

    #[test]
    fn a_waiter_gives_more_way_to_rivals_that_poll() {
        let mut story = Story::new();
        story.hears = false;
        story.check("held -> 0..1000 \n released -> all at once \n won \n later 399");
        story.check("released -> all at once \n later 1 \n released -> way 220");
    }

    #[test]
    fn every_attempt_leaves_the_time_of_clients_that_poll_to_them() {
        for event in [
            "came",
            "changed 12",
            "changed 12 must",
            "silence 12",
            "released",
            "turn",
            "turn released",
        ] {
            let mut story = Story::new();
            story.pollers = Some(millis(70));
            story.check(&format!("{event} -> leave 70 \n left -> any first"));
        }
    }

    #[test]
    fn others_want_a_lock_that_they_release_or_hold_on_some_masters() {
        let changed = "changed 1 -> all at once";
        let silence = "silence 1 -> all at once";
        for (story, won, is_shown) in [
            ("came -> all at once", "", false),
            ("came -> all at once", "2", true),
            ("released -> all at once", "2", true),
            // The holder may be a guard of this process until another process releases the lock.
            ("came -> all at once \n held -> 0..1000", "", false),
            ("held -> 0..1000 \n released -> all at once", "", false),
            ("held -> 0..1000 \n turn released -> any first", "", false),
            (&format!("held -> 0..1000 \n {changed}"), "", true),
            (&format!("held 7 -> 0..9 \n {silence}"), "", true),
            // A master has come back.
            (&format!("no-quorum -> 15..15 \n {silence}"), "", false),
        ] {
            let mut told = Story::new();
            told.check(story);
            let shown = told.contender.shows_others(Ok(masters(won)));
            assert_eq!(shown, is_shown, "{story} {won}");
        }
        let contender = Story::new().contender;
        assert!(contender.shows_others(Err(&Obstacle::Split)));
        assert!(!contender.shows_others(Err(&Obstacle::HeldFor(None))));
    }
}

//! The way in which a waiter waits in the queues of a lock: when it asks again, when it needs
//! another ticket, and whether it reaches enough masters to win, or steps [aside](Reach::is_aside).

use std::time::Duration;

use super::pauses::{Pace, Pauses, Wait};
use crate::core::{
    protocol::QueueOptions,
    reason::Reason,
    time::{Backoff, LeaseTick},
    vote::{Round, Vote},
};

/// A waiter for a lock with queues, from its first round to its last one. The driver tells the
/// waiter of each round that was not won. Each master calls the waiter at the head of its queue, by
/// a message. So a round without a call before it has only two uses: it keeps the position of the
/// waiter, and it finds out what masters do not report.
pub(crate) struct QueuePolicy {
    pauses: Pauses,
    pub(crate) options: QueueOptions,
    /// The number of rounds in which a master disagreed with the time in the ticket.
    disputes: u32,
    is_reader: bool,
}

impl QueuePolicy {
    /// The number of [`disputes`](Self::disputes) after which masters no longer check the time in
    /// the ticket. Without this limit, masters that disagree on the time could make a waiter
    /// correct its ticket forever. Two waiters could also use the times of different masters. Then
    /// none of them would ever be first in the queues of a majority.
    const DISPUTES: u32 = 2;

    pub(crate) fn new(retry: Backoff, silent_waiter_timeout: Duration, is_reader: bool) -> Self {
        // A waiter polls well before masters count it as dead. The delay is random, so waiters do
        // not all poll at the same time.
        let poll = Backoff::between(silent_waiter_timeout * 3 / 10, silent_waiter_timeout / 3);
        Self {
            pauses: Pauses::new(retry, poll, Pace::OF_CALLS),
            options: QueueOptions {
                silent_waiter_timeout,
                is_fresh: true,
            },
            disputes: 0,
            is_reader,
        }
    }

    /// Returns the time of the masters if the time in the ticket is wrong. In that case, the waiter
    /// leaves the queues, and comes back with a new ticket.
    pub(crate) fn right_time(&self, round: &Round) -> Option<Duration> {
        round.skewed_to().filter(|_| self.options.is_fresh)
    }

    /// Notes the votes of a round. When a majority has seen the ticket, masters do not check its
    /// time again.
    pub(crate) fn note_votes(&mut self, round: &Round) {
        let is_disputed = round.votes_cast().any(|vote| vote.skewed_to().is_some());
        self.disputes += u32::from(is_disputed);
        self.options.is_fresh &= !round.is_queued() && self.disputes < Self::DISPUTES;
    }

    /// Returns the wait after `round`. A call of a master may end this wait. If `is_taken` is
    /// `true`, the slot that the round asked for is taken, but other slots may be free. No master
    /// calls the waiter for another slot, so the waiter tries again soon.
    pub(crate) fn wait_after(
        &mut self,
        round: &Round,
        is_taken: bool,
        now: LeaseTick,
        random: u64,
    ) -> Wait {
        let reason = if is_taken {
            Reason::Split
        } else if self.is_reader {
            Reason::of_reader(round)
        } else {
            Reason::in_queue(round)
        };
        let (took_some, is_told) = (false, true); // masters call the waiter; the pause is set below
        let wait = self.pauses.after((&reason, took_some), is_told, random);
        // The next round must come in time to keep the position.
        let end = wait.end.min(self.pauses.poll.spread(random));
        // Waiters that split the votes give back their grants, so masters call the next waiters.
        // Without a pause, this would repeat at the speed of the network.
        let pause = match reason {
            Reason::Split => end / 2,
            _ => Duration::ZERO,
        };
        let pause = pause.max(self.pauses.rest(now)).min(end);
        Wait { pause, end }
    }

    /// Returns how long a waiter that is aside waits before it checks whether masters answer in
    /// time. `checks` is the number of its checks so far. No client can win before the `quarantine`
    /// ends. While there are too few connections, a check sends nothing, so the delay is short.
    pub(crate) fn delay_aside(
        &self,
        quarantine: Option<Duration>,
        is_connected: bool,
        checks: u32,
        random: u64,
    ) -> Duration {
        match quarantine {
            Some(left) => left + self.pauses.retry.least(),
            None if is_connected => {
                let timeout = self.options.silent_waiter_timeout;
                Backoff::between(timeout / 4, timeout).delay(checks, random)
            }
            None => self.pauses.retry.spread(random),
        }
    }
}

/// Whether a client has lately reached a majority of masters. A round reaches a majority if a
/// majority of masters answer the round in time.
///
/// A client cannot win without answers from a majority, but some masters may still get its
/// requests. These masters would grant it locks that it cannot use, again and again. So a waiter
/// without a majority stops asking after half a silent-waiter timeout. Until then, it keeps its
/// position in a queue, because the outage may be short. A waiter that stopped may come back when a
/// majority has answered one round in time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// The period in which no round reached a majority, from the start of its first round to the
    /// end of its last round.
    missed: Option<(LeaseTick, LeaseTick)>,
}

impl Reach {
    /// Returns whether `round`, which did not end in a lock, reached a majority. `None` if too few
    /// masters have answered so far. Also `None` if a majority replied in time, but too many
    /// replies are errors.
    pub(crate) fn of(round: &Round, is_too_slow: bool) -> Option<bool> {
        if is_too_slow {
            Some(false)
        } else if round.lacks_masters() {
            // Masters whose errors come in time can be reached, and have granted nothing.
            let is_replied = round.every_set_has_in_time(Vote::is_reply);
            (!is_replied).then_some(false)
        } else if round.every_set_has_in_time(Vote::is_answer) {
            Some(true)
        } else {
            round.is_settled().then_some(false)
        }
    }

    /// Notes whether a round reached a majority. The round began at `start` and ended at `now`.
    pub(crate) fn note(
        &mut self,
        is_reached: bool,
        (start, now): (LeaseTick, LeaseTick),
        silent_waiter_timeout: Duration,
    ) {
        self.missed = (!is_reached).then(|| {
            let missed = self.recently_missed(start, silent_waiter_timeout);
            (missed.map_or(start, |(start, _)| start), now)
        });
    }

    /// Returns whether waiters are aside at `now`. A waiter that is aside is out of the queues of
    /// its lock, and does not ask for the lock until a majority of masters answers in time. It
    /// keeps a ticket that a majority of masters has seen.
    pub(crate) fn is_aside(self, now: LeaseTick, silent_waiter_timeout: Duration) -> bool {
        self.recently_missed(now, silent_waiter_timeout)
            .is_some_and(|(start, end)| end.since(start) >= silent_waiter_timeout / 2)
    }

    /// Returns `missed`, unless that period ended more than two silent-waiter timeouts before
    /// `now`.
    fn recently_missed(
        self,
        now: LeaseTick,
        silent_waiter_timeout: Duration,
    ) -> Option<(LeaseTick, LeaseTick)> {
        self.missed
            .filter(|(_, end)| now.since(*end) <= silent_waiter_timeout * 2)
    }
}

#[cfg(test)]
mod tests {
    use testkit::times::millis;

    use super::*;
    use crate::core::vote::{
        Failure, Refusal,
        round::fixture::{acquisition, vote},
    };

    const TIMEOUT: Duration = Duration::from_millis(1_200);
    /// With this number, delays are in the middle of their ranges: retries come after 15 ms, 25 ms
    /// and 45 ms, and polls after 380 ms.
    const RANDOM: u64 = u64::MAX / 2 + 1;

    fn waiter() -> QueuePolicy {
        QueuePolicy::new(Backoff::between(millis(10), millis(200)), TIMEOUT, false)
    }

    /// Returns a round that joins the queues. Each letter is the [`vote`] of one master, but with
    /// `h` and `n`, another holds the lock for 50 ms, and the caller is second in the queue (`h`)
    /// or first (`n`). `q` is in quarantine for 5 s, and `s` and `t` say that the time in the
    /// ticket is wrong.
    fn round(letters: &str) -> Round {
        let held = |position| Vote::Refuse(Refusal::held_by("a:1", Some(millis(50)), 1, position));
        let skewed = |clock| Vote::Refuse(Refusal::Skewed { clock });
        let remaining = millis(5_000);
        let mut round = acquisition(letters, |letter| match letter {
            'h' => held(Some(2)),
            'n' => held(Some(1)),
            'q' => Vote::Fail(Failure::Quarantined { remaining }),
            's' => skewed(millis(1_000)),
            't' => skewed(millis(2_000)),
            other => vote(other),
        });
        round.queues = true;
        round
    }

    #[test]
    fn the_wait_ends_before_the_masters_count_the_waiter_as_dead() {
        for (name, rounds) in [
            ("not the next one", &[("hhh", 380), ("hhh", 380)][..]),
            ("no majority", &[("ffh", 15), ("ffh", 25), ("fhh", 380)]),
            ("a long quarantine", &[("qqh", 380)]),
            ("split", &[("gfh", 15)]),
            ("the next one", &[("hhh", 380), ("nnh", 52), ("nnn", 52)]),
        ] {
            let mut waiter = waiter();
            for (letters, expected) in rounds {
                let wait = waiter.wait_after(&round(letters), false, LeaseTick::some(), RANDOM);
                assert_eq!(wait.end, millis(*expected), "{name}: {letters}");
            }
        }
    }

    #[test]
    fn a_waiter_soon_tries_again_if_only_the_slot_is_taken() {
        let mut waiter = waiter();
        for (letters, is_taken, expected) in [
            ("ghh", true, 15),
            ("hgh", true, 25),
            ("hgh", false, 52), // another holds the lock
            ("ghh", false, 52),
        ] {
            let wait = waiter.wait_after(&round(letters), is_taken, LeaseTick::some(), RANDOM);
            let pause = if expected == 52 { 0 } else { expected * 500 };
            let times = (wait.pause, wait.end);
            assert_eq!(
                times,
                (Duration::from_micros(pause), millis(expected)),
                "{letters} {is_taken}"
            );
        }
    }

    #[test]
    fn a_ticket_is_corrected_until_the_masters_have_seen_it() {
        for (rounds, expected) in [
            (&["sst", "stt"][..], &[Some(1_000), Some(2_000)][..]),
            // Masters no longer check the time after two corrections.
            (&["sss", "sss", "sss"], &[Some(1_000), Some(1_000), None]),
            // A majority has seen the ticket.
            (&["hhf", "sss"], &[None, None]),
            // Too few have seen it.
            (&["hff", "sss"], &[None, Some(1_000)]),
            // A minority disagrees with the time, again and again.
            (&["sff", "sss"], &[None, Some(1_000)]),
            (&["sff", "sff", "sss"], &[None, None, None]),
        ] {
            let mut waiter = waiter();
            for (letters, expected) in rounds.iter().zip(expected) {
                let round = round(letters);
                let time = waiter.right_time(&round);
                assert_eq!(time, expected.map(millis), "{letters} of {rounds:?}");
                waiter.note_votes(&round);
            }
        }
    }

    #[test]
    fn a_waiter_that_is_aside_sends_little() {
        for (quarantine, is_connected, checks, expected) in [
            (Some(millis(5_000)), true, 0, 5_010),
            (None, true, 0, 450), // between a quarter and half of the silent-waiter timeout
            (None, true, 9, 750), // between a quarter and all of it
            (None, false, 0, 105), // a retry delay, because nothing is sent
        ] {
            let wait = waiter().delay_aside(quarantine, is_connected, checks, RANDOM);
            assert_eq!(
                wait,
                millis(expected),
                "{quarantine:?} {is_connected} {checks}"
            );
        }
    }
}

#[cfg(test)]
mod reach {
    use testkit::times::millis;

    use super::*;
    use crate::core::vote::{
        quorum::Outcome,
        round::fixture::{acquisition, vote},
    };

    const WAITER_TIMEOUT: Duration = Duration::from_secs(3);

    #[test]
    fn a_waiter_that_cannot_win_for_half_its_timeout_steps_aside() {
        use Outcome::{NoMajority, TooLate};
        const CONTENDING: bool = false;
        const ASIDE: bool = true;
        let origin = LeaseTick::some();
        for (name, rounds) in [
            (
                "another holder",
                vec![
                    (0, "hhh", NoMajority, CONTENDING),
                    (9_000, "ghh", NoMajority, CONTENDING),
                ],
            ),
            (
                "no majority",
                vec![
                    (0, "fff", NoMajority, CONTENDING),
                    (1_300, "ffh", NoMajority, CONTENDING),
                    (1_450, "rfg", NoMajority, ASIDE), // ends at 1,500 ms, after half the timeout
                    (7_000, "fff", NoMajority, ASIDE),
                    (9_100, "fhh", NoMajority, CONTENDING), // one round is enough to come back
                    (9_200, "fff", NoMajority, CONTENDING),
                    (10_700, "fff", NoMajority, ASIDE),
                ],
            ),
            (
                "an outage that is short, twice",
                vec![
                    (0, "fff", NoMajority, CONTENDING),
                    (1_400, "fff", NoMajority, CONTENDING),
                    (1_500, "hhf", NoMajority, CONTENDING),
                    (1_600, "fff", NoMajority, CONTENDING),
                    (3_000, "fff", NoMajority, CONTENDING),
                ],
            ),
            (
                "grants that come too late",
                vec![
                    (0, "ggg", TooLate, CONTENDING),
                    (1_450, "ggg", TooLate, ASIDE),
                ],
            ),
            (
                "an unknown reach changes nothing",
                vec![
                    (0, "fh-", NoMajority, CONTENDING),
                    (1_000, "fff", NoMajority, CONTENDING),
                    (2_000, "fh-", NoMajority, CONTENDING),
                    (2_450, "fff", NoMajority, ASIDE),
                    (2_600, "fh-", NoMajority, ASIDE),
                ],
            ),
        ] {
            let mut reach = Reach::default();
            for (at, letters, outcome, expected) in rounds {
                let start = origin + millis(at);
                let is_too_slow = outcome == TooLate;
                let now = start + millis(50);
                if let Some(is_reached) = Reach::of(&acquisition(letters, vote), is_too_slow) {
                    reach.note(is_reached, (start, now), WAITER_TIMEOUT);
                }
                assert_eq!(reach.is_aside(now, WAITER_TIMEOUT), expected, "{name} {at}");
            }
        }
    }

    #[test]
    fn old_failures_do_not_count() {
        let origin = LeaseTick::some();
        let mut reach = Reach::default();
        reach.note(false, (origin, origin + millis(1_500)), WAITER_TIMEOUT);
        for (at, expected) in [(7_500, true), (7_501, false)] {
            let now = origin + millis(at);
            assert_eq!(reach.is_aside(now, WAITER_TIMEOUT), expected, "{at}");
        }
        // The next outage counts from its own beginning. Waiters are aside again when it has lasted
        // half the silent-waiter timeout.
        let again = origin + millis(7_501);
        for (at, expected) in [(0, false), (1_449, false), (1_450, true)] {
            let start = again + millis(at);
            let now = start + millis(50);
            reach.note(false, (start, now), WAITER_TIMEOUT);
            assert_eq!(reach.is_aside(now, WAITER_TIMEOUT), expected, "{at}");
        }
    }
}

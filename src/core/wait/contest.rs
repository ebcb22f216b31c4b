//! The way in which a waiter contends for a lock without queues on the masters: whether it gives
//! way, which masters it asks, and when it asks again.

use std::time::Duration;

use super::{
    history::History,
    pauses::{Met, Pace, Pauses, Wait},
};
use crate::core::{
    reason::Reason,
    time::{Backoff, LeaseTick},
    vote::MasterSet,
};

/// A waiter for a lock without queues on the masters. The driver tells the waiter when it has its
/// turn, when its attempt was denied, and when there is news of the lock.
///
/// The clients that wait for a lock notice a release at about the same time. If all of them asked
/// all masters, each would get some masters, and none would get a majority. So each client asks the
/// agreed master first. Only the client that gets the lock on this master asks the other masters.
pub(crate) struct ContestPolicy {
    pauses: Pauses,
    /// The masters on which the lock is likely to be free.
    free: MasterSet,
    /// From this time on, an attempt asks all masters at once.
    ask_all_at: LeaseTick,
    /// `true` if the last wait ended with news.
    has_news: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The attempt begins after a pause in which other processes could take the lock.
    GaveWay,
    /// The attempt begins right after the release by a guard of this process.
    HandedOver,
    /// The attempt begins right after the turn of another waiter of this process. That waiter
    /// probably has the lock.
    NextInLine,
    /// The attempt begins in any other way.
    Plain,
}

impl ContestPolicy {
    pub(crate) fn new(retry: Backoff, poll: Backoff, now: LeaseTick) -> Self {
        Self {
            pauses: Pauses::new(retry, poll, Pace::OF_REPORTS),
            free: MasterSet::ALL,
            ask_all_at: now + poll.most(),
            has_news: false,
        }
    }

    /// Notes that the waiter has its turn. `has_waited` says whether the waiter had to wait for its
    /// turn. If a guard of this process has released the lock, `is_run_over` says whether it is the
    /// turn of other processes.
    pub(crate) fn begin(&mut self, has_waited: bool, is_run_over: Option<bool>) -> Start {
        if has_waited {
            // What this waiter knew is out of date: the waiter before it has made attempts since.
            (self.free, self.has_news) = (MasterSet::ALL, false);
        }
        match is_run_over {
            Some(true) => {
                self.free = MasterSet::ALL;
                Start::GaveWay
            }
            Some(false) => Start::HandedOver,
            None if has_waited => Start::NextInLine,
            None => Start::Plain,
        }
    }

    /// Returns for how long this waiter gives way after a run. The rivals need this time to notice
    /// that the lock is free, and to ask for it.
    pub(crate) fn time_after_run(&self, are_told: bool, history: &History) -> Duration {
        const LEAST: Duration = Duration::from_millis(5);
        const MOST_IF_POLLED: Duration = Duration::from_millis(200);
        match are_told {
            true => history.two_attempts().max(LEAST),
            false => self.pauses.retry.most().min(MOST_IF_POLLED),
        }
    }

    /// Returns the masters from which the agreed master is chosen. This master is asked before the
    /// others. If the set is empty, all masters are asked at once.
    ///
    /// From time to time, all masters are asked at once, because the agreed master may have kept a
    /// key that the other masters have lost.
    pub(crate) fn asked_first(&self, start: Start, history: &History, now: LeaseTick) -> MasterSet {
        let is_one_asked = match start {
            Start::NextInLine => true,
            Start::HandedOver => false, // the commands of this attempt reach all masters first
            Start::Plain | Start::GaveWay if self.has_news => {
                history.waiter_gives_way() && !history.was_outrun
            }
            Start::Plain | Start::GaveWay => history.are_rivals_likely(),
        };
        match is_one_asked && now < self.ask_all_at {
            true => self.free,
            false => MasterSet::NONE,
        }
    }

    pub(crate) fn note_all_asked(&mut self, now: LeaseTick) {
        self.ask_all_at = now + self.pauses.poll.most();
    }

    /// Notes a denied attempt, what it met, whether the agreed master was asked first, and how long
    /// the attempt took.
    pub(crate) fn note_denied(
        &self,
        met: Met<'_>,
        is_one_asked: bool,
        took: Duration,
        history: &mut History,
    ) {
        let (reason, took_some) = met;
        let is_split = *reason == Reason::Split;
        let is_taken = is_split || matches!(reason, Reason::Held { .. });
        history.note_denied(self.has_news, is_one_asked && is_taken && took_some, took);
        // A client that took the lock long ago is no rival, because a rival asks now or asked just
        // before.
        if is_split || is_taken && (took_some || self.has_news) {
            history.note(true);
        }
    }

    pub(crate) fn after(
        &mut self,
        met: Met<'_>,
        is_told: bool,
        now: LeaseTick,
        random: u64,
    ) -> Wait {
        let Wait { pause, end } = self.pauses.after(met, is_told, random);
        let pause = pause.max(self.pauses.rest(now)).min(end);
        Wait { pause, end }
    }

    /// Notes that the wait is over. If there was news, `news` has the masters on which the lock is
    /// likely to be free.
    pub(crate) fn note_waited(&mut self, news: Option<MasterSet>) {
        self.has_news = news.is_some();
        self.free = news.unwrap_or(MasterSet::NONE);
    }
}

#[cfg(test)]
mod tests {
    use testkit::times::millis;

    use super::*;

    const HELD: Reason = Reason::Held { remaining: None };

    /// Returns a policy with retries after 10 to 80 ms and polls after 500 to 1,500 ms.
    fn policy_at(now: LeaseTick) -> ContestPolicy {
        let retry = Backoff::between(millis(10), millis(80));
        let poll = Backoff::between(millis(500), millis(1_500));
        ContestPolicy::new(retry, poll, now)
    }

    fn policy() -> ContestPolicy {
        policy_at(LeaseTick::some())
    }

    /// Notes that a wait has ended with news of master 1.
    fn hear(policy: &mut ContestPolicy) {
        policy.note_waited(Some(MasterSet::only(1)));
    }

    fn history(has_rivals: bool) -> History {
        let mut history = History::default();
        history.note(has_rivals);
        history
    }

    #[test]
    fn the_start_of_an_attempt_decides_who_is_asked() {
        use Start::{GaveWay, HandedOver, NextInLine, Plain};
        let (now, one) = (LeaseTick::some(), MasterSet::only(1));
        for (has_waited, is_run_over, start, alone, rivals) in [
            (false, None, Plain, MasterSet::NONE, one),
            (true, None, NextInLine, MasterSet::ALL, MasterSet::ALL),
            (
                false,
                Some(false),
                HandedOver,
                MasterSet::NONE,
                MasterSet::NONE,
            ),
            (
                true,
                Some(false),
                HandedOver,
                MasterSet::NONE,
                MasterSet::NONE,
            ),
            (false, Some(true), GaveWay, MasterSet::NONE, MasterSet::ALL),
        ] {
            let mut policy = policy_at(now);
            hear(&mut policy);
            assert_eq!(policy.begin(has_waited, is_run_over), start);
            let free =
                |has_rivals, at| policy.asked_first(start, &history(has_rivals), now + millis(at));
            assert_eq!(free(false, 0), alone, "{start:?}");
            assert_eq!(free(true, 1_499), rivals, "{start:?}");
            assert_eq!(free(true, 1_500), MasterSet::NONE, "{start:?}");
            policy.note_all_asked(now + millis(1_500));
            let later = now + millis(2_999);
            assert_eq!(
                policy.asked_first(start, &history(true), later),
                rivals,
                "{start:?}"
            );
        }
    }

    #[test]
    fn now_and_then_a_waiter_without_rivals_asks_the_agreed_master_after_news() {
        let (mut policy, now) = (policy(), LeaseTick::some());
        let mut history = History::default();
        while !history.waiter_gives_way() {
            history.note(false);
        }
        let free = |policy: &ContestPolicy| policy.asked_first(Start::Plain, &history, now);
        assert_eq!(free(&policy), MasterSet::NONE);
        hear(&mut policy);
        assert_eq!(free(&policy), MasterSet::only(1));
    }

    #[test]
    fn a_waiter_that_was_outrun_asks_all_at_the_next_news() {
        let now = LeaseTick::some();
        for (met, is_one_asked, is_outrun) in [
            ((&HELD, true), true, true),
            ((&Reason::Split, true), true, true),
            ((&HELD, false), true, false),
            ((&HELD, true), false, false),
            ((&Reason::NoQuorum, true), true, false),
        ] {
            let mut policy = policy();
            let mut history = history(true);
            policy.note_denied(met, is_one_asked, millis(1), &mut history);
            let free = |policy: &ContestPolicy| policy.asked_first(Start::Plain, &history, now);
            assert_ne!(free(&policy), MasterSet::NONE, "{met:?}: no news");
            hear(&mut policy);
            assert_eq!(free(&policy) == MasterSet::NONE, is_outrun, "{met:?}");
            policy.note_denied((&HELD, false), true, millis(1), &mut history);
            assert!(!history.was_outrun, "once only");
        }
    }

    #[test]
    fn a_rival_splits_the_votes_or_is_sooner_after_news() {
        for (met, has_news, is_rival) in [
            ((&Reason::Split, false), false, true),
            ((&HELD, false), false, false),
            ((&HELD, true), false, true),
            ((&HELD, false), true, true),
            ((&Reason::NoQuorum, true), true, false),
            ((&Reason::OwnerBusy, false), true, false),
        ] {
            let mut policy = policy();
            if has_news {
                hear(&mut policy);
            }
            let mut history = History::default();
            policy.note_denied(met, false, millis(1), &mut history);
            assert_eq!(history.are_rivals_likely(), is_rival, "{met:?}");
        }
    }

    #[test]
    fn a_waiter_gives_way_for_two_attempts_or_for_a_poll_of_the_rivals() {
        for (took, told) in [(1, 5), (20, 40), (900, 100)] {
            let mut history = History::default();
            let met = (&Reason::OwnerBusy, false);
            policy().note_denied(met, false, millis(took), &mut history);
            let time = |are_told| policy().time_after_run(are_told, &history);
            assert_eq!([true, false].map(time), [told, 80].map(millis));
        }
    }

    #[test]
    fn a_waiter_that_used_its_burst_hears_no_news_for_a_while() {
        let now = LeaseTick::some();
        let mut policy = policy_at(now);
        let mut pause = || policy.after((&HELD, false), true, now, u64::MAX).pause;
        let pauses: Vec<_> = (0..29).map(|_| pause()).collect();
        assert!(pauses[..28].iter().all(Duration::is_zero));
        assert_eq!(pauses[28], millis(500));
    }
}

//! The steps between the states.

use super::{
    Broken,
    model::{Attempt, Ballots, Phase, State, Voters},
};
use crate::{
    core::vote::{Verb, quorum::Outcome},
    explore::masters::{Call, Cast, Decision, Event, Keys, decided},
};

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "to be printed")]
pub(super) enum Step {
    /// A master executes a command, and its answer counts.
    Answered(Put),
    Begin(usize, u32),
    Drop(usize),
    Fade(usize),
    Lose(usize),
    Tick,
    /// The client gives up on the masters that have not answered.
    TimeOut(usize),
    /// A master executes a command, and its answer does not count.
    Unanswered(Put),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Put {
    verb: Verb,
    attempt: usize,
    candidate: u32,
    master: usize,
    /// `true` if the lock that was held on the master vanishes before this step.
    vanished: bool,
}

impl<const A: usize, const M: usize> Ballots<A, M> {
    pub(super) fn steps_of(
        &self,
        state: &State<A, M>,
        attempt: usize,
        visit: &mut dyn FnMut(Step, State<A, M>),
    ) {
        let now = state.attempts[attempt];
        if now.phase == Phase::Idle {
            return self.begin_steps(state, attempt, visit);
        }
        for master in self.voters[attempt].masters.iter() {
            self.steps_on(state, (attempt, master), visit);
        }
        if now.phase == Phase::Asking {
            let mut next = *state;
            for master in &mut next.masters {
                if master.votes[attempt] == Cast::None {
                    master.votes[attempt] = Cast::Failed;
                }
            }
            self.decide(next, attempt, &mut |next| {
                visit(Step::TimeOut(attempt), next);
            });
            let mut next = *state;
            next.end(attempt, Phase::Failed);
            visit(Step::Drop(attempt), next);
        }
    }

    /// Attempts begin in the order of their numbers.
    fn begin_steps(
        &self,
        state: &State<A, M>,
        attempt: usize,
        visit: &mut dyn FnMut(Step, State<A, M>),
    ) {
        let mut before = state.attempts[..attempt].iter();
        let is_next = before.all(|before| before.phase != Phase::Idle);
        let has_paused = attempt == 0 || self.has_paused(state);
        let reported = state.attempts.iter().filter_map(Attempt::token).max();
        for candidate in self.candidates(state) {
            if is_next && has_paused {
                let mut next = *state;
                next.attempts[attempt] = Attempt {
                    phase: Phase::Asking,
                    candidates: [candidate, 0],
                    above: reported.unwrap_or(0),
                };
                visit(Step::Begin(attempt, candidate), next);
            }
        }
    }

    /// Returns whether enough time has passed since the end of the first attempt.
    fn has_paused(&self, state: &State<A, M>) -> bool {
        let (Some(pause), Some(time)) = (self.pause, self.time) else {
            return true;
        };
        state.ended > 0 && u32::from(state.clock - state.ended) * time.tick >= pause
    }

    fn steps_on(
        &self,
        state: &State<A, M>,
        (attempt, master): (usize, usize),
        visit: &mut dyn FnMut(Step, State<A, M>),
    ) {
        let now = state.attempts[attempt];
        let put = Put {
            verb: Verb::Acquire,
            attempt,
            candidate: now.candidate(),
            master,
            vanished: false,
        };
        let mut unanswered = |put| {
            let mut next = *state;
            next.masters[master].keys = self.put(state, put).0;
            if next != *state {
                visit(Step::Unanswered(put), next);
            }
        };
        for candidate in now.candidates.into_iter().filter(|one| *one != 0) {
            for vanished in [false, true] {
                unanswered(Put {
                    candidate,
                    vanished,
                    ..put
                });
            }
        }
        if now.phase == Phase::Reported {
            let (verb, vanished) = (Verb::Heal, true);
            unanswered(Put {
                verb,
                vanished,
                ..put
            });
        }
        if now.phase >= Phase::Failed {
            let verb = Verb::Release;
            unanswered(Put { verb, ..put });
        }
        let is_awaited = state.masters[master].votes[attempt] == Cast::None;
        for vanished in [false, true] {
            if now.phase == Phase::Asking && is_awaited {
                let put = Put { vanished, ..put };
                let mut next = *state;
                let (keys, cast) = self.put(state, put);
                next.masters[master].keys = keys;
                next.masters[master].votes[attempt] = cast;
                self.decide(next, attempt, &mut |next| visit(Step::Answered(put), next));
            }
        }
    }

    /// Lets a master execute a command. Returns its keys, and the answer.
    fn put(&self, state: &State<A, M>, put: Put) -> (Keys, Cast) {
        let (master, micros) = (state.masters[put.master], self.micros(state));
        let votes = self.time.is_none_or(|time| {
            master.lost == 0
                || self.broken == Broken::NoQuarantine
                || u32::from(state.clock - master.lost) * time.tick >= time.quarantine
        });
        if !votes && put.verb != Verb::Release {
            return (master.keys, Cast::Failed);
        }
        let (client, attempt) = match self.is_one_owner {
            true => (0, put.attempt as u8 + 1),
            false => (put.attempt, 1),
        };
        let call = Call {
            candidate: put.candidate,
            ..Call::new(put.verb, client, attempt)
        };
        let vanished = self.masters.end(master.keys, Event::KeyEnds);
        let before = if put.vanished { vanished } else { master.keys };
        let (after, cast) = self.masters.after(before, Event::Called(call, micros));
        // A lock vanishes only where that makes a difference.
        let is_same = put.vanished && after == vanished;
        (if is_same { master.keys } else { after }, cast)
    }

    pub(super) fn master_steps(
        &self,
        state: &State<A, M>,
        master: usize,
        visit: &mut dyn FnMut(Step, State<A, M>),
    ) {
        let keys = state.masters[master].keys;
        if self.masters.view(keys, |view| view.fades) {
            let mut next = *state;
            next.masters[master].keys = self.masters.end(keys, Event::CounterEnds);
            visit(Step::Fade(master), next);
        }
        let has_lost = state.masters.iter().any(|master| master.lost > 0);
        if self.time.is_some() && !has_lost && self.pause.is_none() {
            let mut next = *state;
            next.masters[master].keys = Keys::default();
            next.masters[master].lost = state.clock;
            visit(Step::Lose(master), next);
        }
    }

    /// Returns what an attempt does after its votes.
    fn decision(&self, attempt: usize, state: &State<A, M>) -> Decision {
        let votes = state.masters.map(|master| master.votes[attempt]);
        let known = self.decisions.borrow().get(&(attempt, votes)).copied();
        known.unwrap_or_else(|| {
            let Voters { masters, quorum } = &self.voters[attempt];
            let votes_of = masters.iter().map(|master| votes[master]);
            let decision = decided(Verb::Acquire, quorum, votes_of.enumerate());
            let decisions = &mut self.decisions.borrow_mut();
            decisions.insert((attempt, votes), decision);
            decision
        })
    }

    /// Continues an attempt with the decision that follows from its votes.
    fn decide(&self, mut state: State<A, M>, attempt: usize, visit: &mut dyn FnMut(State<A, M>)) {
        let Decision {
            outcome,
            next,
            is_skewed,
            ..
        } = self.decision(attempt, &state);
        let now = state.attempts[attempt];
        let again = match (outcome, next) {
            (Outcome::Pending, _) => return visit(state),
            (Outcome::NoMajority, Some(next)) => vec![next],
            (Outcome::NoMajority, None) if is_skewed => self.candidates(&state),
            _ => vec![],
        };
        if again.is_empty() || now.candidates[1] != 0 || self.rounds == 1 {
            let is_won = outcome == Outcome::Won;
            state.end(
                attempt,
                if is_won {
                    Phase::Reported
                } else {
                    Phase::Failed
                },
            );
            return visit(state);
        }
        for master in &mut state.masters {
            master.votes[attempt] = match (self.broken, master.votes[attempt]) {
                (Broken::KeepsGrants, granted @ Cast::Granted(_)) => granted,
                _ => Cast::None,
            };
        }
        for candidate in again {
            state.attempts[attempt].candidates[1] = candidate;
            visit(state);
        }
    }
}

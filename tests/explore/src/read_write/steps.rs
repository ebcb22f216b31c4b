//! The steps between the states.

use super::{
    Broken,
    client::{Client, Extension, Phase, bit},
    master::{Caller, Entry, Form, Master, Vote},
    model::ReadWrite,
    state::State,
};

#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Acquire,
    Break,
    Extend,
    Heal,
    Release,
    Yield,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "to be printed")]
pub(super) enum Step {
    /// A master executes a command, and the answer counts.
    Answered(Verb, Caller, usize),
    /// A master executes a command, and the answer does not count.
    Unanswered(Verb, Caller, usize),
    /// A client begins a round, or goes on without the missing answers.
    Client(usize, &'static str),
    EntryVanishes(usize, usize),
    TicketVanishes(u8, usize),
    Forget(usize),
    EndQuarantine(usize),
}

/// Visits a step of a client: its name, and what it changes.
type ClientStep<'a, const C: usize> = dyn FnMut(&'static str, &dyn Fn(&mut State<C>)) + 'a;

impl<const C: usize> ReadWrite<C> {
    /// Lets a master execute a command. Returns the answer.
    fn execute(&self, state: &mut State<C>, (verb, by, at): (Verb, Caller, usize)) -> Vote {
        let (rules, master) = (self.rules(), &mut state.masters[at]);
        let is_granted = match verb {
            Verb::Acquire => master.acquire(rules, by, self.queues(by.attempt)),
            Verb::Extend => master.extend(rules, by),
            Verb::Heal => {
                master.heal(rules, by);
                false
            }
            Verb::Release => {
                master.release(rules, by);
                false
            }
            Verb::Yield => {
                master.give_back(rules, by, self.queues(by.attempt));
                false
            }
            Verb::Break => {
                let before = master.entries[by.client];
                master.break_held(rules, by.client);
                let is_used = before.attempt == state.clients[by.client].attempt
                    && (master.counted[by.client] || master.votes[by.client] == Vote::Grant);
                state.clients[by.client].on_break(is_used);
                false
            }
        };
        if is_granted {
            Vote::Grant
        } else {
            Vote::Refuse
        }
    }

    /// The commands of a client that may be executed at any time, because they were sent.
    fn sent(&self, state: &State<C>, client: usize, visit: &mut dyn FnMut(Verb, Caller)) {
        let now = state.clients[client];
        for attempt in now.attempts() {
            let by = self.caller(client, attempt);
            let was_won = now.won & bit(attempt) != 0;
            let is_newest = attempt == now.attempt;
            let is_asking = is_newest && now.phase == Phase::Asking;
            let heals = self.late || is_newest && now.phase == Phase::Held && !now.is_broken;
            if self.late {
                visit(Verb::Acquire, by);
            }
            if was_won && self.extends {
                visit(Verb::Extend, by);
                if heals {
                    visit(Verb::Heal, by);
                }
                if now.lowered & bit(attempt) != 0 {
                    let by = Caller {
                        writes: false,
                        ..by
                    };
                    visit(Verb::Extend, by);
                    if heals {
                        visit(Verb::Heal, by);
                    }
                }
            }
            if was_won && self.breaks {
                visit(Verb::Break, by);
            }
            if !was_won && !is_asking {
                visit(Verb::Yield, by);
            }
            let is_over = (attempt - 1) / self.rounds < now.claim || now.phase == Phase::Left;
            let is_last = !now.attempts().any(|later| {
                later > attempt && (later - 1) / self.rounds == (attempt - 1) / self.rounds
            });
            if is_over && is_last {
                visit(Verb::Release, by);
            }
        }
    }

    pub(super) fn client_steps(
        &self,
        state: &State<C>,
        client: usize,
        visit: &mut dyn FnMut(Step, State<C>),
    ) {
        let now = state.clients[client];
        let mut step = |what, change: &dyn Fn(&mut State<C>)| {
            let mut next = *state;
            change(&mut next);
            visit(Step::Client(client, what), next);
        };
        let next_claim = |now: Client| now.claim + u8::from(now.attempt > 0);
        let leave = |next: &mut State<C>| self.leave(next, client);
        match now.phase {
            Phase::Idle | Phase::Left => {
                if usize::from(next_claim(now)) < self.claims[client].len() {
                    let first = next_claim(now) * self.rounds + 1;
                    step("claims", &|next| self.ask(next, client, first));
                }
            }
            Phase::Asking => step("gives up a round", &|next| self.lose(next, client)),
            Phase::Waiting => {
                if !now.attempt.is_multiple_of(self.rounds) && !now.upgrades {
                    step("asks again", &|next| {
                        self.ask(next, client, now.attempt + 1);
                    });
                }
                step("leaves", &leave);
            }
            Phase::Held => {
                self.held_steps(state, client, &mut step);
                step("leaves", &leave);
            }
        }
    }

    fn held_steps(&self, state: &State<C>, client: usize, step: &mut ClientStep<'_, C>) {
        let now = state.clients[client];
        let opens = |next: &mut State<C>| {
            next.close(client);
            next.clients[client].extension = Extension::Open;
        };
        if self.extends && now.extension == Extension::None {
            step("extends", &opens);
        }
        if now.extension != Extension::None {
            step("gives up an extension", &|next| {
                next.close(client);
                next.clients[client].extension = Extension::None;
            });
        }
        let claim = self.claim(client, now.attempt);
        if claim.changes && claim.writes && !now.is_lowered() {
            step("becomes a reader", &|next| {
                opens(next);
                next.clients[client].lowered |= bit(now.attempt);
            });
        }
        if claim.changes && self.broken == Broken::UpgradeInPlace && !claim.writes {
            step("asks to write", &|next| {
                next.close(client);
                self.ask(next, client, now.attempt + self.rounds);
                next.clients[client].upgrades = true;
            });
        }
    }

    pub(super) fn master_steps(
        &self,
        state: &State<C>,
        at: usize,
        visit: &mut dyn FnMut(Step, State<C>),
    ) {
        let master = state.masters[at];
        let is_relied_on = (0..C).any(|client| state.is_relied_on(client, at));
        if master.is_quarantined {
            if !is_relied_on {
                let mut next = *state;
                next.masters[at].is_quarantined = false;
                visit(Step::EndQuarantine(at), next);
            }
            return;
        }
        if self.forgets && !state.has_forgotten {
            let mut next = *state;
            next.has_forgotten = true;
            next.masters[at] = Master {
                votes: master.votes,
                counted: master.counted,
                is_quarantined: self.broken != Broken::NoQuarantine,
                ..Master::EMPTY
            };
            visit(Step::Forget(at), next);
        }
        self.vanish_steps(state, at, visit);
    }

    fn vanish_steps(&self, state: &State<C>, at: usize, visit: &mut dyn FnMut(Step, State<C>)) {
        let master = state.masters[at];
        let is_relied_on = (0..C).any(|client| state.is_relied_on(client, at));
        for client in 0..C {
            let entry = master.entries[client];
            let is_needed =
                entry.attempt == state.clients[client].attempt && state.is_relied_on(client, at);
            let is_needed = is_needed || state.clients[client].upgrades;
            if entry.form != Form::Nothing && !is_needed {
                let mut next = *state;
                next.masters[at].entries[client] = Entry::default();
                visit(Step::EntryVanishes(client, at), next);
            }
        }
        if master.readers > 0 && !is_relied_on {
            let mut next = *state;
            next.masters[at].readers = 0;
            visit(Step::EntryVanishes(C, at), next);
        }
        let needed = (0..C).filter(|client| !self.fades && state.clients[*client].is_waiting());
        let needed = needed.fold(0, |needed, client| {
            needed | self.claim(client, state.clients[client].attempt).ticket
        });
        for ticket in (0..8).map(|number| 1 << number) {
            if master.tickets & ticket & !needed != 0 {
                let mut next = *state;
                next.masters[at].tickets &= !ticket;
                visit(Step::TicketVanishes(ticket, at), next);
            }
        }
    }

    pub(super) fn command_steps(
        &self,
        state: &State<C>,
        at: usize,
        visit: &mut dyn FnMut(Step, State<C>),
    ) {
        if state.masters[at].is_quarantined {
            return;
        }
        for client in 0..C {
            self.sent(state, client, &mut |verb, by| {
                let mut next = *state;
                self.execute(&mut next, (verb, by, at));
                if next != *state {
                    visit(Step::Unanswered(verb, by, at), next);
                }
            });
            let now = state.clients[client];
            let verb = match (now.phase, now.extension) {
                (Phase::Asking, _) => Verb::Acquire,
                (Phase::Held, Extension::Open | Extension::Stale) => Verb::Extend,
                _ => continue,
            };
            if state.masters[at].votes[client] != Vote::None {
                continue;
            }
            let mut next = *state;
            let by = self.caller(client, now.attempt);
            let writes = by.writes && !now.is_lowered();
            let by = Caller { writes, ..by };
            let vote = self.execute(&mut next, (verb, by, at));
            self.count(&mut next, client, at, vote);
            visit(Step::Answered(verb, by, at), next);
        }
    }
}

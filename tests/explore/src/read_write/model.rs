//! The model: its states, and the steps between them.
//!
//! Not modelled: calls of waiters and reports of changes, fencing tokens, the check of the time in
//! a ticket, and masters that fail for long.

use std::{
    fmt,
    hash::{Hash, Hasher},
};

use super::{
    Broken,
    client::{Claim, Client, Extension, Phase, bit},
    master::{Caller, Form, Master, Rules, Vote},
};
use crate::{MAJORITY, MASTERS, search::Model};

/// The choice of the states to search.
#[derive(Clone, Debug)]
pub(super) struct ReadWrite<const C: usize> {
    /// The claims of each client, one after the other. All have the same owner.
    pub(super) claims: [Vec<Claim>; C],
    /// The number of rounds in which a claim asks for the lock.
    pub(super) rounds: u8,
    /// The round of a claim with which it joins the queues, starting at 0.
    pub(super) queued_from: u8,
    /// Holders extend the lock, and put it back.
    pub(super) extends: bool,
    pub(super) broken: Broken,
    /// Holders may be broken.
    pub(super) breaks: bool,
    /// Checks that a broken holder does not go on after another had the lock.
    pub(super) strict_breaks: bool,
    /// Acquisitions and heals may be executed long after they were sent, or again.
    pub(super) late: bool,
    /// Masters may forget the ticket of a client that waits, because it asks too seldom.
    pub(super) fades: bool,
    /// What a client gives back is gone from all masters at once.
    pub(super) is_tidy: bool,
    /// A master may lose all data once.
    pub(super) forgets: bool,
    /// Checks the order of the tickets.
    pub(super) is_ordered: bool,
    /// Checks that every waiter can win.
    pub(super) ends: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct State<const C: usize> {
    pub(super) masters: [Master<C>; MASTERS],
    pub(super) clients: [Client; C],
    has_forgotten: bool,
    flaw: Wrong,
}

impl<const C: usize> Hash for State<C> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let masters = self.masters.iter().map(Master::packed);
        let clients = self.clients.iter().map(Client::packed);
        masters
            .chain(clients)
            .for_each(|word| hasher.write_u64(word));
        hasher.write_u8(u8::from(self.has_forgotten) << 2 | self.flaw as u8);
    }
}

impl<const C: usize> fmt::Debug for State<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for client in 0..C {
            let now = self.clients[client];
            write!(f, "{client}:{:?}", now.phase)?;
            for (shown, is_shown) in [
                (" as reader", now.is_lowered()),
                (" extending", now.extension != Extension::None),
                (" broken", now.is_broken),
            ] {
                f.write_str(if is_shown { shown } else { "" })?;
            }
            f.write_str(", ")?;
        }
        self.masters
            .iter()
            .try_for_each(|master| write!(f, "{master:?} "))
    }
}

/// A flaw of the step that led to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wrong {
    Nothing,
    Order,
    Robbed,
}

pub(super) const EXCLUSION: &str = "a writer holds the lock beside another holder";
pub(super) const ORDER: &str = "a waiter passes one that was before it on a majority";
pub(super) const ROBBED: &str = "a broken holder goes on after another had the lock";
pub(super) const STUCK: &str = "a waiter cannot win";

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

impl<const C: usize> ReadWrite<C> {
    pub(super) fn rules(&self) -> Rules {
        let all = self.claims.iter().flat_map(|claims| claims.iter());
        let writers = all.filter(|claim| claim.writes);
        Rules {
            broken: self.broken,
            write_tickets: writers.fold(0, |all, claim| all | claim.ticket),
        }
    }

    pub(super) fn claim(&self, client: usize, attempt: u8) -> Claim {
        let number = (attempt.max(1) - 1) / self.rounds;
        self.claims[client][usize::from(number)]
    }

    pub(super) fn caller(&self, client: usize, attempt: u8) -> Caller {
        let Claim { writes, ticket, .. } = self.claim(client, attempt);
        Caller {
            client,
            attempt,
            ticket,
            writes,
        }
    }

    /// Returns whether an attempt joins the queues.
    fn queues(&self, attempt: u8) -> bool {
        (attempt - 1) % self.rounds >= self.queued_from
    }

    fn writes_now(&self, state: &State<C>, client: usize) -> bool {
        let now = state.clients[client];
        self.claim(client, now.attempt).writes && !now.is_lowered() && !now.upgrades
    }

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

    /// Counts an answer to the round of a client.
    fn count(&self, state: &mut State<C>, client: usize, at: usize, vote: Vote) {
        state.masters[at].votes[client] = vote;
        let votes = state.masters.map(|master| master.votes[client]);
        let has = |vote| votes.iter().filter(|cast| **cast == vote).count() >= MAJORITY;
        match state.clients[client].phase {
            Phase::Asking if has(Vote::Grant) => self.win(state, client),
            Phase::Asking if has(Vote::Refuse) => {
                self.lose(state, client);
            }
            Phase::Held if has(Vote::Grant) => {
                let now = &mut state.clients[client];
                if now.extension == Extension::Open {
                    if now.is_robbed && self.strict_breaks {
                        state.flaw = Wrong::Robbed;
                    }
                    now.is_broken = false;
                }
                now.extension = Extension::None;
                state.believe(client);
            }
            Phase::Held if has(Vote::Refuse) => {
                self.leave(state, client);
            }
            _ => {}
        }
    }

    fn lose(&self, state: &mut State<C>, client: usize) {
        state.close(client);
        state.clients[client].phase = Phase::Waiting;
        if self.is_tidy {
            let by = self.caller(client, state.clients[client].attempt);
            let queues = self.queues(by.attempt);
            for master in &mut state.masters {
                master.give_back(self.rules(), by, queues);
            }
        }
    }

    fn leave(&self, state: &mut State<C>, client: usize) {
        state.clients[client].leave();
        state.close(client);
        let by = self.caller(client, state.clients[client].attempt);
        for master in &mut state.masters {
            master.counted[client] = false;
            if self.is_tidy {
                master.release(self.rules(), by);
            }
        }
    }

    fn win(&self, state: &mut State<C>, client: usize) {
        for other in 0..C {
            let masters = state.masters.iter();
            let ahead = masters.filter(|master| master.ahead[client] & 1 << other != 0);
            if ahead.count() >= MAJORITY {
                state.flaw = Wrong::Order;
            }
            let writes = self.writes_now(state, client) || self.writes_now(state, other);
            let held = &mut state.clients[other];
            if other != client && held.phase == Phase::Held && held.is_broken && writes {
                held.is_robbed = true;
            }
        }
        let now = &mut state.clients[client];
        now.phase = Phase::Held;
        now.won |= bit(now.attempt);
        now.upgrades = false;
        state.believe(client);
    }

    /// Begins a round of a client.
    fn ask(&self, state: &mut State<C>, client: usize, attempt: u8) {
        let now = &mut state.clients[client];
        now.phase = Phase::Asking;
        now.claim = (attempt - 1) / self.rounds;
        now.attempt = attempt;
        now.begun |= bit(attempt);
        now.is_broken = false;
        if !self.is_ordered {
            return;
        }
        let mine = self.claim(client, attempt);
        for other in (0..C).filter(|other| *other != client) {
            let claim = self.claim(other, state.clients[other].attempt);
            let is_before = claim.ticket < mine.ticket && (claim.writes || mine.writes);
            for at in 0..MASTERS {
                if is_before && self.is_present(state, other, at) {
                    state.masters[at].ahead[client] |= 1 << other;
                }
            }
        }
    }

    /// Returns whether a client waits, and a master has its ticket, or its entry.
    fn is_present(&self, state: &State<C>, client: usize, at: usize) -> bool {
        let now = state.clients[client];
        let (master, ticket) = (state.masters[at], self.claim(client, now.attempt).ticket);
        let entry = master.entries[client];
        let is_entered = matches!(entry.form, Form::Reads | Form::Writes)
            && (entry.attempt - 1) / self.rounds == now.claim;
        now.is_waiting() && (master.tickets & ticket != 0 || is_entered)
    }

    fn client_steps(&self, state: &State<C>, client: usize, visit: &mut dyn FnMut(Step, State<C>)) {
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
                        self.ask(next, client, now.attempt + 1)
                    });
                }
                step("leaves", &leave);
            }
            Phase::Held => {
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
                step("leaves", &leave);
            }
        }
    }

    fn master_steps(&self, state: &State<C>, at: usize, visit: &mut dyn FnMut(Step, State<C>)) {
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
        for client in 0..C {
            let entry = master.entries[client];
            let is_needed =
                entry.attempt == state.clients[client].attempt && state.is_relied_on(client, at);
            let is_needed = is_needed || state.clients[client].upgrades;
            if entry.form != Form::Nothing && !is_needed {
                let mut next = *state;
                next.masters[at].entries[client] = super::master::Entry::default();
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

    fn command_steps(&self, state: &State<C>, at: usize, visit: &mut dyn FnMut(Step, State<C>)) {
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

    /// Drops what no longer holds, and forgets the names of the masters.
    fn settle(&self, mut state: State<C>) -> State<C> {
        if self.is_ordered {
            for client in 0..C {
                for at in 0..MASTERS {
                    for other in 0..C {
                        if !self.is_present(&state, other, at) {
                            state.masters[at].ahead[client] &= !(1 << other);
                        }
                    }
                }
            }
        }
        state.masters.sort_unstable_by_key(Master::packed);
        state
    }
}

impl Client {
    /// Notes that an entry was broken. It `is_used` if a round or a lease counts on it.
    fn on_break(&mut self, is_used: bool) {
        if is_used {
            self.is_broken = true;
            if self.extension == Extension::Open {
                self.extension = Extension::Stale;
            }
        }
    }
}

impl<const C: usize> State<C> {
    /// Forgets the votes in the round of a client.
    fn close(&mut self, client: usize) {
        for master in &mut self.masters {
            master.votes[client] = Vote::None;
            master.ahead[client] = 0;
        }
    }

    /// Lets a lease count on the masters that granted the round of a client.
    fn believe(&mut self, client: usize) {
        for master in &mut self.masters {
            master.counted[client] = master.votes[client] == Vote::Grant;
        }
        self.close(client);
    }

    /// Returns whether a lease or an open round counts on a master.
    fn is_relied_on(&self, client: usize, at: usize) -> bool {
        let master = &self.masters[at];
        master.counted[client] || master.votes[client] == Vote::Grant
    }
}

impl<const C: usize> Model for ReadWrite<C> {
    type State = State<C>;
    type Step = Step;

    fn start(&self) -> State<C> {
        State {
            masters: [Master::EMPTY; MASTERS],
            clients: [Client::default(); C],
            has_forgotten: false,
            flaw: Wrong::Nothing,
        }
    }

    fn steps(&self, state: &State<C>, visit: &mut dyn FnMut(Step, State<C>)) {
        let mut visit = |step, next| visit(step, self.settle(next));
        for client in 0..C {
            self.client_steps(state, client, &mut visit);
        }
        for at in 0..MASTERS {
            if at == 0 || state.masters[at] != state.masters[at - 1] {
                self.master_steps(state, at, &mut visit);
                self.command_steps(state, at, &mut visit);
            }
        }
    }

    fn flaw(&self, state: &State<C>) -> Option<&'static str> {
        let holders = state.clients.iter().filter(|client| client.believes());
        let has_writer =
            (0..C).any(|client| state.clients[client].believes() && self.writes_now(state, client));
        if has_writer && holders.count() > 1 {
            return Some(EXCLUSION);
        }
        match state.flaw {
            Wrong::Order => Some(ORDER),
            Wrong::Robbed => Some(ROBBED),
            Wrong::Nothing => (self.ends && self.is_stuck(state)).then_some(STUCK),
        }
    }
}

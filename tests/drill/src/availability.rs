//! The times for which locks could not be had, although a majority of masters was healthy.

use quorlock::Kind;

use crate::clock::{self, Nanos, SECOND};
use crate::history::{Call, History, Tenure};
use crate::locks::{KINDS, LockNumber, MOST_TTL, NODE_TIMEOUT};
use crate::nemesis::Done;
use crate::plan::{CLIENTS, MASTERS};
use crate::spans::{Span, at_least, union, without};

/// The longest time for which a lock of one kind was free and wanted, and no one got it.
#[derive(Clone, Debug)]
pub struct Outage {
    pub kind: Kind,
    pub lock: LockNumber,
    pub span: Span,
}

/// Returns the times for which the client of each place could reach a majority of masters that have
/// a vote. `unwell` has the times for which each master did not answer or had no vote. `away` has
/// the times for which clients were stopped or dead. After each of these times, a master or a
/// client needs `rest` to be back.
pub fn served(
    whole: Span,
    unwell: &[Vec<Span>],
    done: &[Done],
    away: &[Vec<Span>],
    rest: Nanos,
) -> Vec<Vec<Span>> {
    let and_rest = |span: Span| Span::new(span.from, span.to + rest);
    let client = |place: usize| {
        let healthy = (0..MASTERS).map(|master| {
            let faults = done.iter().filter(|fault| {
                let is_cut = fault.hits_links() && fault.event.clients.contains(&place);
                fault.event.masters.contains(&master) && (is_cut || fault.hits_master())
            });
            let faults = faults.map(|fault| fault.span);
            let unwell = faults.chain(unwell[master].iter().copied());
            without(whole, unwell.map(and_rest).collect())
        });
        let majority = at_least(MASTERS / 2 + 1, &healthy.collect::<Vec<_>>());
        let running = without(whole, away[place].iter().copied().map(and_rest).collect());
        at_least(2, &[majority, running])
    };
    (0..CLIENTS).map(client).collect()
}

/// The longest time that a client takes to reconnect after a fault: the connect timeout of a dial
/// that does not get through, and the longest pause before the next dial.
pub const RECONNECT: Nanos = 2 * SECOND;

/// Returns the longest outage of each kind. `served` is from [`served`].
pub fn longest_outages(
    history: &History,
    whole: Span,
    served: &[Vec<Span>],
    away: &[Vec<Span>],
) -> Vec<Outage> {
    let longest = |kind: Kind| {
        let locks = LockNumber::all().filter(|lock| lock.kind() == kind);
        let outages = locks.flat_map(|lock| {
            let mut held = leftovers(lock, history, away);
            held.extend(history.of_lock(lock).into_iter().map(Tenure::validity));
            let wanted = wanted(lock, history, served, away);
            let held = held.into_iter().map(|span| vec![span]);
            let taken = at_least(lock.permits(), &held.collect::<Vec<_>>());
            let spans = at_least(2, &[wanted, without(whole, taken)]);
            spans
                .into_iter()
                .map(move |span| Outage { kind, lock, span })
        });
        outages.max_by_key(|outage| outage.span.length())
    };
    KINDS.into_iter().filter_map(longest).collect()
}

/// A waiter whose longest wait the report names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Waiter {
    Writer,
    Reader,
    Permit,
}

impl Waiter {
    pub const ALL: [Self; 3] = [Self::Writer, Self::Reader, Self::Permit];

    pub fn name(self) -> &'static str {
        match self {
            Self::Writer => "a writer among readers",
            Self::Reader => "a reader among writers",
            Self::Permit => "a waiter for a permit",
        }
    }

    fn is_of(self, call: &Call) -> bool {
        match self {
            Self::Writer => call.lock.has_readers() && !call.reads,
            Self::Reader => call.reads,
            Self::Permit => call.lock.is_semaphore(),
        }
    }
}

/// A wait for a lock, in vain or not, while the client was served.
#[derive(Clone, Debug)]
pub struct Wait {
    pub waiter: Waiter,
    pub lock: LockNumber,
    pub span: Span,
}

/// Returns the longest wait of each waiter while its client was served. `served` is from
/// [`served`]. Leaves out the waits of clients that were killed.
pub fn longest_waits(history: &History, served: &[Vec<Span>]) -> Vec<Wait> {
    let longest = |waiter: Waiter| {
        let calls = history.calls.iter();
        let calls = calls.filter(|call| call.is_acquisition && waiter.is_of(call));
        let waits = calls.flat_map(|call| {
            let whole = vec![Span::new(call.from, call.to.unwrap_or(call.from))];
            let spans = at_least(2, &[whole, served[call.client.place].clone()]);
            spans.into_iter().map(|span| Wait {
                waiter,
                lock: call.lock,
                span,
            })
        });
        waits.max_by_key(|wait| wait.span.length())
    };
    Waiter::ALL.into_iter().filter_map(longest).collect()
}

/// Returns the times for which the lock was wanted by a client that could reach a majority.
fn wanted(
    lock: LockNumber,
    history: &History,
    served: &[Vec<Span>],
    away: &[Vec<Span>],
) -> Vec<Span> {
    let calls = calls_of_places(lock, history, away).into_iter();
    let wanted = calls
        .zip(served)
        .flat_map(|(calls, served)| at_least(2, &[calls, served.clone()]));
    union(wanted.collect())
}

/// Returns the times of the calls that acquired the lock, for each place.
fn calls_of_places(lock: LockNumber, history: &History, away: &[Vec<Span>]) -> Vec<Vec<Span>> {
    let mut calls = vec![Vec::new(); away.len()];
    for call in history.acquisitions(lock) {
        let place = call.client.place;
        // An unfinished call ended when its client was killed. Afterwards the place has a new
        // process, which does not wait for it.
        let kills = away[place].iter().map(|away| away.from);
        let killed = kills.filter(|at| *at >= call.from).min();
        let end = || killed.map_or(call.due, |at| at.min(call.due));
        calls[place].push(Span::new(call.from, call.to.unwrap_or_else(end)));
    }
    calls
}

/// Returns the times for which masters may keep a lock that has a minimum time, or the lock of a
/// client that was killed or stopped while it acquired or released it. No one is told of such a
/// lock, and it ends with its TTL.
fn leftovers(lock: LockNumber, history: &History, away: &[Vec<Span>]) -> Vec<Span> {
    let mut busy = calls_of_places(lock, history, away);
    let mut leftovers = Vec::new();
    for tenure in history.of_lock(lock) {
        if tenure.until < tenure.hold_until {
            // After a minimum time, masters keep the lock for its last TTL, by their own clocks.
            let kept = clock::nanos(MOST_TTL) * 102 / 100;
            leftovers.push(Span::new(tenure.until, tenure.until + kept));
        }
        // A release takes a moment, and is not always in the log.
        let to = tenure.until + clock::nanos(NODE_TIMEOUT);
        busy[tenure.client.place].push(Span::new(tenure.granted, to));
    }
    for (busy, away) in busy.iter().zip(away) {
        let meets = |away: &&Span| {
            busy.iter()
                .any(|busy| busy.from < away.from && away.from <= busy.to)
        };
        let kept = away.iter().filter(meets);
        leftovers.extend(kept.map(|away| Span::new(away.from, away.from + clock::nanos(MOST_TTL))));
    }
    leftovers
}

/// Returns the longest time for which a client that was served did not get a lock that no one else
/// uses. Time for which the machine was too busy to run the drill does not count.
pub fn longest_wait_of_a_probe(
    history: &History,
    served: &[Vec<Span>],
    stalls: &[Span],
) -> Option<Gap> {
    let gaps = served.iter().enumerate().flat_map(|(place, served)| {
        let probes = history.probes.iter();
        let mut at: Vec<_> = probes
            .filter(|(client, _)| client.place == place)
            .map(|(_, at)| Span::new(*at, *at + 1))
            .collect();
        at.sort_unstable();
        let gaps: Vec<_> = served
            .iter()
            .flat_map(|span| without(*span, at.clone()))
            .collect();
        gaps.into_iter().map(move |span| (place, span))
    });
    let gaps = gaps.map(|(place, span)| {
        let stalls = stalls.iter().filter(|stall| stall.meets(span));
        let stalled: Nanos = stalls.map(|stall| stall.length()).sum();
        Gap {
            place,
            span,
            length: span.length().saturating_sub(stalled),
        }
    });
    gaps.max_by_key(|gap| gap.length)
}

/// A time for which the probe of a client did not get its lock.
#[derive(Clone, Debug)]
pub struct Gap {
    pub place: usize,
    pub span: Span,
    /// Without the time for which the machine was too busy.
    pub length: Nanos,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fleet::Client;
    use crate::plan::{Event, Fault};

    fn fault(fault: Fault, master: usize, clients: &[usize], span: Span) -> Done {
        let event = Event {
            fault,
            from: Duration::ZERO,
            to: Duration::ZERO,
            masters: vec![master],
            clients: clients.to_vec(),
            detail: 0,
        };
        Done { event, span }
    }

    #[test]
    fn a_client_is_served_while_it_reaches_a_majority() {
        let whole = Span::new(0, 100);
        let done = [
            fault(Fault::StopMaster, 0, &[], Span::new(10, 40)),
            fault(Fault::HoldBoth, 1, &[7], Span::new(20, 50)),
        ];
        let mut unwell = vec![Vec::new(); MASTERS];
        unwell[2].push(Span::new(30, 60));
        let mut away = vec![Vec::new(); CLIENTS];
        away[7].push(Span::new(90, 95));
        let served = served(whole, &unwell, &done, &away, 0);
        assert_eq!(served[0], [whole]);
        let expected = [Span::new(0, 30), Span::new(40, 90), Span::new(95, 100)];
        assert_eq!(served[7], expected);
        let served = super::served(whole, &unwell, &done, &away, 3);
        assert_eq!(
            served[7],
            [Span::new(0, 30), Span::new(43, 90), Span::new(98, 100)]
        );
    }

    #[test]
    fn the_longest_time_without_a_holder_is_found() {
        let client = Client { place: 0, life: 0 };
        let lock = LockNumber(0);
        let call = |from, to| Call {
            client,
            lock,
            from,
            to: Some(to),
            due: to,
            is_acquisition: true,
            reads: false,
        };
        let tenure = |granted, until| Tenure {
            reads: false,
            client,
            lock,
            came: 0,
            called: granted,
            asked: granted,
            granted,
            until,
            hold_until: 0,
            is_kept: false,
            token: None,
            slot: None,
            owner: String::new(),
        };
        let history = History {
            calls: vec![call(0, 40), call(50, 90)],
            tenures: vec![tenure(10, 20), tenure(40, 55)],
            ..History::default()
        };
        let mut served = vec![vec![Span::new(0, 100)]; CLIENTS];
        let mut away = vec![Vec::new(); CLIENTS];
        let whole = Span::new(0, 100);
        let longest = |served: &[Vec<Span>], away: &[Vec<Span>]| {
            longest_outages(&history, whole, served, away)[0].span
        };
        assert_eq!(longest(&served, &away), Span::new(55, 90));
        served[0] = vec![Span::new(0, 60)];
        assert_eq!(longest(&served, &away), Span::new(20, 40));
        // The client may have been killed while it released the lock.
        away[0].push(Span::new(19, 19));
        assert_eq!(longest(&served, &away), Span::new(0, 10));
    }

    #[test]
    fn a_semaphore_is_out_of_reach_only_without_a_free_permit() {
        let client = Client { place: 0, life: 0 };
        let is_semaphore = |lock: &LockNumber| lock.is_semaphore();
        let lock = LockNumber::all().find(is_semaphore).unwrap();
        let call = Call {
            client,
            lock,
            from: 0,
            to: Some(100),
            due: 100,
            is_acquisition: true,
            reads: false,
        };
        let tenure = |slot, granted, until| Tenure {
            reads: false,
            client,
            lock,
            came: 0,
            called: granted,
            asked: granted,
            granted,
            until,
            hold_until: 0,
            is_kept: false,
            token: None,
            slot: Some(slot),
            owner: String::new(),
        };
        let history = History {
            calls: vec![call],
            tenures: vec![tenure(0, 10, 60), tenure(1, 20, 90)],
            ..History::default()
        };
        let served = vec![vec![Span::new(5, 100)]; CLIENTS];
        let away = vec![Vec::new(); CLIENTS];
        let outages = longest_outages(&history, Span::new(0, 100), &served, &away);
        assert_eq!(outages[0].span, Span::new(60, 100));
        let waits = longest_waits(&history, &served);
        assert_eq!((waits.len(), waits[0].span), (1, Span::new(5, 100)));
        assert_eq!(waits[0].waiter, Waiter::Permit);
    }

    #[test]
    fn a_call_of_a_killed_client_wants_nothing_once_its_place_has_a_new_process() {
        let call = Call {
            client: Client { place: 0, life: 0 },
            lock: LockNumber(0),
            from: 10,
            to: None,
            due: 90,
            is_acquisition: true,
            reads: false,
        };
        let history = History {
            calls: vec![call],
            ..History::default()
        };
        let served = vec![vec![Span::new(0, 30), Span::new(40, 100)]];
        let away = vec![vec![Span::new(30, 40), Span::new(60, 70)]];
        let lock = LockNumber(0);
        assert_eq!(wanted(lock, &history, &served, &away), [Span::new(10, 30)]);
        // Nor was it busy when the next process was killed.
        let kept = Span::new(30, 30 + clock::nanos(MOST_TTL));
        assert_eq!(leftovers(lock, &history, &away), [kept]);
    }

    #[test]
    fn a_probe_that_gets_nothing_is_found_while_its_client_is_served() {
        let probe = |place, at| (Client { place, life: 0 }, at);
        let history = History {
            probes: vec![probe(0, 10), probe(0, 20), probe(0, 80), probe(1, 50)],
            ..History::default()
        };
        let longest = |served: [Vec<Span>; 3], stalls: &[Span]| {
            let gap = longest_wait_of_a_probe(&history, &served, stalls).unwrap();
            (gap.place, gap.length)
        };
        let all = || vec![Span::new(0, 100)];
        assert_eq!(longest([all(), vec![], vec![]], &[]), (0, 59));
        assert_eq!(longest([all(), vec![], all()], &[]), (2, 100));
        assert_eq!(
            longest([vec![Span::new(0, 70)], vec![], vec![]], &[]),
            (0, 49)
        );
        assert_eq!(
            longest([all(), vec![], vec![]], &[Span::new(30, 70)]),
            (0, 19)
        );
    }
}

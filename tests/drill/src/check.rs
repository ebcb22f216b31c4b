//! The checks on a history.

use crate::clock::{self, Nanos, SECOND};
use crate::history::{Call, History, Tenure};
use crate::locks::{LockNumber, RESPONSE_TIMEOUT};
use crate::spans::{Span, at_least, stalled};
use crate::watch::{Holding, Presence, Record};

/// Returns a line for each pair of holders that were valid at the same time. Those of a semaphore
/// may be, in different slots.
pub fn overlaps(history: &History) -> Vec<String> {
    let mut found = Vec::new();
    for (lock, mut tenures) in by_slot(history) {
        tenures.retain(|tenure| tenure.validity().length() > 0);
        // The writer and the reader before that are valid for longest. All are writers if the lock
        // has no readers.
        let (mut writer, mut reader): (Option<&Tenure>, Option<&Tenure>) = (None, None);
        for tenure in tenures {
            let others = [writer, reader.filter(|_| !tenure.reads)];
            for other in others.into_iter().flatten() {
                if other.until > tenure.granted {
                    found.push(format!(
                        "overlap of {}: {other:?} and {tenure:?}",
                        lock.name()
                    ));
                }
            }
            let longest = if tenure.reads {
                &mut reader
            } else {
                &mut writer
            };
            if longest.is_none_or(|other| other.until < tenure.until) {
                *longest = Some(tenure);
            }
        }
    }
    found
}

/// Returns the tenures of all locks, those of each slot apart.
fn by_slot(history: &History) -> impl Iterator<Item = (LockNumber, Vec<&Tenure>)> {
    LockNumber::all().flat_map(|lock| {
        let slots = history.by_slot(lock);
        slots.map(move |tenures| (lock, tenures))
    })
}

/// Returns a line for each time at which a semaphore had more valid holders than permits, and for
/// each holder of a slot that it does not have.
pub fn crowds(history: &History) -> Vec<String> {
    let mut found = Vec::new();
    for lock in LockNumber::all().filter(|lock| lock.is_semaphore()) {
        let tenures = history.of_lock(lock);
        let valid = tenures.iter().map(|tenure| vec![tenure.validity()]);
        for span in at_least(lock.permits() + 1, &valid.collect::<Vec<_>>()) {
            let valid = tenures.iter().filter(|one| one.validity().meets(span));
            let valid: Vec<_> = valid.collect();
            found.push(format!("too many holders of {}: {valid:?}", lock.name()));
        }
        let has_slot = |one: &&&Tenure| one.slot.is_some_and(|slot| slot < lock.permits());
        let without = tenures.iter().filter(|one| !has_slot(one));
        found.extend(without.map(|one| format!("{} has no such slot: {one:?}", lock.name())));
    }
    found
}

/// Returns a line for each holder that got a lock within the minimum hold of the holder before.
pub fn minimum_times(history: &History) -> Vec<String> {
    let mut found = Vec::new();
    for (lock, tenures) in by_slot(history) {
        let mut kept: Option<&Tenure> = None;
        for tenure in tenures {
            let excludes = |other: &&Tenure| !(other.reads && tenure.reads);
            let others = kept.filter(excludes);
            if let Some(other) = others.filter(|other| tenure.granted < other.hold_until) {
                found.push(format!(
                    "{} was not kept for its minimum hold: {other:?} and {tenure:?}",
                    lock.name()
                ));
            }
            kept = Some(tenure).filter(|tenure| tenure.is_kept).or(kept);
        }
    }
    found
}

/// The findings about fencing tokens.
#[derive(Debug, Default)]
pub struct TokenFindings {
    pub wrong: Vec<String>,
    /// The number of pairs that are out of order, but were granted so close to each other that the
    /// order is not promised: masters had lost their counters in between.
    pub excused: usize,
}

/// Compares the tokens of each lock. A holder that began to ask after another holder had the lock
/// has a larger token, and no two holders have the same token. `forgotten` are the times at which
/// masters lost their counters and voted at once.
pub fn tokens(history: &History, forgotten: &[Nanos]) -> TokenFindings {
    let mut findings = TokenFindings::default();
    for lock in LockNumber::all() {
        let holders = history.of_lock(lock);
        let mut by_start = holders.clone();
        by_start.sort_by_key(|tenure| tenure.asked);
        let mut granted = holders.iter().peekable();
        let mut largest: Option<&Tenure> = None;
        for tenure in by_start {
            while let Some(earlier) = granted.next_if(|one| one.granted < tenure.asked) {
                if largest.is_none_or(|largest| largest.token < earlier.token) {
                    largest = Some(earlier);
                }
            }
            if let Some(largest) = largest.filter(|largest| largest.token >= tenure.token) {
                findings.add("out of order", largest, tenure, forgotten);
            }
        }
        let mut by_token = holders;
        by_token.sort_by_key(|tenure| tenure.token);
        for pair in by_token.windows(2) {
            if pair[0].token == pair[1].token {
                findings.add("twice", pair[0], pair[1], forgotten);
            }
        }
    }
    findings
}

impl TokenFindings {
    fn add(&mut self, what: &str, one: &Tenure, other: &Tenure, forgotten: &[Nanos]) {
        if one.token.is_none() && other.token.is_none() {
            return;
        }
        let (from, to) = (
            one.granted.min(other.granted),
            one.granted.max(other.granted),
        );
        // The loss may come after the first master has accepted a token, but before the last one.
        let is_lost = |at: &Nanos| one.asked.min(other.asked) < *at && *at < to;
        if to - from < CLOSE && forgotten.iter().any(is_lost) {
            self.excused += 1;
        } else {
            self.wrong
                .push(format!("tokens {what}: {one:?} and {other:?}"));
        }
    }
}

/// The distance from which tokens are in order although masters lost their counters: two windows of
/// one second, and the largest error of a clock. See `docs/algorithm.md`.
const CLOSE: Nanos = 2 * SECOND + 7 * SECOND;

/// The findings about the order of fair locks.
#[derive(Debug, Default)]
pub struct FairFindings {
    pub wrong: Vec<String>,
    /// The number of grants that were compared with waiters in the queues.
    pub compared: usize,
}

/// Compares the holders of fair locks with the queues and the grants of each master. A waiter must
/// not be overtaken by a waiter with a later ticket if it was in the queues of a majority of
/// masters during the whole attempt that the later waiter won. A master does not count if it had
/// granted the later waiter an earlier attempt, whose reply was lost, and still has that grant.
pub fn fair_order(history: &History, masters: &[Record]) -> FairFindings {
    let majority = masters.len() / 2 + 1;
    let mut findings = FairFindings::default();
    for lock in LockNumber::all() {
        let holders = history.of_lock(lock);
        let queues = masters
            .iter()
            .map(|master| of_lock(&master.presences, lock));
        let queues: Vec<Vec<&Presence>> = queues.collect();
        for tenure in holders {
            let ticket = ticket_of(tenure, &queues);
            let attempt = Span::new(start_of_attempt(tenure), tenure.granted);
            let waiting = queues
                .iter()
                .flat_map(|queue| present_during(queue, attempt));
            let mut others: Vec<_> = waiting
                .filter(|ticket| owner(ticket) != tenure.owner)
                .collect();
            others.sort_unstable();
            findings.compared += usize::from(!others.is_empty());
            for other in others.chunk_by(|one, next| one == next) {
                if other.len() < majority || *other[0] >= *ticket {
                    continue;
                }
                let other = other[0];
                let passed = queues.iter().zip(masters).filter(|(queue, master)| {
                    is_passed(queue, other, tenure, attempt, &master.holdings)
                });
                if passed.count() >= majority {
                    let seen = presences_of(&queues, &[other, &ticket], attempt);
                    let lock = lock.name();
                    findings.wrong.push(format!(
                        "overtaken in {lock}: {other} by {ticket} of {tenure:?}; in the queues: {seen:?}"
                    ));
                }
            }
        }
    }
    findings
}

/// Returns whether a waiter was in the queue of a master during the whole attempt, and the master
/// had granted nothing to the holder since the waiter came and before the attempt.
fn is_passed(
    queue: &[&Presence],
    waiter: &str,
    tenure: &Tenure,
    attempt: Span,
    holdings: &[Holding],
) -> bool {
    let stays = queue
        .iter()
        .filter(|one| one.ticket == waiter && one.span.to >= attempt.to);
    let mut begins = stays.map(|one| one.span.from);
    let Some(came) = begins.find(|from| *from <= attempt.from) else {
        return false;
    };
    !holdings.iter().any(|one| {
        one.lock == tenure.lock
            && one.owner == tenure.owner
            && (came..=attempt.from).contains(&one.seen.to)
    })
}

/// Returns when each master had the waiters with these tickets, or with other tickets of their
/// owners, in its queue, up to a second before and after `attempt`.
fn presences_of<'a>(
    queues: &[Vec<&'a Presence>],
    tickets: &[&str],
    attempt: Span,
) -> Vec<(usize, &'a str, Span)> {
    let is_theirs = |one: &Presence| tickets.iter().any(|two| owner(two) == owner(&one.ticket));
    let near = Span::new(attempt.from.saturating_sub(SECOND), attempt.to + SECOND);
    let mut seen = Vec::new();
    for (master, queue) in queues.iter().enumerate() {
        let theirs = queue
            .iter()
            .filter(|one| is_theirs(one) && one.span.meets(near));
        seen.extend(theirs.map(|one| (master, one.ticket.as_str(), one.span)));
    }
    seen
}

/// Returns a time from before the attempt that won the lock. With a fencing token, its last round
/// may follow two others, and masters keep the grants of those rounds.
fn start_of_attempt(tenure: &Tenure) -> Nanos {
    /// Two rounds. Their response timeout may double.
    const MORE_BALLOTS: Nanos = 4 * clock::nanos(RESPONSE_TIMEOUT);
    if tenure.lock.is_fenced() {
        tenure.called.max(tenure.asked.saturating_sub(MORE_BALLOTS))
    } else {
        tenure.asked
    }
}

fn of_lock(queue: &[Presence], lock: LockNumber) -> Vec<&Presence> {
    let mut presences: Vec<_> = queue.iter().filter(|one| one.lock == lock).collect();
    presences.sort_by_key(|one| one.span.from);
    presences
}

/// Returns the earliest ticket that the holder may have had when its attempt began. A client that
/// once had to follow the clocks of the masters draws tickets by them. A master that answered late
/// may still have the ticket from before.
fn ticket_of(tenure: &Tenure, queues: &[Vec<&Presence>]) -> String {
    let earliest = tenure.granted.saturating_sub(LONGEST_WAIT);
    // After a correction of its clock, a waiter has a new ticket. A ticket from before the
    // correction may be later.
    let still = tenure.asked.saturating_sub(BETWEEN_READS);
    let seen = queues.iter().flat_map(|queue| since(queue, earliest));
    let own = seen
        .filter(|one| one.span.to >= still)
        .map(|one| &one.ticket)
        .filter(|ticket| owner(ticket) == tenure.owner);
    own.min()
        .cloned()
        .unwrap_or_else(|| format!("{:016}:", tenure.came.saturating_sub(CLOCK_ERROR)))
}

/// A bound for the time between two reads of a queue. After a longer time, a ticket may be missed.
const BETWEEN_READS: Nanos = 50 * clock::MILLISECOND;

/// A bound for the error of the masters' clocks, in microseconds. A test of the plan checks it.
pub const CLOCK_ERROR: u64 = 600_000;

fn present_during<'a>(queue: &[&'a Presence], span: Span) -> impl Iterator<Item = &'a str> {
    let earliest = span.from.saturating_sub(LONGEST_WAIT);
    let begun = since(queue, earliest).take_while(move |one| one.span.from <= span.from);
    begun
        .filter(move |one| one.span.to >= span.to)
        .map(|one| one.ticket.as_str())
}

fn since<'a>(queue: &[&'a Presence], earliest: Nanos) -> impl Iterator<Item = &'a Presence> {
    let start = queue.partition_point(|one| one.span.from < earliest);
    queue[start..].iter().copied()
}

/// The longest time between the first sight of a ticket and the grant. Waiters give up earlier, but
/// a client may be stopped meanwhile.
const LONGEST_WAIT: Nanos = 20 * SECOND;

fn owner(ticket: &str) -> &str {
    ticket.split_once(':').map_or("", |(_, owner)| owner)
}

/// Returns a line for each call that returned too late, or never. `away` has the times for which
/// the client of each place was stopped or dead. `stalls` has the times for which the machine was
/// too busy to run the drill. `end` is the end of the history.
pub fn overdue(history: &History, away: &[Vec<Span>], stalls: &[Span], end: Nanos) -> Vec<String> {
    let is_overdue = |call: &&Call| {
        let span = Span::new(call.from, call.to.unwrap_or(end));
        span.to > call.due + SLACK + stalled(stalls, span)
            && !away[call.client.place].iter().any(|away| away.meets(span))
    };
    let overdue = history.calls.iter().filter(is_overdue);
    overdue
        .map(|call| {
            format!(
                "a call for {} returned too late: {call:?}",
                call.lock.name()
            )
        })
        .collect()
}

/// An allowance for a busy machine.
const SLACK: Nanos = 3 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::fixture::{CLIENT, tenure};

    fn history(tenures: &[Tenure]) -> History {
        let mut history = History {
            tenures: tenures.to_vec(),
            ..History::default()
        };
        history.tenures.sort_by_key(|tenure| tenure.granted);
        history
    }

    #[test]
    fn a_planted_overlap_is_found() {
        let in_order = [
            tenure(0, 0, 1, 9, 0),
            tenure(0, 5, 9, 12, 0),
            tenure(1, 0, 2, 20, 0),
        ];
        assert_eq!(overlaps(&history(&in_order)).len(), 0);
        let long = [
            tenure(0, 0, 1, 30, 0),
            tenure(0, 1, 3, 4, 0),
            tenure(0, 5, 29, 31, 0),
        ];
        assert_eq!(overlaps(&history(&long)).len(), 2);
        // Readers overlap with writers only.
        let reader = |granted, until| Tenure {
            reads: true,
            ..tenure(0, granted - 1, granted, until, 0)
        };
        let writer = |granted, until| tenure(0, granted - 1, granted, until, 0);
        for (tenures, expected) in [
            ([reader(1, 9), reader(2, 9), writer(9, 20)], 0),
            ([reader(1, 9), reader(2, 9), writer(8, 20)], 1),
            ([writer(1, 9), reader(8, 10), reader(9, 10)], 1),
        ] {
            assert_eq!(overlaps(&history(&tenures)).len(), expected, "{tenures:?}");
        }
        // A holder whose validity was over when it got the lock overlaps with no one.
        let expired = [tenure(0, 0, 1, 30, 0), tenure(0, 1, 9, 8, 0)];
        assert_eq!(overlaps(&history(&expired)).len(), 0);
    }

    #[test]
    fn planted_holders_of_one_permit_too_many_are_found() {
        let lock = LockNumber::all().find(|lock| lock.is_semaphore()).unwrap();
        let find = |holders: &[(usize, Nanos, Nanos)]| {
            let tenures = holders.iter().map(|&(slot, granted, until)| Tenure {
                slot: Some(slot),
                ..tenure(lock.0, granted - 1, granted, until, 0)
            });
            let history = history(&tenures.collect::<Vec<_>>());
            (overlaps(&history).len(), crowds(&history).len())
        };
        assert_eq!(lock.permits(), 2);
        assert_eq!(
            find(&[(0, 1, 9), (1, 2, 9), (0, 9, 12), (1, 9, 12)]),
            (0, 0)
        );
        assert_eq!(find(&[(0, 1, 9), (0, 8, 12)]), (1, 0));
        assert_eq!(find(&[(0, 1, 9), (1, 2, 9), (0, 8, 12)]), (1, 1));
        // A third slot, and a third holder.
        assert_eq!(find(&[(2, 1, 9)]), (0, 1));
        assert_eq!(find(&[(0, 1, 9), (1, 2, 9), (2, 3, 9)]), (0, 2));
    }

    #[test]
    fn a_planted_break_of_a_minimum_time_is_found() {
        let with = |is_kept, next| {
            let mut first = tenure(0, 0, 1, 3, 0);
            (first.hold_until, first.is_kept) = (50, is_kept);
            let others = [tenure(1, 4, 5, 6, 0), tenure(0, 4, next, next + 1, 0)];
            minimum_times(&history(&[&[first], &others[..]].concat())).len()
        };
        assert_eq!((with(true, 49), with(true, 50)), (1, 0));
        assert_eq!(with(false, 49), 0); // its release failed, or it had lost the lock
    }

    #[test]
    fn planted_tokens_out_of_order_and_planted_duplicates_are_found() {
        let wrong = |tenures: &[Tenure]| tokens(&history(tenures), &[]).wrong.len();
        assert_eq!(wrong(&[tenure(2, 0, 1, 3, 7), tenure(2, 2, 4, 9, 8)]), 0);
        assert_eq!(wrong(&[tenure(2, 0, 1, 3, 8), tenure(2, 2, 4, 9, 7)]), 1);
        assert_eq!(wrong(&[tenure(2, 0, 1, 3, 7), tenure(2, 2, 4, 9, 7)]), 2);
        assert_eq!(wrong(&[tenure(2, 0, 3, 3, 7), tenure(2, 2, 4, 9, 7)]), 1);
        // These two asked at the same time, so either order is right.
        assert_eq!(wrong(&[tenure(2, 0, 3, 3, 8), tenure(2, 2, 4, 9, 7)]), 0);
        assert_eq!(wrong(&[tenure(0, 0, 1, 3, 0), tenure(0, 2, 4, 9, 0)]), 0);
        // The pair is not next to each other.
        let apart = [
            tenure(2, 0, 1, 3, 9),
            tenure(2, 2, 4, 9, 10),
            tenure(2, 5, 6, 8, 9),
        ];
        assert!(wrong(&apart) > 0);
    }

    #[test]
    fn tokens_right_after_a_loss_of_counters_are_excused_and_others_are_not() {
        let close = [tenure(2, 0, 1, 3, 8), tenure(2, 6, 7, 9, 7)];
        let far = [
            tenure(2, 0, 1, 3, 8),
            tenure(2, CLOSE, CLOSE + 1, CLOSE + 2, 7),
        ];
        for lost in [1, 5, 6] {
            let findings = tokens(&history(&close), &[lost]);
            assert_eq!((findings.wrong.len(), findings.excused), (0, 1));
        }
        assert_eq!(tokens(&history(&close), &[0, 20]).wrong.len(), 1);
        assert_eq!(tokens(&history(&far), &[5]).wrong.len(), 1);
    }

    fn queued(owner: &str, came: u64, span: Span) -> Presence {
        Presence {
            lock: LockNumber(8),
            ticket: format!("{came:016}:{owner}"),
            span,
        }
    }

    fn records(queues: &[Vec<Presence>]) -> Vec<Record> {
        let record = |presences: &Vec<_>| {
            let mut record = Record::default();
            record.presences.clone_from(presences);
            record
        };
        queues.iter().map(record).collect()
    }

    #[test]
    fn a_planted_inversion_is_found() {
        let mut overtaker = tenure(8, 50, 60, 70, 0); // its owner is id:60
        overtaker.came = CLOCK_ERROR + 60;
        let find = |queues: &[Vec<Presence>]| {
            let findings = fair_order(&history(std::slice::from_ref(&overtaker)), &records(queues));
            (findings.wrong.len(), findings.compared)
        };
        let first = queued("id:1", 40, Span::new(45, 65));
        let queue = || vec![first.clone()];
        assert_eq!(find(&[queue(), queue(), queue(), vec![], vec![]]), (1, 1));
        // No majority knew the waiter during the whole round.
        let late = vec![queued("id:1", 40, Span::new(51, 65))];
        assert_eq!(find(&[queue(), queue(), late, vec![], vec![]]), (0, 1));
        let swept = vec![queued("id:1", 40, Span::new(45, 59))];
        assert_eq!(find(&[queue(), queue(), swept, vec![], vec![]]), (0, 1));
        // The other one came later, or perhaps later: the holder's own ticket is not known.
        for came in [61, CLOCK_ERROR + 59] {
            let later = || vec![queued("id:1", came, Span::new(45, 65))];
            assert_eq!(find(&[later(), later(), later(), vec![], vec![]]), (0, 1));
        }
        // The holder's own ticket, which was in one queue, is earlier.
        let own = queued("id:60", 30, Span::new(35, 55));
        assert_eq!(
            find(&[vec![first.clone(), own], queue(), queue(), vec![], vec![]]),
            (0, 1)
        );
    }

    /// A waiter whose clock was ahead had a later ticket until masters corrected it.
    #[test]
    fn a_ticket_from_before_a_correction_is_not_that_of_the_holder() {
        let asked = BETWEEN_READS + 50;
        let mut winner = tenure(8, asked, asked + 10, asked + 20, 0);
        winner.came = 0;
        let waiter = queued("id:1", 40, Span::new(30, winner.granted));
        for (seen_until, found) in [(40, 0), (asked, 1)] {
            let ahead = queued(&winner.owner, 70, Span::new(30, seen_until));
            let queues = vec![vec![ahead, waiter.clone()]; 3];
            let findings = fair_order(&history(std::slice::from_ref(&winner)), &records(&queues));
            assert_eq!((findings.wrong.len(), findings.compared), (found, 1));
        }
        // One master still has the earlier ticket.
        let ahead = queued(&winner.owner, 70, Span::new(30, winner.granted));
        let own = queued(&winner.owner, 35, Span::new(35, winner.granted));
        let mut queues = vec![vec![waiter.clone(), own]; 3];
        queues[0].push(ahead);
        let findings = fair_order(&history(std::slice::from_ref(&winner)), &records(&queues));
        assert_eq!((findings.wrong.len(), findings.compared), (0, 1));
    }

    /// The reply to an earlier attempt was lost, and the earlier waiter joined the queues after it.
    #[test]
    fn a_grant_from_before_the_attempt_overtakes_no_one() {
        let mut winner = tenure(8, 50, 60, 70, 0);
        winner.came = CLOCK_ERROR + 60;
        let waiter = queued("id:1", 40, Span::new(45, 65));
        let mut masters = records(&vec![vec![waiter]; 5]);
        let findings = |masters: &[Record]| {
            fair_order(&history(std::slice::from_ref(&winner)), masters)
                .wrong
                .len()
        };
        for (place, found) in [(0, 1), (1, 1), (2, 0)] {
            masters[place].holdings.push(Holding {
                lock: winner.lock,
                owner: winner.owner.clone(),
                seen: Span::new(43, 45), // the read that first saw the waiter
            });
            assert_eq!(findings(&masters), found, "{place}");
        }
        for master in &mut masters {
            for holding in &mut master.holdings {
                holding.seen = Span::new(50, 52); // a read after the attempt began
            }
        }
        assert_eq!(findings(&masters), 1);
    }

    /// The earlier waiter joined the queues after masters had granted the first of two ballots.
    #[test]
    fn a_grant_of_an_earlier_ballot_overtakes_no_one() {
        for (lock, found) in [(8, 1), (10, 0)] {
            let mut winner = tenure(lock, 50, 60, 70, 0);
            winner.called = 40;
            winner.came = CLOCK_ERROR + 60;
            assert_eq!(winner.lock.is_fenced(), lock == 10);
            for (joined, found) in [(45, found), (40, 1)] {
                let mut waiter = queued("id:1", 30, Span::new(joined, 65));
                waiter.lock = winner.lock;
                let queues = vec![vec![waiter]; 3];
                let findings =
                    fair_order(&history(std::slice::from_ref(&winner)), &records(&queues));
                assert_eq!(findings.wrong.len(), found, "{lock} {joined}");
            }
        }
    }

    #[test]
    fn a_planted_late_call_is_found() {
        let call = |to| Call {
            client: CLIENT,
            lock: LockNumber(0),
            from: 0,
            to,
            due: SECOND,
        };
        let calls = vec![
            call(Some(SECOND)),
            call(Some(SECOND + SLACK + 1)),
            call(None),
        ];
        let history = History {
            calls,
            ..History::default()
        };
        assert_eq!(overdue(&history, &[vec![]], &[], SECOND).len(), 1);
        assert_eq!(overdue(&history, &[vec![]], &[], 9 * SECOND).len(), 2);
        let stopped = vec![Span::new(SECOND, SECOND + 1)];
        assert_eq!(overdue(&history, &[stopped], &[], 9 * SECOND).len(), 0);
        let busy = [Span::new(SECOND, 9 * SECOND)];
        assert_eq!(overdue(&history, &[vec![]], &busy, 9 * SECOND).len(), 0);
    }
}

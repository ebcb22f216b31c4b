//! The times for which a client that reached a majority of healthy masters got no lock.

use crate::clock::{Nanos, SECOND};
use crate::history::History;
use crate::nemesis::Done;
use crate::plan::{CLIENTS, Event, MASTERS};
use crate::spans::{Span, at_least, stalled, without};

/// Returns the times for which the client of each place could reach a majority of masters that have
/// a vote. `unwell` has the times for which each master did not answer or had no vote. `away` has
/// the times for which clients were stopped or dead. After each of these times, a master or a
/// client needs [`RECONNECT`] to be back.
pub fn served(
    whole: Span,
    unwell: &[Vec<Span>],
    done: &[Done],
    away: &[Vec<Span>],
) -> Vec<Vec<Span>> {
    let and_rest = |span: Span| Span::new(span.from, span.to + RECONNECT);
    let client = |place: usize| {
        let healthy = (0..MASTERS).map(|master| {
            let faults = done.iter().filter(|fault| {
                let Event {
                    fault,
                    masters,
                    clients,
                    ..
                } = &fault.event;
                let is_cut = fault.is_of_network() && clients.contains(&place);
                masters.contains(&master) && (is_cut || fault.is_of_master())
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
const RECONNECT: Nanos = 2 * SECOND;

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
    let gaps = gaps.map(|(place, span)| Gap {
        place,
        span,
        length: span.length().saturating_sub(stalled(stalls, span)),
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
    use crate::plan::Fault;

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
        let seconds = |from, to| Span::new(from * SECOND, to * SECOND);
        let whole = seconds(0, 100);
        let done = [
            fault(Fault::StopMaster, 0, &[], seconds(10, 40)),
            fault(Fault::Hold, 1, &[7], seconds(20, 50)),
        ];
        let mut unwell = vec![Vec::new(); MASTERS];
        unwell[2].push(seconds(30, 60));
        let mut away = vec![Vec::new(); CLIENTS];
        away[7].push(seconds(90, 95));
        let served = served(whole, &unwell, &done, &away);
        assert_eq!(served[0], [whole]);
        let expected = [seconds(0, 30), seconds(42, 90), seconds(97, 100)];
        assert_eq!(served[7], expected);
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

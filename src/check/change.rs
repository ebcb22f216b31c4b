//! The findings about a change of the masters: counters of fencing tokens that are ahead of time.

use std::{collections::BTreeMap, time::Duration};

use super::{
    about,
    counters::Counters,
    facts::{Facts, MasterAnswer},
    report::Finding,
};
use crate::core::vote::{master_set::MasterSet, quorum::Quorum};

/// Returns a finding if a master does not show its counters.
pub(super) fn unknown(facts: &Facts) -> Option<Finding> {
    match &facts.counters {
        Counters::Unknown(why) => Some(about::COUNTERS_UNKNOWN.with(why)),
        Counters::Ahead(_) | Counters::Unasked => None,
    }
}

/// Returns a finding if so many masters of a list have a counter of one lock that is ahead of time
/// that the others are no majority. Those take no candidate of the present, because it is below the
/// counter. The masters without the counter take no candidate above it, because it is too far from
/// the time. So programs of both lists may get no fencing token, and those of the other list
/// smaller ones.
pub(super) fn counters(masters: &[MasterAnswer], quorum: &Quorum) -> Option<Finding> {
    let mut counters = BTreeMap::<&str, (MasterSet, Duration)>::new();
    for (number, master) in masters.iter().enumerate() {
        let facts = master.facts.as_ref().into_iter();
        for (key, ahead) in facts.flat_map(|facts| facts.counters.ahead()) {
            let (on, most) = counters.entry(key).or_default();
            on.insert(number);
            *most = ahead.max(*most);
        }
    }
    let answered = masters
        .iter()
        .enumerate()
        .filter(|(_, one)| one.facts.is_ok());
    let answered: MasterSet = answered.map(|(number, _)| number).collect();
    counters.retain(|_, (on, _)| {
        // A master that does not answer may have the counter, too.
        let mut others = quorum.tallies(answered - *on);
        others.any(|others| !others.has_quorum())
    });
    let key = *counters.first_key_value()?.0;
    let most = counters.values().map(|(_, most)| *most).max()?;
    let count = counters.len();
    Some(about::COUNTERS_AHEAD.with(format!(
        "up to {most:.1?} ahead of time, {count} in all, such as {key}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the masters of one list that are left for one more master.
    fn masters(ahead: &[&[(&str, u64)]]) -> (Vec<MasterAnswer>, Quorum) {
        let masters = ahead.iter().map(|ahead| {
            let ahead = ahead.iter().map(|(key, seconds)| {
                let key = format!("quorlock:fence:{{{key}}}");
                (key, Duration::from_secs(*seconds))
            });
            let mut facts = Facts::default();
            facts.counters = Counters::Ahead(ahead.collect());
            MasterAnswer {
                address: "m".into(),
                facts: Ok(facts),
            }
        });
        let masters: Vec<_> = masters.collect();
        let leaving = (1..=masters.len()).collect();
        let new = MasterAnswer {
            address: "new".into(),
            facts: Ok(Facts::default()),
        };
        let quorum = Quorum::of_lists(1, leaving);
        (std::iter::once(new).chain(masters).collect(), quorum)
    }

    #[test]
    fn a_counter_counts_if_the_other_masters_are_no_majority() {
        let (a, b): (&[_], &[_]) = (&[("a", 5)], &[("a", 3_600), ("b", 2)]);
        for (ahead, is_found) in [
            (&[a, &[], &[]][..], false),
            (&[a, b, &[]], true),
            (&[a, &[("b", 2)], &[]], false),
            (&[a, &[], &[], &[]], false),
            (&[a, b, &[], &[]], true), // the other two of four are no majority
            (&[b, b, a, b, &[]], true),
            (&[a, a, &[], &[], &[]], false),
        ] {
            let (masters, quorum) = masters(ahead);
            let found = counters(&masters, &quorum);
            assert_eq!(found.is_some(), is_found, "{ahead:?}: {found:?}");
        }
        let (mut masters, quorum) = masters(&[b, b, a]);
        let found = counters(&masters, &quorum).unwrap().to_string();
        let expected = "refuse: quorlock:fence:* is up to 3600.0s ahead of time, 2 in all, \
                        such as quorlock:fence:{a}: ";
        assert!(found.starts_with(expected), "{found}");
        masters.swap(0, 1);
        masters.truncate(1);
        let found = counters(&masters, &quorum);
        assert!(found.is_some(), "the new master has it");
    }
}

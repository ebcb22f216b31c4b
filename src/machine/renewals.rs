//! When which claim is renewed.

use std::collections::BTreeSet;

use super::{ClaimId, out::Effect};
use crate::core::time::LeaseTick;

#[derive(Debug, Default)]
pub(crate) struct Renewals {
    timers: BTreeSet<(LeaseTick, ClaimId)>,
    /// The time until which the renewer sleeps. The claim that is due then may have been removed
    /// meanwhile. `None` if the renewer waits for a claim.
    sleeps_until: Option<LeaseTick>,
    undecided: usize,
}

impl Renewals {
    /// While more renewals than this are undecided, no further one begins. Masters can answer only
    /// a limited number of renewals within the response timeout. Further ones would time out, and
    /// would be posted again.
    const MANY_UNDECIDED: usize = 512;

    pub(super) fn begun(&mut self) {
        self.undecided += 1;
    }

    /// Notes that a renewal was decided. Wakes the renewer if it may have waited for that.
    pub(super) fn decided(&mut self) -> Option<Effect> {
        self.undecided = self.undecided.saturating_sub(1);
        (self.undecided == Self::MANY_UNDECIDED).then_some(Effect::WakeRenewer)
    }

    /// Renews `claim` at the time `to`, and not at the time `from`. Returns whether the renewer
    /// must be woken.
    pub(super) fn set(
        &mut self,
        claim: ClaimId,
        from: Option<LeaseTick>,
        to: Option<LeaseTick>,
    ) -> bool {
        if let Some(from) = from {
            self.timers.remove(&(from, claim));
        }
        to.is_some_and(|due| {
            self.timers.insert((due, claim));
            let is_earlier = self.sleeps_until.is_none_or(|until| due < until);
            if is_earlier {
                self.sleeps_until = Some(due);
            }
            is_earlier
        })
    }

    /// Returns whether there are so many claims that renewals which are due together would be late.
    pub(crate) fn is_crowded(&self) -> bool {
        const MANY: usize = 250;
        self.timers.len() >= MANY
    }

    /// Returns when the next claim is due. The renewer then sleeps until that time. If the claim
    /// that woke the renewer is gone, the renewer sleeps nevertheless: a program that holds its
    /// locks only briefly would otherwise wake it each time. `None` if the renewer waits until it
    /// is woken.
    pub(crate) fn next_due(&mut self, now: LeaseTick) -> Option<LeaseTick> {
        if self.undecided > Self::MANY_UNDECIDED {
            return None;
        }
        let next = self.timers.first().map(|(due, _)| *due);
        self.sleeps_until = next.or_else(|| self.sleeps_until.filter(|until| *until > now));
        self.sleeps_until
    }

    pub(super) fn pop_due(&mut self, now: LeaseTick) -> Option<ClaimId> {
        let (due, _) = self.timers.first()?;
        (*due <= now)
            .then(|| self.timers.pop_first())?
            .map(|(_, claim)| claim)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// On the multi-thread runtime, a needless wake-up can cost a switch to another thread.
    #[test]
    fn only_a_claim_that_is_due_before_the_renewer_wakes_up_wakes_it() {
        let mut claims = slotmap::SlotMap::<ClaimId, ()>::with_key();
        let mut renewals = Renewals::default();
        let at = |seconds| Some(LeaseTick::some() + Duration::from_secs(seconds));
        let [first, second, third] = [(); 3].map(|()| claims.insert(()));
        let now = LeaseTick::some();
        assert_eq!(renewals.next_due(now), None);
        assert!(renewals.set(first, None, at(10)));
        assert!(!renewals.set(first, at(10), None));
        assert_eq!(renewals.next_due(now), at(10), "the claim is gone");
        assert!(!renewals.set(first, None, at(11)));
        assert!(renewals.set(second, None, at(9)));
        assert_eq!(renewals.next_due(now), at(9));
        assert!(!renewals.set(third, None, at(9)));
        let due = [(); 3].map(|()| renewals.pop_due(LeaseTick::some() + Duration::from_secs(9)));
        assert_eq!(due, [Some(second), Some(third), None]);
        assert_eq!(renewals.next_due(now + Duration::from_secs(9)), at(11));
        assert!(!renewals.set(first, at(11), None));
        assert_eq!(renewals.next_due(now + Duration::from_secs(11)), None);
    }
}

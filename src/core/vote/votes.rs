//! The votes of one round, in a table by master.

use std::{fmt, sync::Arc, time::Duration};

use super::{CastVote, Failure, MasterSet, Roster, Verb, Vote, quorum::Tally};

/// The votes of all masters in one round, in the order in which the masters were configured.
///
/// A round is decided as soon as its outcome is certain, so some masters may not have voted yet.
///
/// What a grant means depends on what was asked:
///
/// | round of | a grant means that the master |
/// |---|---|
/// | an acquisition | gave the lock to the caller |
/// | an extension or a renewal | has the lock with the new TTL |
/// | a release | has nothing of the caller any more |
/// | [`Coordinator::ready_within`](crate::Coordinator::ready_within) | can vote |
/// | [`Lock::inspect`](crate::Lock::inspect) | answered, even if the lock is held |
/// | [`break_held`](crate::Coordinator::break_held) | removed a holder that the inspection showed |
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use quorlock::{Coordinator, MemoryMaster, votes::Vote};
/// let masters: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
/// let locks = Coordinator::new(masters)?;
/// let guard = locks.mutex("orders/42").try_acquire().await?;
/// let votes = guard.all_votes().await;
/// assert_eq!((votes.granted_count(), votes.quorum(), votes.master_count()), (3, 2, 3));
/// assert!(votes.iter().all(|row| row.vote == Some(&Vote::Grant)));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Votes {
    pub(crate) roster: Arc<Roster>,
    cast: Box<[Option<CastVote>]>,
    verb: Verb,
    /// `true` if the caller did not wait for the votes that are missing.
    is_sufficient: bool,
}

impl Votes {
    pub(crate) fn new(roster: Arc<Roster>, cast: Box<[Option<CastVote>]>, verb: Verb) -> Self {
        debug_assert_eq!(roster.masters.len(), cast.len());
        Self {
            roster,
            cast,
            verb,
            is_sufficient: false,
        }
    }

    /// Marks these votes as those of a caller that did not wait for the missing votes.
    pub(crate) fn sufficient(self) -> Self {
        Self {
            is_sufficient: true,
            ..self
        }
    }

    /// Returns one row for each master.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = VoteRow<'_>> {
        let masters = &self.roster.masters;
        masters
            .iter()
            .zip(&self.cast)
            .map(|(master, cast)| VoteRow {
                master,
                vote: cast.as_ref().map(CastVote::vote),
                latency: cast.as_ref().map(CastVote::latency),
            })
    }

    /// Returns the number of masters that are configured. A master in both lists counts once.
    pub fn master_count(&self) -> usize {
        self.roster.masters.len()
    }

    /// Returns the number of masters that make a majority. While the masters [are
    /// changed](crate::Builder::old_masters), there is one such number for each list. This method
    /// returns the larger one.
    pub fn quorum(&self) -> usize {
        self.roster.quorum.size()
    }

    /// Returns for how many masters of each list `count` returns `true`. There are two lists only
    /// while the masters [are changed](crate::Builder::old_masters). A decision needs a majority of
    /// each list.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use quorlock::{Coordinator, MemoryMaster, tools::Tally, votes::Vote};
    /// let old: Vec<_> = (0..3).map(|_| MemoryMaster::new()).collect();
    /// let new = [old[0].clone(), MemoryMaster::new(), MemoryMaster::new()];
    /// let locks = Coordinator::builder().masters(&new).old_masters(&old).build()?;
    /// let guard = locks.mutex("orders/42").try_acquire().await?;
    /// let votes = guard.all_votes().await;
    /// let granted = votes.tally(|row| row.vote == Some(&Vote::Grant));
    /// assert!(granted.iter().all(Tally::has_quorum));
    /// assert_eq!(granted[1].to_string(), "3 of 3 old masters (need 2)");
    /// # Ok(()) }
    /// ```
    #[doc(hidden)]
    pub fn tally(&self, count: impl Fn(&VoteRow<'_>) -> bool) -> Vec<Tally> {
        self.roster.quorum.tallies(self.masters(count)).collect()
    }

    /// Returns in words how many masters of each list gave a vote that matches `of`: for example
    /// `3 of 5 masters voted (need 3), 2 of 5 old masters voted (need 3)`.
    pub(crate) fn tally_text(&self, did: &str, of: fn(&Vote) -> bool) -> String {
        let voted = self.masters(|row| row.vote.is_some_and(of));
        let tallies = self.roster.quorum.tallies(voted);
        let texts: Vec<_> = tallies.map(|tally| tally.text(did)).collect();
        texts.join(", ")
    }

    /// Returns in words how many masters deny a right or lack a command, such as `2 of 3 masters`.
    pub(crate) fn denial_text(&self) -> String {
        let (denials, all) = (self.count(Vote::is_denial), self.master_count());
        format!("{denials} of {all} masters")
    }

    /// Returns whether so many masters deny a right, or lack a command, that in some list the
    /// others are no majority.
    pub(crate) fn lacks_rights(&self) -> bool {
        let others = self.masters(|row| !row.vote.is_some_and(Vote::is_denial));
        !self.roster.quorum.has_majority_of_every_set(others)
    }

    /// Returns whether a majority has granted so far. While the masters [are
    /// changed](crate::Builder::old_masters), returns whether a majority of each list has.
    pub fn has_quorum(&self) -> bool {
        let granted = self.masters(|row| row.vote.is_some_and(Vote::is_grant));
        self.roster.quorum.has_majority_of_every_set(granted)
    }

    fn masters(&self, count: impl Fn(&VoteRow<'_>) -> bool) -> MasterSet {
        let rows = self.iter().enumerate();
        let counted = rows.filter(|(_, row)| count(row));
        counted.map(|(master, _)| master).collect()
    }

    /// Returns whether nothing asks the masters any more.
    pub(crate) fn are_closed(&self) -> bool {
        self.iter()
            .all(|row| row.failure() == Some(&Failure::Closed))
    }

    /// Returns whether all masters have granted so far.
    pub(crate) fn has_all(&self) -> bool {
        self.granted_count() == self.master_count()
    }

    /// Returns the number of masters that have granted so far.
    pub fn granted_count(&self) -> usize {
        self.count(Vote::is_grant)
    }

    /// Returns the number of masters that have refused so far.
    #[doc(hidden)]
    pub fn refused_count(&self) -> usize {
        self.count(Vote::is_refusal)
    }

    /// Returns the number of masters that have failed so far.
    #[doc(hidden)]
    pub fn failed_count(&self) -> usize {
        self.count(Vote::is_failure)
    }

    fn count(&self, of: impl Fn(&Vote) -> bool) -> usize {
        self.cast
            .iter()
            .flatten()
            .filter(|cast| of(cast.vote()))
            .count()
    }
}

/// Shows, for example, `a:6379 granted, b:6379 no answer in 50ms, c:6379 not answered yet`.
impl fmt::Display for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (row, cast)) in self.iter().zip(&self.cast).enumerate() {
            if n > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{} ", row.master)?;
            match row.vote {
                Some(Vote::Grant) => {
                    f.write_str(self.verb.granted_word())?;
                    if let Some(slot) = cast.as_ref().and_then(|cast| cast.slot) {
                        write!(f, " slot {}", slot.shown())?;
                    }
                }
                Some(vote) => vote.fmt(f)?,
                None if self.is_sufficient => f.write_str("not waited for")?,
                None => f.write_str("not answered yet")?,
            }
        }
        let mut failures = self.iter().filter_map(|row| row.failure());
        match failures.any(Failure::is_denial) {
            true => f.write_str("; `quorlock doctor` shows all missing rights"),
            false => Ok(()),
        }
    }
}

impl fmt::Debug for Votes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

/// One master's row of [`Votes`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct VoteRow<'a> {
    /// The master's address, without the user name and the password.
    pub master: &'a str,
    /// The master's vote. `None` if the master has not voted yet.
    pub vote: Option<&'a Vote>,
    /// The time from the start of the round until the master voted, or until the client gave up on
    /// the master.
    pub latency: Option<Duration>,
}

impl<'a> VoteRow<'a> {
    /// Returns the master's failure. `None` if the master has granted, has refused, or has not
    /// voted yet.
    pub fn failure(&self) -> Option<&'a Failure> {
        match self.vote {
            Some(Vote::Fail(failure)) => Some(failure),
            Some(Vote::Grant | Vote::Refuse(_)) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::vote::{CastVote, Refusal, Slot, quorum::Quorum};

    /// Returns the votes of masters named `m0`, `m1` and so on. Master n votes after n seconds.
    fn votes(cast: &[Option<Vote>]) -> Votes {
        let masters = (0..cast.len()).map(|master| Arc::from(format!("m{master}")));
        let mut table = vec![None; cast.len()];
        for (master, vote) in cast.iter().enumerate() {
            let latency = Duration::from_secs(master as u64);
            table[master] = vote.clone().map(|vote| CastVote::new(vote, latency));
        }
        Votes::new(
            Roster::new(masters, Quorum::of(cast.len())),
            table.to_vec().into_boxed_slice(),
            Verb::Acquire,
        )
    }

    #[test]
    fn votes_are_counted_and_shown_by_master() {
        let gone = || Vote::Refuse(Refusal::Gone);
        let closed = || Vote::Fail(Failure::Closed);
        for (cast, counts, text) in [
            (vec![], (0, 0, 0), ""),
            (
                vec![
                    Some(Vote::Fail(Failure::ErrorReply("NOPERM x".into()))),
                    None,
                ],
                (0, 0, 1),
                "m0 answered NOPERM x, m1 not answered yet; \
                 `quorlock doctor` shows all missing rights",
            ),
            (
                vec![Some(Vote::Grant), Some(gone()), None],
                (1, 1, 0),
                "m0 granted, m1 holds nothing, m2 not answered yet",
            ),
            (
                vec![
                    Some(closed()),
                    Some(closed()),
                    Some(gone()),
                    None,
                    None,
                    None,
                    Some(closed()),
                ],
                (0, 1, 3),
                "m0 closed, m1 closed, m2 holds nothing, m3 not answered yet, \
                 m4 not answered yet, m5 not answered yet, m6 closed",
            ),
        ] {
            let votes = votes(&cast);
            let found = (
                votes.granted_count(),
                votes.refused_count(),
                votes.failed_count(),
            );
            assert_eq!(found, counts, "{text}");
            assert_eq!(
                (votes.master_count(), votes.quorum()),
                (cast.len(), cast.len() / 2 + 1)
            );
            assert_eq!(
                (votes.to_string(), format!("{votes:?}")),
                (text.into(), format!("[{text}]"))
            );
            assert_eq!(votes.iter().len(), cast.len());
            for (master, (row, vote)) in votes.iter().zip(&cast).enumerate() {
                assert_eq!(
                    (row.master, row.vote),
                    (&*format!("m{master}"), vote.as_ref())
                );
                let seconds = row.latency.map(|latency| latency.as_secs());
                assert_eq!(seconds, vote.as_ref().map(|_| master as u64));
                let has_failed = matches!(vote, Some(Vote::Fail(_)));
                assert_eq!(row.failure().is_some(), has_failed);
            }
        }
    }

    #[test]
    fn the_slot_that_a_master_granted_is_shown() {
        let slot = Slot::new(7);
        let grant = |slot| CastVote::of(Vote::Grant, slot);
        let cast = [grant(slot), grant(None)].map(|vote| Some(CastVote::new(vote, Duration::ZERO)));
        let mut votes = votes(&[None, None]);
        votes.cast = cast.into();
        assert_eq!(votes.to_string(), "m0 granted slot 6, m1 granted");
    }
}

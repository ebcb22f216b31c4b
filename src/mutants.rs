//! Switches that break one rule each. A test must notice every one of them. For most of them, that
//! test is the simulator in `tests/sim/`. Outside of this crate's own tests, every switch is the
//! constant `false`.

/// Returns whether a switch is on in this thread. With `=>`, does something wrong while it is on:
/// only this crate's own tests have that code.
macro_rules! mutant {
    ($name:ident) => {{
        #[cfg(test)]
        let is_on = $crate::mutants::Mutant::$name.is_on();
        #[cfg(not(test))]
        let is_on = false;
        is_on
    }};
    ($name:ident $(if $when:expr)? => $wrong:expr) => {
        #[cfg(test)]
        if mutant!($name) $(&& $when)? {
            $wrong
        }
    };
}

/// A wrong rule. Most of them are real bugs of lock libraries, or of earlier versions of this one.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A waiter that reaches no majority stays in the queues.
    AlwaysQueued,
    /// A majority of one list of masters is enough while they are changed.
    AnyList,
    /// Grants of different slots count together.
    AnySlot,
    /// An owed release keeps a supervisor alive after it is no longer owed.
    ClosesLate,
    /// A confirmation counts for the oldest command, whatever that is.
    ConfirmsOldest,
    /// Candidates come from the counters alone, and masters do not compare them with a clock.
    CountsOnly,
    /// Nothing that a master reports wakes a waiter.
    Deaf,
    /// A reply with an error counts as a grant.
    ErrorGrants,
    /// An extension needs a majority of only the masters that are left.
    ExtendsLeaving,
    /// A failed extension releases the lock.
    ExtensionReleases,
    /// An extension counts from its last vote, and not from its start.
    ExtensionStartsLate,
    /// An extension creates a key that is gone.
    ExtensionTakes,
    /// The queue of a fair lock is in the order in which a master heard of the waiters.
    FirstHeard,
    /// A connection stays when its master has lost all keys.
    FlushUnnoticed,
    /// A program does not remember which masters it knows.
    ForgetsRunIds,
    /// A stall of this process counts as the silence of a master.
    ForgivesNoStall,
    /// One program chooses the groups of names by another hash.
    HashesOtherwise,
    /// A key is not put back where a rival has raised the counter.
    HealIsStale,
    /// A key is put back after the lease has ended.
    HealsLate,
    /// While the groups are changed, a name needs only the masters of its new group.
    IgnoresOldGroup,
    /// A quarantined master may vote.
    IgnoresQuarantine,
    /// A fair lock that is free goes to the first that asks, and not to the first in the queue.
    IgnoresQueue,
    /// A waiter for several names puts one that is held last, and keeps those after it.
    KeepsLater,
    /// A lease counts from the decision, and not from the start of the round.
    LeaseStartsLate,
    /// A writer that becomes a reader leaves nothing on the masters.
    LeavesNoReader,
    /// One grant extends a lock.
    MinorityExtends,
    /// A suspended machine is not noticed.
    MonotonicOnly,
    /// Nothing is subtracted for clocks that run at different rates.
    NoDrift,
    /// A lost round is not taken back.
    NoRollback,
    /// Nothing is checked when the votes are in.
    NoValidityCheck,
    /// A master that may still get an acquisition is not owed the release.
    NothingOwed,
    /// Candidates have no lower limit.
    OldCandidates,
    /// A reply to a command that timed out counts for the next command.
    OldReplies,
    /// A guard of several names is as valid as its first one.
    OneOfAll,
    /// All attempts of a process have one token.
    OneToken,
    /// A task waits for the other tasks of its owner without a limit.
    OwnerWaitsForever,
    /// Half of the masters are enough.
    QuorumIsHalf,
    /// A majority of the masters that answered is enough.
    QuorumOfReachable,
    /// A reader does not wait for the tickets of earlier writers.
    ReadersPassWriters,
    /// A connection is read for as long as the server sends.
    ReadsWithoutPause,
    /// A master that is down is dialled again at once.
    RedialsAtOnce,
    /// A release is sent again at once after an error.
    ReleaseInALoop,
    /// A release deletes the key of any holder.
    ReleasesOthers,
    /// A promotion of the same process is not noticed.
    ReplidIgnored,
    /// A lost round is taken back only where it was granted.
    RollbackOfGrants,
    /// Restarts are not noticed.
    RunIdIgnored,
    /// A master accepts the same candidate twice.
    SameCandidate,
    /// A strict program trusts the key that another program wrote.
    StrictTrusts,
    /// A majority of any list of masters answers what needs one of every list, and the reverse.
    SwapsLists,
    /// Several names are taken in the order in which they were given.
    TakesAsGiven,
    /// A slot that one master has granted is taken on the others, also from its holder.
    TakesSlots,
    /// While the masters are changed, a majority of all of them is enough.
    UnionOfLists,
    /// A reader becomes a writer in place.
    UpgradesInPlace,
    /// Every vote of a master counts.
    VotesTwice,
    /// A writer does not wait for readers.
    WritersPassReaders,
}

#[cfg(test)]
thread_local! {
    static ON: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
impl Mutant {
    /// The switches that the simulator must notice. Each of the others has a test next to its rule,
    /// because the simulator has no sockets, no second thread and no masters that lie, and because
    /// some moments are rare.
    pub(crate) const SIMULATED: [Self; 48] = [
        Self::AlwaysQueued,
        Self::AnyList,
        Self::AnySlot,
        Self::CountsOnly,
        Self::Deaf,
        Self::ErrorGrants,
        Self::ExtendsLeaving,
        Self::ExtensionReleases,
        Self::ExtensionStartsLate,
        Self::ExtensionTakes,
        Self::FirstHeard,
        Self::FlushUnnoticed,
        Self::ForgetsRunIds,
        Self::ForgivesNoStall,
        Self::HashesOtherwise,
        Self::HealIsStale,
        Self::IgnoresOldGroup,
        Self::IgnoresQuarantine,
        Self::IgnoresQueue,
        Self::KeepsLater,
        Self::LeaseStartsLate,
        Self::LeavesNoReader,
        Self::MinorityExtends,
        Self::MonotonicOnly,
        Self::NoDrift,
        Self::NoRollback,
        Self::NoValidityCheck,
        Self::NothingOwed,
        Self::OldCandidates,
        Self::OldReplies,
        Self::OneToken,
        Self::OwnerWaitsForever,
        Self::QuorumIsHalf,
        Self::QuorumOfReachable,
        Self::ReadersPassWriters,
        Self::RedialsAtOnce,
        Self::ReleaseInALoop,
        Self::ReleasesOthers,
        Self::ReplidIgnored,
        Self::RollbackOfGrants,
        Self::RunIdIgnored,
        Self::SameCandidate,
        Self::StrictTrusts,
        Self::TakesAsGiven,
        Self::TakesSlots,
        Self::UnionOfLists,
        Self::UpgradesInPlace,
        Self::WritersPassReaders,
    ];

    /// Sets the switch that is on in this thread.
    pub(crate) fn set(mutant: Option<Self>) {
        ON.set(mutant);
    }

    pub(crate) fn is_on(self) -> bool {
        ON.get() == Some(self)
    }

    /// Returns whether a switch is on in this thread.
    pub(crate) fn is_any_on() -> bool {
        ON.get().is_some()
    }

    /// Returns whether `rule` holds, but not while the switch is on.
    pub(crate) fn breaks(self, rule: impl Fn() -> bool) -> bool {
        let holds = rule();
        Self::set(Some(self));
        let holds_with_switch = rule();
        Self::set(None);
        holds && !holds_with_switch
    }
}

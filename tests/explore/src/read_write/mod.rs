//! The read-write lock.

mod client;
mod master;
mod model;
mod progress;
mod state;
mod steps;
#[cfg(test)]
mod tests;

/// The way in which a rule is broken, to test that the search finds the flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A break deletes the key, with all holders.
    BreakDeletesKey,
    /// A master only counts its readers.
    CountedReaders,
    /// An extension puts an entry back where nothing is in its way, and counts.
    ExtensionRevives,
    /// A writer is put back where readers are.
    HealBesideReader,
    /// A release also removes the entry of a later attempt.
    LateRelease,
    /// A reader passes writers that came first.
    NoMark,
    /// A master that lost its data votes again at once.
    NoQuarantine,
    /// No rule is broken.
    Not,
    /// An entry of an earlier attempt is taken over, past the queue.
    OldEntryPasses,
    /// A reader's extension puts its entry back beside a writer.
    RefreshBesideWriter,
    /// A reader asks for the write lock, and keeps its read lock meanwhile.
    UpgradeInPlace,
}

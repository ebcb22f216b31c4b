//! The errors of servers about rights. The words differ between versions.

/// What a user lacks, or a server does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The right to a command.
    Command,
    /// The server forbids the command to everybody, or in scripts, or does not know it.
    Forbidden,
    /// The right to a key or a channel.
    Key,
}

impl Denial {
    /// Returns the meaning of an error. `None` for an error that may be over soon.
    pub(crate) fn of(error: &str) -> Option<Self> {
        /// The words of Redis 6, 7 and 8, and of Valkey. The first row that fits decides.
        const WORDS: [(&str, Denial); 10] = [
            ("nknown Redis command", Denial::Forbidden),
            ("nknown command", Denial::Forbidden),
            ("nsupported command", Denial::Forbidden),
            ("not allowed from script", Denial::Forbidden),
            ("one of the keys", Denial::Key),
            ("access a key", Denial::Key),
            ("a channel", Denial::Key),
            ("the channel", Denial::Key),
            ("run this command", Denial::Command),
            ("no permissions", Denial::Command),
        ];
        let error = without_user(error);
        let row = WORDS.into_iter().find(|(words, _)| error.contains(words));
        let unknown = error.starts_with("NOPERM").then_some(Self::Command);
        row.map(|(_, denial)| denial).or(unknown)
    }
}

/// Returns an error reply without the name of the user, which may contain any word.
pub(crate) fn without_user(error: &str) -> String {
    if let Some((before, rest)) = error.split_once("User ")
        && let Some((_, after)) = rest.split_once(" has no permissions")
    {
        return format!("{before}its user has no permissions{after}");
    }
    error.to_owned()
}

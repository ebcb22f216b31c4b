//! The meanings of the error replies of servers. The words differ between versions.

/// The meaning of an error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerError {
    ChannelDenied,
    CommandDenied,
    KeyDenied,
    /// The server is still reading its data from disk, and refuses commands until it has finished.
    Loading,
    /// The server takes no more connections.
    MaxClients,
    /// The server does not know RESP3.
    NoProtocol,
    /// The server does not have the script.
    NoScript,
    /// A temporary state of the server, such as `BUSY`.
    State,
    /// The command does not exist, has another name, is switched off, or may not be used in a
    /// script.
    UnknownCommand,
    /// The server refuses writes at present. The text is the code of the error, such as `OOM`.
    WritesRefused(&'static str),
    /// Any other error of a command.
    Other,
}

/// Words in the error replies of Redis 6, 7 and 8, of Valkey, and of the crate's own scripts. The
/// first row whose words are in an error decides.
const WORDS: [(&str, ServerError); 22] = [
    ("LOADING", ServerError::Loading),
    ("max number of clients", ServerError::MaxClients),
    ("NOPROTO", ServerError::NoProtocol),
    ("NOSCRIPT", ServerError::NoScript),
    ("CLUSTERDOWN", ServerError::WritesRefused("CLUSTERDOWN")),
    ("MASTERDOWN", ServerError::WritesRefused("MASTERDOWN")),
    ("MISCONF", ServerError::WritesRefused("MISCONF")),
    ("NOREPLICAS", ServerError::WritesRefused("NOREPLICAS")),
    ("OOM", ServerError::WritesRefused("OOM")),
    ("READONLY", ServerError::WritesRefused("READONLY")),
    ("nknown Redis command", ServerError::UnknownCommand),
    ("nknown command", ServerError::UnknownCommand),
    ("nsupported command", ServerError::UnknownCommand),
    ("not allowed from script", ServerError::UnknownCommand),
    ("one of the keys", ServerError::KeyDenied),
    ("access a key", ServerError::KeyDenied),
    ("a channel", ServerError::ChannelDenied),
    ("the channel", ServerError::ChannelDenied),
    ("run this command", ServerError::CommandDenied),
    ("no permissions", ServerError::CommandDenied),
    ("NOPERM", ServerError::CommandDenied),
    // `shared/guard` answers this if INFO has no run id.
    ("no run_id", ServerError::CommandDenied),
];

impl ServerError {
    pub(crate) fn of(error: &str) -> Self {
        let error = without_user(error);
        let mut words = WORDS.iter();
        let found = words.find_map(|(word, kind)| error.contains(word).then_some(*kind));
        let is_plain = error.starts_with("ERR") || error.starts_with('@');
        found.unwrap_or(if is_plain { Self::Other } else { Self::State })
    }

    /// Returns whether the server will refuse the same command until a right or the server's
    /// configuration is changed. All other errors may be temporary.
    pub(crate) fn is_denial(self) -> bool {
        matches!(
            self,
            Self::ChannelDenied | Self::CommandDenied | Self::KeyDenied | Self::UnknownCommand
        )
    }
}

/// Returns the first sentence of an error reply, without the name of the user.
pub(crate) fn in_short(error: &str) -> String {
    let text = error.split(". ").next().unwrap_or_default();
    without_user(text.trim_end_matches('.'))
}

/// Returns an error reply without the name of the user. The name may contain any word, including
/// those in `WORDS`.
fn without_user(error: &str) -> String {
    if let Some((before, rest)) = error.split_once("User ")
        && let Some((_, after)) = rest.split_once(" has no permissions")
    {
        return format!("{before}its user has no permissions{after}");
    }
    error.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_each_version_have_the_same_meaning() {
        for (error, expected) in [
            (
                "NOPERM this user has no permissions to run the 'eval' command",
                ServerError::CommandDenied,
            ),
            (
                "@user_script: 3: The user executing the script can't run this command or subcommand",
                ServerError::CommandDenied,
            ),
            (
                "ERR ACL failure in script: User lock has no permissions to run the 'set' command",
                ServerError::CommandDenied,
            ),
            (
                "NOPERM User BLOOM has no permissions to run the 'info' command",
                ServerError::CommandDenied,
            ),
            (
                "NOPERM User DOWNLOADING has no permissions to run the 'script|load' command",
                ServerError::CommandDenied,
            ),
            (
                "ERR The user executing the script can't access at least one of the keys mentioned",
                ServerError::KeyDenied,
            ),
            (
                "ERR ACL failure in script: No permissions to access a key",
                ServerError::KeyDenied,
            ),
            (
                "ERR The user executing the script can't publish to the channel mentioned",
                ServerError::ChannelDenied,
            ),
            ("ERR unknown command `HELLO`", ServerError::UnknownCommand),
            (
                "@user_script: 3: Unknown Redis command called from Lua script",
                ServerError::UnknownCommand,
            ),
            (
                "@user_script: 3: -NOREPLICAS Not enough good replicas to write.",
                ServerError::WritesRefused("NOREPLICAS"),
            ),
            ("BUSY Redis is busy running a script.", ServerError::State),
            ("ERR syntax error", ServerError::Other),
        ] {
            assert_eq!(ServerError::of(error), expected, "{error}");
        }
    }

    #[test]
    fn the_name_of_a_user_is_left_out() {
        for (error, expected) in [
            (
                "WRONGPASS invalid username-password pair or user is disabled.",
                "WRONGPASS invalid username-password pair or user is disabled",
            ),
            (
                "NOPERM User bob has no permissions to run the 'eval' command",
                "NOPERM its user has no permissions to run the 'eval' command",
            ),
            (
                "BUSY Redis is busy running a script. You can only call",
                "BUSY Redis is busy running a script",
            ),
        ] {
            assert_eq!(in_short(error), expected);
        }
    }
}

//! The meanings of the error replies of servers. The words differ between versions.
//!
//! Dials, votes, the check and the command line ask this file what an error means.

use super::{Failure, Verb};

/// The kind of an error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerError {
    /// The user may not use the channel.
    ChannelDenied,
    /// The user may not use the command.
    CommandDenied,
    /// The user may not use the key.
    KeyDenied,
    /// The server is still reading its data from disk, and refuses commands until it has finished.
    Loading,
    /// The server refused the user or the password, or wants a password, or accepts no login from
    /// this machine.
    LoginDenied,
    /// The server takes no more connections.
    MaxClients,
    /// Another server of the cluster has the key.
    Moved,
    /// The server does not have the database.
    NoDatabase,
    /// The server does not know RESP3.
    NoProtocol,
    /// The server does not have the script.
    NoScript,
    /// Any other error of a command.
    Other,
    /// The user may not run scripts. Each kind of lock needs scripts.
    ScriptsDenied,
    /// The server has no command that runs scripts, or has it under another name.
    ScriptsUnknown,
    /// A temporary state of the server, such as `BUSY`.
    State,
    /// The command does not exist, has another name, is switched off, or may not be used in a
    /// script.
    UnknownCommand,
    /// The server refuses writes at present. The text is the code of the error, such as `OOM`.
    WritesRefused(&'static str),
}

const CLUSTER_DOWN: ServerError = ServerError::WritesRefused("CLUSTERDOWN");

/// The error codes that have a meaning of their own.
const CODES: [(&str, ServerError); 13] = [
    ("CLUSTERDOWN", CLUSTER_DOWN),
    ("DENIED", ServerError::LoginDenied),
    ("LOADING", ServerError::Loading),
    ("MASTERDOWN", ServerError::WritesRefused("MASTERDOWN")),
    ("MISCONF", ServerError::WritesRefused("MISCONF")),
    ("MOVED", ServerError::Moved),
    ("NOAUTH", ServerError::LoginDenied),
    ("NOPROTO", ServerError::NoProtocol),
    ("NOREPLICAS", ServerError::WritesRefused("NOREPLICAS")),
    ("NOSCRIPT", ServerError::NoScript),
    ("OOM", ServerError::WritesRefused("OOM")),
    ("READONLY", ServerError::WritesRefused("READONLY")),
    ("WRONGPASS", ServerError::LoginDenied),
];

/// The meanings of errors that have the code `ERR` or `NOPERM`, or no code. The words come from
/// errors of Redis 6, 7 and 8, of Valkey, and of the crate's own scripts. The first row whose words
/// are in the error decides.
const WORDS: [(&str, ServerError); 25] = [
    // An error of the crate's scripts about a key. The name of the key may contain any word.
    ("ERR the key ", ServerError::Other),
    ("max number of clients", ServerError::MaxClients),
    ("nknown Redis command", ServerError::UnknownCommand),
    ("nknown command 'EVAL", ServerError::ScriptsUnknown),
    ("nknown command `EVAL", ServerError::ScriptsUnknown),
    ("nknown command", ServerError::UnknownCommand),
    ("nsupported command", ServerError::UnknownCommand),
    ("not allowed from script", ServerError::UnknownCommand),
    ("DB index", ServerError::NoDatabase),
    ("SELECT is not", ServerError::NoDatabase),
    // Redis before version 6, and proxies.
    ("ERR AUTH ", ServerError::LoginDenied),
    ("Client sent AUTH", ServerError::LoginDenied),
    ("invalid password", ServerError::LoginDenied),
    ("invalid username-password", ServerError::LoginDenied),
    // A script asks for a key that it did not declare. In Redis before version 8, the cluster may
    // also be down.
    ("a non local key", ServerError::Moved),
    ("slot not served", CLUSTER_DOWN),
    ("cluster is down", CLUSTER_DOWN),
    ("one of the keys", ServerError::KeyDenied),
    ("access a key", ServerError::KeyDenied),
    ("a channel", ServerError::ChannelDenied),
    ("the channel", ServerError::ChannelDenied),
    ("to run the 'eval", ServerError::ScriptsDenied),
    ("run this command", ServerError::CommandDenied),
    ("no permissions", ServerError::CommandDenied),
    // `shared/origin` answers this if INFO has no run id.
    ("no run_id", ServerError::CommandDenied),
];

impl ServerError {
    /// Reads the text of an error reply.
    pub fn of(error: &str) -> Self {
        let error = without_user(unwrapped(error));
        let code = error.split(' ').next().unwrap_or_default();
        let found = CODES.iter().find(|(known, _)| *known == code);
        if let Some((_, kind)) = found {
            return *kind;
        }
        let is_code = !code.is_empty() && code.bytes().all(|letter| letter.is_ascii_uppercase());
        if is_code && !matches!(code, "ERR" | "NOPERM") {
            return Self::State;
        }
        let mut words = WORDS.iter();
        let found = words.find_map(|(word, kind)| error.contains(word).then_some(*kind));
        found.unwrap_or(match code {
            "NOPERM" => Self::CommandDenied,
            _ => Self::Other,
        })
    }

    /// Returns whether a right or a command is missing.
    pub fn is_denial(self) -> bool {
        matches!(
            self,
            Self::ChannelDenied
                | Self::CommandDenied
                | Self::KeyDenied
                | Self::ScriptsDenied
                | Self::ScriptsUnknown
                | Self::UnknownCommand
        )
    }

    /// Returns whether the next try may work, although nobody changes a right, the login, the
    /// server or the list of masters. This is so after all errors that are not known.
    pub(crate) fn is_temporary(self) -> bool {
        match self {
            Self::Loading
            | Self::MaxClients
            | Self::NoScript
            | Self::Other
            | Self::State
            | Self::WritesRefused(_) => true,
            Self::LoginDenied | Self::Moved | Self::NoDatabase | Self::NoProtocol => false,
            denial => !denial.is_denial(),
        }
    }

    /// Returns whether no script can run.
    pub(crate) fn is_about_scripts(self) -> bool {
        matches!(self, Self::ScriptsDenied | Self::ScriptsUnknown)
    }

    pub(crate) fn is_of_replica(self) -> bool {
        matches!(self, Self::WritesRefused("MASTERDOWN" | "READONLY"))
    }

    /// Returns whether this error, as the answer to `verb`, shows that the server accepts no locks
    /// now.
    pub(crate) fn is_about_server(self, verb: Verb) -> bool {
        match self {
            // Perhaps the user has the rights to other keys. After `NOSCRIPT`, the script is sent.
            Self::ChannelDenied | Self::KeyDenied | Self::NoScript => false,
            // Perhaps the program does not need the rights to inspect locks or to probe.
            Self::CommandDenied
            | Self::ScriptsDenied
            | Self::ScriptsUnknown
            | Self::UnknownCommand => matches!(verb, Verb::Acquire | Verb::Heal),
            // A script may have failed because of a key of another program. A probe has its own
            // key.
            Self::Other => verb == Verb::Probe,
            Self::Loading
            | Self::LoginDenied
            | Self::MaxClients
            | Self::Moved
            | Self::NoDatabase
            | Self::NoProtocol
            | Self::State
            | Self::WritesRefused(_) => true,
        }
    }
}

impl Failure {
    /// Returns whether another try is useless until a right is given or the server is set up in
    /// another way. Either the user lacks a right to a command, a key or a channel, or the server
    /// lacks the command or refuses it in scripts. The words of these errors differ between servers
    /// and between versions. They also differ if the command ran in a script.
    #[doc(hidden)]
    pub fn is_denial(&self) -> bool {
        matches!(self, Self::ErrorReply(error) if ServerError::of(error).is_denial())
    }

    /// Returns whether another try is useless until someone changes a right, the login, the server
    /// or the list of masters. A [denial](Self::is_denial) is one reason. Another is a server that
    /// is only a part of a cluster.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::ErrorReply(error) if !ServerError::of(error).is_temporary())
    }
}

/// Returns the error of the command that failed in a script. Redis 6 wraps it, as in `ERR Error
/// running script (call to f_..): @user_script:13: @user_script: 13: -OOM ..`.
fn unwrapped(error: &str) -> &str {
    let inner = error.strip_prefix("ERR Error running script (call to f_");
    let inner = inner.and_then(|inner| inner.split_once("): "));
    let mut inner = inner.map_or(error, |(_, inner)| inner);
    while let Some(after) = inner.strip_prefix("@user_script:")
        && let Some((_, rest)) = after.split_once(": ")
    {
        inner = rest;
    }
    inner.strip_prefix('-').unwrap_or(inner)
}

/// Returns an error reply without the name of the user. The name may contain any word, including
/// those in `WORDS`.
pub fn without_user(error: &str) -> String {
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
    fn errors_mean_what_the_table_says() {
        let lines = include_str!("../../../tests/tables/server_errors.txt").lines();
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (expected, error) = line.split_once(": ").unwrap();
            let failure = Failure::ErrorReply(error.into());
            let found = match expected {
                "temporary" | "permanent" if failure.is_permanent() => "permanent".to_owned(),
                "temporary" | "permanent" => "temporary".to_owned(),
                "denial" | "no denial" if failure.is_denial() => "denial".to_owned(),
                "denial" | "no denial" => "no denial".to_owned(),
                _ => format!("{:?}", ServerError::of(error)),
            };
            assert_eq!(found, expected, "{error}");
        }
        assert!(!Failure::Unreachable("NOPERM".into()).is_denial());
    }

    #[test]
    fn the_name_of_a_user_is_left_out() {
        for (error, expected) in [
            (
                "WRONGPASS invalid username-password pair or user is disabled",
                "WRONGPASS invalid username-password pair or user is disabled",
            ),
            (
                "NOPERM User bob has no permissions to run the 'eval' command",
                "NOPERM its user has no permissions to run the 'eval' command",
            ),
        ] {
            assert_eq!(without_user(error), expected);
        }
    }
}

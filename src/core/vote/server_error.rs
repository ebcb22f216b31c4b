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

    /// Returns whether the next try may work, although nobody changes a right, the login, the server
    /// or the list of masters. This is so after all errors that are not known.
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

    /// Returns whether only a replica gives this answer.
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
    pub fn is_denial(&self) -> bool {
        matches!(self, Self::Rejected(error) if ServerError::of(error).is_denial())
    }

    /// Returns whether another try is useless until someone changes a right, the login, the server
    /// or the list of masters. A [denial](Self::is_denial) is one reason. Another is a server that
    /// is only a part of a cluster.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Rejected(error) if !ServerError::of(error).is_temporary())
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
    fn the_words_of_each_version_have_the_same_meaning() {
        for (error, expected) in [
            (
                "NOPERM this user has no permissions to run the 'eval' command",
                ServerError::ScriptsDenied,
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
                "ERR unknown command `EVALSHA`, with args beginning with: `ab12`,",
                ServerError::ScriptsUnknown,
            ),
            (
                "ERR unknown command 'EVAL', with args beginning with: 'return 1'",
                ServerError::ScriptsUnknown,
            ),
            (
                "@user_script: 3: Unknown Redis command called from Lua script",
                ServerError::UnknownCommand,
            ),
            (
                "@user_script: 3: -NOREPLICAS Not enough good replicas to write.",
                ServerError::WritesRefused("NOREPLICAS"),
            ),
            (
                "ERR Error running script (call to f_0a): @user_script:13: @user_script: 13: -READONLY You can't write against a read only replica.",
                ServerError::WritesRefused("READONLY"),
            ),
            (
                "READONLY You can't write against a read only replica. script: 9f, on @user_script:1.",
                ServerError::WritesRefused("READONLY"),
            ),
            (
                "ERR Error running script (call to f_0a): @user_script:13: OOM command not allowed",
                ServerError::WritesRefused("OOM"),
            ),
            (
                "ERR the key quorlock:fence:{READONLY} is not a counter: delete it",
                ServerError::Other,
            ),
            (
                "ERR the key quorlock:queue:{LOADING run this command} is not a sorted set: delete it",
                ServerError::Other,
            ),
            ("ERR LOADING is no code here", ServerError::Other),
            ("NOPERM any words", ServerError::CommandDenied),
            (
                "TRYAGAIN Multiple keys request during rehashing",
                ServerError::State,
            ),
            ("BUSY Redis is busy running a script.", ServerError::State),
            ("ERR syntax error", ServerError::Other),
        ] {
            assert_eq!(ServerError::of(error), expected, "{error}");
        }
    }

    /// The answers of real servers to a user without a right to a command, a key and a channel. Each
    /// was sent alone, then in a script, and then in a script that caught the error.
    #[test]
    fn the_denials_of_each_version_are_known() {
        use ServerError::{ChannelDenied, CommandDenied, KeyDenied, ScriptsDenied};
        let kinds = [
            CommandDenied,
            CommandDenied,
            CommandDenied,
            KeyDenied,
            KeyDenied,
            KeyDenied,
            ChannelDenied,
            ChannelDenied,
            ScriptsDenied,
        ];
        for (version, errors) in [
            (
                "Redis 6.2",
                [
                    "NOPERM this user has no permissions to run the 'get' command or its subcommand",
                    "ERR Error running script (call to f_2932): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
                    "@user_script: 1: The user executing the script can't run this command or subcommand",
                    "NOPERM this user has no permissions to access one of the keys used as arguments",
                    "ERR Error running script (call to f_2932): @user_script:1: @user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments",
                    "@user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments",
                    "NOPERM this user has no permissions to access one of the channels used as arguments",
                    "ERR Error running script (call to f_1a02): @user_script:1: @user_script: 1: The user executing the script can't publish to the channel mentioned in the command",
                    "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
                ],
            ),
            (
                "Redis 7.0",
                [
                    "NOPERM this user has no permissions to run the 'get' command",
                    "ERR The user executing the script can't run this command or subcommand script: 2932, on @user_script:1.",
                    "ERR The user executing the script can't run this command or subcommand",
                    "NOPERM this user has no permissions to access one of the keys used as arguments",
                    "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 2932, on @user_script:1.",
                    "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
                    "NOPERM this user has no permissions to access one of the channels used as arguments",
                    "ERR The user executing the script can't publish to the channel mentioned in the command script: 1a02, on @user_script:1.",
                    "NOPERM this user has no permissions to run the 'evalsha' command",
                ],
            ),
            (
                "Redis 8.0 and 8.6, Valkey 8.0 to 9.1",
                [
                    "NOPERM User ann has no permissions to run the 'get' command",
                    "ERR ACL failure in script: User ann has no permissions to run the 'get' command script: 2932, on @user_script:1.",
                    "ERR ACL failure in script: User ann has no permissions to run the 'get' command",
                    "NOPERM No permissions to access a key",
                    "ERR ACL failure in script: No permissions to access a key script: 2932, on @user_script:1.",
                    "ERR ACL failure in script: No permissions to access a key",
                    "NOPERM No permissions to access a channel",
                    "ERR ACL failure in script: No permissions to access a channel script: on @user_script:1.",
                    "NOPERM User ann has no permissions to run the 'evalsha' command",
                ],
            ),
        ] {
            for (error, kind) in errors.into_iter().zip(kinds) {
                assert_eq!(ServerError::of(error), kind, "{version}: {error}");
            }
        }
    }

    /// The errors of servers, of versions of clusters, and of proxies.
    #[test]
    fn only_some_errors_may_be_over_soon() {
        let temporary = [
            "upstream failure",
            "no upstream host",
            "ERR Connection timed out",
            "ERR proxy: backend is not ready",
            "ERR server closing",
            "ERR rate limited, try again",
            "ERR max number of clients reached",
            "ERR Can not execute a command 'get' while the cluster is down",
            "ERR Script attempted to access a slot not served",
            "BUSY Redis is busy running a script",
            "CLUSTERDOWN Hash slot not served",
            "LOADING Redis is loading the dataset in memory",
            "MASTERDOWN Link with MASTER is down",
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
            "OOM command not allowed",
            "TRYAGAIN later",
            "UNBLOCKED client",
        ];
        let permanent = [
            "NOPERM User x has no permissions to run the 'hello' command",
            "ERR unknown command 'EVAL', with args beginning with: ",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOAUTH Authentication required.",
            "DENIED Redis is running in protected mode",
            "ERR invalid password",
            "ERR invalid username-password pair",
            "ERR Client sent AUTH, but no password is set",
            "ERR AUTH <password> called without any password configured",
            "NOPROTO unsupported protocol version",
            "MOVED 10002 127.0.0.1:6379",
            "ERR Attempted to access a non local key in a cluster node",
            "@user_script: 1: Lua script attempted to access a non local key",
            "ERR DB index is out of range",
            "ERR SELECT is not allowed in cluster mode",
        ];
        for error in temporary.into_iter().chain(permanent) {
            let failure = Failure::Rejected(error.into());
            assert_eq!(
                failure.is_permanent(),
                permanent.contains(&error),
                "{error}"
            );
        }
    }

    #[test]
    fn only_what_trying_again_cannot_change_is_a_denial() {
        for (error, is_denial) in [
            (
                "NOPERM this user has no permissions to run the 'eval' command",
                true,
            ),
            (
                "ERR ACL failure in script: No permissions to access a key",
                true,
            ),
            (
                "ERR Error running script (call to f_0a): @user_script:13: @user_script: 13: The user executing the script can't run this command or subcommand",
                true,
            ),
            (
                "ERR The user executing the script can't publish to the channel mentioned",
                true,
            ),
            (
                "ERR This Redis command is not allowed from script script: 9f, on @user_script:1.",
                true,
            ),
            ("NOSCRIPT No matching script. Please use EVAL.", false),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                false,
            ),
            (
                "ERR the key quorlock:fence:{no permissions} is not a counter",
                false,
            ),
        ] {
            let failure = Failure::Rejected(error.into());
            assert_eq!(failure.is_denial(), is_denial, "{error}");
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

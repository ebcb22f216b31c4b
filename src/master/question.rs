//! The questions of a check. They change nothing on a master.

use super::server_error::ServerError;
use crate::core::vote::Failure;

/// A question to one master.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question<'a> {
    /// Asks for all connections. The answer is the text of `CLIENT LIST`.
    Connections,
    /// Runs `lua/shared/counters.lua` with these arguments. The answer is the text that the script
    /// returns.
    Counters([&'a str; 2]),
    /// Runs `lua/shared/check.lua` with these arguments. The answer is the text that the script
    /// returns.
    Facts(&'a [&'a str]),
    /// Asks for a setting by its name. The answer is `None` if the master does not know it.
    Setting(&'static str),
}

pub(crate) type Answer = Result<Option<String>, Failure>;

/// Returns whether the server does not know the script that was asked for. Then the text of the
/// script follows.
pub(super) fn is_unknown_script(answer: &Answer) -> bool {
    let Err(Failure::Rejected(error)) = answer else {
        return false;
    };
    ServerError::of(error) == ServerError::NoScript
}

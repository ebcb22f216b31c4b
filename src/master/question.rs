//! The questions of a check. They change nothing on a master.

use crate::core::vote::Failure;

/// A question to one master.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "redis"),
    expect(
        dead_code,
        reason = "a memory master has the same answer to every question of a kind"
    )
)]
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

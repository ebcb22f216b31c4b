//! Fencing tokens: attempts at a fenced lock, each of which offers candidates.
//!
//! A lock may vanish at any time, because it expires, a clock jumps, or its holder stands still.
//! This has no effect until the master executes the next command. So a lock vanishes in the model
//! only at that moment, or not at all. A counter that only releases have raised may vanish, too.

mod model;
mod steps;
mod tests;

use super::masters::Edit;

/// A rule of the clients or of the quarantine that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// Grants for the first candidate also count for the second one.
    KeepsGrants,
    /// A master that lost its data votes again at once.
    NoQuarantine,
    /// No rule is broken.
    Not,
}

/// A counter that an accepted candidate has raised may vanish.
const ACCEPTED_FADES: &[Edit] = &[(
    "mutex/acquire",
    "  local set = redis.pcall('SET', fence, candidate, 'PX', '2592000000') -- 30 days\n",
    "  local set = redis.pcall('SET', fence, candidate, 'PX', '3000')\n",
)];

/// A candidate may win although another attempt has won with the same candidate.
const EQUAL_WINS: &[Edit] = &[(
    "mutex/acquire",
    "  if offered <= counter then\n",
    "  if offered < counter then\n",
)];

/// A candidate may be any distance below the masters' clocks.
const NO_LOWER_CLAMP: &[Edit] = &[(
    "mutex/acquire",
    "  if micros and (offered < micros - width or ",
    "  if micros and (",
)];

/// A candidate may be any distance above the masters' clocks.
const NO_UPPER_CLAMP: &[Edit] = &[(
    "mutex/acquire",
    " or offered > math.max(micros + width, counter + 1)) then\n",
    ") then\n",
)];

//! The exit statuses.

use nix::sys::signal;

/// An exit status. The numbers above 2 are those of `sysexits.h` and of shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: it worked.
    Success,
    /// 64: the arguments cannot be understood.
    Usage,
    /// 69: no majority of masters can be reached.
    Unavailable,
    /// 71: the system refused something, such as another process.
    System,
    /// 74: the output could not be written.
    Output,
    /// 75: another holder has the lock. Try again later.
    Busy,
    /// 76: the lock was lost while it was held.
    Lost,
    /// 78: the configuration is wrong, or the name is in use as another kind of lock.
    Configuration,
    /// 126: the command cannot be executed.
    NotExecutable,
    /// 127: the command was not found.
    NotFound,
    /// 128 + n: the signal n ended the command or this program.
    Signal(i32),
    /// Any other status, as the command or a verb defines it.
    Code(u8),
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::System => 71,
            Self::Output => 74,
            Self::Busy => 75,
            Self::Lost => 76,
            Self::Configuration => 78,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Signal(number) => 128 | number as u8, // no number has more than 7 bits
            Self::Code(code) => code,
        }
    }
}

impl From<signal::Signal> for Exit {
    fn from(signal: signal::Signal) -> Self {
        Self::Signal(signal as i32)
    }
}

//! The scripts, as they stand in `lua/`.

/// The scripts that masters keep, from `lua/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// Of a fenced one only.
    MutexAcquire,
    MutexExtend,
    MutexRelease,
    MutexReleaseFenced,
    ReentrantAcquire,
    ReentrantExtend,
    ReentrantRelease,
    ReentrantReleaseFenced,
    FairAcquire,
    FairRelease,
    FairReleaseFenced,
    FairYield,
    Inspect,
}

/// A script from `lua/`, behind the shared parts that it needs.
macro_rules! lua {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../lua/", $file, ".lua"))),+)
    };
}

/// A release, with the tombstone behind it.
macro_rules! fenced {
    ($($file:literal),+) => {
        concat!(
            "local function release()\n",
            lua!($($file),+),
            "end\nlocal reply = release()\n",
            lua!("shared/tombstone")
        )
    };
}

impl Script {
    pub(crate) const ALL: [Self; 13] = [
        Self::MutexAcquire,
        Self::MutexExtend,
        Self::MutexRelease,
        Self::MutexReleaseFenced,
        Self::ReentrantAcquire,
        Self::ReentrantExtend,
        Self::ReentrantRelease,
        Self::ReentrantReleaseFenced,
        Self::FairAcquire,
        Self::FairRelease,
        Self::FairReleaseFenced,
        Self::FairYield,
        Self::Inspect,
    ];

    /// The script in its place for a fenced lock, and whether that goes by a window.
    pub(super) fn fenced(self) -> Option<(Self, bool)> {
        match self {
            Self::MutexAcquire | Self::ReentrantAcquire | Self::FairAcquire => Some((self, true)),
            Self::MutexRelease => Some((Self::MutexReleaseFenced, false)),
            Self::ReentrantRelease => Some((Self::ReentrantReleaseFenced, false)),
            Self::FairRelease => Some((Self::FairReleaseFenced, false)),
            _ => None,
        }
    }

    /// Which argument is the channel that a release is made known on, if any is.
    #[cfg(feature = "redis")]
    pub(crate) fn channel(self) -> Option<usize> {
        match self {
            Self::MutexRelease | Self::MutexReleaseFenced => Some(1),
            Self::ReentrantRelease | Self::ReentrantReleaseFenced => Some(4),
            _ => None,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::MutexAcquire => lua!("shared/ballot", "mutex/acquire"),
            Self::MutexExtend => lua!("mutex/extend"),
            Self::MutexRelease => lua!("mutex/release"),
            Self::MutexReleaseFenced => fenced!("mutex/release"),
            Self::ReentrantAcquire => {
                lua!(
                    "shared/held",
                    "shared/hold",
                    "shared/mine",
                    "shared/ballot",
                    "reentrant/acquire"
                )
            }
            Self::ReentrantExtend => lua!("shared/held", "shared/mine", "reentrant/extend"),
            Self::ReentrantRelease => lua!("shared/held", "shared/mine", "reentrant/release"),
            Self::ReentrantReleaseFenced => {
                fenced!("shared/held", "shared/mine", "reentrant/release")
            }
            Self::FairAcquire => concat!(
                lua!(
                    "shared/held",
                    "shared/hold",
                    "shared/mine",
                    "shared/queue",
                    "shared/ballot"
                ),
                "local function acquire()\n",
                lua!("fair/acquire"),
                "end\n",
                lua!("shared/sides")
            ),
            Self::FairRelease => lua!("shared/held", "shared/mine", "shared/queue", "fair/release"),
            Self::FairReleaseFenced => {
                fenced!("shared/held", "shared/mine", "shared/queue", "fair/release")
            }
            Self::FairYield => lua!("shared/mine", "shared/queue", "fair/yield"),
            Self::Inspect => lua!("shared/held", "shared/inspect"),
        }
    }
}

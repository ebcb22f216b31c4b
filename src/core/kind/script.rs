//! The scripts of `lua/`, put together from their files.

/// A script that masters run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// Takes a fenced mutex. A mutex that is not fenced is taken with a plain `SET`.
    MutexAcquire,
    /// Takes a mutex that is not fenced, or reads the key of its holder, so that the master reports
    /// the next change of the key.
    MutexAcquireWatched,
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
    /// Breaks a lock of any kind.
    Break,
}

/// Joins the texts of the given files of `lua/`. Shared parts come before the script that uses
/// them.
#[cfg(feature = "redis")]
macro_rules! lua {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../../lua/", $file, ".lua"))),+)
    };
}

/// Joins the given files after `shared/holder` and `shared/ownership`, for a script of a reentrant
/// or a fair lock.
#[cfg(feature = "redis")]
macro_rules! owned {
    ($($file:literal),+) => {
        lua!("shared/holder", "shared/ownership", $($file),+)
    };
}

/// Puts the given release into a Lua function, and appends `shared/tombstone`.
#[cfg(feature = "redis")]
macro_rules! fenced {
    ($($text:tt)+) => {
        concat!(
            "local function release()\n",
            $($text)+,
            "end\nlocal reply = release()\n",
            lua!("shared/tombstone")
        )
    };
}

impl Script {
    #[cfg(feature = "redis")]
    pub(crate) const ALL: [Self; 15] = [
        Self::MutexAcquire,
        Self::MutexAcquireWatched,
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
        Self::Break,
    ];

    /// Returns the script that replaces this one for a fenced lock.
    pub(in crate::core) fn fenced(self) -> Self {
        match self {
            Self::MutexRelease => Self::MutexReleaseFenced,
            Self::ReentrantRelease => Self::ReentrantReleaseFenced,
            Self::FairRelease => Self::FairReleaseFenced,
            other => other,
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::MutexAcquire => lua!("shared/ballot", "mutex/acquire"),
            Self::MutexAcquireWatched => lua!("mutex/acquire_watched"),
            Self::MutexExtend => lua!("mutex/extend"),
            Self::MutexRelease => lua!("mutex/release"),
            Self::MutexReleaseFenced => fenced!(lua!("mutex/release")),
            Self::ReentrantAcquire => {
                lua!(
                    "shared/holder",
                    "shared/store",
                    "shared/ownership",
                    "shared/ballot",
                    "reentrant/acquire"
                )
            }
            Self::ReentrantExtend => owned!("reentrant/extend"),
            Self::ReentrantRelease => owned!("reentrant/release"),
            Self::ReentrantReleaseFenced => fenced!(owned!("reentrant/release")),
            Self::FairAcquire => concat!(
                lua!(
                    "shared/holder",
                    "shared/store",
                    "shared/ownership",
                    "shared/queue",
                    "shared/ballot"
                ),
                "local function acquire()\n",
                lua!("fair/acquire"),
                "end\n",
                lua!("shared/companions")
            ),
            Self::FairRelease => owned!("shared/queue", "fair/release"),
            Self::FairReleaseFenced => fenced!(owned!("shared/queue", "fair/release")),
            Self::FairYield => lua!("shared/ownership", "shared/queue", "fair/yield"),
            Self::Inspect => lua!("shared/holder", "shared/any_holder", "shared/inspect"),
            Self::Break => lua!(
                "shared/holder",
                "shared/any_holder",
                "shared/queue",
                "shared/break"
            ),
        }
    }
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_script_has_a_text_of_its_own() {
        let texts = BTreeSet::from(Script::ALL.map(Script::text));
        assert_eq!(texts.len(), Script::ALL.len());
        assert!(texts.iter().all(|text| text.contains("redis.call(")));
    }

    #[test]
    fn a_fenced_lock_has_releases_of_its_own() {
        let fenced = Script::ALL
            .into_iter()
            .filter(|script| script.fenced() != *script);
        let fenced: Vec<_> = fenced.map(|script| (script, script.fenced())).collect();
        let expected = [
            (Script::MutexRelease, Script::MutexReleaseFenced),
            (Script::ReentrantRelease, Script::ReentrantReleaseFenced),
            (Script::FairRelease, Script::FairReleaseFenced),
        ];
        assert_eq!(fenced, expected);
    }
}

//! The scripts of `lua/`, put together from their files.

use std::fmt;
use std::sync::OnceLock;

use super::kind::kinds;

/// A script that masters run.
pub(crate) struct Script {
    /// The file in `lua/`. For a fenced lock, the name may have `_fenced` at the end.
    pub(crate) name: &'static str,
    text: &'static str,
    hash: OnceLock<String>,
}

/// Joins the texts of the given files of `lua/`. Shared parts come before the script that uses
/// them.
macro_rules! lua {
    ($($file:literal),+) => {
        concat!($(include_str!(concat!("../../../lua/", $file, ".lua"))),+)
    };
}
pub(in crate::core) use lua;

/// Joins the given files after `shared/holder` and `shared/ownership`, for a script of a reentrant
/// or a fair lock.
macro_rules! owned {
    ($($file:literal),+) => {
        lua!("shared/holder", "shared/ownership", $($file),+)
    };
}
pub(in crate::core) use owned;

/// Puts the given release into a Lua function, and appends `shared/tombstone`.
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
pub(in crate::core) use fenced;

/// Makes the Lua table `kinds`, with what the `describe.lua` of each kind returns.
macro_rules! described {
    ($($module:ident),+) => {
        concat!(
            "local kinds = {\n",
            $(
                "(function()\n",
                include_str!(concat!("../../../lua/", stringify!($module), "/describe.lua")),
                "end)(),\n",
            )+
            "}\n"
        )
    };
}

/// Finds out whether a master may have forgotten locks. No lock command runs it.
pub(crate) static ORIGIN: Script = Script::new("shared/origin", lua!("shared/origin"));

macro_rules! for_any_kind {
    ($($(#[doc = $doc:literal])+ $kind:ident => $module:ident,)+) => {
        /// Reports the holder of a lock of any kind, and its waiters.
        pub(in crate::core) static INSPECT: Script = Script::new(
            "shared/inspect",
            concat!(
                lua!("shared/holder", "shared/owner", "shared/queue", "shared/entries", "shared/permits"),
                described!($($module),+),
                lua!("shared/any_holder", "shared/inspect")
            ),
        );
        /// Breaks a lock of any kind.
        pub(in crate::core) static BREAK: Script = Script::new(
            "shared/break",
            concat!(
                lua!("shared/holder", "shared/owner", "shared/queue", "shared/entries", "shared/permits"),
                described!($($module),+),
                lua!("shared/any_holder", "shared/break")
            ),
        );
    };
}
kinds!(for_any_kind);

impl Script {
    pub(in crate::core) const fn new(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            text,
            hash: OnceLock::new(),
        }
    }

    pub(crate) fn text(&self) -> &'static str {
        self.text
    }

    /// Returns the hash by which a server knows the script. `hash` computes it from the text. It is
    /// called only once.
    pub(crate) fn hash(&self, hash: impl FnOnce(&str) -> String) -> &str {
        self.hash.get_or_init(|| hash(self.text))
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

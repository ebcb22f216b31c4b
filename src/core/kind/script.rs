//! The scripts of `lua/`, put together from their files.

use std::{fmt, sync::OnceLock};

use super::kinds;

pub(crate) struct Script {
    /// The name of the file in `lua/`, followed by `_fenced` for a script that releases a fenced
    /// lock.
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

/// Makes a script of the given shared parts and, after them, the given file.
macro_rules! script {
    ($file:literal $(, $part:literal)*) => {
        Script::new($file, lua!($($part,)* $file))
    };
}
pub(in crate::core) use script;

/// Makes a script that may store an entry in a companion key. The given file becomes a Lua
/// function, and the file `shared/companions` comes after it.
macro_rules! script_with_companions {
    ($file:literal $(, $part:literal)+) => {
        Script::new($file, concat!(
            lua!($($part),+),
            "local function acquire()\n",
            lua!($file),
            "end\n",
            lua!("shared/companions")
        ))
    };
}
pub(in crate::core) use script_with_companions;

/// Makes both scripts of a release. The script for a lock that is not fenced may begin with a file
/// that handles a common case. In the script for a fenced lock, the release is a Lua function, and
/// the file `shared/tombstone` comes after it.
macro_rules! releases {
    ($file:literal $(, first $common:literal)? $(, $part:literal)*) => {
        [
            Script::new($file, lua!($($common,)? $($part,)* $file)),
            Script::new(concat!($file, "_fenced"), concat!(
                "local function release()\n",
                lua!($($part,)* $file),
                "end\nlocal reply = release()\n",
                lua!("shared/tombstone")
            )),
        ]
    };
}
pub(in crate::core) use releases;

/// The script that finds out whether a master may have forgotten locks. No command on a lock runs
/// it.
pub(crate) static ORIGIN: Script = script!("shared/origin", "shared/programs");

/// The script that finds out which lists of masters other programs use. No command on a lock runs
/// it.
pub(crate) static LOOK: Script = script!("shared/look", "shared/programs");

macro_rules! for_any_kind {
    ($($(#[doc = $doc:literal])+ $kind:ident => $module:ident,)+) => {
        /// Makes a script for locks of all kinds. The Lua table `kinds` has what the `describe.lua`
        /// of each kind returns.
        macro_rules! script_for_any_kind {
            ($file:literal) => {
                Script::new($file, concat!(
                    lua!("shared/holder", "shared/owner", "shared/queue", "shared/entries", "shared/permits"),
                    "local kinds = {\n",
                    $(
                        "(function()\n",
                        include_str!(concat!("../../../lua/", stringify!($module), "/describe.lua")),
                        "end)(),\n",
                    )+
                    "}\n",
                    lua!("shared/any_holder", $file)
                ))
            };
        }
    };
}
kinds!(for_any_kind);

pub(in crate::core) static INSPECT: Script = script_for_any_kind!("shared/inspect");
pub(in crate::core) static BREAK: Script = script_for_any_kind!("shared/break");

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

    /// Returns the hash by which a server knows the script. The function `hash` computes it from
    /// the text, and is called only once.
    pub(crate) fn hash(&self, hash: impl FnOnce(&str) -> String) -> &str {
        self.hash.get_or_init(|| hash(self.text))
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

//! The rights that a lock needs on the masters.

use super::{LockKind, script::lua};

/// The commands that acquire, extend and release a lock: those of its kind, and those for its
/// fencing tokens. Without all of them, no guard of the lock can be kept or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) kind: LockKind,
    pub(crate) is_fenced: bool,
}

impl Rights {
    pub(crate) fn of(kind: LockKind, is_fenced: bool) -> Self {
        Self { kind, is_fenced }
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of_kind = |kind| [false, true].map(|is_fenced| Self::of(kind, is_fenced));
        LockKind::ALL.into_iter().flat_map(of_kind)
    }

    /// Returns a number of its own for each value.
    pub(crate) fn index(self) -> usize {
        self.kind as usize * 2 + usize::from(self.is_fenced)
    }

    /// Returns the start of a script that returns an error if one of these rights is missing.
    pub(crate) fn check(self) -> String {
        let of_kind = self.kind.spec().rights;
        let is_known = |right: &&str| of_kind.split(' ').any(|known| known == *right);
        let of_fence = FENCED
            .into_iter()
            .filter(|right| self.is_fenced && !is_known(right));
        let needed: Vec<_> = of_kind.split(' ').chain(of_fence).collect();
        let check = lua!("shared/rights");
        format!("local needed = 'EVALSHA {}'\n{check}", needed.join(" "))
    }
}

/// The commands for fencing tokens.
const FENCED: [&str; 3] = ["GET", "SET", "TIME"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_tried_once() {
        for (kind, is_fenced, expected) in [
            (LockKind::Mutex, false, "EVALSHA SET GET DEL PTTL PEXPIRE"),
            (
                LockKind::Mutex,
                true,
                "EVALSHA SET GET DEL PTTL PEXPIRE TIME",
            ),
            (
                LockKind::Reentrant,
                true,
                "EVALSHA EXISTS HSET HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE GET SET TIME",
            ),
        ] {
            let check = Rights::of(kind, is_fenced).check();
            let first = format!("local needed = '{expected}'");
            assert_eq!(check.lines().next(), Some(&*first));
        }
    }
}

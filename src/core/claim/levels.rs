//! The levels of a claim: one for each guard.

use crate::core::kind::Access;

/// The number of guards of a claim, by what they leave to others. It includes guards whose rounds
/// are still under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Levels {
    exclusive: u32,
    shared: u32,
}

impl Levels {
    /// Returns a single level.
    pub(crate) fn one(access: Access) -> Self {
        let mut levels = Self::default();
        levels.add(access);
        levels
    }

    pub(crate) fn depth(self) -> u32 {
        self.exclusive.saturating_add(self.shared)
    }

    /// Returns what the levels together leave to others.
    pub(crate) fn access(self) -> Access {
        if self.exclusive == 0 {
            Access::Shared
        } else {
            Access::Exclusive
        }
    }

    pub(crate) fn add(&mut self, access: Access) {
        let count = self.count(access);
        *count = count.saturating_add(1);
    }

    pub(crate) fn remove(&mut self, access: Access) {
        let count = self.count(access);
        *count = count.saturating_sub(1);
    }

    fn count(&mut self, access: Access) -> &mut u32 {
        match access {
            Access::Exclusive => &mut self.exclusive,
            Access::Shared => &mut self.shared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_share_the_lock_if_all_of_them_do() {
        use Access::{Exclusive, Shared};
        let mut levels = Levels::one(Exclusive);
        for (added, removed, expected) in [
            (Some(Shared), None, (2, Exclusive)),
            (None, Some(Exclusive), (1, Shared)),
            (Some(Shared), None, (2, Shared)),
            (Some(Exclusive), Some(Shared), (2, Exclusive)),
        ] {
            if let Some(access) = added {
                levels.add(access);
            }
            if let Some(access) = removed {
                levels.remove(access);
            }
            assert_eq!((levels.depth(), levels.access()), expected);
        }
    }
}

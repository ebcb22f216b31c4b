//! Groups of masters.

use crate::master::MasterSpec;

/// A group of masters, for [`Builder::groups`](crate::Builder::groups).
///
/// ```
/// use quorlock::Group;
///
/// let group = Group::new("a", ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]);
/// let twice_the_size = Group::new("b", ["redis://10.0.1.1"]).weight(2);
/// # let _ = (group, twice_the_size);
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    pub(in crate::face) id: String,
    pub(in crate::face) weight: u32,
    pub(in crate::face) masters: Vec<MasterSpec>,
}

impl Group {
    /// Returns a group with the weight 1. The ID is 1 to 64 ASCII letters, digits, dots, hyphens
    /// and underscores.
    ///
    /// **The IDs and the weights decide which names a group has.** All programs must use the same
    /// ones. The masters of a group may [change](crate::Builder::leaving_groups), and its ID stays.
    pub fn new(
        id: impl Into<String>,
        masters: impl IntoIterator<Item = impl Into<MasterSpec>>,
    ) -> Self {
        Self {
            id: id.into(),
            weight: 1,
            masters: masters.into_iter().map(Into::into).collect(),
        }
    }

    /// Sets the weight, from 1 to 16. A group of twice the weight has twice the names.
    #[must_use]
    pub fn weight(self, weight: u32) -> Self {
        Self { weight, ..self }
    }
}

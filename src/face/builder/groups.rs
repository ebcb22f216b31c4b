//! The masters that programs leave, and groups of masters.

use super::Builder;
use crate::{face::group::Group, master::MasterSpec};

/// The masters that programs leave.
impl Builder {
    /// Adds the masters that programs leave while the masters are changed: all old masters.
    ///
    /// Every decision then needs a majority of [`masters`](Self::masters) and a majority of these.
    /// So this program excludes those that use only the old or only the new masters. These exclude
    /// each other [only in the right order](crate::docs::operations#change-the-masters).
    ///
    /// A master in both lists, by its address, is asked once, as `masters` says, and counts in
    /// each. Both lists together may have at most 64 masters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorlock::{Coordinator, MemoryMaster};
    ///
    /// let [a, b, c, d, e, f] = [(); 6].map(|()| MemoryMaster::new());
    /// let builder = Coordinator::builder().masters([&a, &b, &c, &d, &f]);
    /// let locks = builder.leaving([a, b, c, d, e]).build()?;
    /// # Ok(()) }
    /// ```
    pub fn leaving(mut self, masters: impl IntoIterator<Item = impl Into<MasterSpec>>) -> Self {
        self.leaving.extend(masters.into_iter().map(Into::into));
        self
    }
}

/// Groups of masters, for more locks than one set of masters can carry.
impl Builder {
    /// Adds groups of masters, instead of [`masters`](Self::masters). Each name belongs to one
    /// group, whose masters alone are asked for its locks.
    ///
    /// Every lock is written to every master of its group, so more masters in a group make locks
    /// safer, and more groups carry more locks. There may be 64 groups of 64 masters. An outage of
    /// a group concerns its names only.
    ///
    /// The group of a name follows from the name, and from the [IDs](Group::new) and the
    /// [weights](Group::weight) of all groups. The key template does not matter. If a name has a
    /// part in braces, as in `{cart:9}/items`, the first such part decides. So names with the same
    /// part are in one group. `lua/README.md` describes the function for other languages.
    ///
    /// Errors, votes, metrics, logs, and the states of masters name the group.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorlock::{Coordinator, Group, MemoryMaster};
    ///
    /// let [a, b] = [(); 2].map(|()| [(); 3].map(|()| MemoryMaster::new()));
    /// let groups = [Group::new("a", a), Group::new("b", b)];
    /// let locks = Coordinator::builder().groups(groups).build()?;
    /// assert_eq!(locks.group_of("orders/42"), Some("a"));
    /// let guard = locks.mutex("orders/42").try_acquire().await?;
    /// assert_eq!(guard.settled().await.group(), Some("a"));
    /// # Ok(()) }
    /// ```
    pub fn groups(mut self, groups: impl IntoIterator<Item = Group>) -> Self {
        self.groups.extend(groups);
        self
    }

    /// Adds the groups that programs leave while the groups are changed: all old groups.
    ///
    /// Every decision about a name then needs a majority of the masters of its group, and a
    /// majority of those of its old group. So this program excludes those that use only the old or
    /// only the new groups. These exclude each other only in the
    /// [right order](crate::docs::operations#change-the-groups).
    ///
    /// A group with the same ID and the same masters in both lists decides as before. To go from
    /// [`masters`](Self::masters) to groups, give the old masters as one group with any ID.
    ///
    /// The names that move have connections of their own, and the ID `a->b` in errors, metrics and
    /// logs. A name moves only to a group that is new or gets more weight, or from one that is gone
    /// or gets less. There may be 256 such pairs of groups.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorlock::{Coordinator, Group, MemoryMaster};
    ///
    /// let masters = [(); 3].map(|()| [(); 3].map(|()| MemoryMaster::new()));
    /// let group = |at: usize| Group::new(["a", "b", "c"][at], &masters[at]);
    /// let builder = Coordinator::builder().groups([0, 1, 2].map(group));
    /// let locks = builder.leaving_groups([0, 1].map(group)).build()?;
    /// assert_eq!(locks.group_of("orders/42"), Some("a->c"));
    /// # Ok(()) }
    /// ```
    pub fn leaving_groups(mut self, groups: impl IntoIterator<Item = Group>) -> Self {
        self.leaving_groups.extend(groups);
        self
    }

    /// Sets whether masters are dialled when the first lock of their group is used, and not when
    /// the coordinator is built. Defaults to `false`.
    ///
    /// With `true`, a group that is not used has no connections. The first lock of a group waits
    /// for them, at most for the [connect timeout](Self::connect_timeout).
    /// [`ready`](crate::Coordinator::ready) dials all masters.
    ///
    /// Until the first use of a group, this program is like one that has just started: it does not
    /// notice that a master of the group restarts. With [`Strict`](crate::Quarantine::Strict), it
    /// does.
    pub fn dial_at_first_use(mut self, waits: bool) -> Self {
        self.dial_at_first_use = waits;
        self
    }
}

//! Groups of masters, for more locks than one set of masters can carry. Each group has a
//! coordinator.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures::future::join_all;

pub(crate) mod choice;
pub(crate) mod group;

use self::{
    choice::Choice,
    group::{Group, lists_id},
};
use super::{
    builder::{Builder, open::Listed},
    coordinator::Coordinator,
    guard::{MultiGuard, PermitGuard},
    lock::{Lock, Owner, shared::ReadWriteLock},
};
use crate::core::{config_error::ConfigError, error::AskError, vote::votes::Votes};

/// Groups of masters. Each name belongs to one group. The coordinator of that group has the locks
/// with that name.
///
/// Every lock is written to every master of its group. More masters in a group make locks safer,
/// and more groups carry more locks. There may be up to 64 groups, and up to 64 masters in each. An
/// outage of a group affects only its names.
///
/// The group of a name follows from the name, and from the [IDs](Group::new) and the
/// [weights](Group::weight) of all groups. The key template does not matter. If a name has a part
/// in braces, as in `{cart:9}/items`, the first such part decides the group. So names with the same
/// part are in one group. `lua/README.md` describes this choice for other languages.
///
/// Each coordinator has the ID of its group as its [name](Builder::coordinator_name). The health
/// and the readiness of a coordinator are those of its group. [`coordinators`](Self::coordinators)
/// returns all coordinators.
///
/// Groups are cheap to clone, and all clones share everything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use quorlock::{Coordinator, Group, Groups, MemoryMaster};
///
/// let [a, b] = [(); 2].map(|()| [(); 3].map(|()| MemoryMaster::new()));
/// let groups = [Group::new("a", a), Group::new("b", b)];
/// let locks = Groups::new(Coordinator::builder(), groups)?;
/// let guard = locks.mutex("orders/42").try_acquire().await?;
/// assert_eq!(locks.of("orders/42").name(), Some("a")); // its group
/// # drop(guard);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Groups(Arc<Inner>);

struct Inner {
    /// The choice among the groups, and the choice among the old groups.
    choices: Arc<[Choice; 2]>,
    /// The coordinators. A key is two numbers: the number of the group that has the coordinator's
    /// names, and the number of the old group of these names.
    coordinators: BTreeMap<(usize, usize), Coordinator>,
    /// Any of the coordinators: all have the same settings and the same owners.
    first: Coordinator,
}

/// The name of a coordinator, and its masters.
type Member = (Arc<str>, Listed);

impl Groups {
    /// The greatest number of pairs of groups. Each pair has connections of its own.
    const MOST_PAIRS: usize = 256;

    /// Starts to connect to the masters of all groups. `settings` must have no masters, and its
    /// coordinator name does not matter. Must be called inside a tokio runtime, like [`Builder::build`].
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: a group or a setting cannot be used. Nothing was sent.
    pub fn new(
        settings: Builder,
        groups: impl IntoIterator<Item = Group>,
    ) -> Result<Self, ConfigError> {
        Self::with_old_groups(settings, groups, [])
    }

    /// Creates groups as [`new`](Self::new) does, for use while the groups are changed.
    /// `old_groups` has all old groups.
    ///
    /// Every decision about a name then needs a majority of the masters of its group, and a
    /// majority of the masters of its old group. So locks of this program exclude those of programs
    /// with only the old groups, and those of programs with only the new groups. Locks of these
    /// other programs exclude each other only if the change follows the [order of
    /// steps](crate::docs::operations#change-the-groups).
    ///
    /// If a group has the same ID and the same masters in both lists, the names that stay in it need
    /// only one majority, as with [`new`](Self::new). To go from [one
    /// coordinator](Builder::masters) to groups, give the masters of that coordinator as the only
    /// old group, with any ID.
    ///
    /// The names that move from `a` to `b` have a coordinator of their own, with the name `a->b`.
    /// A name moves only to a group that is new or gets more weight, or from a group that is gone or
    /// gets less weight. There may be up to 256 coordinators in all.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: a group or a setting cannot be used. Nothing was sent.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorlock::{Coordinator, Group, Groups, MemoryMaster};
    ///
    /// let masters = [(); 3].map(|()| [(); 3].map(|()| MemoryMaster::new()));
    /// let group = |at: usize| Group::new(["a", "b", "c"][at], &masters[at]);
    /// let (old, new) = ([0, 1].map(group), [0, 1, 2].map(group));
    /// let locks = Groups::with_old_groups(Coordinator::builder(), new, old)?;
    /// assert_eq!(locks.of("orders/42").name(), Some("a->c"));
    /// # Ok(()) }
    /// ```
    pub fn with_old_groups(
        settings: Builder,
        groups: impl IntoIterator<Item = Group>,
        old_groups: impl IntoIterator<Item = Group>,
    ) -> Result<Self, ConfigError> {
        let groups: Vec<_> = groups.into_iter().collect();
        let old_groups: Vec<_> = old_groups.into_iter().collect();
        if !(settings.masters.is_empty() && settings.old_masters.is_empty()) {
            return Err(ConfigError::MastersWithoutGroup);
        }
        let lists = [Group::check_all(&groups)?, Group::check_all(&old_groups)?];
        let members = members(&groups, &old_groups)?;
        let lists_id = match members.first_key_value() {
            Some((_, (_, only))) if members.len() == 1 => only.lists_id(), // the ID without groups
            _ => lists_id(lists),
        };
        let opener = settings.opener(lists_id)?;
        let opened = members.into_iter();
        let choices = Arc::new([&groups, &old_groups].map(|groups| Choice::new(groups)));
        let opened = opened.map(|(key, (name, listed))| {
            let choices = choices.clone();
            let mut locks = opener.open(listed, Some(&name))?;
            locks.has_name = Some(Arc::new(move |name| key_of(&choices, name) == key));
            Ok((key, locks))
        });
        let coordinators: BTreeMap<_, _> = opened.collect::<Result<_, _>>()?;
        let first = coordinators.values().next().cloned();
        Ok(Self(Arc::new(Inner {
            choices,
            first: first.ok_or(ConfigError::NoGroups)?,
            coordinators,
        })))
    }

    /// Returns the mutex called `name`: see [`Coordinator::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        let name = name.as_ref();
        self.of(name).mutex(name)
    }

    /// Returns the reentrant lock called `name` for `owner`: see [`Coordinator::reentrant`].
    pub fn reentrant(&self, name: impl AsRef<str>, owner: &Owner) -> Lock {
        let name = name.as_ref();
        self.of(name).reentrant(name, owner)
    }

    /// Returns the fair lock called `name`: see [`Coordinator::fair`].
    pub fn fair(&self, name: impl AsRef<str>) -> Lock {
        let name = name.as_ref();
        self.of(name).fair(name)
    }

    /// Returns the read-write lock called `name`: see [`Coordinator::read_write`].
    pub fn read_write(&self, name: impl AsRef<str>) -> ReadWriteLock {
        let name = name.as_ref();
        self.of(name).read_write(name)
    }

    /// Returns the semaphore called `name`: see [`Coordinator::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: usize) -> Lock<PermitGuard> {
        let name = name.as_ref();
        self.of(name).semaphore(name, permits)
    }

    /// Returns the coordinator of a name. Use it to look at the group of the name, or to
    /// [break](Coordinator::break_held) a lock. On the masters of another group, a lock would exclude
    /// nobody, so its locks with other names [are refused](ConfigError::ForeignName).
    pub fn of(&self, name: impl AsRef<str>) -> &Coordinator {
        let inner = &*self.0;
        let name = name.as_ref();
        &inner.coordinators[&key_of(&inner.choices, name)]
    }

    /// Returns the mutexes called `names` as one lock, as
    /// [`Coordinator::multi_mutex`](Coordinator::multi_mutex) does. The names may be in several groups.
    ///
    /// If the masters of one group give no answers for a long time, the names of the other groups
    /// are released until these masters answer.
    pub fn multi_mutex(
        &self,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Lock<MultiGuard> {
        let context_of = |name: &str| self.of(name).context.clone();
        Lock::multi_mutex(&self.0.first.context, context_of, names)
    }

    /// Returns a new owner, like [`Coordinator::new_owner`]. It works with the coordinators of all
    /// groups.
    pub fn new_owner(&self) -> Owner {
        self.0.first.new_owner()
    }

    /// Returns the coordinators of all groups, in the order of the groups.
    pub fn coordinators(&self) -> impl Iterator<Item = &Coordinator> {
        self.0.coordinators.values()
    }

    /// Asks all [`coordinators`](Self::coordinators) at once whether they are
    /// [ready](Coordinator::ready_within). Returns the answer of each.
    ///
    /// A program may wait for all groups when it starts. A health probe should not wait for all:
    /// otherwise, an outage of one group would take away the names of all other groups, too. See
    /// [`docs::operations`](crate::docs::operations#groups-in-probes).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the masters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use quorlock::{Coordinator, Fault, Group, Groups, MemoryMaster};
    /// let [a, b] = [(); 2].map(|()| MemoryMaster::new());
    /// b.inject(Fault::Down);
    /// let groups = [Group::new("a", [a]), Group::new("b", [b])];
    /// let locks = Groups::new(Coordinator::builder(), groups)?;
    /// let answers = locks.ready_within(Duration::from_millis(100)).await;
    /// for refused in answers.iter().filter_map(|answer| answer.as_ref().err()) {
    ///     eprintln!("{refused}");
    /// }
    /// assert!(answers.iter().any(Result::is_ok), "a probe may say that all is well");
    /// # Ok(()) }
    /// ```
    pub async fn ready_within(&self, limit: Duration) -> Vec<Result<Votes, AskError>> {
        join_all(self.coordinators().map(|locks| locks.ready_within(limit))).await
    }

    /// Closes all coordinators, and waits until all posted releases are delivered: see
    /// [`Coordinator::close`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the groups closed, as with [`Coordinator::close`].
    pub async fn close(&self) {
        self.refuse();
        join_all(self.coordinators().map(Coordinator::close)).await;
    }

    /// Closes all coordinators as [`close`](Self::close) does, but waits for at most `limit`.
    /// Returns whether all posted releases are delivered.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the groups closed, as with [`close`](Self::close).
    pub async fn close_within(&self, limit: Duration) -> bool {
        self.refuse();
        let closed = self.coordinators().map(|locks| locks.close_within(limit));
        join_all(closed).await.into_iter().all(|done| done)
    }

    /// Closes all coordinators.
    fn refuse(&self) {
        self.coordinators().for_each(|locks| locks.context.close());
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.coordinators()).finish()
    }
}

/// Returns the key of the coordinator that has the name.
fn key_of([new, old]: &[Choice; 2], name: &str) -> (usize, usize) {
    (new.of(name), old.of(name))
}

/// Returns the coordinators for all names, by the number of the new group and the number of the old
/// group.
///
/// A name moves only to a group that is new or has more weight, or from a group that is gone or has
/// less weight, because all other scores stay the same. Only pairs of groups between which names
/// may move, and pairs of a group with itself, are returned.
fn members(
    groups: &[Group],
    old_groups: &[Group],
) -> Result<BTreeMap<(usize, usize), Member>, ConfigError> {
    let weight = |among: &[Group], id: &str| {
        let same = among.iter().find(|other| other.id == id);
        same.map_or(0, |same| same.weight)
    };
    let have_names = |old: &Group, new: &Group| {
        let (is, was) = (weight(groups, &old.id), weight(old_groups, &new.id));
        old.id == new.id || new.weight > was || old.weight > is
    };
    let olds = || {
        let none = old_groups.is_empty().then_some(None);
        none.into_iter()
            .chain(old_groups.iter().map(Some))
            .enumerate()
    };
    let pairs = groups.iter().enumerate().flat_map(|(number, new)| {
        let olds = olds().filter(move |(_, old)| old.is_none_or(|old| have_names(old, new)));
        olds.map(move |(old_number, old)| ((number, old_number), new, old))
    });
    let pairs: Vec<_> = pairs.collect();
    if pairs.len() > Groups::MOST_PAIRS {
        let given = format!(
            "{} pairs of an old and a new group with names in common",
            pairs.len()
        );
        let range = format!("at most {}", Groups::MOST_PAIRS);
        return Err(ConfigError::out_of_range("change", given, range));
    }
    let members = pairs.into_iter().map(|(key, new, old)| {
        let name = match old {
            Some(old) if old.id != new.id => format!("{}->{}", old.id, new.id),
            _ => new.id.clone(),
        };
        let listed = new.listed(old);
        let id = name.clone();
        let listed = listed.map_err(|error| ConfigError::of_group(id, error))?;
        Ok((key, (name.into(), listed)))
    });
    members.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryMaster;

    fn groups(groups: &[(&str, u32)]) -> Vec<Group> {
        let group =
            |(id, weight): &(&str, _)| Group::new(*id, [MemoryMaster::new()]).weight(*weight);
        groups.iter().map(group).collect()
    }

    #[test]
    fn each_name_is_in_the_pair_of_its_old_and_its_new_group() {
        for (new, old, pairs) in [
            (&[("a", 1)][..], &[][..], &["a"][..]),
            (&[("a", 1), ("b", 2)], &[], &["a", "b"]),
            (&[("a", 1), ("b", 1)], &[("b", 1), ("a", 1)], &["a", "b"]),
            (
                &[("a", 1), ("b", 1), ("c", 1)],
                &[("a", 1), ("b", 1)],
                &["a", "b", "a->c", "b->c"],
            ),
            (&[("a", 1)], &[("a", 1), ("b", 1)], &["a", "b->a"]),
            (
                &[("a", 1), ("b", 3)],
                &[("a", 1), ("b", 1)],
                &["a", "a->b", "b"],
            ),
            (
                &[("a", 1), ("b", 1), ("c", 1)],
                &[("all", 1)],
                &["all->a", "all->b", "all->c"],
            ),
            (
                &[("a", 1), ("c", 1)],
                &[("a", 1), ("b", 1)],
                &["a", "b->a", "a->c", "b->c"],
            ),
        ] {
            let (new, old) = (groups(new), groups(old));
            let members = members(&new, &old).unwrap();
            let names: Vec<_> = members.values().map(|(name, _)| &**name).collect();
            assert_eq!(names, pairs);
            let (choice, old_choice) = (Choice::new(&new), Choice::new(&old));
            for name in 0..2_000 {
                let name = format!("orders/{name}");
                let pair = (choice.of(&name), old_choice.of(&name));
                assert!(members.contains_key(&pair), "{name}");
            }
        }
    }
}

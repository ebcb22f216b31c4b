//! The name of each connection to a Redis master, as `CLIENT LIST` shows it.

use std::{collections::BTreeSet, fmt, time::Duration};

use super::identity::is_name;
use crate::core::{hash::hash, time::Ttl};

/// What the name of a connection says about its program. Every connection to a Redis master has
/// such a name, so `CLIENT LIST` shows which programs use a master, and how.
///
/// The text is `quorlock:<lists>:<keys>:<max_ttl>:<client name>`, with `-` for a program without a
/// [client name](crate::Builder::client_name). It has only graphic ASCII characters, as `CLIENT
/// SETNAME` demands.
///
/// ```
/// use std::time::Duration;
/// use quorlock::tools::{ConnectionName, ListsId};
///
/// let name = ConnectionName::parse("quorlock:e257988200000000:26610b92:60000:web-3/812").unwrap();
/// assert_eq!(name.lists, ListsId::of(["10.0.0.1:6379"], []));
/// assert_eq!(name.max_ttl, Duration::from_secs(60));
/// assert_eq!(name.client.as_deref(), Some("web-3/812"));
/// ```
// Programs of different versions read the text, so its form must never change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionName {
    /// The lists of masters that the program uses.
    pub lists: ListsId,
    /// A hash of the [key template](crate::Builder::key_template). Programs with different
    /// templates use different keys, so their locks do not exclude each other.
    pub keys: u32,
    /// The [longest TTL](crate::Builder::max_ttl), in whole milliseconds.
    pub max_ttl: Duration,
    /// The client name.
    pub client: Option<String>,
}

impl ConnectionName {
    /// The value of [`max_ttl`](Self::max_ttl) for a program that has switched the
    /// [quarantine](crate::Builder::quarantine) off and has not set a longest TTL.
    pub const MAX_TTL_WITHOUT_QUARANTINE: Duration = Ttl::MOST;
    const PREFIX: &str = "quorlock:";
    const NO_CLIENT: &str = "-";
    const DIGITS: usize = 8;

    /// Returns the name for the connections of a program. `key` is the key of the lock
    /// `quorlock:check` under the program's template: the first of the
    /// [`example_keys`](crate::tools::example_keys).
    pub fn new(lists: ListsId, key: &str, max_ttl: Duration, client: Option<&str>) -> Self {
        let millis = u64::try_from(max_ttl.as_millis()).unwrap_or(u64::MAX);
        Self {
            lists,
            keys: hash(key.bytes()) as u32,
            max_ttl: Duration::from_millis(millis),
            client: client.map(str::to_owned),
        }
    }

    /// Returns whether the program and the `other` one may hold one lock at the same time. They use
    /// the same keys, and have no [list in common](ListsId::is_apart_from).
    pub fn is_apart_from(&self, other: &Self) -> bool {
        self.keys == other.keys && self.lists.is_apart_from(other.lists)
    }

    /// Returns the client name, or words for a program without one.
    pub fn who(&self) -> &str {
        let none = "a program without a client name";
        self.client.as_deref().unwrap_or(none)
    }

    /// Reads the name of a connection. `None` if the name does not have this form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(Self::PREFIX)?.splitn(4, ':');
        let (lists, keys, millis) = (parts.next()?, parts.next()?, parts.next()?);
        let client = parts.next().filter(|client| *client != Self::NO_CLIENT);
        let name = Self {
            lists: ListsId::parse(lists)?,
            keys: u32::from_str_radix(keys, 16).ok()?,
            max_ttl: Duration::from_millis(millis.parse().ok()?),
            client: client.map(str::to_owned),
        };
        // Refuses a text whose numbers are not written as `Display` writes them, or whose client
        // name cannot be used.
        let is_client = name.client.as_deref().is_none_or(is_name);
        (is_client && name.to_string() == text).then_some(name)
    }
}

/// Shows the text of the name.
impl fmt::Display for ConnectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lists, keys, millis) = (self.lists, self.keys, self.max_ttl.as_millis());
        let (prefix, digits) = (Self::PREFIX, Self::DIGITS);
        let client = self.client.as_deref().unwrap_or(Self::NO_CLIENT);
        write!(f, "{prefix}{lists}:{keys:0digits$x}:{millis}:{client}")
    }
}

/// The ID of the lists of masters that a program uses. The name of every connection to a Redis
/// master contains this ID. So a master shows which programs still use which lists.
///
/// Programs that list the same masters under the same addresses have the same ID. The order of the
/// masters does not matter. The ID is shown as 16 hexadecimal digits: eight for the masters, and
/// eight for the old masters, which are zeros without such a list. See [`ConnectionName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListsId {
    masters: u32,
    old_masters: Option<u32>,
}

impl ListsId {
    const DIGITS: usize = 8;

    /// Returns the ID of two lists: the `masters` of a program, and its
    /// [`old_masters`](crate::Builder::old_masters). Both lists contain addresses, as
    /// [`MasterSpec::address`](crate::MasterSpec::address) returns them. If `old_masters` is empty
    /// or equal to `masters`, the program uses one list.
    ///
    /// ```
    /// use quorlock::tools::ListsId;
    ///
    /// let (old, new) = (["10.0.0.1:6379"], ["10.0.0.2:6379"]);
    /// let during_a_change = ListsId::of(new, old);
    /// assert_ne!(during_a_change, ListsId::of(old, []));
    /// assert_ne!(during_a_change, ListsId::of(new, []));
    /// assert_eq!(ListsId::of(old, []).to_string(), "e257988200000000");
    /// ```
    // For each list, the ID has a hash of the sorted addresses, with a zero byte after each. This
    // format must never change: for the same lists, programs of all versions must show the same ID.
    pub fn of<'a>(
        masters: impl IntoIterator<Item = &'a str>,
        old_masters: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let bytes = |list: BTreeSet<&str>| -> Vec<_> {
            let addresses = list.into_iter();
            addresses
                .flat_map(|address| address.bytes().chain([0]))
                .collect()
        };
        let masters = bytes(masters.into_iter().collect());
        let lists = [masters, bytes(old_masters.into_iter().collect())];
        Self::of_bytes(lists, false)
    }

    /// Returns the ID of two lists with these bytes. No bytes are no list. The lowest bit says whether
    /// they are lists of groups.
    pub(crate) fn of_bytes([masters, old_masters]: [Vec<u8>; 2], is_of_groups: bool) -> Self {
        let is_change = !old_masters.is_empty() && old_masters != masters;
        let hash = |list: Vec<u8>| hash(list.into_iter()) as u32 & !1 | u32::from(is_of_groups);
        Self {
            masters: hash(masters),
            old_masters: is_change.then(|| hash(old_masters)),
        }
    }

    /// Returns whether programs with these lists and programs with the `other` ones may hold one
    /// lock at the same time, because they have no list in common. A lock needs a majority of each
    /// list of its program. Lists of masters and lists of [groups](crate::Groups) cannot be compared,
    /// so they are not apart.
    ///
    /// ```
    /// use quorlock::tools::ListsId;
    ///
    /// let (old, new) = (["10.0.0.1:6379"], ["10.0.0.2:6379"]);
    /// let during_a_change = ListsId::of(new, old);
    /// assert!(!ListsId::of(old, []).is_apart_from(during_a_change));
    /// assert!(!during_a_change.is_apart_from(ListsId::of(new, [])));
    /// assert!(ListsId::of(old, []).is_apart_from(ListsId::of(new, [])));
    /// ```
    pub fn is_apart_from(self, other: Self) -> bool {
        let lists = |id: Self| [Some(id.masters), id.old_masters];
        let theirs = lists(other);
        let mut ours = lists(self).into_iter().flatten();
        self.masters % 2 == other.masters % 2 && ours.all(|list| !theirs.contains(&Some(list)))
    }

    /// Reads what `Display` shows.
    fn parse(text: &str) -> Option<Self> {
        let (masters, old_masters) = text.split_at_checked(Self::DIGITS)?;
        let old_masters = u32::from_str_radix(old_masters, 16).ok()?;
        Some(Self {
            masters: u32::from_str_radix(masters, 16).ok()?,
            old_masters: (old_masters != 0).then_some(old_masters),
        })
    }
}

/// Shows the 16 digits.
impl fmt::Display for ListsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (masters, digits) = (self.masters, Self::DIGITS);
        let old_masters = self.old_masters.unwrap_or_default();
        write!(f, "{masters:0digits$x}{old_masters:0digits$x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_lists_the_keys_the_longest_ttl_and_the_client() {
        let lists = ListsId::of(["10.0.0.1:6379"], []);
        let ttl = Duration::from_secs(60);
        for (client, expected) in [(None, "-"), (Some("web-3:8/12"), "web-3:8/12")] {
            let name = ConnectionName::new(lists, "quorlock:check", ttl, client);
            let text = format!("quorlock:e257988200000000:26610b92:60000:{expected}");
            assert_eq!(name.to_string(), text);
            assert_eq!(ConnectionName::parse(&name.to_string()), Some(name));
        }
        let longest = ConnectionName::new(lists, "k", Duration::MAX, None);
        assert_eq!(ConnectionName::parse(&longest.to_string()), Some(longest));
        for other in [
            "",
            "quorlock",
            "quorlock-check",
            "quorlock:x:00000001:1:-",
            "quorlock:e257988200000000",
            "quorlock:e257988200000000:00000001:1",
            "quorlock:e257988200000000:00000001:1:",
            "quorlock:e257988200000000:1:1:-",
            "quorlock:E257988200000000:00000001:1:-",
            "quorlock:257988200000000:00000001:1:-",
            "quorlock:e257988200000000:+0000001:1:-",
            "quorlock:e257988200000000:00000001:01:-",
            "quorlock:e257988200000000:00000001::-",
            "Quorlock:e257988200000000:00000001:1:-",
        ] {
            assert_eq!(ConnectionName::parse(other), None, "{other}");
        }
    }

    const A: &str = "10.0.0.1:6379";
    const B: &str = "10.0.0.2:6379";
    const C: &str = "10.0.0.3:6379";

    #[test]
    fn ids_never_change() {
        for (masters, old_masters, expected) in [
            (&[A][..], &[][..], "e257988200000000"),
            (&[A, B, C], &[], "948f249200000000"),
            (&[A, B, C], &[A, B], "948f2492cd3e3cae"),
            (&[A, B], &[A, B, C], "cd3e3cae948f2492"),
            (&["unix:/run/r.sock", "[::1]:6379"], &[], "d358a32200000000"),
        ] {
            let of = |masters: &[&'static str], old_masters: &[&'static str]| {
                ListsId::of(masters.iter().copied(), old_masters.iter().copied()).to_string()
            };
            assert_eq!(
                of(masters, old_masters),
                expected,
                "{masters:?} {old_masters:?}"
            );
            let [mut masters, mut old_masters] = [masters, old_masters].map(<[_]>::to_vec);
            masters.reverse();
            old_masters.reverse();
            assert_eq!(of(&masters, &old_masters), expected, "in another order");
        }
    }

    #[test]
    fn each_pair_of_lists_has_an_id_of_its_own() {
        let id = |masters: &[&'static str], old_masters: &[&'static str]| {
            ListsId::of(masters.iter().copied(), old_masters.iter().copied())
        };
        let lists = [
            (&[A][..], &[][..]),
            (&[A, B], &[]),
            (&[A], &[B]),
            (&[B], &[A]),
            (&[A, B], &[C]),
            (&[A], &[B, C]),
            (&["10.0.0.1:637910.0.0.2:6379"], &[]),
        ];
        for (first, (masters, old_masters)) in lists.iter().enumerate() {
            for (other_masters, other_old) in &lists[first + 1..] {
                assert_ne!(id(masters, old_masters), id(other_masters, other_old));
            }
        }
        assert_eq!(id(&[A, B], &[B, A]), id(&[A, B], &[]), "nothing changes");
    }
}

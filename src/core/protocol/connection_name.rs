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
/// let name = ConnectionName::parse("quorlock:f1bb702098bb38aa:26610b92:60000:web-3/812").unwrap();
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

    /// Reads the name of a connection. `None` if the name does not have this form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(Self::PREFIX)?.splitn(4, ':');
        let (lists, keys, millis) = (parts.next()?, parts.next()?, parts.next()?);
        let client = parts.next().filter(|client| *client != Self::NO_CLIENT);
        let name = Self {
            lists: ListsId(u64::from_str_radix(lists, 16).ok()?),
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
/// masters does not matter. The ID is shown as 16 hexadecimal digits. See
/// [`ConnectionName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListsId(u64);

impl ListsId {
    const DIGITS: usize = 16;

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
    /// assert_eq!(ListsId::of(old, []).to_string(), "f1bb702098bb38aa");
    /// ```
    // The ID is the hash of the sorted addresses of both lists. A zero byte comes after each
    // address, and another one after each list. This format must never change: for the same lists,
    // programs of all versions must show the same ID.
    pub fn of<'a>(
        masters: impl IntoIterator<Item = &'a str>,
        old_masters: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let masters: BTreeSet<_> = masters.into_iter().collect();
        let mut old_masters: BTreeSet<_> = old_masters.into_iter().collect();
        if old_masters == masters {
            old_masters.clear();
        }
        let bytes = [masters, old_masters].into_iter().flat_map(|list| {
            let addresses = list.into_iter();
            let addresses = addresses.flat_map(|address| address.bytes().chain([0]));
            addresses.chain([0])
        });
        Self::of_bytes(bytes)
    }

    /// Returns the ID that is the hash of these bytes.
    pub(crate) fn of_bytes(bytes: impl Iterator<Item = u8>) -> Self {
        Self(hash(bytes))
    }
}

/// Shows the 16 digits.
impl fmt::Display for ListsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0digits$x}", self.0, digits = Self::DIGITS)
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
            let text = format!("quorlock:f1bb702098bb38aa:26610b92:60000:{expected}");
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
            "quorlock:f1bb702098bb38aa",
            "quorlock:f1bb702098bb38aa:00000001:1",
            "quorlock:f1bb702098bb38aa:00000001:1:",
            "quorlock:f1bb702098bb38aa:1:1:-",
            "quorlock:F1BB702098BB38AA:00000001:1:-",
            "quorlock:1bb702098bb38aa:00000001:1:-",
            "quorlock:f1bb702098bb38aa:+0000001:1:-",
            "quorlock:f1bb702098bb38aa:00000001:01:-",
            "quorlock:f1bb702098bb38aa:00000001::-",
            "Quorlock:f1bb702098bb38aa:00000001:1:-",
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
            (&[A][..], &[][..], "f1bb702098bb38aa"),
            (&[A, B, C], &[], "380f0cf4a1f8149b"),
            (&[A, B, C], &[A, B], "ea2d000cecb5efd8"),
            (&[A, B], &[A, B, C], "c731ad090038938b"),
            (&["unix:/run/r.sock", "[::1]:6379"], &[], "4f5f328840172cf2"),
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

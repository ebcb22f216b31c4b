//! The holders of a lock and its waiters, according to the masters.

use std::{cmp::Reverse, collections::BTreeSet, fmt, sync::Arc, time::Duration};

use crate::core::{
    kind::LockKind,
    protocol::{LockId, Ticket, identity::ClientName, reply},
    vote::{MasterSet, Quorum, Votes},
};

/// The holders and the waiters of a lock, as the masters reported them to
/// [`Lock::inspect`](crate::Lock::inspect). Both may have changed since then.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// The lock's name.
    pub name: Arc<str>,
    /// Each holder that has a majority of masters. A lock that readers share may have several
    /// holders, and so may a semaphore.
    ///
    /// If there is no such holder, one entry stands for all holders that the masters know. The list
    /// is empty if no master knows a holder, or if a majority of masters found the lock free,
    /// without those in quarantine.
    pub holders: Vec<Holder>,
    /// The [IDs](crate::Owner::id) of the owners that wait for a lock with queues, in the order of
    /// the queue. The list contains every waiter that at least one master knows, but at most 1,000
    /// from each master. A waiter whose process died stays in the list until the masters remove it
    /// from their queues. The list is empty for a mutex and a reentrant lock.
    pub waiters: Vec<String>,
    /// The answer of each master. A master that answered has the vote
    /// [`Vote::Grant`](crate::votes::Vote::Grant) here, even if the lock is held on that master.
    pub votes: Votes,
    pub(crate) lock_id: LockId,
    pub(crate) seen: Vec<Option<Seen>>,
    /// The holder that a break removes. `None` if it removes all holders.
    pub(crate) only: Option<Holder>,
}

impl Inspection {
    /// Returns whether the lock has a holder. If so, and if the lock cannot be shared, no other
    /// client can acquire it now, because it is free on too few masters.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Returns whether the lock is held, but no holder has a majority of masters. This happens for
    /// a moment while several clients contend for the lock. It also happens while masters that may
    /// have forgotten the holder have no vote.
    pub fn is_split(&self) -> bool {
        self.is_held() && by_each(&self.seen, &self.votes.roster.quorum).is_empty()
    }

    /// Returns what each master reported, in the order in which the masters were configured.
    #[doc(hidden)]
    pub fn views(&self) -> impl ExactSizeIterator<Item = MasterView> {
        views(&self.seen)
    }

    /// Makes [`break_held`](crate::Coordinator::break_held) remove only this `holder`, one of
    /// [`holders`](Self::holders), and leave all others alone, such as the other holders of a
    /// semaphore or a read-write lock. The [`owner`](Holder::owner) tells a holder from others, or
    /// the [`client`](Holder::client) if there is no owner.
    #[must_use]
    pub fn only(&self, holder: &Holder) -> Self {
        let only = Some(holder.clone());
        Self {
            only,
            ..self.clone()
        }
    }

    /// Returns the holders that a break removes, in the form that `lua/shared/break.lua` takes.
    /// Each holder comes once, even if several masters reported it.
    pub(crate) fn named(&self) -> String {
        // If no holder has a majority, the one that is shown stands for all of them.
        let only = self.only.as_ref();
        let only = only.filter(|only| only.id().is_some() || !self.is_split());
        let is_chosen = |held: &&SeenHolder| only.is_none_or(|only| held.holder.id() == only.id());
        let chosen = held(&self.seen).filter(is_chosen);
        let named: BTreeSet<_> = chosen.filter_map(SeenHolder::named).collect();
        named.into_iter().collect()
    }
}

/// The view that one master has of a lock: see [`Inspection::views`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MasterView {
    /// The lock is free on this master.
    Free,
    /// The lock is held on this master, by these holders.
    Held(Vec<Holder>),
    /// The master did not answer, or its answer makes no sense. The vote of the master says which.
    Unknown,
}

/// Shows, for example, `"orders/42" is held as a mutex for 9.9s more: a:6379 answered`.
impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, votes) = (&self.name, &self.votes);
        match &*self.holders {
            [] => write!(f, "{name:?} is free")?,
            [first, others @ ..] => {
                write!(f, "{name:?} is {first}")?;
                others.iter().try_for_each(|other| write!(f, ", {other}"))?;
            }
        }
        if !self.waiters.is_empty() {
            write!(f, ", waiting: {}", self.waiters.len())?;
        }
        write!(f, ": {votes}")
    }
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The kind of lock that is held. `None` if the masters report different kinds, or report a key
    /// that this crate does not recognise as a lock.
    pub kind: Option<LockKind>,
    /// Whether others may hold the lock as well: true for a reader of a read-write lock and for a
    /// permit of a semaphore.
    pub is_shared: bool,
    /// The [ID](crate::Owner::id) of the owner. `None` for a mutex, which has no owner. Also `None`
    /// if the masters know several owners, and none of them has a majority of masters. That happens
    /// for a moment while several clients contend for the lock. While Redisson's `RedissonRedLock`
    /// holds the lock, it is always so, because a `RedissonRedLock` has a different ID on every
    /// master.
    pub owner: Option<String>,
    /// The [client name](crate::Builder::client_name) of the coordinator that holds the lock.
    /// `None` if the coordinator has no name, if another library holds the lock, or if the masters
    /// know several holders and none of them has a majority. The ID of an owner ends with the
    /// client name.
    ///
    /// The text consists of 1 to 64 graphic ASCII characters. It is what the client says of itself,
    /// and proves nothing.
    pub client: Option<String>,
    /// When the holder of a mutex began the attempt that got the lock, in milliseconds since 1970.
    /// This is what the clock of its host showed, which may be wrong, so it is for people only:
    /// compare it with no other clock to decide anything. `None` for a lock of another kind, or if
    /// there is no `client`.
    pub held_since_ms: Option<u64>,
    /// The number of times that the owner has acquired the lock. If no single holder has a
    /// majority, this is the median of the numbers that the masters report.
    pub depth: u64,
    /// The time until the holder loses its majority of masters, unless the holder extends or
    /// releases the lock. If no single holder has a majority, this is the time until a majority of
    /// masters is free. `None` if the lock has no TTL.
    pub remaining: Option<Duration>,
}

impl Holder {
    /// Returns what tells this holder from others: the owner, or the client if there is no owner.
    fn id(&self) -> Option<&str> {
        self.owner.as_deref().or(self.client.as_deref())
    }
}

/// Shows, for example, `held as a mutex by "web-3/812" for 9.9s more`, or
/// `held as a reentrant lock by "u:1" (2 times) for 9.9s more`. The ID of an owner contains the
/// client name.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("held")?;
        if let Some(kind) = self.kind {
            write!(f, " as a {kind}")?;
        }
        if self.is_shared {
            f.write_str(" (shared)")?;
        }
        if let Some(id) = self.id() {
            write!(f, " by {id:?}")?;
        }
        if self.depth != 1 {
            write!(f, " ({} times)", self.depth)?;
        }
        if let Some(remaining) = self.remaining {
            write!(f, " for {remaining:.1?} more")?;
        }
        Ok(())
    }
}

/// The answer of one master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The holders. There are none if the lock is free.
    held: Vec<SeenHolder>,
    queue: Vec<String>,
    #[cfg(test)]
    pub(crate) text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenHolder {
    holder: Holder,
    /// A digest of the token or the owner. It tells holders apart.
    digest: String,
}

impl Seen {
    /// Reads the reply of `lua/shared/inspect.lua`: a line for each holder, or `free`, and then the
    /// tickets. Returns `None` if the reply makes no sense.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let lines = || text.split('\n');
        let held: Vec<_> = lines().map_while(SeenHolder::parse).collect();
        if held.is_empty() && lines().next() != Some("free") {
            return None;
        }
        let queue = lines().skip(held.len().max(1)).map(str::to_owned);
        let queue = queue.collect();
        Some(Self {
            held,
            queue,
            #[cfg(test)]
            text: text.to_owned(),
        })
    }

    /// Returns the time until the lock is free on the master. `None` if it is free now.
    fn left(&self) -> Option<Duration> {
        self.held.iter().map(SeenHolder::left).max()
    }
}

impl SeenHolder {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        let word = words.next()?;
        let (is_shared, word) = match word.strip_suffix("/shared") {
            Some(word) => (true, word),
            None => (false, word),
        };
        let kind = match word {
            "other" => None,
            word => Some(LockKind::of_word(word)?),
        };
        let left: i64 = words.next()?.parse().ok()?;
        let depth = words.next()?.parse().ok()?;
        let digest = words.next()?.to_owned();
        // For a mutex, this word is the end of the token.
        let owner = reply::owner(words.next()?);
        let has_owner = kind.is_some_and(LockKind::has_owner);
        let (held_since_ms, client) = match kind {
            Some(_) if has_owner => (None, ClientName::of_owner(&owner)),
            Some(_) => ClientName::of_token(&owner),
            None => (None, None),
        };
        let holder = Holder {
            kind,
            is_shared,
            client: client.map(str::to_owned),
            held_since_ms,
            owner: Some(owner).filter(|_| has_owner),
            depth,
            remaining: u64::try_from(left).ok().map(Duration::from_millis),
        };
        Some(Self { holder, digest })
    }

    /// Returns the remaining time, or [`Duration::MAX`] for a lock without a TTL.
    fn left(&self) -> Duration {
        self.holder.remaining.unwrap_or(Duration::MAX)
    }

    fn identity(&self) -> (Option<&'static str>, &str) {
        (self.holder.kind.map(LockKind::as_str), &self.digest)
    }

    /// Returns a line with the kind and the digest. `None` if the key is no lock that this crate
    /// recognises.
    fn named(&self) -> Option<String> {
        let (kind, digest) = self.identity();
        Some(format!("{} {digest}\n", kind?))
    }
}

pub(crate) fn views(seen: &[Option<Seen>]) -> impl ExactSizeIterator<Item = MasterView> {
    seen.iter().map(|seen| match seen {
        None => MasterView::Unknown,
        Some(Seen { held, .. }) if held.is_empty() => MasterView::Free,
        Some(Seen { held, .. }) => {
            let holders = held.iter().map(|held| held.holder.clone());
            MasterView::Held(holders.collect())
        }
    })
}

/// Returns the holders according to the answers of all masters. Masters in `quarantined` may have
/// forgotten a holder, and have no vote.
pub(crate) fn holders(
    seen: &[Option<Seen>],
    quorum: &Quorum,
    quarantined: MasterSet,
) -> Vec<Holder> {
    let holders = by_each(seen, quorum);
    if holders.is_empty() {
        return Vec::from_iter(by_several(seen, quorum, quarantined));
    }
    holders
}

fn held(seen: &[Option<Seen>]) -> impl Iterator<Item = &SeenHolder> {
    seen.iter().flatten().flat_map(|seen| &seen.held)
}

/// Converts a time from [`left`](SeenHolder::left). Returns `None` if the lock has no TTL.
fn finite(left: Duration) -> Option<Duration> {
    Some(left).filter(|left| *left != Duration::MAX)
}

fn median<'a>(held: impl Iterator<Item = &'a SeenHolder>) -> u64 {
    let mut depths: Vec<_> = held.map(|held| held.holder.depth).collect();
    depths.sort_unstable();
    depths.get(depths.len() / 2).copied().unwrap_or(0)
}

/// Returns each holder that has a majority of at least one set.
fn by_each(seen: &[Option<Seen>], quorum: &Quorum) -> Vec<Holder> {
    let mut known = BTreeSet::new();
    let new = held(seen).filter(|held| known.insert(held.identity()));
    new.filter_map(|one| {
        let is_same = |held: &&SeenHolder| held.identity() == one.identity();
        // `Reverse` puts the longest remaining time first.
        let Reverse(left) = quorum.least_of_any(|master| {
            let held = seen.get(master)?.as_ref()?.held.iter();
            held.filter(is_same).map(|held| Reverse(held.left())).min()
        })?;
        Some(Holder {
            depth: median(held(seen).filter(is_same)),
            remaining: finite(left),
            ..one.holder.clone()
        })
    })
    .collect()
}

/// Returns one entry for all holders of a lock, if no single holder has a majority of a set.
/// Returns `None` if the lock counts as free on a majority of every set. Another client may then
/// acquire the lock.
fn by_several(seen: &[Option<Seen>], quorum: &Quorum, quarantined: MasterSet) -> Option<Holder> {
    let first = held(seen).next()?;
    let longest = held(seen).map(SeenHolder::left).max();
    // `None` is less than any time: the lock is free on the master. A master that did not answer,
    // or that may have forgotten a holder, gives the lock to nobody now.
    let left = |master: usize| match seen.get(master)? {
        Some(seen) if !quarantined.contains(master) => seen.left(),
        Some(seen) => seen.left().or(longest),
        None => longest,
    };
    let last = quorum.least_of_every(|master| Some(left(master)))??;
    let kind = first.holder.kind;
    let is_one_kind = held(seen).all(|held| held.holder.kind == kind);
    let one = match held(seen).all(|held| held.identity() == first.identity()) {
        true => first.holder.clone(),
        false => Holder {
            kind: kind.filter(|_| is_one_kind),
            is_shared: false,
            owner: None,
            client: None,
            held_since_ms: None,
            ..first.holder
        },
    };
    Some(Holder {
        depth: median(held(seen)),
        remaining: finite(last),
        ..one
    })
}

/// Returns the owners of all tickets that at least one master has, in the order of the tickets. A
/// holder waits no more, although a master that did not grant it the lock may still have its ticket.
pub(crate) fn queue(seen: &[Option<Seen>], holders: &[Holder]) -> Vec<String> {
    let tickets: BTreeSet<_> = seen.iter().flatten().flat_map(|seen| &seen.queue).collect();
    let owners = tickets.into_iter().map(|ticket| Ticket::owner_of(ticket));
    let holds = |owner: &str| {
        holders
            .iter()
            .any(|one| one.owner.as_deref() == Some(owner))
    };
    owners
        .filter(|owner| !holds(owner))
        .map(ToOwned::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{
        protocol::command::fixture,
        vote::{Verb, quorum::Roster},
    };

    fn seen(texts: &[&str]) -> Vec<Option<Seen>> {
        texts.iter().map(|text| Seen::parse(text)).collect()
    }

    /// Returns the holder of a lock that at most one client can hold.
    fn only(holders: Vec<Holder>) -> Option<Holder> {
        assert!(holders.len() < 2, "{holders:?}");
        holders.into_iter().next()
    }

    fn inspection(texts: &[&str]) -> Inspection {
        let seen = seen(texts);
        Inspection {
            name: "r".into(),
            holders: holders(&seen, &Quorum::of(seen.len()), MasterSet::NONE),
            waiters: Vec::new(),
            votes: Votes::new(
                Roster::new([], Quorum::of(seen.len())),
                Box::new([]),
                Verb::Inspect,
            ),
            lock_id: fixture::lock_id(LockKind::Fair, "r"),
            seen,
            only: None,
        }
    }

    #[test]
    fn an_inspection_is_shown_in_one_line() {
        let holder = |kind, owner: Option<&str>, depth| Holder {
            is_shared: false,
            kind,
            owner: owner.map(str::to_owned),
            client: None,
            held_since_ms: None,
            depth,
            remaining: Some(Duration::from_millis(9_900)),
        };
        let (mutex, fair) = (Some(LockKind::Mutex), Some(LockKind::Fair));
        for (holders, queue, text) in [
            (vec![], vec![], "free"),
            (
                vec![holder(mutex, None, 1)],
                vec![],
                "held as a mutex for 9.9s more",
            ),
            (
                vec![holder(fair, Some("u:1"), 2)],
                vec!["u:2".to_owned()],
                "held as a fair lock by \"u:1\" (2 times) for 9.9s more, waiting: 1",
            ),
            (vec![holder(None, None, 1)], vec![], "held for 9.9s more"),
            (
                vec![holder(fair, Some("u:1"), 1), holder(fair, Some("u:2"), 1)],
                vec![],
                "held as a fair lock by \"u:1\" for 9.9s more, \
                 held as a fair lock by \"u:2\" for 9.9s more",
            ),
            (
                vec![Holder {
                    client: Some("web-3/812".to_owned()),
                    ..holder(mutex, None, 1)
                }],
                vec![],
                "held as a mutex by \"web-3/812\" for 9.9s more",
            ),
            // The ID contains the client name, so the name is not shown again.
            (
                vec![Holder {
                    client: Some("web-3/812".to_owned()),
                    ..holder(fair, Some("u:1@web-3/812"), 1)
                }],
                vec![],
                "held as a fair lock by \"u:1@web-3/812\" for 9.9s more",
            ),
        ] {
            let inspection = Inspection {
                holders,
                waiters: queue,
                ..inspection(&[])
            };
            assert_eq!(inspection.to_string(), format!("\"r\" is {text}: "));
        }
    }

    #[test]
    fn the_holder_is_the_one_of_the_table() {
        let lines = include_str!("../../../tests/tables/holders.txt").lines();
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (texts, expected) = line.split_once(" => ").unwrap();
            let texts = texts.split(", ");
            let forgetful = texts.clone().enumerate();
            let forgetful = forgetful.filter(|(_, text)| text.starts_with('!'));
            let quarantined = forgetful.map(|(master, _)| master).collect();
            let texts = texts.map(|text| text.trim_start_matches('!').replace(" none", " "));
            let seen: Vec<_> = texts.map(|text| Seen::parse(&text)).collect();
            let found = only(holders(&seen, &Quorum::of(seen.len()), quarantined));
            let found = found.map_or_else(
                || "free".to_owned(),
                |one| {
                    let kind = one.kind.map_or("any", LockKind::as_str);
                    let left = one
                        .remaining
                        .map_or(-1, |left| left.as_millis().cast_signed());
                    let owner = one.owner.as_deref().unwrap_or("none");
                    let client = one.client.map(|client| format!(" {client}"));
                    let client = client.unwrap_or_default();
                    format!("{kind} {left} {} {owner}{client}", one.depth)
                },
            );
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn a_lock_is_contested_if_no_one_holds_a_majority_and_no_one_can_acquire_it() {
        let free = "free";
        for (texts, is_split) in [
            (["mutex 5 1 0a ", "mutex 5 1 0b ", free], true),
            (["mutex 5 1 0a ", "mutex 5 1 0b ", "mutex 5 1 0c "], true),
            (["mutex 5 1 0a ", "mutex 5 1 0a ", "mutex 5 1 0c "], false),
            (["mutex 5 1 0a ", free, free], false),
            ([free, free, free], false),
        ] {
            assert_eq!(inspection(&texts).is_split(), is_split, "{texts:?}");
        }
    }

    #[test]
    fn each_master_has_a_view() {
        let seen = inspection(&["mutex 5 1 0a ", "fair -1 2 u:1 u:1", "free", "nonsense"]);
        let holder = |kind, owner: Option<&str>, depth, left| {
            MasterView::Held(vec![Holder {
                is_shared: false,
                kind: Some(kind),
                owner: owner.map(str::to_owned),
                client: None,
                held_since_ms: None,
                depth,
                remaining: left,
            }])
        };
        let views: Vec<_> = seen.views().collect();
        let expected = [
            holder(LockKind::Mutex, None, 1, Some(Duration::from_millis(5))),
            holder(LockKind::Fair, Some("u:1"), 2, None),
            MasterView::Free,
            MasterView::Unknown,
        ];
        assert_eq!(views, expected);
    }

    #[test]
    fn a_holder_has_the_name_of_its_client() {
        let owner = "01234567-89ab-cdef-0123-456789abcdef:1@web-3/812";
        let (fair, reentrant) = (
            format!("fair 5 1 0a {owner}"),
            format!("reentrant 5 1 0a {owner}"),
        );
        for (text, client) in [
            ("mutex 5 1 0a web-3/812", Some("web-3/812")),
            ("mutex 5 1 0a 0000000000007@web-3/812", Some("web-3/812")),
            (&*fair, Some("web-3/812")),
            (&*reentrant, Some("web-3/812")),
            ("mutex 5 1 0a ", None),
            // Replies that the script never gives.
            ("mutex 5 1 0a a\x1b[2J", None),
            ("fair 5 1 u:1 u:1@a", None),
            ("other 5 0 0a a", None),
        ] {
            let seen = inspection(&[text, text, "free"]);
            assert_eq!(seen.holders[0].client.as_deref(), client, "{text}");
            let has_time = seen.holders[0].held_since_ms.is_some();
            assert_eq!(has_time, text.contains("7@"), "{text}");
            let MasterView::Held(view) = seen.views().next().unwrap() else {
                panic!("{text} is a holder");
            };
            assert_eq!(view, seen.holders, "{text}");
        }
        // For several holders, no name is shown, even if all of them have the same name.
        let several = inspection(&["mutex 5 1 0a web", "mutex 5 1 0b web"]);
        assert_eq!(several.holders[0].client, None);
        let several = inspection(&["mutex 5 1 0a 0000000000007@a", "mutex 5 1 0b web"]);
        assert_eq!(several.holders[0].held_since_ms, None);
        let broken = inspection(&["mutex 5 1 0a web"]).named();
        assert_eq!(broken, "mutex 0a\n");
    }

    #[test]
    fn each_holder_that_can_be_broken_is_named_once() {
        let texts = [
            "fair 5 1 u:1 u:1",
            "mutex 5 1 0a ",
            "fair 7 2 u:1 u:1",
            "other 5 0 - ",
            "free",
        ];
        assert_eq!(inspection(&texts).named(), "fair u:1\nmutex 0a\n");
        let split = inspection(&texts);
        assert_eq!(
            split.only(&split.holders[0]).named(),
            "fair u:1\nmutex 0a\n"
        );
        let mut other = split.holders[0].clone();
        for (owner, named) in [("u:1", "fair u:1\n"), ("u:2", "")] {
            other.owner = Some(owner.to_owned());
            assert_eq!(split.only(&other).named(), named);
        }
    }

    /// The masters list the holders in any order. `c` has no majority.
    #[test]
    fn several_hold_a_lock_if_each_has_a_majority() {
        let (a, b, c) = ("fair 5 1 0a a:1", "fair 7 2 0b b:1", "fair 9 1 0c c:1");
        let ticket = "0000000000000001:d:1";
        let texts = [
            format!("{a}\n{b}\n{ticket}"),
            format!("{b}\n{c}\n{a}"),
            format!("{b}\n{ticket}\n0000000000000002:a:1"), // it has not granted the lock to a:1
        ];
        let seen = inspection(&texts.each_ref().map(String::as_str));
        let holders = seen.holders.iter();
        let shown: Vec<_> = holders
            .map(|one| (one.owner.as_deref(), one.depth, one.remaining))
            .collect();
        let left = |millis| Some(Duration::from_millis(millis));
        let expected = [(Some("a:1"), 1, left(5)), (Some("b:1"), 2, left(7))];
        assert_eq!(shown, expected);
        assert!(seen.is_held() && !seen.is_split());
        assert_eq!(seen.named(), "fair 0a\nfair 0b\nfair 0c\n");
        let views = seen.views().map(|view| match view {
            MasterView::Held(holders) => holders.len(),
            MasterView::Free | MasterView::Unknown => 0,
        });
        assert_eq!(views.collect::<Vec<_>>(), [2, 3, 1]);
        assert_eq!(queue(&seen.seen, &seen.holders), ["d:1"]);
    }

    #[test]
    fn the_queue_is_in_the_order_of_tickets() {
        let (one, two) = ("0000000000000001:b:1", "0000000000000002:a:1");
        let texts = [
            format!("free\n{two}"),
            format!("free\n{one}\n{two}"),
            "free".to_owned(),
        ];
        let seen = seen(&texts.each_ref().map(String::as_str));
        assert_eq!(queue(&seen, &[]), ["b:1", "a:1"]);
    }
}

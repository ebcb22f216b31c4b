//! The holders of a lock, as `status` shows them.

use std::time::Duration;

use quorlock::{Holder, LockKind};
use serde::{Serialize, Serializer};

use crate::{
    owner::Owner,
    style::Cell,
    times::{age, brief, millis, passed, rounded},
    words::{MOST_NAMED, in_words},
};

/// The holders of a lock. The field `others` is only there if there are several.
#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct HoldersLook {
    pub(crate) holder: Option<HolderLook>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<HolderLook>,
}

#[derive(PartialEq, Eq, Serialize)]
pub(crate) struct HolderLook {
    #[serde(serialize_with = "word")]
    pub(crate) kind: Option<LockKind>,
    is_shared: bool,
    #[serde(flatten)]
    pub(crate) who: Owner,
    pub(crate) depth: u64,
    #[serde(rename = "remaining_ms", serialize_with = "millis")]
    pub(crate) remaining: Option<Duration>,
    renewal: Option<Renewal>,
    left_by_acquire: bool,
    held_since_ms: Option<u64>,
    /// The TTL, or at least this time.
    #[serde(skip)]
    ttl: Option<Duration>,
}

/// What becomes of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Renewal {
    /// A later look found more time than an earlier one.
    Renewed,
    /// A renewal is overdue. The program may have ended, stand still, or renew nothing.
    NotRenewed,
    /// The program has probably ended, and left the lock for its minimum hold.
    MinHold,
    /// `quorlock acquire` left the lock, and no other program seems to renew it.
    Detached,
}

impl HoldersLook {
    pub(crate) fn of(holders: &[Holder]) -> Self {
        let mut holders = holders.iter().map(HolderLook::of);
        Self {
            holder: holders.next(),
            others: holders.collect(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &HolderLook> {
        self.holder.iter().chain(&self.others)
    }

    /// Leaves out all holders but the one that a person calls `who`. Returns what tells it from
    /// others: the ID of the owner, or the client name of a mutex. `None` if there is no such
    /// holder, or more than one.
    pub(crate) fn choose(&mut self, who: &str) -> Option<String> {
        let holders = self.holder.take().into_iter().chain(self.others.drain(..));
        let mut chosen: Vec<_> = holders.filter(|holder| holder.who.is_called(who)).collect();
        let only = chosen.pop().filter(|_| chosen.is_empty())?;
        let id = only.who.id().cloned();
        self.holder = Some(only);
        id
    }

    /// Adds what the difference to an earlier look shows.
    pub(crate) fn compare(&mut self, earlier: &Self) {
        for now in self.holder.iter_mut().chain(&mut self.others) {
            // Two mutexes without a name look the same.
            let is_it = |one: &&HolderLook| one.who == now.who;
            let mut earlier = earlier.iter();
            if let Some(before) = earlier.find(is_it) {
                now.ttl = now.ttl.max(before.ttl);
                let is_longer = now.remaining > before.remaining.map(|left| left + NOISE);
                now.renewal = match before.renewal == Some(Renewal::Renewed) || is_longer {
                    true => Some(Renewal::Renewed),
                    false => now.find_renewal(),
                };
            }
        }
    }

    /// Returns what one look shows of the first holder, if that is unusual. It follows the holder.
    pub(crate) fn note(&self) -> &'static str {
        match self.holder.as_ref().and_then(HolderLook::future) {
            None | Some(Renewal::Renewed) => "",
            Some(Renewal::NotRenewed) => ", not renewed in time",
            Some(Renewal::MinHold) => ", kept by --min-hold",
            Some(Renewal::Detached) => ", left by quorlock acquire",
        }
    }

    pub(crate) fn sentence(&self) -> String {
        match (&self.holder, self.others.len()) {
            (None, _) => String::new(),
            (Some(only), 0) => only.sentence(),
            (Some(first), others) => format!("{} by {} holders", first.how(), others + 1),
        }
    }

    /// Returns a row for each of several holders.
    pub(crate) fn rows(&self) -> Vec<Vec<Cell>> {
        let several = self.iter().filter(|_| !self.others.is_empty());
        let row = |one: &HolderLook| [one.who.text().unwrap_or_default(), one.state()];
        several
            .map(|one| row(one).map(Cell::plain).into())
            .collect()
    }

    /// Returns the columns of the holders. `None` if there are none.
    pub(crate) fn columns(&self) -> Option<(String, String)> {
        let (who, left) = self.iter().max_by_key(|holder| holder.remaining)?.columns();
        match self.others.len() {
            0 => Some((who, left)),
            others => Some((format!("{} holders", others + 1), left)),
        }
    }
}

impl HolderLook {
    pub(crate) fn of(holder: &Holder) -> Self {
        let who = Owner::new(holder.owner.as_deref(), holder.client.as_deref());
        let mut look = Self {
            kind: holder.kind,
            is_shared: holder.is_shared,
            ttl: who.program.ttl.or(holder.remaining),
            left_by_acquire: who.program.stays == Some(Renewal::Detached),
            who,
            depth: holder.depth,
            remaining: holder.remaining,
            renewal: None,
            held_since_ms: holder.held_since_ms,
        };
        look.renewal = look.find_renewal();
        look
    }

    /// Returns what one look shows. A holder that is alive renews its lock when two thirds of the
    /// TTL are left.
    fn find_renewal(&self) -> Option<Renewal> {
        let (left, ttl) = self.remaining.zip(self.ttl)?;
        let is_overdue = ttl.saturating_sub(left) > ttl / 3 + LATE;
        // Extended later than it was left. The clocks of two hosts may be a second apart.
        let is_older = |since| left + passed(since) > ttl + Duration::from_secs(1);
        let is_attached = self.left_by_acquire && self.held_since_ms.is_some_and(is_older);
        match is_overdue {
            _ if left > ttl + NOISE => Some(Renewal::MinHold),
            true if is_attached => Some(Renewal::NotRenewed),
            true => self.who.program.stays.or(Some(Renewal::NotRenewed)),
            false => is_attached.then_some(Renewal::Renewed),
        }
    }

    /// Returns what is known of the renewal, or that the lock was left.
    fn future(&self) -> Option<Renewal> {
        let left = self.left_by_acquire.then_some(Renewal::Detached);
        self.renewal.or(left)
    }

    /// Returns the time until another look shows whether the lock is renewed. `None` if that is
    /// known, or if nothing tells this holder from the next one.
    pub(crate) fn decided_in(&self) -> Option<Duration> {
        let is_open = self.renewal.is_none() && self.who.id().is_some();
        let (left, ttl) = self.remaining.zip(self.ttl).filter(|_| is_open)?;
        Some((left + ttl / 3 + LATE).saturating_sub(ttl))
    }

    /// Returns whether the key looks like a lock, but has no TTL. All libraries give their locks a
    /// TTL, so it may be the data of an application.
    pub(crate) fn may_be_no_lock(&self) -> bool {
        self.kind.is_some() && self.remaining.is_none()
    }

    fn sentence(&self) -> String {
        let role = match self.kind {
            Some(LockKind::ReadWrite) => format!("a {} ", self.role()),
            _ => String::new(),
        };
        let who = self
            .who
            .text()
            .map_or_else(String::new, |who| format!(" by {role}{who}"));
        let depth = match self.depth {
            0 | 1 => String::new(),
            depth => format!(" ({depth} times)"),
        };
        format!("{}{who}{depth}, {}", self.how(), self.state())
    }

    /// Says since when the holder has the lock, and what becomes of it.
    fn state(&self) -> String {
        let since = self.since().or_else(|| self.who.program.start());
        since.map_or_else(String::new, |since| since + ", ") + &self.outlook()
    }

    fn since(&self) -> Option<String> {
        self.held_since_ms
            .map(|since| format!("since {}", age(since)))
    }

    fn how(&self) -> String {
        let kind = self.kind.map(|kind| format!("as a {kind}"));
        kind.unwrap_or_else(|| "by a key that is not a lock".to_owned())
    }

    /// Says what becomes of the lock.
    fn outlook(&self) -> String {
        match (self.remaining.map(brief), self.future()) {
            (None, _) if self.may_be_no_lock() => "without a TTL, so it may be no lock".to_owned(),
            (None, _) => "without a TTL".to_owned(),
            // It may be any text with a TTL. The mutexes of the command line have client names.
            (Some(left), _) if self.kind == Some(LockKind::Mutex) && self.who.id().is_none() => {
                format!("{left} left, {FOREIGN}")
            }
            (_, Some(Renewal::Renewed)) => format!("renewed {}", self.rhythm()),
            (Some(left), Some(Renewal::NotRenewed)) => {
                format!("not renewed in time, {left} left")
            }
            (Some(left), Some(Renewal::MinHold)) => format!("{left} left, {KEPT}"),
            (Some(left), Some(Renewal::Detached)) => format!("{left} left, {LEFT}"),
            (Some(left), None) if self.who.program.ttl.is_some() => {
                format!("{left} left, acquired or renewed {}", self.rhythm())
            }
            (Some(left), None) => format!("{left} left unless it is renewed"),
        }
    }

    /// Says when the lock was last renewed, and when the next renewal is due: a third of the TTL
    /// later.
    fn rhythm(&self) -> String {
        let (left, ttl) = self.remaining.zip(self.ttl).unwrap_or_default();
        let ago = rounded(ttl.saturating_sub(left));
        let due = rounded((left + ttl / 3).saturating_sub(ttl));
        format!("{ago} ago, next renewal due in {due}")
    }

    /// Returns what the holder of a read-write lock is.
    fn role(&self) -> &'static str {
        if self.is_shared { "reader" } else { "writer" }
    }

    /// Returns two narrow columns: the kind with the client or the beginning of the owner, and the
    /// time that is left.
    fn columns(&self) -> (String, String) {
        let kind = match self.kind {
            Some(LockKind::ReadWrite) => self.role(),
            kind => kind.map_or("not a lock", LockKind::as_str),
        };
        let who = self.who.short().map(|who| format!(" {who}"));
        (
            kind.to_owned() + &who.unwrap_or_default(),
            self.remaining.map_or_else(|| "no TTL".to_owned(), brief),
        )
    }
}

/// Returns the names of the first clients that hold a lock, and since when a mutex is held. `None`
/// if no holder has a name.
pub(crate) fn clients(holders: &[Holder]) -> Option<String> {
    let named = holders.iter().filter(|holder| holder.client.is_some());
    let shown = named.map(HolderLook::of).map(|holder| {
        let since = holder.since().map(|since| format!(", {since},"));
        holder.who.program.shown(None) + &since.unwrap_or_default()
    });
    let shown: Vec<_> = shown.take(MOST_NAMED).collect();
    in_words(shown.iter().map(String::as_str).collect(), holders.len())
}

const KEPT: &str = "kept by --min-hold, unless its program hangs or died, or clocks were set back";
const LEFT: &str = "left by quorlock acquire, and renewed only if a program has attached it";
const FOREIGN: &str = "without a client name, so it may be a lock of another library, or data";
/// Masters that answer one after the other show times that differ by less.
const NOISE: Duration = Duration::from_millis(50);
/// The time by which a renewal may be late.
const LATE: Duration = Duration::from_millis(300);

/// Serializes the word for a kind.
fn word<S: Serializer>(kind: &Option<LockKind>, to: S) -> Result<S::Ok, S::Error> {
    kind.map(LockKind::as_str).serialize(to)
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn holder(kind: LockKind, owner: Option<&str>, name: Option<&str>) -> HolderLook {
        HolderLook {
            kind: Some(kind),
            is_shared: true,
            who: Owner::new(owner, name),
            depth: 1,
            remaining: None,
            renewal: None,
            left_by_acquire: name.is_some_and(|name| name.contains("d+")),
            held_since_ms: None,
            ttl: None,
        }
    }

    /// Returns what the last of these looks shows. The TTL is 9 s, and a renewal is due with 6 s
    /// left.
    fn looked(name: &str, looks: &[u64]) -> HolderLook {
        let mut holders = HoldersLook::of(&[]);
        for left in looks {
            let mut look = holder(LockKind::Mutex, None, Some(name));
            look.remaining = Some(Duration::from_millis(*left));
            look.ttl = look.who.program.ttl.or(look.remaining);
            look.renewal = look.find_renewal();
            let mut now = HoldersLook::of(&[]);
            now.holder = Some(look);
            now.compare(&holders);
            holders = now;
        }
        holders.holder.unwrap()
    }

    #[test]
    fn two_looks_show_whether_a_lock_is_renewed() {
        use Renewal::{Detached, MinHold, NotRenewed, Renewed};
        let (ours, stays, left, other) = ("a/1+5+9000", "a/1+5+9000m", "a/1+5+9000d+x", "a/1");
        let kept = |left| format!("{left} left, {KEPT}");
        let detached = |left| format!("{left} left, {LEFT}");
        for (name, looks, renewal, outlook) in [
            (
                ours,
                &[7_800][..],
                None,
                "7.8s left, acquired or renewed 2s ago, next renewal due in 2s",
            ),
            (
                ours,
                &[8_000, 8_020],
                None,
                "8.0s left, acquired or renewed 1s ago, next renewal due in 3s",
            ),
            (
                ours,
                &[6_100, 8_900, 6_700],
                Some(Renewed),
                "renewed 3s ago, next renewal due in 1s",
            ),
            (
                ours,
                &[5_600],
                Some(NotRenewed),
                "not renewed in time, 5.6s left",
            ),
            (
                ours,
                &[5_600, 8_900],
                Some(Renewed),
                "renewed 1s ago, next renewal due in 3s",
            ),
            (ours, &[20_000], Some(MinHold), &kept("20.0s")),
            (stays, &[5_600], Some(MinHold), &kept("5.6s")),
            (left, &[8_900], None, &detached("8.9s")),
            (left, &[5_600], Some(Detached), &detached("5.6s")),
            // Another program has attached it.
            (
                left,
                &[6_100, 8_900],
                Some(Renewed),
                "renewed 1s ago, next renewal due in 3s",
            ),
            (other, &[6_100], None, "6.1s left unless it is renewed"),
            (
                other,
                &[6_100, 8_900],
                Some(Renewed),
                "renewed 1s ago, next renewal due in 3s",
            ),
        ] {
            let last = looked(name, looks);
            let found = (last.renewal, &*last.outlook());
            assert_eq!(found, (renewal, outlook), "{name} {looks:?}");
            assert_eq!(last.decided_in().is_none(), renewal.is_some(), "{looks:?}");
        }
        // Without the TTL of the program, the first look counts from the time that is left.
        let mut other = holder(LockKind::Mutex, None, Some("a/1"));
        other.remaining = Some(Duration::from_secs(9));
        other.ttl = other.remaining;
        assert_eq!(other.decided_in(), Some(Duration::from_millis(3_300)));
        other.who = Owner::new(None, None);
        assert_eq!(other.decided_in(), None, "another mutex looks the same");
    }

    /// It was extended after it was left.
    #[test]
    fn a_lock_that_was_left_and_attached_is_renewed_or_late() {
        for (age, left, expected) in [
            (5, 4_900, Some(Renewal::Detached)),
            (5, 8_900, Some(Renewal::Renewed)),
            (15, 4_900, Some(Renewal::NotRenewed)),
        ] {
            let mut look = holder(LockKind::Mutex, None, Some("a/1+5+9000d+x"));
            look.ttl = look.who.program.ttl;
            look.remaining = Some(Duration::from_millis(left));
            let since = SystemTime::now() - Duration::from_secs(age);
            let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap();
            look.held_since_ms = Some(since.as_millis() as u64);
            assert_eq!(look.find_renewal(), expected, "{age} {left}");
        }
    }

    #[test]
    fn a_mutex_shows_since_when_it_is_held_and_another_lock_the_start_of_its_program() {
        let name = Some("a/1+5+9000+x");
        let mut mutex = holder(LockKind::Mutex, None, name);
        let fair = holder(LockKind::Fair, Some("u:1"), name);
        for (look, begin) in [
            (&mutex, "as a mutex by a/1 (x), program started 00:00 UTC, "),
            (
                &fair,
                "as a fair lock by a/1 (x, u:1), program started 00:00 UTC, ",
            ),
        ] {
            assert!(look.sentence().starts_with(begin), "{}", look.sentence());
        }
        mutex.held_since_ms = Some(3_600_000);
        let begin = "as a mutex by a/1 (x), since 01:00 UTC, ";
        assert!(mutex.sentence().starts_with(begin), "{}", mutex.sentence());
    }

    #[test]
    fn a_holder_is_shown_as_its_client() {
        let ours = "01234567-89ab-cdef-0123-456789abcdef:1@web-3/812";
        for (holder, sentence, column) in [
            (holder(LockKind::Mutex, None, None), "as a mutex", "mutex"),
            (
                holder(LockKind::Mutex, None, Some("web-3/812")),
                "as a mutex by web-3/812",
                "mutex web-3/812",
            ),
            (
                holder(LockKind::Fair, Some(ours), Some("web-3/812")),
                "as a fair lock by web-3/812 (01234567:1)",
                "fair web-3/812",
            ),
            (
                holder(LockKind::Reentrant, Some("a:1"), None),
                "as a reentrant lock by a:1",
                "reentrant a:1",
            ),
            (
                holder(LockKind::Semaphore, Some(ours), Some("web-3/812")),
                "as a semaphore by web-3/812 (01234567:1)",
                "semaphore web-3/812",
            ),
            (
                holder(LockKind::ReadWrite, Some(ours), Some("web-3/812")),
                "as a read-write lock by a reader web-3/812 (01234567:1)",
                "reader web-3/812",
            ),
        ] {
            let sentence = format!("{sentence}, without a TTL, so it may be no lock");
            assert_eq!(holder.sentence(), sentence);
            assert_eq!(holder.columns().0, column);
        }
    }
}

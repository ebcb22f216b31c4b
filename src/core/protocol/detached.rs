//! The text of locks that were detached from the process that acquired them.

use std::{
    fmt::{self, Write},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use super::{Holding, Identity, LockId, Ticket, identity::OwnerAttempt, name::Token};
use crate::core::{
    config_error::ConfigError,
    kind::{Access, LockKind},
    vote::Slot,
};

/// Locks that no process renews, to be [attached](crate::Coordinator::attach) in this process or in
/// another one: see [`Guard::detach`](crate::Guard::detach).
///
/// `Display` and `FromStr` are its text, for a message or a file. With the feature `serde`, this
/// type is serialized as the text. The text has only graphic ASCII characters, and its form stays
/// the same within a minor version of this crate.
///
/// **The text is a secret.** Whoever has it, and may use the masters, can release the lock. `Debug`
/// shows only the names.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// # use quorlock::{Coordinator, Detached, MemoryMaster};
/// # let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new()))?;
/// let guard = locks.mutex("orders/42").acquire().await?;
/// let text = guard.detach(Duration::from_secs(30)).await?.to_string();
///
/// let detached: Detached = text.parse()?; // in another process
/// let guard = locks.attach(&detached).await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Detached {
    /// The TTL with which the locks are renewed where they are attached.
    pub(crate) ttl: Duration,
    pub(crate) locks: Vec<DetachedLock>,
}

/// One lock. Its key follows from the name.
#[derive(Clone)]
pub(crate) struct DetachedLock {
    /// What must be the same where the lock is attached: the
    /// [`place`](crate::core::config::Config::place).
    pub(crate) place: u64,
    pub(crate) kind: LockKind,
    pub(crate) name: Arc<str>,
    pub(crate) permits: u16,
    pub(crate) holding: Holding,
}

impl Detached {
    /// Returns the names of the locks: one, or those of
    /// [`multi_mutex`](crate::Coordinator::multi_mutex) in the order of their keys.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(|lock| &*lock.name)
    }

    fn parse(text: &str) -> Option<Self> {
        let (millis, locks) = text.strip_prefix(BEGIN)?.split_once(':')?;
        let parts: Vec<_> = locks.split(':').collect();
        let locks = parts.chunks(DetachedLock::PARTS).map(DetachedLock::parse);
        Some(Self {
            ttl: Duration::from_millis(millis.parse().ok()?),
            locks: locks.collect::<Option<_>>()?,
        })
    }
}

/// The begin of the text, with the version of its form.
const BEGIN: &str = "quorlock:1:";

impl DetachedLock {
    /// The number of parts of the text, with colons between them.
    const PARTS: usize = 10;

    pub(crate) fn new(place: u64, lock_id: &LockId, holding: Holding) -> Self {
        Self {
            place,
            kind: lock_id.kind(),
            name: lock_id.name().clone(),
            permits: lock_id.permits(),
            holding,
        }
    }

    /// Returns whether a guard can hold this lock in this way.
    fn is_possible(&self) -> bool {
        let (spec, held) = (self.kind.spec(), &self.holding);
        let slot = held.slot.map_or(0, Slot::number);
        let may_share = spec.has_readers || spec.has_slots;
        spec.has_slots == (slot > 0)
            && slot <= self.permits
            && (held.access == Access::Exclusive || may_share)
    }

    fn parse(parts: &[&str]) -> Option<Self> {
        let [
            place,
            kind,
            access,
            permits,
            slot,
            candidate,
            attempt,
            by,
            ticket,
            name,
        ] = *parts
        else {
            return None;
        };
        let (kind, owner) = (LockKind::of_word(kind)?, of_hex(by)?);
        let by = match kind.has_owner() {
            true => Identity::Owner(OwnerAttempt {
                owner: owner.into(),
                attempt: attempt.parse().ok()?,
                ticket: Some(Ticket::of(&of_hex(ticket)?)).filter(|_| kind.has_queue()),
            }),
            false => Identity::Token(Token::of(&owner)?),
        };
        let holding = Holding {
            by,
            depth: 1,
            access: ACCESSES.into_iter().find(|(_, word)| *word == access)?.0,
            slot: Slot::new(slot.parse().ok()?),
            candidate: Some(candidate.parse().ok()?).filter(|candidate| *candidate > 0),
        };
        let lock = Self {
            place: u64::from_str_radix(place, 16).ok()?,
            kind,
            name: of_hex(name)?.into(),
            permits: permits.parse().ok()?,
            holding,
        };
        lock.is_possible().then_some(lock)
    }
}

const ACCESSES: [(Access, &str); 2] =
    [(Access::Exclusive, "exclusive"), (Access::Shared, "shared")];

fn of_hex(digits: &str) -> Option<String> {
    let at = (0..digits.len()).step_by(2);
    let bytes = at.map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok());
    String::from_utf8(bytes.collect::<Option<_>>()?).ok()
}

impl FromStr for Detached {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::parse(text.trim_end()).ok_or(ConfigError::BadDetached)
    }
}

/// Shows the text, which is a secret.
impl fmt::Display for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEGIN}{}", self.ttl.as_millis())?;
        self.locks.iter().try_for_each(|lock| lock.fmt(f))
    }
}

impl fmt::Display for DetachedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, kind, permits) = (self.place, self.kind.as_str(), self.permits);
        let held = &self.holding;
        let access = ACCESSES
            .into_iter()
            .find(|(access, _)| *access == held.access);
        let access = access.map_or("", |(_, word)| word);
        let (slot, token) = (
            held.slot.map_or(0, Slot::number),
            held.candidate.unwrap_or(0),
        );
        let (by, attempt) = match &held.by {
            Identity::Token(token) => (token.bytes(), 0),
            Identity::Owner(by) => (by.owner.as_bytes(), by.attempt),
        };
        write!(
            f,
            ":{place:x}:{kind}:{access}:{permits}:{slot}:{token}:{attempt}"
        )?;
        let ticket = held.by.ticket().map_or("", Ticket::as_str);
        [by, ticket.as_bytes(), self.name.as_bytes()]
            .into_iter()
            .try_for_each(|text| {
                f.write_char(':')?;
                text.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            })
    }
}

impl fmt::Debug for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        f.debug_struct("Detached")
            .field("names", &names)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Detached {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Detached {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::protocol::command::fixture::{holding, lock_id};

    fn of(kind: LockKind) -> Detached {
        let mut held = holding(kind, 1, Some(1_770_000_000_000_001));
        held.slot = Slot::new(u16::from(kind.spec().has_slots));
        let lock_id = lock_id(kind, "é:1\n");
        Detached {
            ttl: Duration::from_secs(600),
            locks: vec![DetachedLock::new(0x2a, &lock_id, held)],
        }
    }

    /// Programs of different versions read the text.
    #[test]
    fn the_text_stays_the_same_and_can_be_read() {
        let owner = ":7:753a31";
        let ticket = "303030303030303030303030303030353a753a31";
        for (kind, text) in [
            (
                LockKind::Mutex,
                format!("exclusive:1:0:{TOKEN}:0:{}:", "30".repeat(40)),
            ),
            (
                LockKind::Reentrant,
                format!("exclusive:1:0:{TOKEN}{owner}:"),
            ),
            (
                LockKind::Fair,
                format!("exclusive:1:0:{TOKEN}{owner}:{ticket}"),
            ),
            (
                LockKind::ReadWrite,
                format!("exclusive:1:0:{TOKEN}{owner}:{ticket}"),
            ),
            (
                LockKind::Semaphore,
                format!("exclusive:1:1:{TOKEN}{owner}:{ticket}"),
            ),
        ] {
            let kind = of(kind);
            let word = kind.locks[0].kind.as_str();
            let text = format!("quorlock:1:600000:2a:{word}:{text}:c3a93a310a");
            assert_eq!(kind.to_string(), text);
            let read: Detached = format!("{text}\n").parse().unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(format!("{read:?}"), r#"Detached { names: ["é:1\n"], .. }"#);
        }
    }

    const TOKEN: &str = "1770000000000001";

    #[test]
    fn no_other_text_can_be_read() {
        let text = of(LockKind::Fair).to_string();
        for end in 0..text.rfind(':').unwrap() {
            assert!(text[..end].parse::<Detached>().is_err(), "{}", &text[..end]);
        }
        for (from, to) in [
            ("quorlock:1", "quorlock:2"),
            (":2a:", ":2g:"),
            ("fair", "unfair"),
            ("exclusive", "all"),
            (":1:0:", ":1:1:"), // a slot
            ("exclusive", "shared"),
            (":c3", ":ff"), // no UTF-8
            (":c3", ":3"),
        ] {
            let other = text.replacen(from, to, 1);
            let error = other.parse::<Detached>().unwrap_err();
            assert_eq!(error, ConfigError::BadDetached, "{other}");
        }
    }
}

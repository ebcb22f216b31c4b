//! Masters that may have lost locks, and when they may vote again.

use std::time::Duration;

use super::protocol::connection_name::ConnectionName;

/// The protection against masters that may have lost locks. A master can lose locks when it
/// restarts, when `FLUSHALL` deletes its keys, when a replica takes its place, or when it was a
/// replica for a while.
///
/// A master that may have lost locks is quarantined: it must not vote while a client may hold a
/// lock that the master has lost. The coordinator stores the key `quorlock:origin` on every master,
/// and reads the key on every dial. A key whose contents make no sense counts as changed. When a
/// master reports that all of its keys were deleted or replaced, the coordinator ends the
/// connection, and the next dial reads the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Quarantine {
    // Sorted from no protection to the most.
    /// No protection. A master that restarts without its data may grant a lock that another client
    /// holds.
    Off,
    /// Quarantines a master whose run id or replication id differs from the one in its key. Also
    /// quarantines a master without the key, if any coordinator of this process has used the master
    /// before. Otherwise, a master without the key counts as new. If a master cannot be asked
    /// because a right is missing, such as that to `INFO`, the master is used without protection,
    /// and the log says so. If a master cannot be asked for another reason, such as `OOM`, the
    /// master counts as down, and is asked again.
    #[default]
    Observed,
    /// Quarantines a master as `Observed` does, and also every master without the key, even if the
    /// master is used for the first time. If other processes counted a master as new, its
    /// quarantine is counted from the time when the first of these processes saw the master. A
    /// master that cannot be asked is not used.
    Strict,
}

/// The key of the origin record, which shows whether a master may have lost locks.
pub(crate) const ORIGIN_KEY: &str = "quorlock:origin";

/// Returns the arguments of `lua/shared/origin.lua`. `name` is that of the connection. Each known run
/// id comes with the number of
/// milliseconds since the caller last heard from the server with this run id.
pub(crate) fn origin_arguments(
    name: &str,
    known: &[(String, u64)],
    quarantine: Quarantine,
) -> Vec<String> {
    let mode = match quarantine {
        Quarantine::Strict => "strict",
        Quarantine::Off | Quarantine::Observed => "observed",
    };
    let known = known
        .iter()
        .flat_map(|(run_id, away)| [run_id.clone(), away.to_string()]);
    let first = [mode, name].map(str::to_owned);
    first.into_iter().chain(known).collect()
}

/// A loss of data that a dial of the master found. The lost data may have included locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataLoss {
    /// The time since the master was first seen to have lost locks.
    pub(crate) age: Duration,
    pub(crate) sign: Sign,
}

/// What shows that a master may have lost locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// An earlier dial found the loss. The record does not say what showed it.
    Earlier,
    Missing,
    Promoted,
    Replaced,
    Restarted,
}

impl Sign {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Earlier => "as an earlier connection found, perhaps of another program",
            Self::Missing => {
                "its origin key is missing: it restarted without its data, its keys were deleted, \
                 or it is new"
            }
            Self::Promoted => "its replication id is new: it may have been a replica",
            Self::Replaced => "it is not the server that was here before",
            Self::Restarted => "its run id is new: it restarted, or a replica took its place",
        }
    }
}

/// The state in which a dial found a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incarnation {
    pub(crate) run_id: String,
    /// `None` if nothing shows that the master may have lost locks.
    pub(crate) loss: Option<DataLoss>,
    /// Other programs that are there, or were lately. See `lua/shared/programs.lua`.
    pub(crate) others: Vec<ConnectionName>,
}

impl Incarnation {
    /// Reads the reply of `lua/shared/origin.lua`. Returns `None` if the reply makes no sense.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split(' ').collect();
        let [since, now, run_id, sign, ref others @ ..] = words[..] else {
            return None;
        };
        let (since, now): (u64, u64) = (since.parse().ok()?, now.parse().ok()?);
        if run_id.is_empty() {
            return None;
        }
        let sign = match sign {
            "earlier" => Sign::Earlier,
            "missing" => Sign::Missing,
            "promoted" => Sign::Promoted,
            "replaced" => Sign::Replaced,
            "restarted" => Sign::Restarted,
            _ => return None,
        };
        let age = Duration::from_millis(now.saturating_sub(since));
        Some(Self {
            run_id: run_id.to_owned(),
            loss: (since > 0).then_some(DataLoss { age, sign }),
            others: others
                .iter()
                .filter_map(|name| ConnectionName::parse(name))
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnation_table() {
        let loss = |age, sign| {
            let age = Duration::from_millis(age);
            Some(DataLoss { age, sign })
        };
        let (old, gone) = (loss(1_000, Sign::Earlier), loss(0, Sign::Missing));
        for (text, loss) in [
            ("0 5 abc earlier", None),
            ("5 1005 abc earlier", old),
            ("9 5 abc missing", gone),
        ] {
            let found = Incarnation::parse(text).unwrap();
            assert_eq!((&*found.run_id, found.loss), ("abc", loss), "{text}");
            assert_eq!(found.others, [], "{text}");
        }
        let others = "quorlock:e257988200000000:26610b92:60000:";
        let text = format!("0 5 abc earlier {others}- another-library {others}web/8");
        let others = Incarnation::parse(&text).unwrap().others;
        let clients = others.iter().map(|name| name.client.as_deref());
        assert_eq!(clients.collect::<Vec<_>>(), [None, Some("web/8")]);
        for text in [
            "",
            "0 5",
            "0 5 ",
            "0 5 abc",
            "0 5  earlier",
            "x 5 abc earlier",
            "0 5 abc later",
        ] {
            assert_eq!(Incarnation::parse(text), None, "{text}");
        }
    }
}

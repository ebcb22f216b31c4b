//! The state of locks and masters as programs see it.

use std::{fmt, sync::Arc, time::Duration};

use crate::core::vote::{Roster, quorum::Membership};

pub(crate) mod inspection;

/// The state of a lock that was won, from [`Guard::state`](crate::Guard::state).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the three states are the algorithm; a match on them should be complete"
)]
pub enum LockState {
    /// The guard holds the lock.
    Held,
    /// The guard holds the lock, but a renewal found no majority in time, and none has found one
    /// since. The renewal is tried again until the validity ends.
    InDoubt,
    /// The lock is lost, and never becomes valid again.
    Lost(LostReason),
}

/// The reason why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// A majority of masters say that the guard does not hold the lock. Its keys were deleted, have
    /// expired or belong to another holder. This does not tell a break by an operator from a release
    /// by another process that has attached the lock, or from masters that have forgotten it.
    TakenAway,
    /// The task of the coordinator has ended, because its runtime has shut down, or because a
    /// stream of the program panicked in it. Or this process was forked, and the task runs in the
    /// parent, which keeps the lock. So the lock is not renewed, and no task would notice the end
    /// of its validity.
    Closed,
    /// The validity ended without an extension.
    Expired,
    /// The limit of the [renewal](crate::Renewal) was reached, and then the validity ended.
    RenewalLimit,
}

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::InDoubt => f.write_str("in doubt"),
            Self::Lost(reason) => write!(f, "lost: {reason}"),
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TakenAway => {
                "a majority of masters no longer hold it for this guard: it was broken, released or \
                 forgotten"
            }
            Self::Closed => {
                "the tasks of its coordinator have ended: the runtime has shut down, a task panicked, \
                 or this process was forked"
            }
            Self::Expired => "its validity ended without an extension",
            Self::RenewalLimit => "it reached the limit of its renewal",
        })
    }
}

impl LostReason {
    /// Returns the text of this reason. `stalled` is the time for which the process had not run.
    pub(crate) fn after(self, stalled: Option<Duration>) -> String {
        let stalled = stalled.map_or_else(String::new, |time| {
            format!(
                ", because this process did not run for at least {time:.1?} \
                 (it was stopped, its runtime was blocked or ended, or its clock was set forward)"
            )
        });
        format!("{self}{stalled}")
    }
}

/// The state of one master, as [`Coordinator::health`](crate::Coordinator::health) and
/// [`Coordinator::health_events`](crate::Coordinator::health_events) report it.
///
/// A coordinator that uses no lock sends nothing, so it does not notice changes. `last_heard` says
/// how old the state may be. [`Coordinator::ready_within`] asks every master.
///
/// [`Coordinator::ready_within`]: crate::Coordinator::ready_within
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MasterHealth {
    /// The [name](crate::Builder::coordinator_name) of the coordinator.
    pub coordinator: Option<Arc<str>>,
    /// The master's address, without the user name and the password.
    pub master: Arc<str>,
    /// Whether the master joins, leaves or stays while the masters [are
    /// changed](crate::Builder::old_masters).
    #[doc(hidden)]
    pub membership: Membership,
    /// The connection to the master.
    pub state: MasterState,
    /// The time since this state began.
    pub age: Duration,
    /// The round trip that was measured when the last connection began. `None` before the first
    /// connection.
    pub round_trip: Option<Duration>,
    /// The number of dials that failed and of connections that broke in the last outage. An outage
    /// ends with a connection that works for a second.
    pub failures: u32,
    /// The time until the master votes again, if it may have forgotten locks.
    pub quarantine: Option<Duration>,
    /// Why the master may have forgotten locks, in words for people.
    pub quarantine_reason: Option<&'static str>,
    /// The error with which the master answers, such as `OOM` or `MISCONF`. Two kinds of servers
    /// have the state `Down` instead of an error: replicas, and servers that cannot write the key
    /// of the [quarantine](crate::Quarantine), for example because they never had memory for the
    /// key. `None` after the master has granted a lock, or after [`Coordinator::ready_within`]
    /// could write a key there.
    ///
    /// An error about a key that the program may not use is not shown here, because it says nothing
    /// about other keys. If a lock could not be acquired because the program may not use a command,
    /// this error is shown, even if only one kind of lock needs the command.
    ///
    /// [`Coordinator::ready_within`]: crate::Coordinator::ready_within
    pub error: Option<Arc<str>>,
    /// The time since bytes last came from the master. `None` before the first connection.
    pub last_heard: Option<Duration>,
    /// Why the last dial failed, if all dials will fail until someone changes a setting. `None`
    /// after any other failure, and while the master is not [down](MasterState::Down).
    #[doc(hidden)]
    pub refusal: Option<DialRefusal>,
}

impl MasterHealth {
    /// Returns the health of all masters of the coordinator with this name. They are in this
    /// `state`, and no more is known of them.
    pub(crate) fn of_all(
        roster: &Roster,
        coordinator: Option<&Arc<str>>,
        state: &MasterState,
    ) -> impl Iterator<Item = Self> {
        let members = roster.members();
        members.map(move |(master, membership)| Self {
            coordinator: coordinator.cloned(),
            master: master.clone(),
            membership,
            state: state.clone(),
            age: Duration::ZERO,
            round_trip: None,
            failures: 0,
            quarantine: None,
            quarantine_reason: None,
            error: None,
            last_heard: None,
            refusal: None,
        })
    }

    /// Returns whether the master is connected, has a vote, and takes locks.
    pub fn can_vote(&self) -> bool {
        let is_fit = self.quarantine.is_none() && self.error.is_none();
        self.state == MasterState::Connected && is_fit
    }

    /// Returns whether the master is [down](MasterState::Down) and all dials will fail until
    /// someone changes a setting of the master or of this program, such as a wrong password. Not for
    /// a server that is listed twice, which a failover may explain. See
    /// [mistakes](crate::docs::operations#while-it-runs).
    pub fn needs_repair(&self) -> bool {
        self.refusal.is_some()
    }
}

/// Shows, for example, `10.0.0.1:6379 connected for 12.0s, round trip 310.0µs`.
impl fmt::Display for MasterHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.master)?;
        if let Some(coordinator) = &self.coordinator {
            write!(f, "({coordinator}) ")?;
        }
        if self.membership != Membership::Stays {
            write!(f, "({}) ", self.membership)?;
        }
        match &self.state {
            MasterState::Closed => f.write_str("closed")?,
            MasterState::Connected => write!(f, "connected for {:.1?}", self.age)?,
            MasterState::Connecting => write!(f, "connecting for {:.1?}", self.age)?,
            MasterState::Down(why) => write!(f, "down for {:.1?}: {why}", self.age)?,
        }
        if let (MasterState::Connected, Some(round_trip)) = (&self.state, self.round_trip) {
            write!(f, ", round trip {round_trip:.1?}")?;
        }
        if let Some(error) = &self.error {
            write!(f, ", takes no locks: {error}")?;
        }
        if let Some(left) = self.quarantine {
            write!(f, ", may have forgotten locks: no vote for {left:.1?}")?;
            if let Some(why) = self.quarantine_reason {
                write!(f, " ({why})")?;
            }
        }
        Ok(())
    }
}

/// The connection to a master.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MasterState {
    /// The coordinator was dropped, its runtime has shut down, or this process was forked.
    Closed,
    /// There is a connection.
    Connected,
    /// The first dial is under way.
    Connecting,
    /// There is no connection, for this reason. Another dial follows, after a second at the latest.
    Down(Arc<str>),
}

/// The reason why dials fail until someone changes a setting of the master or of this program.
/// There is no such reason for a replica, which may become a master, nor for an error that is not
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DialRefusal {
    /// This program does not trust the certificate of the master, or trusts no authority, or the
    /// master does not accept the certificate of this program.
    Certificate,
    /// The master has no database with this number.
    Database,
    /// The master refused the login.
    Login,
    /// The server at the address cannot be a master: it is a Sentinel, a part of a cluster, Redis
    /// before version 6, or no Redis at all.
    OtherServer,
    /// The master cannot be asked whether it restarted: the user lacks a right, or the server lacks
    /// a command. Dials fail for this reason only under
    /// [`Quarantine::Strict`](crate::Quarantine::Strict).
    RestartQuestion,
    /// So many Sentinels do not know the service, or refuse the login, that the others are no
    /// majority.
    Service,
    /// The master and this program have no version of TLS in common, or the master has no TLS.
    Tls,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_health_of_a_master_is_shown_in_one_line() {
        let seconds = Duration::from_secs;
        let down = || MasterState::Down("Connection refused".into());
        for (state, quarantine, can_vote, text) in [
            (MasterState::Closed, None, false, "a:1 closed"),
            (
                MasterState::Connected,
                None,
                true,
                "a:1 connected for 3.0s, round trip 2.5ms",
            ),
            (
                MasterState::Connected,
                Some(seconds(9)),
                false,
                "a:1 connected for 3.0s, round trip 2.5ms, \
                 may have forgotten locks: no vote for 9.0s (it restarted)",
            ),
            (
                MasterState::Connecting,
                None,
                false,
                "a:1 connecting for 3.0s",
            ),
            (down(), None, false, "a:1 down for 3.0s: Connection refused"),
        ] {
            let health = MasterHealth {
                coordinator: None,
                master: "a:1".into(),
                membership: Membership::Stays,
                state,
                age: seconds(3),
                round_trip: Some(Duration::from_micros(2_500)),
                failures: 1,
                quarantine,
                quarantine_reason: quarantine.and(Some("it restarted")),
                error: None,
                last_heard: None,
                refusal: None,
            };
            assert_eq!(
                (health.to_string(), health.can_vote()),
                (text.into(), can_vote)
            );
            let health = MasterHealth {
                error: Some("OOM".into()),
                ..health
            };
            assert!(!health.can_vote() && health.to_string().contains(", takes no locks: OOM"));
        }
    }

    #[test]
    fn a_state_shows_why_the_lock_was_lost() {
        for (state, text) in [
            (LockState::Held, "held"),
            (LockState::InDoubt, "in doubt"),
            (
                LockState::Lost(LostReason::TakenAway),
                "lost: a majority of masters no longer hold it for this guard: it was broken, released \
                 or forgotten",
            ),
            (
                LockState::Lost(LostReason::Expired),
                "lost: its validity ended without an extension",
            ),
            (
                LockState::Lost(LostReason::RenewalLimit),
                "lost: it reached the limit of its renewal",
            ),
            (
                LockState::Lost(LostReason::Closed),
                "lost: the tasks of its coordinator have ended: the runtime has shut down, \
                 a task panicked, or this process was forked",
            ),
        ] {
            assert_eq!(state.to_string(), text);
        }
    }
}

//! The findings that are not in the table in `rules.rs`. Each finding has a severity, a setting,
//! the reason why it matters, and a fix.

use super::{
    report::{Finding, Severity},
    setting::Setting,
};
use crate::master::dial_error::origin_rights;

/// A finding without its value.
#[derive(Clone, Copy)]
pub(super) struct About {
    pub(super) severity: Severity,
    pub(super) setting: Setting,
    pub(super) why: &'static str,
    pub(super) fix: &'static str,
}

impl About {
    pub(super) fn with(self, value: impl Into<String>) -> Finding {
        Finding {
            group: None,
            severity: self.severity,
            master: None,
            setting: self.setting,
            value: value.into(),
            why: self.why,
            fix: self.fix,
            subject: "",
        }
    }
}

/// Defines one constant for each row. A row has the name, the severity and the setting, then the
/// reason why it matters, then the fix.
macro_rules! table {
    ($($(#[$meta:meta])* $name:ident = $severity:ident $setting:ident; $why:expr; $fix:expr;)+) => {
        $($(#[$meta])* pub(super) const $name: About = About {
            severity: Severity::$severity,
            setting: Setting::$setting,
            why: $why,
            fix: $fix,
        };)+
    };
}

pub(super) const DISK: &str = "look at its log and its disk";
pub(super) const LIST_MASTERS: &str = "list independent masters only";
pub(super) const MORE_CLIENTS: &str =
    "CONFIG SET maxclients to more, such as 10000, or find out which clients hold so many";
pub(super) const NOEVICTION: &str = "CONFIG SET maxmemory-policy noeviction";
pub(super) const NO_WRITES: &str = "it refuses to lock, and also to release";
pub(super) const OTHER_SERVER: &str = "use Redis or Valkey";
pub(super) const VERSION: &str = "use Redis 7 or later, or Valkey";
const LOG: &str = "look at its log";
const NO_VOTE: &str = "it is up, and has no vote";
const START_EMPTY: &str = "stop replication and start one of them empty";
const SYNC: &str = "synchronize the clocks; chronyc tracking says how far they are off";
const URL: &str = "look at the URL";

// The findings about a master that does not answer.
table! {
    DOWN = Unknown Connection; "nothing is known about it";
        "make sure that it is up and can be reached";
    EVALSHA = Refuse Evalsha; "all locks need it";
        "ACL SETUSER <user> +evalsha +eval, and do not rename them";
    FULL = Warn Maxclients; "it has no vote while it takes no more connections"; MORE_CLIENTS;
    LOADING = Warn Loading; "it answers nothing until it has read its data"; "wait";
    LOGIN = Refuse Login; NO_VOTE;
        "give the password with MasterSpec::login or in the URL; look at its users, at protected \
         mode, and at the number of the database";
    MUTE = Unknown Connection; "it takes connections, but does not answer";
        "look at its log and its load; if the port expects TLS, use rediss://";
    NO_HELLO = Refuse RedisVersion; "it does not know HELLO 3, which Redis has since version 6";
        "use Redis 7 or later, or Valkey; and do not rename HELLO";
    NO_REDIS = Warn Connection; "it is not a Redis server, or it expects TLS"; URL;
    NOT_NOW = Warn Votes; "it has no vote now"; LOG;
    RESTART_UNKNOWN = Warn Votes;
        "it did not say whether it restarted, so it has no vote now"; LOG;
    ROLE = Refuse Role;
        "a replica loses the locks that its master loses, and has no vote of its own"; LIST_MASTERS;
    SENTINELS = Warn Connection; "its Sentinels do not say where it is, so it has no vote";
        "look at the Sentinels, and at the URL";
    SLOW_LOOKUP = Warn Connection; "the name of its host is not found in time";
        "look at the name servers; a longer Builder::connect_timeout waits for them";
    STRICT = Refuse Origin; NO_VOTE;
        concat!("ACL SETUSER <user> ", origin_rights!(), "; or a server that allows these in scripts, \
            or a quarantine that is not strict");
    TLS = Warn Connection; "no TLS connection to it can be made, so it has no vote";
        "look at the certificates, at Builder::tls, and at the URL";
    TWIN = Refuse RunId; "a server that is listed twice would vote twice"; "list every server once";
    UNKNOWN_HOST = Warn Connection; "the name of its host cannot be resolved"; URL;
    UNREACHED = Unknown Connection; "nothing answers at its address";
        "make sure that its host is up, and that no firewall drops the packets to it";
}

// The findings about settings with which a restart may lose locks. `rules.rs` replaces `AofEnabled`
// by the first setting of the master that may lose locks.
table! {
    NOTICED = Info AofEnabled;
        "after a restart, that master has no vote until its lost locks have expired, for programs \
         that knew it or are Strict";
        "nothing has to be done; appendonly yes would keep the origin key over a restart";
    UNNOTICED = Warn AofEnabled; "a restart loses locks, and nobody notices";
        "Builder::quarantine; or appendonly yes, appendfsync always, \
         no-appendfsync-on-rewrite no";
}

// The findings about all masters together, and about this program.
table! {
    CLOCK_OFF = Warn Time;
        "it counts as down for fencing tokens, and for positions in queues"; SYNC;
    CLOCKS_APART = Refuse Time;
        "no majority agrees on the time: no fencing tokens, and no order in queues"; SYNC;
    COUNTERS_AHEAD = Refuse FenceCounters;
        "programs of both lists may get no fencing token, and those of the new list smaller ones";
        "begin the change when that time has come";
    COUNTERS_UNKNOWN = Unknown FenceCounters;
        "counters of fencing tokens that are ahead of time would stop a change of the masters";
        "ACL SETUSER <user> +scan +time";
    EVEN_NUMBER = Info Masters; "it survives no more failures than one master fewer";
        "list an odd number";
    FEW_MASTERS = Warn Masters; "the loss of one master is the loss of all locks"; "list 3 or 5";
    HOST = Warn Hosts; "its loss is the loss of all locks"; "give each master a machine of its own";
    NO_MAJORITY = Refuse Votes; "no lock can be acquired"; "see the other findings";
    OUR_CLOCK = Warn Time;
        "positions in queues and fencing tokens cost this process one more round"; SYNC;
    QUARANTINES = Warn Votes;
        "a program that starts now can acquire no lock until the quarantines are over"; "wait";
    SHARED_DATA = Refuse MasterReplid; "masters that share their data lose it together";
        START_EMPTY;
    SHORT_TTL = Warn Ttl; "a few slow answers use it up";
        "Builder::ttl of ten node timeouts or more";
    SLOW_DRIFT = Warn Drift; "clocks that are being corrected run apart by more";
        "Builder::drift_ppm of 1000 or more";
    TOOK_DATA = Warn MasterReplid;
        "one of them took the data of the other, and lost its own locks then"; START_EMPTY;
}

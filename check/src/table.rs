//! The table of all findings: severity and setting, then the reason why it matters, then the fix.

use crate::report::{Finding, Severity};

/// A finding without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    severity: Severity,
    pub(crate) setting: &'static str,
    pub(crate) why: &'static str,
    fix: &'static str,
}

impl Row {
    /// Returns the finding with this value, about no master yet.
    pub(crate) fn with(self, value: impl Into<String>) -> Finding {
        let Self {
            severity,
            setting,
            why,
            fix,
        } = self;
        Finding {
            severity,
            setting,
            masters: Vec::new(),
            value: value.into(),
            why,
            fix: fix.to_owned(),
        }
    }

    /// Returns the row with another fix.
    pub(crate) fn fixed_by(self, fix: &'static str) -> Self {
        Self { fix, ..self }
    }

    /// Returns the same row about another setting.
    pub(crate) fn about(self, setting: &'static str) -> Self {
        Self { setting, ..self }
    }
}

macro_rules! table {
    ($($name:ident = $severity:ident $setting:literal; $why:expr; $fix:expr;)+) => {
        $(pub(crate) const $name: Row = Row {
            severity: Severity::$severity,
            setting: $setting,
            why: $why,
            fix: $fix,
        };)+
    };
}

/// The fix if the server itself does not run a command in scripts.
pub(crate) const NOT_IN_SCRIPTS: &str = "no right helps, because the server itself forbids that in scripts: allow it there if you can, \
     or list another server; without TIME, use mutexes and reentrant locks without fencing tokens";
/// The fixes if the server does not know a command.
pub(crate) const NO_CLIENT: &str =
    "do not rename or disable CLIENT; behind a proxy, list the server itself";
pub(crate) const NO_CONFIG: &str = "look at the settings by hand";
pub(crate) const NO_EVAL: &str =
    "do not rename or disable EVAL and EVALSHA; behind a proxy, list the server itself";
/// The fix if the user may send neither the text of a script nor its hash.
pub(crate) const NO_SCRIPTS: &str =
    "ACL SETUSER <user> +eval +evalsha; then check again, because scripts try the other rights";
pub(crate) const LOOK_AT_LOG: &str = "look at its log";

const EVICTION: &str = "locks are evicted silently when memory is short, keys with a TTL first";
const LIST_MASTERS: &str = "list independent masters only";
const NOEVICTION: &str = "CONFIG SET maxmemory-policy noeviction";
const NO_CONNECTION: &str = "no connection to it works, so it has no vote";
const NO_VOTE: &str = "it is up, and has no vote";
const QUARANTINE: &str = "set Builder::quarantine to observed or strict";
const REDIAL: &str = "CLIENT KILL TYPE normal there before a new program comes, so that programs that knew it dial \
     again and give it no vote; or keep programs away for a quarantine; and no FLUSHALL or FLUSHDB \
     while locks are held";
const SAME_LISTS: &str = "give all programs the same masters under the same addresses";
const STANDALONE: &str = "run standalone masters for locks";
const START_EMPTY: &str = "stop replication and start one of them empty";
const SYNC: &str = "synchronize the clocks; chronyc tracking says how far they are off";

// A master that cannot be asked.
table! {
    DOWN = Unknown "connection"; NO_CONNECTION;
        "make sure that it is up and can be reached, and that its URL is right";
    EVAL = Critical "EVAL"; "all locks need it to send the texts of scripts";
        "ACL SETUSER <user> +client|tracking +client|caching +client|setname +client|list +config|get \
         +evalsha +eval +publish +subscribe +unsubscribe +set +get +del +pttl +pexpire +info +time \
         +exists +hmget +hset +hdel +type +hlen +hgetall +zadd +zrem +zrange +zrank +zscore \
         +zlexcount; then check again, because scripts try the keys and channels";
    EVALSHA = Critical "EVALSHA"; "all locks need it to run scripts"; "ACL SETUSER <user> +evalsha";
    LOGIN = Critical "login"; NO_VOTE; "look at its users";
    NO_MASTER = Critical "server"; "it is no Redis or Valkey master"; "list the host and the port of a master";
    NO_SERVICE = Critical "connection"; NO_CONNECTION; "look at the service, the Sentinels and their login in its URL";
    NO_TRUST = Critical "connection"; NO_CONNECTION; "make sure that its URL and the certificates are right";
    NOT_NOW = Warn "votes"; "it has no vote now"; LOOK_AT_LOG;
    OLD = Critical "redis_version"; "it does not know HELLO 3, which Redis has since version 6";
        "use Redis 7 or later, or Valkey; do not rename HELLO; if a proxy refuses it, list the server itself";
    PROTECTED = Critical "login"; NO_VOTE;
        "give the server a password, or set protected-mode no if its network protects it";
    REPLICA = Critical "role";
        "a replica loses the locks that its master loses, and has no vote of its own"; LIST_MASTERS;
}

// A master that answers: what it is.
table! {
    CONFIG_DENIED = Unknown "CONFIG GET"; "its settings are unknown";
        "ACL SETUSER <user> +config|get, or look at the settings by hand";
    EVICTS = Critical "maxmemory_policy"; EVICTION; NOEVICTION;
    FAILS_OVER = Warn "redis_mode"; "a fail-over loses the newest locks"; STANDALONE;
    INFO_DENIED = Unknown "INFO"; "it is unknown what it is, and what it does when memory is short";
        "ACL SETUSER <user> +info, or use a server that allows it in scripts";
    MAY_EVICT = Warn "maxmemory_policy"; EVICTION; NOEVICTION;
    OTHER_SERVER = Critical "server";
        "locks were never tested there, and masters that write to each other take a lock from its holder";
        "use Redis or Valkey";
    OUTDATED = Warn "redis_version"; "this version is no longer maintained"; "use Redis 7 or later, or Valkey";
    PROXY = Critical "run_id"; "a proxy answers for servers that come and go, so that restarts go unnoticed";
        "list the servers themselves";
    REFUSES_WRITES = Warn "writes"; "it refuses to lock, and perhaps also to release"; "";
    REPLICAS = Warn "connected_slaves"; "a replica that is promoted does not have the newest locks";
        "run masters for locks without replicas, or never promote one";
    SEVERAL_SERVERS = Critical "run_id"; "several servers answer at this address, so a lock is on some of them only";
        "give each server an address of its own, and list the servers themselves";
    SHARD = Critical "redis_mode";
        "it is a part of a cluster that has only some of the keys, and a cluster is one master at most"; STANDALONE;
    TIMEOUT = Warn "timeout"; "it closes connections that only wait, and each one has to be dialled again";
        "CONFIG SET timeout 0";
    UNCOMPARED = Unknown "run_id"; "several servers at this address would not be seen";
        "make sure that it takes four more connections and answers INFO; behind a proxy, list the server itself";
}

// A master that answers: whether a loss of its locks is noticed.
table! {
    ORIGIN_DENIED = Critical "quorlock:origin"; "if it restarts without its locks, nobody notices"; "";
    ORIGIN_UNREAD = Unknown "quorlock:origin"; "it is unknown whether a restart without its locks would be noticed";
        LOOK_AT_LOG;
    ORIGIN_UNWRITTEN = Warn "quorlock:origin";
        "if it restarts without its locks, no program of its user notices, and two programs may get one \
         lock; those with strict quarantine do not use it then"; "";
    KEEPS_NOTHING = Critical "aof_enabled"; "a restart loses locks, and nobody notices"; QUARANTINE;
    KEEPS_TOO_LITTLE = Warn "appendfsync"; "a restart loses locks, and nobody notices"; QUARANTINE;
    LOST = Critical "quorlock:origin";
        "it lost its keys after it was dialled, and locks with them; or the programs have quarantine \
         off, or no program may write the key"; REDIAL;
    NEW = Info "quorlock:origin"; "it is new, or it lost its locks: a program that never saw it takes it for new";
        "nothing, if no program has run yet, or all have strict quarantine; otherwise start no program for a \
         quarantine";
    QUARANTINED = Warn "quorlock:origin"; "it may have forgotten locks, and has no vote until those have expired";
        "wait; if it did not restart and is not new, look for FLUSHALL, another server at its address, a \
         failover, and a backup or another replica that connected";
    RESTARTED = Warn "quorlock:origin";
        "it restarted, or is another server than before, so the next program that dials it begins a quarantine"; "wait";
    UNTRACKED = Warn "CLIENT TRACKING";
        "it tells nobody of changes: waiters poll, and programs with quarantine do not notice if it loses \
         its keys, by FLUSHALL or as a replica for a while, and two of them may get one lock";
        "ACL SETUSER <user> +client|tracking +client|caching; behind a proxy, list the server itself";
}

// What the user may do. `rights.rs` has the rights of the kinds of locks.
table! {
    NO_INSPECTION = Info "rights to inspect"; "its user cannot look at locks: inspect and is_held fail";
        "ACL SETUSER <user> +type";
    NO_KIND = Critical "rights"; "its user cannot have any lock there"; "";
    NO_MESSAGES = Info "PUBLISH, SUBSCRIBE";
        "its user cannot publish for waiters or listen: waiters of locks with queues, and those of \
         Redisson, poll or wait too long"; "";
    NO_MUTEX = Warn "rights for mutexes"; "its user cannot have mutexes, which most programs use"; "";
    NO_RELEASE = Critical "rights";
        "programs refuse to take such locks, because they could not release or keep them"; "";
    NO_SUCH_LOCK = Info "rights for other locks"; "programs of its user cannot use them"; "";
    UNLISTED = Critical "SCAN"; "its user cannot list all locks";
        "ACL SETUSER <user> +scan +type +getrange +hmget +pttl";
    OTHER_KEYS_ONLY = Unknown "rights to keys";
        "its user may not use the key of a lock called quorlock:check, and perhaps not your keys"; "";
}

// All masters together, and other programs.
table! {
    APART = Critical "lists";
        "their majorities may share no master, so two of them may hold one lock at once";
        "stop those with the new list, and let all programs use both lists before any has only the new one";
    CLOCK_OFF = Warn "TIME";
        "a clock that is set forward takes locks from holders; without a majority of clocks within 1 s, \
         there are no fencing tokens, and no order in queues"; SYNC;
    COUNTERS_AHEAD = Critical "quorlock:fence:*";
        "programs of both lists may get no fencing token, and those of the new list smaller ones";
        "begin the change when that time has come";
    COUNTERS_UNKNOWN = Unknown "quorlock:fence:*";
        "counters of fencing tokens that are ahead of time would stop a change of the masters";
        "ACL SETUSER <user> +scan +time";
    EARLIER_APART = Critical "lists";
        "such programs, of which this was the last, used other lists of masters in the last hour and longest \
         TTL: they and you may hold one lock at once";
        "stop what starts them, and give all programs the same masters under the same addresses; once that \
         is done and their locks have ended, run `redis-cli HDEL quorlock:origin lists.{0..31}` in bash, for each \
         master: programs that are connected note theirs again";
    EARLIER_OLD = Warn "lists";
        "such programs, of which this was the last, came with the old list after programs with both: step 2 of \
         the change of the masters is not done"; "find what starts them, and give it both lists; once that is done, \
         run `redis-cli HDEL quorlock:origin lists.{0..31}` in bash, for each master";
    EARLIER_OLD_LIST = Info "lists"; "such programs used only the old list of masters";
        "find what starts them, and give it both lists in step 1 of the change, and later the new one";
    EARLIER_LISTS = Info "lists";
        "such programs used other lists of masters: if they come again, they and you may hold one lock at once";
        SAME_LISTS;
    EVEN_MASTERS = Info "masters"; "an even number of masters tolerates no more failures than one less";
        "list one more or one less";
    FEW_MASTERS = Warn "masters"; "the loss of one master is the loss of all locks"; "list 3 or 5";
    NO_MAJORITY = Critical "votes"; "no lock can be acquired"; "see the other findings";
    OTHER_DATABASE = Warn "database";
        "these programs use another database of the server: they and you may hold one lock at once";
        "give all programs URLs with the same database, or another key template if the locks are others";
    OTHER_CHANGE = Warn "lists";
        "these programs are in a change of the masters, or use groups, and have lists that are not checked here";
        "give all programs, and this check, the same masters and old_masters; for groups, CheckSettings::allow_lists_of";
    OTHER_LISTS = Critical "lists";
        "these programs use other lists of masters: they and you may hold one lock at once"; SAME_LISTS;
    OTHER_MAX_TTL = Warn "max_ttl";
        "a master that forgot locks votes again too early for the programs with the longest TTL";
        "Builder::max_ttl: the longest TTL of all programs, in each of them";
    OTHER_TEMPLATE = Info "key template"; "their locks and yours never exclude each other, even of the same name";
        "Builder::key_template, if they should";
    QUARANTINES = Warn "votes"; "a program that starts now can acquire no lock until the quarantines are over";
        "wait; that of a master that is new, restarted, was replaced or lost its key begins when a program dials it, \
         such as `quorlock status NAME`, and not this check";
    SHARED_DATA = Warn "master_replid"; "one of them took the data of the other, and lost its own locks then";
        START_EMPTY;
    SHARED_DATA_UNNOTICED = Critical "master_replid";
        "one of them took the data of the other, lost its own locks then, and votes at once"; START_EMPTY;
    TWIN = Critical "run_id"; "a server that is listed twice would vote twice"; "list every server once";
    UNSEEN = Unknown "lists"; "programs with other lists of masters would not be seen";
        "ACL SETUSER <user> +client|list +client|setname; behind a proxy, list the server itself";
}

/// What helps after an error about the state of a server, by the code of the error.
pub(crate) const STATES: [(&str, &str); 10] = [
    (
        "BUSY",
        "wait for its script, or end it with SCRIPT KILL if it has written nothing",
    ),
    (
        "CLUSTERDOWN",
        "CLUSTER INFO says what is missing; run standalone masters for locks",
    ),
    ("LOADING", "wait until it has read its data"),
    ("MASTERDOWN", LIST_MASTERS),
    ("MISCONF", "look at its log and its disk"),
    (
        "NOREPLICAS",
        "let its replicas connect again; only if no Sentinel watches it, lower min-replicas-to-write",
    ),
    (
        "OOM",
        "CONFIG SET maxmemory to more, or free memory; only what needs no memory works",
    ),
    ("READONLY", LIST_MASTERS),
    (
        "WRONGTYPE",
        "wait: the next program that dials it writes the key anew",
    ),
    (
        "maxclients",
        "close connections, or CONFIG SET maxclients to more",
    ),
];

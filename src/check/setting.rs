//! The names of the settings and conditions that findings are about.

use std::fmt;

use crate::core::protocol::kind::Kind;

macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// The setting, field or condition that a [`Finding`](crate::Finding) is about.
        ///
        /// The [name](Self::name) of a variant never changes. A program can use the name to ignore
        /// findings that it expects. Settings and fields of a server have the server's own names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Setting {
            $($(#[doc = $doc])+ $variant,)+
            /// `rights for mutexes`, and so on: whether the user has the rights that locks of this
            /// kind need.
            Rights(Kind),
        }

        impl Setting {
            /// Returns the name that findings show.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                    Self::Rights(kind) => kind.spec().rights.name,
                }
            }
        }
    };
}

settings! {
    /// `active-replica`: whether KeyDB replicates between masters.
    ActiveReplica = "active-replica",
    /// `aof_enabled`: whether there is an append-only file.
    AofEnabled = "aof_enabled",
    /// `aof_last_write_status`: whether the append-only file can be written.
    AofLastWriteStatus = "aof_last_write_status",
    /// `appendfsync`: when the append-only file reaches the disk.
    Appendfsync = "appendfsync",
    /// `busy-reply-threshold`: how long a script runs before the server answers `BUSY`.
    BusyReplyThreshold = "busy-reply-threshold",
    /// `CONFIG GET`: whether the user may read settings.
    ConfigGet = "CONFIG GET",
    /// `connected_slaves`: the number of replicas.
    ConnectedSlaves = "connected_slaves",
    /// `connection`: the master cannot be reached, or is not a Redis server.
    Connection = "connection",
    /// `crdt_config_version`: the server is Redis Enterprise and replicates between masters.
    CrdtConfigVersion = "crdt_config_version",
    /// `dragonfly_version`: the server is Dragonfly.
    DragonflyVersion = "dragonfly_version",
    /// `drift`: the drift allowance of this program.
    Drift = "drift",
    /// `EVAL`: whether the user may send scripts.
    Eval = "EVAL",
    /// `EVALSHA`: whether the user may run scripts.
    Evalsha = "EVALSHA",
    /// `evicted_keys`: the number of keys that were evicted.
    EvictedKeys = "evicted_keys",
    /// `quorlock:guard`: the key by which a master that forgot its locks is found.
    Origin = "quorlock:guard",
    /// `quorlock:fence:*`: the counters of fencing tokens.
    FenceCounters = "quorlock:fence:*",
    /// `hosts`: the number of masters on one host.
    Hosts = "hosts",
    /// `INFO`: whether the user may ask what the server is.
    Info = "INFO",
    /// `loading`: the server is reading its data.
    Loading = "loading",
    /// `login`: the server refuses the user, the password or the database.
    Login = "login",
    /// `master_replid`: two masters have, or had, the same data.
    MasterReplid = "master_replid",
    /// `masters`: the number of masters.
    Masters = "masters",
    /// `maxclients`: the number of connections that the server takes.
    Maxclients = "maxclients",
    /// `maxmemory_policy`: the keys that are evicted when memory is short.
    MaxmemoryPolicy = "maxmemory_policy",
    /// `min-replicas-to-write`: the number of replicas that the server needs to accept writes.
    MinReplicasToWrite = "min-replicas-to-write",
    /// `monotonic_clock`: the clock of the server's timers.
    MonotonicClock = "monotonic_clock",
    /// `DELEX, DELIFEQ`: whether the user may release mutexes without a script.
    NativeRelease = "DELEX, DELIFEQ",
    /// `no-appendfsync-on-rewrite`: whether fsync pauses while a file is rewritten.
    NoAppendfsyncOnRewrite = "no-appendfsync-on-rewrite",
    /// `CLIENT TRACKING`: whether the server reports changes of keys to waiters.
    ClientTracking = "CLIENT TRACKING",
    /// `PUBLISH, SUBSCRIBE`: whether the user may publish and receive messages for waiters.
    PubSub = "PUBLISH, SUBSCRIBE",
    /// `rdb_last_bgsave_status`: whether snapshots can be written.
    RdbLastBgsaveStatus = "rdb_last_bgsave_status",
    /// `redis_mode`: standalone, cluster or Sentinel.
    RedisMode = "redis_mode",
    /// `redis_version`: the version of Redis, or the Redis version that Valkey is compatible with.
    RedisVersion = "redis_version",
    /// `rights for fencing tokens`: whether the user has the rights that fencing tokens need.
    RightsFencing = "rights for fencing tokens",
    /// `rights to inspect`: whether the user may look at locks.
    RightsToInspect = "rights to inspect",
    /// `rights to keys`: whether the user may use all keys.
    RightsToKeys = "rights to keys",
    /// `role`: whether the server is a master.
    Role = "role",
    /// `run_id`: the id of the server process. It must be different for each master.
    RunId = "run_id",
    /// `tcp-keepalive`: whether the server notices clients that are gone.
    TcpKeepalive = "tcp-keepalive",
    /// `TIME`: the wall clock of a server or of this machine.
    Time = "TIME",
    /// `timeout`: the time after which the server closes idle connections.
    Timeout = "timeout",
    /// `tracking-table-max-keys`: the number of keys of which the server reports changes.
    TrackingTableMaxKeys = "tracking-table-max-keys",
    /// `ttl`: the TTL of this program's locks.
    Ttl = "ttl",
    /// `votes`: whether a master, or a majority, can vote now.
    Votes = "votes",
    /// `writes`: the server refuses writes.
    Writes = "writes",
}

impl Setting {
    /// Returns whether this is a setting or a field with a value. Otherwise it is a condition, and
    /// the value of a finding describes the condition.
    pub(super) fn has_value(self) -> bool {
        let is_right = self.name().starts_with("rights ");
        !is_right
            && !matches!(
                self,
                Self::Connection
                    | Self::Hosts
                    | Self::Loading
                    | Self::Login
                    | Self::Votes
                    | Self::Writes
            )
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

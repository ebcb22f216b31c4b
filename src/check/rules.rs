//! The table of findings about one master that answers.

use std::time::Duration;

use super::{
    about::{
        self, About, DISK, LIST_MASTERS, MORE_CLIENTS, NO_WRITES, NOEVICTION, OTHER_SERVER, VERSION,
    },
    facts::{Facts, Ours},
    report::{Finding, Severity},
    rights,
    setting::Setting,
};
use crate::{
    core::restart::Quarantine,
    master::{dial_error::origin_rights, server_error::ServerError},
};

/// A function that returns the value of the setting if there is something to report.
type Rule = for<'a, 'b> fn(&'a Look<'b>) -> Option<String>;

/// Makes the table. A row has the severity, the setting and its rule, then the reason why it
/// matters, then the fix. The rule decides when the setting is reported, and with which value.
macro_rules! rules {
    ($($severity:ident $setting:ident if $value:expr; $why:expr; $fix:expr;)+) => {
        &[$((About {
            severity: Severity::$severity,
            setting: Setting::$setting,
            why: $why,
            fix: $fix,
        }, $value)),+]
    };
}

const EVICTION: &str = "locks are evicted silently when memory is short, keys with a TTL first";
const MULTI_MASTER: &str = "masters that write to each other take a lock from its holder";
const TRACKING: &str =
    "ACL SETUSER <user> +client|tracking +client|caching; behind a proxy, list the server itself";
const NO_SAVE: &str = "it cannot write its data, and may refuse to lock";

#[rustfmt::skip]
const RULES: &[(About, Rule)] = rules! {
    Refuse Role if |look| look.unless("master");
        about::ROLE.why; about::ROLE.fix;
    Refuse RunId if |look| when(look.has_no("run_id"), "missing");
        "a proxy answers for servers that come and go, so that restarts go unnoticed";
        "list the servers themselves";
    Refuse ActiveReplica if |look| look.bad("yes");
        MULTI_MASTER; OTHER_SERVER;
    Refuse CrdtConfigVersion if |look| look.value();
        MULTI_MASTER; OTHER_SERVER;
    Refuse DragonflyVersion if |look| look.value();
        "locks of this crate were never tested there"; OTHER_SERVER;
    Unknown RedisVersion if |look| when(look.facts.has_info() && look.major().is_none(), "unknown");
        "an old server may not run the scripts correctly"; VERSION;
    Warn RedisVersion if |look| look.value().filter(|_| look.is_before_7());
        "this version is no longer maintained"; VERSION;
    Warn ConnectedSlaves if |look| look.above_zero();
        "a replica that is promoted does not have the newest locks";
        "run masters for locks without replicas, or never promote one";
    Warn RedisMode if |look| {
        // Valkey has another name for this field.
        let mode = look.facts.get("redis_mode").or_else(|| look.facts.get("server_mode"));
        mode.filter(|mode| *mode != "standalone").map(str::to_owned)
    };
        "a fail-over loses the newest locks"; "run standalone masters for locks";
    Warn MinReplicasToWrite if |look| look.above_zero();
        "without that many replicas it refuses to lock, and also to release";
        "CONFIG SET min-replicas-to-write 0";
    Warn Loading if |look| {
        let is_set = |field| look.facts.is(field, "1");
        when(is_set("loading") || is_set("async_loading"), "1")
    };
        about::LOADING.why; about::LOADING.fix;
    Refuse MaxmemoryPolicy if |look| look.unless("noeviction").filter(|_| look.is_limited());
        EVICTION; NOEVICTION;
    Warn MaxmemoryPolicy if |look| look.unless("noeviction").filter(|_| !look.is_limited());
        EVICTION; NOEVICTION;
    Warn EvictedKeys if |look| look.above_zero();
        "keys were evicted, and locks may have been among them"; NOEVICTION;
    Warn Maxclients if |look| {
        let number = |field| look.facts.number(field);
        let (clients, most) = (number("connected_clients")?, number("maxclients")?);
        let is_near = clients.saturating_mul(10) >= most.saturating_mul(9);
        is_near.then(|| format!("{clients} of {most}"))
    };
        "it refuses connections beyond that, and a coordinator that reconnects needs one";
        MORE_CLIENTS;
    Unknown ConfigGet if |look| look.facts.withheld.clone();
        "it is unknown whether it closes idle connections, needs replicas or keeps what it writes";
        "ACL SETUSER <user> +config|get, or look at the settings by hand";
    Warn Timeout if |look| look.above_zero();
        "it closes connections that only wait, and each one has to be dialled again";
        "CONFIG SET timeout 0";
    Warn TcpKeepalive if |look| look.bad("0");
        "connections of clients that are gone stay open, until it takes no more";
        "CONFIG SET tcp-keepalive 300";
    Refuse Time if |look| when(look.facts.stands_still, "standing still, or set back");
        "TTLs do not end, or not when they should";
        "look at the clock of its machine, and restart it";
    Refuse MonotonicClock if |look| look.value().filter(|clock| clock.contains("inf"));
        "it cannot measure time, and its timers do not work";
        "restart it, or build it without USE_PROCESSOR_CLOCK";
    Info BusyReplyThreshold if |look| {
        // Every server has the default of 5 s.
        let least = Duration::from_secs(5).max(look.ours.node_timeout);
        let threshold = Duration::from_millis(look.facts.number("lua-time-limit")?);
        (threshold.is_zero() || threshold > least).then(|| format!("{threshold:?}"))
    };
        "while a script of another program runs for that long, it answers nothing, not even BUSY";
        "keep slow scripts off masters that hold locks";
    Unknown Info if |look| when(!look.facts.has_info(), "denied");
        "it is unknown what it is, and what it does when memory is short";
        "ACL SETUSER <user> +info";
    Warn AofLastWriteStatus if |look| look.not("ok");
        NO_SAVE; DISK;
    Warn RdbLastBgsaveStatus if |look| look.not("ok").filter(|_| look.stops_writes());
        NO_SAVE; DISK;
    Info RdbLastBgsaveStatus if |look| look.not("ok").filter(|_| !look.stops_writes());
        "it cannot save its data, but it still takes locks"; DISK;
    Refuse Origin if |look| when(look.origin_is(Some("none")), "gone");
        "it lost its keys after it was dialled, and locks with them";
        "CLIENT KILL TYPE normal there before a new program comes, so that programs that knew it \
         dial again and give it no vote; or keep programs away for a quarantine; and no FLUSHALL \
         or FLUSHDB while locks are held";
    Refuse Origin if |look| when(look.origin_is(Some("another")), "another server's");
        "it took another server's data after it was dialled, and lost its own locks";
        "CLIENT KILL TYPE normal there, so that programs dial again and give it no vote; or keep \
         programs away for a quarantine";
    Refuse Origin if |look| when(look.origin_is(None), "not readable");
        "if it restarts without its locks, nobody notices";
        concat!("ACL SETUSER <user> ", origin_rights!(), "; or a server that allows these in scripts");
    Warn Origin if |look| {
        let left = look.facts.quarantine_left(look.ours);
        (!left.is_zero()).then(|| format!("in quarantine for {left:.1?}"))
    };
        "it may have forgotten locks, and has no vote until those have expired"; "wait";
    Refuse Eval if |look| when(look.facts.is("may_eval", "no"), "denied");
        "all locks need it to send the texts of scripts";
        "ACL SETUSER <user> +eval";
    Unknown RightsToKeys if |look| {
        when(look.facts.error("GET") == Some(ServerError::KeyDenied), "not all keys")
    };
        "its user may not use the key of a lock called quorlock:check, and perhaps not your keys";
        "ACL SETUSER <user> ~quorlock:check to silence this, or a key template with your prefix; \
         the check does not touch your own keys";
    Info RightsToInspect if |look| when(rights::is_without(look.facts, "TYPE"), "without TYPE");
        "its user cannot look at locks: inspect and is_held fail";
        "ACL SETUSER <user> +type";
    Info PubSub if |look| {
        let is_denied = look.facts.error("PUBLISH").is_some_and(ServerError::is_denial);
        when(is_denied || look.facts.is("may_listen", "no"), "denied")
    };
        "its user cannot publish for waiters or listen: waiters of locks with queues, and those of \
         Redisson, poll or wait too long";
        "ACL SETUSER <user> +publish +subscribe +unsubscribe &quorlock:* &redisson_lock__channel:*";
    Warn ClientTracking if |look| look.tracking_refused().filter(|_| look.ours.has_quarantine());
        "programs that run do not notice if it loses its keys, by FLUSHALL or as a replica for a \
         while, and two of them may get one lock; and waiters poll";
        TRACKING;
    Info ClientTracking if |look| look.tracking_refused().filter(|_| !look.ours.has_quarantine());
        "it tells nobody of changes, so waiters poll"; TRACKING;
    Warn TrackingTableMaxKeys if |look| {
        let tracked = look.facts.number("tracking_total_keys")?;
        let most = look.facts.number("tracking-table-max-keys").filter(|most| *most > 0)?;
        let is_near = tracked.saturating_mul(10) >= most.saturating_mul(9);
        is_near.then(|| format!("{tracked} of {most}"))
    };
        "beyond that, it reports changes that did not happen, and waiters ask in vain";
        "CONFIG SET tracking-table-max-keys to more than the names that are waited for, and the \
         keys that other clients track";
    Info NativeRelease if |look| {
        let is_denied = |name: &&str| {
            look.facts.error(name) == Some(ServerError::CommandDenied)
        };
        let denied = ["DELEX", "DELIFEQ"].into_iter().find(is_denied);
        denied.map(|name| format!("{name} is denied"))
    };
        "it releases mutexes by a script, which costs the server more time";
        "ACL SETUSER <user> +delex (Redis) or +delifeq (Valkey)";
    Warn Writes if |look| look.writes_fail("OOM");
        "it refuses to lock; only releases and extensions that need no memory work";
        "CONFIG SET maxmemory to more, or free memory";
    Warn Writes if |look| look.writes_fail("MISCONF");
        NO_WRITES; DISK;
    Warn Writes if |look| look.writes_fail("CLUSTERDOWN");
        NO_WRITES; "CLUSTER INFO says what is missing; run standalone masters for locks";
    Warn Writes if |look| {
        // If the setting is known, another finding reports it.
        let is_reported = look.facts.number("min-replicas-to-write").unwrap_or(0) > 0;
        look.writes_fail("NOREPLICAS").filter(|_| !is_reported)
    };
        NO_WRITES; "CONFIG SET min-replicas-to-write 0";
    Warn Writes if |look| {
        // If the role is known, another finding reports it.
        let is_reported = look.facts.get("role").is_some_and(|role| role != "master");
        let code = look.writes_fail("READONLY").or_else(|| look.writes_fail("MASTERDOWN"));
        code.filter(|_| !is_reported)
    };
        NO_WRITES; LIST_MASTERS;
};

/// The input of a rule.
struct Look<'a> {
    facts: &'a Facts,
    ours: &'a Ours<'a>,
    setting: Setting,
}

impl Look<'_> {
    /// Returns the value of the setting, if the master has it.
    fn value(&self) -> Option<String> {
        self.facts.get(self.setting.name()).map(str::to_owned)
    }

    fn bad(&self, bad: &str) -> Option<String> {
        self.value().filter(|value| value == bad)
    }

    fn not(&self, good: &str) -> Option<String> {
        self.value().filter(|value| value != good)
    }

    /// Returns the value of a field that every `INFO` has, unless the value is `good`.
    fn unless(&self, good: &str) -> Option<String> {
        let is_bad = self.facts.has_info() && !self.facts.is(self.setting.name(), good);
        is_bad.then(|| self.value().unwrap_or_else(|| "unknown".to_owned()))
    }

    fn above_zero(&self) -> Option<String> {
        self.value()
            .filter(|value| value.parse::<u64>().is_ok_and(|number| number > 0))
    }

    fn major(&self) -> Option<u32> {
        let version = self.facts.get("redis_version")?;
        version.split('.').next()?.parse().ok()
    }

    fn is_before_7(&self) -> bool {
        self.major().is_some_and(|major| major < 7)
    }

    fn has_no(&self, field: &str) -> bool {
        let is_missing = self.facts.get(field).is_none_or(str::is_empty);
        self.facts.has_info() && is_missing
    }

    fn is_limited(&self) -> bool {
        self.facts.number("maxmemory").unwrap_or(0) > 0
    }

    fn stops_writes(&self) -> bool {
        !self.facts.is("stop-writes-on-bgsave-error", "no")
    }

    fn writes_fail(&self, code: &str) -> Option<String> {
        let found = self.facts.write_error().filter(|found| *found == code);
        found.map(str::to_owned)
    }

    fn tracking_refused(&self) -> Option<String> {
        when(self.facts.is("reports_changes", "no"), "refused")
    }

    fn origin_is(&self, age: Option<&str>) -> bool {
        let is_asked = self.ours.has_quarantine() && self.facts.restart_unknown.is_none();
        is_asked && self.facts.get("origin_age") == age
    }
}

fn when(is_found: bool, value: &str) -> Option<String> {
    is_found.then(|| value.to_owned())
}

/// Returns the findings about one master.
pub(super) fn find(facts: &Facts, ours: &Ours<'_>) -> Vec<Finding> {
    let mut findings: Vec<_> = restart_loses_locks(facts, ours).into_iter().collect();
    findings.extend(rights::find(facts));
    findings.extend(RULES.iter().filter_map(|(about, value)| {
        let setting = about.setting;
        let value = value(&Look {
            facts,
            ours,
            setting,
        })?;
        Some(about.with(value))
    }));
    findings
}

/// Returns the first setting with which a restart may lose locks. A setting with an unknown value
/// counts as one that may lose locks.
///
/// With safe settings, the end of the log may still be torn after a crash. This loses no lock,
/// because the server confirms a write only after its fsync.
fn first_gap(facts: &Facts) -> Option<Setting> {
    let safe = [
        (Setting::AofEnabled, "1"),
        (Setting::Appendfsync, "always"),
        (Setting::NoAppendfsyncOnRewrite, "no"),
    ];
    let gap = safe
        .into_iter()
        .find(|(setting, safe)| !facts.is(setting.name(), safe));
    gap.map(|(setting, _)| setting)
}

/// Returns the finding that a restart may lose locks. The settings of the master decide whether a
/// restart may lose locks. The quarantine decides how severe that is.
fn restart_loses_locks(facts: &Facts, ours: &Ours<'_>) -> Option<Finding> {
    let setting = first_gap(facts)?;
    let value = facts.get(setting.name());
    let about = match ours.config.quarantine {
        Quarantine::Off if setting == Setting::AofEnabled => About {
            severity: Severity::Refuse,
            ..about::UNNOTICED
        },
        Quarantine::Off => about::UNNOTICED,
        Quarantine::Observed | Quarantine::Strict if value.is_none() => return None,
        Quarantine::Observed | Quarantine::Strict => about::NOTICED,
    };
    let about = About { setting, ..about };
    Some(about.with(value.unwrap_or("unknown")))
}

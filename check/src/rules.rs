//! The findings about one master that answers.

use std::time::Duration;

use quorlock::{Quarantine, tools::ServerError};

use crate::{
    CheckSettings,
    cure::{after, is_forbidden, of_state, said},
    facts::{Facts, Reading},
    programs::Expected,
    report::Finding,
    rights,
    table::*,
};

/// A row of the table, and the value if there is something to report.
type Found = (Row, Option<String>);

/// Returns the findings about one master.
pub(crate) fn find(facts: &Facts, shared: &CheckSettings, expected: &Expected) -> Vec<Finding> {
    let found = server(facts).into_iter().chain(refusals(facts));
    let found = found.filter_map(|(row, value)| Some((row, value?)));
    let found = found.chain(loss(facts, shared, expected));
    let found = found.map(|(row, value)| row.with(value));
    let clock = facts.clock.and_then(Reading::off);
    let clock = clock.map(|off| CLOCK_OFF.with(format!("{off:.1?} off this machine")));
    let writes = facts.write_error();
    let writes = writes.map(|code| REFUSES_WRITES.with(code).fixed_by(of_state(code)));
    // The user may be allowed to read the key only.
    let mut uses = ["GET", "SET", "HSET", "key"].into_iter();
    let is_denied = uses.any(|tried| facts.denial(tried) == Some(ServerError::KeyDenied));
    let keys = is_denied.then(|| other_keys_only(shared));
    rights::find(facts)
        .chain(keys)
        .chain(found)
        .chain(silent(facts))
        .chain(answers(facts))
        .chain(unread(facts, shared))
        .chain(unwritten(facts, shared))
        .chain(clock)
        .chain(writes)
        .collect()
}

/// Finds what the server is, and how it is set up.
fn server(facts: &Facts) -> [Found; 12] {
    let value = |field: &str| facts.get(field).map(str::to_owned);
    // A field that every `INFO` has.
    let unless = |field: &str, good: &str| {
        let is_bad = facts.has_info() && !facts.is(field, good);
        is_bad.then(|| value(field).unwrap_or_else(|| "unknown".to_owned()))
    };
    let above_zero = |field: &str| value(field).filter(|_| facts.number(field) > Some(0));
    let is_limited = facts.number("maxmemory") > Some(0);
    let policy = unless("maxmemory_policy", "noeviction");
    let mode = value("redis_mode").or_else(|| value("server_mode")); // Valkey has the second
    let version = facts
        .get("redis_version")
        .and_then(|version| version.split('.').next());
    let major = version.and_then(|major| major.parse::<u32>().ok());
    let shard = facts.elsewhere().map(said);
    let no_run_id = facts.has_info() && facts.get("run_id").is_none_or(str::is_empty);
    [
        (REPLICA, unless("role", "master")),
        (PROXY, when(no_run_id, "missing")),
        (
            SEVERAL_SERVERS,
            when(facts.is_one_of_several, "of several servers"),
        ),
        (OTHER_SERVER, other_server(facts)),
        (
            OUTDATED,
            value("redis_version").filter(|_| major.is_some_and(|major| major < 7)),
        ),
        (REPLICAS, above_zero("connected_slaves")),
        (SHARD, shard.clone()),
        (
            FAILS_OVER,
            mode.filter(|mode| shard.is_none() && mode != "standalone"),
        ),
        (EVICTS, policy.clone().filter(|_| is_limited)),
        (MAY_EVICT, policy.filter(|_| !is_limited)),
        (TIMEOUT, above_zero("timeout")),
        (
            where_allowed(INFO_DENIED, facts, &["INFO"]),
            when(!facts.has_info(), "denied"),
        ),
    ]
}

/// Finds what the master refuses in scripts.
fn refusals(facts: &Facts) -> [Found; 2] {
    [
        (
            where_allowed(NO_INSPECTION, facts, &["TYPE"]),
            when(rights::is_without(facts, "TYPE"), "without TYPE"),
        ),
        (UNCOMPARED, facts.uncompared.clone()),
    ]
}

/// Returns the finding about a user who may not publish or listen.
fn silent(facts: &Facts) -> Option<Finding> {
    const CHANNELS: &str = "&quorlock:* &redisson_lock__channel:*";
    let mut rights = denied(facts, &[("PUBLISH", "+publish")], CHANNELS);
    let may_publish = facts
        .denial("PUBLISH")
        .is_none_or(|denial| denial == ServerError::ChannelDenied);
    match facts.get("may_listen") {
        Some("no channel") if may_publish => rights.push(CHANNELS),
        Some("no" | "no channel") => rights.push("+subscribe +unsubscribe"),
        _ => {}
    }
    rights.dedup();
    let fix = match facts.denial("PUBLISH").is_some_and(is_forbidden) {
        true => NOT_IN_SCRIPTS.to_owned(),
        false => give(&rights),
    };
    (!rights.is_empty()).then(|| NO_MESSAGES.with("denied").fixed_by(fix))
}

/// Returns the rights that were denied, of commands that the check has tried: the right to the
/// command, or the pattern of its key or channel. No other right belongs into a fix: a server
/// refuses all rules at once if one of them is a pattern and the user has all keys or channels.
fn denied(
    facts: &Facts,
    tried: &[(&str, &'static str)],
    pattern: &'static str,
) -> Vec<&'static str> {
    let right = |(name, right): &(&str, _)| match facts.denial(name)? {
        ServerError::KeyDenied | ServerError::ChannelDenied => Some(pattern),
        _ => Some(*right),
    };
    let mut rights = Vec::new();
    for right in tried.iter().filter_map(right) {
        if !rights.contains(&right) {
            rights.push(right);
        }
    }
    rights
}

fn give(rights: &[&str]) -> String {
    format!("ACL SETUSER <user> {}", rights.join(" "))
}

/// Finds what the master does not answer. Each error has its own fix.
fn answers(facts: &Facts) -> impl Iterator<Item = Finding> {
    let counters = facts.counters.as_ref();
    let counters = counters.and_then(|counters| counters.as_ref().err());
    let found = [
        (CONFIG_DENIED, facts.withheld.as_ref(), NO_CONFIG),
        (EVALSHA, facts.evalsha.as_ref(), NO_EVAL),
        (COUNTERS_UNKNOWN, counters, NO_EVAL),
        (UNSEEN, facts.unseen.as_ref(), NO_CLIENT),
        (UNTRACKED, facts.untracked.as_ref(), NO_CLIENT),
    ];
    let found = found.into_iter();
    found.filter_map(|(row, value, unknown)| Some(after(row, value?, unknown)))
}

/// What the check tries for the origin key, and the rights to these commands.
const TO_ORIGIN: [(&str, &str); 5] = [
    ("INFO", "+info"),
    ("TIME", "+time"),
    ("origin", "+hmget"),
    ("origin_write", "+hset"),
    ("origin_key", ORIGIN_PATTERN),
];
pub(crate) const ORIGIN: &str = "quorlock:origin";
const ORIGIN_PATTERN: &str = "~quorlock:origin";

/// Returns the finding about an origin key that cannot be read.
fn unread(facts: &Facts, shared: &CheckSettings) -> Option<Finding> {
    if shared.quarantine == Quarantine::Off || facts.get("origin_age").is_some() {
        return None;
    }
    // Without an error, the server has no run id, which is a finding of its own.
    let mut tried = ["try.INFO", "try.TIME", "try.origin"].into_iter();
    let error = tried.find_map(|tried| facts.get(tried))?;
    let is_told = facts.elsewhere().is_some() || facts.write_error() == Some("CLUSTERDOWN");
    let row = match ServerError::of(error).is_denial() {
        true => ORIGIN_DENIED,
        false => ORIGIN_UNREAD,
    };
    if is_told {
        return None;
    }
    let finding = after(row, &said(error), NOT_IN_SCRIPTS);
    Some(match finding.fix.is_empty() {
        true => finding.fixed_by(give(&denied(facts, &TO_ORIGIN, ORIGIN_PATTERN))),
        false => finding,
    })
}

/// Returns the finding about an origin key that can be read, but not written.
fn unwritten(facts: &Facts, shared: &CheckSettings) -> Option<Finding> {
    let denial = facts.denial("origin_write")?;
    let is_told = !denied(facts, &TO_ORIGIN[..3], ORIGIN_PATTERN).is_empty();
    if is_told || shared.quarantine == Quarantine::Off {
        return None;
    }
    let value = match denial {
        ServerError::KeyDenied => "may not be written",
        _ => "without HSET",
    };
    let fix = match is_forbidden(denial) {
        true => NOT_IN_SCRIPTS.to_owned(),
        false => give(&denied(facts, &TO_ORIGIN, ORIGIN_PATTERN)),
    };
    Some(ORIGIN_UNWRITTEN.with(value).fixed_by(fix))
}

const PATTERNS: &str = "patterns for quorlock:check and the names of your locks";
/// For the usual template, whose pattern would be the right to all keys.
const TEMPLATE: &str =
    "if your programs have a key template, give the check the same one (Builder::key_template)";

/// Returns the finding about a user who may not use the key of the example lock.
fn other_keys_only(shared: &CheckSettings) -> Finding {
    let pattern = shared.key_template.replace("{name}", "*");
    // Not a separator, and no special character of patterns.
    let is_plain = |letter: char| letter.is_alphanumeric() || "{}:._-/*".contains(letter);
    let is_one = pattern.chars().all(is_plain) && pattern.matches('*').count() == 1;
    let fix = match is_one {
        true if pattern == "*" => format!("{TEMPLATE}; otherwise, give its user {PATTERNS}"),
        true => format!("ACL SETUSER <user> ~{pattern}; or {PATTERNS}"),
        false => format!("give its user {PATTERNS}"),
    };
    OTHER_KEYS_ONLY.with("not all keys").fixed_by(fix)
}

/// Returns the row about rights with another fix if the server itself forbids one of the commands
/// that were `tried` in a script.
fn where_allowed(row: Row, facts: &Facts, tried: &[&str]) -> Row {
    let mut denials = tried.iter().filter_map(|one| facts.denial(one));
    match denials.any(is_forbidden) {
        true => row.fixed_by(NOT_IN_SCRIPTS),
        false => row,
    }
}

fn when(is_found: bool, value: &str) -> Option<String> {
    is_found.then(|| value.to_owned())
}

/// Returns the sign of a server that is neither Redis nor Valkey.
fn other_server(facts: &Facts) -> Option<String> {
    let is_active = facts.is("active-replica", "yes");
    let fields = ["crdt_config_version", "dragonfly_version"].into_iter();
    let mut fields = fields.filter(|field| facts.get(field).is_some());
    let sign = fields
        .next()
        .or_else(|| is_active.then_some("active-replica"))?;
    Some(format!("with {sign}"))
}

/// Returns the row about a loss of locks, with its value.
fn loss(facts: &Facts, shared: &CheckSettings, expected: &Expected) -> Option<(Row, String)> {
    if shared.quarantine == Quarantine::Off {
        return lossy(facts);
    }
    // A younger program may not have asked for the key yet.
    const SETTLED: Duration = Duration::from_secs(2);
    let mut programs = facts.programs.iter();
    let is_used = programs.any(|program| {
        // Each database has an origin key of its own.
        let is_here = program.database == facts.database;
        is_here && expected.writes_origin_key(program) && program.age >= SETTLED
    });
    let (row, value) = match facts.get("origin_age") {
        None => return None, // see `unread`
        Some("none") if is_used => (LOST, "gone".to_owned()),
        Some("another") if is_used => (LOST, "another server's".to_owned()),
        Some("none") => (NEW, "missing".to_owned()),
        Some("another") => (RESTARTED, "of an earlier process".to_owned()),
        Some(_) => {
            let left = facts.no_vote_for(shared).filter(|left| !left.is_zero())?;
            (QUARANTINED, format!("in quarantine for {left:.1?}"))
        }
    };
    Some((row, value))
}

/// Returns the first setting with which a restart may lose locks. An unknown value counts as one
/// that may lose locks.
///
/// With safe settings, the end of the log may still be torn after a crash. This loses no lock,
/// because the server confirms a write only after its fsync.
fn lossy(facts: &Facts) -> Option<(Row, String)> {
    let safe = [
        (KEEPS_NOTHING, "1"),
        (KEEPS_TOO_LITTLE, "always"),
        (KEEPS_TOO_LITTLE.about("no-appendfsync-on-rewrite"), "no"),
    ];
    let mut rows = safe.into_iter();
    let (row, _) = rows.find(|(row, safe)| !facts.is(row.setting, safe))?;
    Some((row, facts.get(row.setting).unwrap_or("unknown").to_owned()))
}

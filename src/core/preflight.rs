//! Whether masters are fit to hold locks, by what they say of themselves.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use super::{bid::Bid, guard::RestartGuard};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Level {
    /// Good to know.
    Info,
    /// It could not be found out.
    Unknown,
    /// Locks may be lost or refused when something else goes wrong.
    Warn,
    /// Locks are not safe with this.
    Refuse,
}

/// One thing about the masters that one should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// Which master; `None` for what is about all of them together.
    pub master: Option<Arc<str>>,
    /// What it is about, such as a setting of the server's.
    pub setting: &'static str,
    /// What was found.
    pub value: String,
    /// Why it matters.
    pub why: &'static str,
    /// What to do, such as the command that mends it.
    pub mend: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Info => "info",
            Level::Unknown => "unknown",
            Level::Warn => "warn",
            Level::Refuse => "refuse",
        };
        let master = self.master.as_deref().unwrap_or("all masters");
        let (setting, value) = (self.setting, &self.value);
        write!(
            f,
            "{level}: {master}: {setting} is {value}: {}; {}",
            self.why, self.mend
        )
    }
}

/// What [`Coordinator::check`](crate::Coordinator::check) found. Shows itself a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Preflight {
    /// The worst first.
    pub findings: Vec<Finding>,
}

impl Preflight {
    /// The level of the worst finding, if there is any.
    pub fn worst(&self) -> Option<Level> {
        self.findings.first().map(|finding| finding.level)
    }
}

impl fmt::Display for Preflight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, finding) in self.findings.iter().enumerate() {
            let end = if number == 0 { "" } else { "\n" };
            write!(f, "{end}{finding}")?;
        }
        Ok(())
    }
}

/// What one master says of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    said: BTreeMap<String, String>,
    /// By how much its clock is ahead of ours, in microseconds, give or take half a round trip.
    ahead: i64,
}

impl Facts {
    /// See `lua/shared/check.lua`. `clock` is ours when it was asked, `now` when the answer was there, both in
    /// microseconds since 1970.
    pub(crate) fn parse(text: &str, clock: u64, now: u64) -> Self {
        let mut facts = Self::default();
        for (field, value) in text.lines().filter_map(|line| line.split_once(':')) {
            facts.said.insert(field.to_owned(), value.trim().to_owned());
        }
        let ours = clock.midpoint(now);
        let theirs = facts.number("time").unwrap_or(ours);
        facts.ahead = theirs.cast_signed().wrapping_sub(ours.cast_signed());
        facts
    }

    fn get(&self, field: &str) -> Option<&str> {
        self.said.get(field).map(String::as_str)
    }

    fn said(&self, field: &str) -> String {
        self.get(field).unwrap_or("unknown").to_owned()
    }

    fn is(&self, field: &str, value: &str) -> bool {
        self.get(field) == Some(value)
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.get(field)?.parse().ok()
    }
}

/// What to say of all masters: their addresses, and what each has said, if it has.
pub(crate) fn check(
    masters: &[Arc<str>],
    facts: &[Option<Facts>],
    guard: RestartGuard,
) -> Preflight {
    let mut findings = Vec::new();
    let mut note = |master: Option<&Arc<str>>, level, setting, value, why, mend| {
        findings.push(Finding {
            level,
            master: master.cloned(),
            setting,
            value,
            why,
            mend,
        });
    };
    for (master, facts) in masters.iter().zip(facts) {
        let mut add = |level, setting, value, why, mend| {
            note(Some(master), level, setting, value, why, mend);
        };
        if let Some(facts) = facts {
            each(facts, guard, &mut add);
            continue;
        }
        let why = "the master is down, or its user may not ask";
        let mend = "look at its votes, or ACL SETUSER <user> +info +time";
        add(
            Level::Unknown,
            "INFO",
            "not to be had".to_owned(),
            why,
            mend,
        );
    }
    together(masters, facts, &mut |level, setting, value, why, mend| {
        note(None, level, setting, value, why, mend);
    });
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    Preflight { findings }
}

type Add<'a> = dyn FnMut(Level, &'static str, String, &'static str, &'static str) + 'a;

/// What one master says that matters by itself.
fn each(facts: &Facts, guard: RestartGuard, add: &mut Add<'_>) {
    memory(facts, add);
    room(facts, add);
    role(facts, add);
    topology(facts, add);
    persistence(facts, guard, add);
    if facts.is("loading", "1") || facts.is("async_loading", "1") {
        let why = "it answers nothing until it has read its data";
        add(Level::Warn, "loading", "1".to_owned(), why, "wait");
    }
}

/// Whether it is a master.
fn role(facts: &Facts, add: &mut Add<'_>) {
    let (setting, mend) = ("role", "list independent masters only");
    if !facts.is(setting, "master") {
        let why = "a replica forgets what its master forgets, and has no vote of its own";
        add(Level::Refuse, setting, facts.said(setting), why, mend);
    }
}

/// Whether something may take its place.
fn topology(facts: &Facts, add: &mut Add<'_>) {
    let setting = "connected_slaves";
    if facts.number(setting).unwrap_or(0) > 0 {
        let why = "a replica that takes its place has not heard of the newest locks";
        let mend = "run masters for locks without replicas, or never promote one";
        add(Level::Warn, setting, facts.said(setting), why, mend);
    }
    let (setting, mend) = ("redis_mode", "run standalone masters for locks");
    if !facts.is(setting, "standalone") {
        let why = "fail-over forgets the newest locks";
        add(Level::Warn, setting, facts.said(setting), why, mend);
    }
}

/// What a restart leaves.
fn persistence(facts: &Facts, guard: RestartGuard, add: &mut Add<'_>) {
    if guard == RestartGuard::Off {
        let setting = "aof_enabled";
        let why = "nobody notices that it has restarted without its locks";
        let keeps_some = facts.is(setting, "1");
        let level = if keeps_some {
            Level::Warn
        } else {
            Level::Refuse
        };
        add(
            level,
            setting,
            facts.said(setting),
            why,
            "Builder::restart_guard",
        );
    }
    for setting in ["aof_last_write_status", "rdb_last_bgsave_status"] {
        if facts.get(setting).is_some_and(|status| status != "ok") {
            let why = "it cannot write its data, and may refuse to change any";
            let mend = "look at its log and its disk";
            add(Level::Warn, setting, facts.said(setting), why, mend);
        }
    }
    let why = "only with always, and no-appendfsync-on-rewrite no, does a restart keep every lock";
    let mend = "CONFIG GET appendfsync no-appendfsync-on-rewrite";
    add(
        Level::Unknown,
        "appendfsync",
        "not asked for".to_owned(),
        why,
        mend,
    );
}

/// What becomes of locks when memory is short.
fn memory(facts: &Facts, add: &mut Add<'_>) {
    let mend = "CONFIG SET maxmemory-policy noeviction";
    let setting = "maxmemory_policy";
    if !facts.is(setting, "noeviction") {
        let why = "locks are evicted without a word when memory is short, those with a TTL first";
        let level = match facts.number("maxmemory") {
            None | Some(0) => Level::Warn,
            Some(_) => Level::Refuse,
        };
        add(level, setting, facts.said(setting), why, mend);
    }
    let setting = "evicted_keys";
    if facts.number(setting).unwrap_or(0) > 0 {
        let why = "keys were evicted, and locks may have been among them";
        add(Level::Warn, setting, facts.said(setting), why, mend);
    }
}

/// Whether it takes more clients.
fn room(facts: &Facts, add: &mut Add<'_>) {
    let clients = facts
        .number("connected_clients")
        .zip(facts.number("maxclients"));
    if let Some((connected, most)) = clients.filter(|(connected, most)| connected * 10 >= most * 9)
    {
        let why = "it refuses more, and a coordinator that reconnects is one";
        let value = format!("{connected} of {most}");
        add(
            Level::Warn,
            "maxclients",
            value,
            why,
            "CONFIG SET maxclients",
        );
    }
}

/// What matters between masters.
fn together(masters: &[Arc<str>], facts: &[Option<Facts>], add: &mut Add<'_>) {
    for (setting, why) in [
        ("run_id", "one server listed twice votes twice"),
        (
            "master_replid",
            "masters that share their data forget it together",
        ),
    ] {
        let mut seen = BTreeMap::new();
        for (master, facts) in masters.iter().zip(facts) {
            let id = facts.as_ref().and_then(|facts| facts.get(setting));
            if let Some(other) = id.and_then(|id| seen.insert(id, master)) {
                let value = format!("the same on {other} and {master}");
                add(Level::Refuse, setting, value, why, "list every server once");
            }
        }
    }
    let count = masters.len().to_string();
    match masters.len() {
        1 | 2 => {
            let why = "the loss of one master is the loss of all locks";
            add(Level::Warn, "masters", count, why, "list 3 or 5");
        }
        even if even % 2 == 0 => {
            let why = "it survives no more failures than one master less";
            add(Level::Info, "masters", count, why, "list an odd number");
        }
        _ => {}
    }
    let ahead = || facts.iter().flatten().map(|facts| facts.ahead);
    if let (Some(first), Some(last)) = (ahead().min(), ahead().max()) {
        let apart = Duration::from_micros(last.abs_diff(first));
        if apart > Bid::WINDOW {
            let why = "places in fair locks and fencing tokens go by clocks within a second of each other";
            let value = format!("{apart:.1?} apart");
            add(
                Level::Warn,
                "TIME",
                value,
                why,
                "synchronise the masters' clocks",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIT: &str = "run_id:RUN\nredis_mode:standalone\nrole:master\nmaster_replid:RUN\nconnected_slaves:0\n\
                       maxmemory:0\nmaxmemory_policy:noeviction\nevicted_keys:0\nloading:0\naof_enabled:1\n\
                       aof_last_write_status:ok\nconnected_clients:1\nmaxclients:10000\ntime:5000000";

    fn found(texts: &[String], guard: RestartGuard) -> Vec<(Level, &'static str)> {
        let masters: Vec<Arc<str>> = (0..texts.len()).map(|n| format!("m{n}").into()).collect();
        let facts: Vec<_> = texts
            .iter()
            .map(|text| (!text.is_empty()).then(|| Facts::parse(text, 5_000_000, 5_000_000)))
            .collect();
        let found = check(&masters, &facts, guard);
        let rest = found
            .findings
            .iter()
            .filter(|finding| finding.setting != "appendfsync");
        rest.map(|finding| (finding.level, finding.setting))
            .collect()
    }

    fn fit(run_id: &str) -> String {
        FIT.replace("RUN", run_id)
    }

    #[test]
    fn nothing_is_found_on_masters_that_are_fit() {
        let texts = ["a", "b", "c"].map(fit);
        assert_eq!(found(&texts, RestartGuard::Observed), []);
    }

    #[test]
    fn each_finding() {
        use Level::{Info, Refuse, Unknown, Warn};
        for (from, to, expected) in [
            ("role:master", "role:slave", (Refuse, "role")),
            (
                "connected_slaves:0",
                "connected_slaves:1",
                (Warn, "connected_slaves"),
            ),
            (
                "redis_mode:standalone",
                "redis_mode:cluster",
                (Warn, "redis_mode"),
            ),
            ("loading:0", "loading:1", (Warn, "loading")),
            ("noeviction", "volatile-ttl", (Warn, "maxmemory_policy")),
            (
                "maxmemory:0\nmaxmemory_policy:noeviction",
                "maxmemory:9\nmaxmemory_policy:volatile-lru",
                (Refuse, "maxmemory_policy"),
            ),
            ("evicted_keys:0", "evicted_keys:3", (Warn, "evicted_keys")),
            (
                "aof_last_write_status:ok",
                "aof_last_write_status:err",
                (Warn, "aof_last_write_status"),
            ),
            (
                "connected_clients:1",
                "connected_clients:9500",
                (Warn, "maxclients"),
            ),
            ("time:5000000", "time:7000000", (Warn, "TIME")),
            ("run_id:c", "run_id:a", (Refuse, "run_id")),
            (
                "master_replid:c",
                "master_replid:a",
                (Refuse, "master_replid"),
            ),
        ] {
            let texts = [fit("a"), fit("b"), fit("c").replace(from, to)];
            assert_eq!(
                found(&texts, RestartGuard::Strict),
                [expected],
                "{from} {to}"
            );
        }
        let off = ["a", "b", "c"].map(fit);
        assert_eq!(found(&off, RestartGuard::Off), [(Warn, "aof_enabled"); 3]);
        let off = off.map(|text| text.replace("aof_enabled:1", "aof_enabled:0"));
        assert_eq!(found(&off, RestartGuard::Off), [(Refuse, "aof_enabled"); 3]);
        let silent = [fit("a"), fit("b"), String::new()];
        assert_eq!(found(&silent, RestartGuard::Strict), [(Unknown, "INFO")]);
        assert_eq!(
            found(&["a", "b"].map(fit), RestartGuard::Strict),
            [(Warn, "masters")]
        );
        assert_eq!(
            found(&["a", "b", "c", "d"].map(fit), RestartGuard::Strict),
            [(Info, "masters")]
        );
    }

    #[test]
    fn a_finding_says_what_to_do() {
        let masters = [Arc::from("m1")];
        let facts = [Some(Facts::parse(
            &fit("a").replace("noeviction", "allkeys-lru"),
            0,
            0,
        ))];
        let text = check(&masters, &facts, RestartGuard::Strict).to_string();
        assert!(
            text.contains("warn: m1: maxmemory_policy is allkeys-lru: locks are evicted"),
            "{text}"
        );
        assert!(
            text.contains("CONFIG SET maxmemory-policy noeviction"),
            "{text}"
        );
    }
}

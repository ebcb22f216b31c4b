//! What a server is, and whether it can serve.

use std::time::Duration;

use super::{
    Notes, Ours,
    Severity::{Info, Refuse, Unknown, Warn},
    facts::Facts,
    silent::in_short,
};

pub(super) fn check(facts: &Facts, ours: &Ours, notes: &mut Notes<'_>) {
    if facts.has_info() {
        role(facts, notes);
        likeness(facts, notes);
        version(facts, notes);
        topology(facts, notes);
        memory(facts, notes);
        clients(facts, notes);
        loading(facts, notes);
    } else {
        let why = "what it is cannot be found out, nor what becomes of locks when memory is short";
        let fix = "ACL SETUSER <user> +info";
        notes.add(Unknown, "INFO", "not to be had", why, fix);
    }
    withheld(facts, notes);
    replicas(facts, notes);
    connections(facts, notes);
    clock(facts, notes);
    scripts(facts, ours, notes);
}

/// For how long others may keep it from answering.
fn scripts(facts: &Facts, ours: &Ours, notes: &mut Notes<'_>) {
    const DEFAULT: Duration = Duration::from_secs(5);
    let threshold = facts.number("lua-time-limit").map(Duration::from_millis);
    // The default is on every server.
    let least = DEFAULT.max(ours.node_timeout);
    if let Some(long) = threshold.filter(|long| long.is_zero() || *long > least) {
        let why = "while a script of others runs for so long, it answers nothing, not even BUSY";
        let fix = "keep slow scripts off masters that hold locks";
        let value = format!("{long:?}");
        notes.add(Info, "busy-reply-threshold", value, why, fix);
    }
}

/// Whether it is a master, and one of its own.
fn role(facts: &Facts, notes: &mut Notes<'_>) {
    let (setting, fix) = ("role", "list independent masters only");
    if !facts.is(setting, "master") {
        let why = "a replica forgets what its master forgets, and has no vote of its own";
        notes.add(Refuse, setting, facts.said(setting), why, fix);
    }
    if facts.get("run_id").is_none_or(str::is_empty) {
        let why = "a proxy answers for servers that come and go, and nobody notices a restart";
        notes.add(
            Refuse,
            "run_id",
            "missing",
            why,
            "list the servers themselves",
        );
    }
}

/// Whether it only looks like Redis.
fn likeness(facts: &Facts, notes: &mut Notes<'_>) {
    let fix = "use Redis or Valkey";
    for (setting, is_set) in [
        ("active-replica", facts.is("active-replica", "yes")),
        (
            "crdt_config_version",
            facts.get("crdt_config_version").is_some(),
        ),
    ] {
        if is_set {
            let why = "masters that write to each other take a lock from its holder";
            notes.add(Refuse, setting, facts.said(setting), why, fix);
        }
    }
    let setting = "dragonfly_version";
    if facts.get(setting).is_some() {
        let why = "nobody has tried these locks there";
        notes.add(Refuse, setting, facts.said(setting), why, fix);
    }
}

fn version(facts: &Facts, notes: &mut Notes<'_>) {
    let (setting, fix) = ("redis_version", "use Redis 7 or later, or Valkey");
    let major = facts
        .get(setting)
        .and_then(|version| version.split('.').next()?.parse().ok());
    let (level, why) = match major {
        None => (Unknown, "old servers do not run the scripts as they must"),
        Some(..7u32) => (Warn, "nobody mends it any more"),
        Some(7..) => return,
    };
    notes.add(level, setting, facts.said(setting), why, fix);
}

/// Whether something may take its place.
fn topology(facts: &Facts, notes: &mut Notes<'_>) {
    let setting = "connected_slaves";
    if facts.is_above_zero(setting) {
        let why = "a replica that takes its place has not heard of the newest locks";
        let fix = "run masters for locks without replicas, or never promote one";
        notes.add(Warn, setting, facts.said(setting), why, fix);
    }
    // Valkey has another name for it.
    let mut modes = ["redis_mode", "server_mode"].into_iter();
    let mode = modes.find_map(|field| facts.get(field));
    if mode.is_some_and(|mode| mode != "standalone") {
        let (why, fix) = (
            "fail-over forgets the newest locks",
            "run standalone masters for locks",
        );
        notes.add(Warn, "redis_mode", mode.unwrap_or_default(), why, fix);
    }
}

/// Whether it asks for replicas before it writes.
fn replicas(facts: &Facts, notes: &mut Notes<'_>) {
    let setting = "min-replicas-to-write";
    if facts.is_above_zero(setting) {
        let why = "without so many replicas it refuses to lock, and also to release";
        let fix = "CONFIG SET min-replicas-to-write 0";
        notes.add(Warn, setting, facts.said(setting), why, fix);
    }
}

fn loading(facts: &Facts, notes: &mut Notes<'_>) {
    if facts.is("loading", "1") || facts.is("async_loading", "1") {
        let why = "it answers nothing until it has read its data";
        notes.add(Warn, "loading", "1", why, "wait");
    }
}

/// What becomes of locks when memory is short.
fn memory(facts: &Facts, notes: &mut Notes<'_>) {
    let fix = "CONFIG SET maxmemory-policy noeviction";
    let setting = "maxmemory_policy";
    if !facts.is(setting, "noeviction") {
        let why = "locks are evicted without a word when memory is short, those with a TTL first";
        let level = match facts.number("maxmemory") {
            None | Some(0) => Warn,
            Some(_) => Refuse,
        };
        notes.add(level, setting, facts.said(setting), why, fix);
    }
    let setting = "evicted_keys";
    if facts.is_above_zero(setting) {
        let why = "keys were evicted, and locks may have been among them";
        notes.add(Warn, setting, facts.said(setting), why, fix);
    }
}

pub(super) const MORE_CLIENTS: &str =
    "CONFIG SET maxclients to more, such as 10000, or find out who holds so many connections";

/// Whether it takes more clients.
fn clients(facts: &Facts, notes: &mut Notes<'_>) {
    let clients = facts.number("connected_clients");
    let clients = clients.zip(facts.number("maxclients"));
    if let Some((connected, most)) = clients
        && connected.saturating_mul(10) >= most.saturating_mul(9)
    {
        let why = "it refuses more, and a coordinator that reconnects is one";
        let value = format!("{connected} of {most}");
        notes.add(Warn, "maxclients", value, why, MORE_CLIENTS);
    }
}

fn withheld(facts: &Facts, notes: &mut Notes<'_>) {
    if let Some(failure) = &facts.withheld {
        let why = "whether it closes idle connections, needs replicas or keeps what it writes cannot be found out";
        let fix = "ACL SETUSER <user> +config|get; or look at them by hand";
        let value = in_short(failure);
        notes.add(Unknown, "CONFIG GET", value, why, fix);
    }
}

/// What becomes of connections.
fn connections(facts: &Facts, notes: &mut Notes<'_>) {
    let setting = "timeout";
    if facts.is_above_zero(setting) {
        let why = "it closes the connections of those who only wait, and each is dialled again";
        notes.add(
            Warn,
            setting,
            facts.said(setting),
            why,
            "CONFIG SET timeout 0",
        );
    }
    let setting = "tcp-keepalive";
    if facts.is(setting, "0") {
        let why = "connections of clients that are gone stay open, and fill it up";
        let fix = "CONFIG SET tcp-keepalive 300";
        notes.add(Warn, setting, "0", why, fix);
    }
}

fn clock(facts: &Facts, notes: &mut Notes<'_>) {
    if facts.stands_still {
        let why = "TTLs do not end, or not when they should";
        let fix = "look at its machine's clock, and restart it";
        notes.add(Refuse, "TIME", "standing still, or set back", why, fix);
    }
    let setting = "monotonic_clock";
    if facts
        .get(setting)
        .is_some_and(|clock| clock.contains("inf"))
    {
        let why = "it cannot measure time, and its timers do not work";
        let fix = "restart it, or build it without USE_PROCESSOR_CLOCK";
        notes.add(Refuse, setting, facts.said(setting), why, fix);
    }
}

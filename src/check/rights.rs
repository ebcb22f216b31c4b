//! What its user may do on a master, by what came of trying.

use super::{
    Notes,
    Severity::{Info, Refuse, Unknown, Warn},
    facts::Facts,
};

/// A kind of lock, and what it needs.
struct Kind {
    setting: &'static str,
    /// What an acquisition starts with: who may do this and not the rest leaves locks that cannot be given up.
    takes: &'static [&'static str],
    needs: &'static [&'static str],
    fix: &'static str,
}

impl Kind {
    fn missing(&self, facts: &Facts) -> Vec<&'static str> {
        let needs = self.takes.iter().chain(self.needs).copied();
        needs.filter(|what| is_without(facts, what)).collect()
    }

    /// Whether it is one of its own, and can be taken.
    fn can_be_taken(&self, facts: &Facts) -> bool {
        !self.takes.is_empty() && !self.takes.iter().any(|what| is_without(facts, what))
    }
}

const KINDS: [Kind; 4] = [
    Kind {
        setting: "rights for mutexes",
        takes: &["SET"],
        needs: &["GET", "DEL", "PTTL", "PEXPIRE"],
        fix: "ACL SETUSER <user> +set +get +del +pttl +pexpire",
    },
    Kind {
        setting: "rights for reentrant locks",
        takes: &["EXISTS", "HSET"],
        needs: &["HMGET", "HLEN", "HGETALL", "HDEL", "DEL", "PTTL", "PEXPIRE"],
        fix: "ACL SETUSER <user> +exists +hset +hmget +hlen +hgetall +hdel +del +pttl +pexpire",
    },
    Kind {
        setting: "rights for fair locks",
        takes: &[],
        needs: &[
            "EXISTS",
            "HSET",
            "TIME",
            "ZADD",
            "ZREM",
            "ZRANGE",
            "ZRANK",
            "ZSCORE",
            "queue",
            "deadlines",
        ],
        fix: "ACL SETUSER <user> +time +zadd +zrem +zrange +zrank +zscore \
               ~quorlock:queue:* ~quorlock:deadlines:*, and what reentrant locks need",
    },
    Kind {
        setting: "rights for fencing tokens",
        takes: &[],
        needs: &["GET", "SET", "TIME", "fence"],
        fix: "ACL SETUSER <user> +get +set +time ~quorlock:fence:*",
    },
];

/// What stood in the way of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denial<'a> {
    Channel,
    Command,
    Key,
    /// Nothing may be written now; the word that says why.
    Now(&'a str),
    /// It is renamed or switched off.
    Renamed,
}

/// Versions differ in their words. Everything else is about the arguments, which are wrong on purpose.
fn denial(error: &str) -> Option<Denial<'_>> {
    let has = |part: &str| error.contains(part);
    let now = [
        "CLUSTERDOWN",
        "MASTERDOWN",
        "MISCONF",
        "NOREPLICAS",
        "OOM",
        "READONLY",
    ];
    if let Some(word) = now.into_iter().find(|word| has(word)) {
        Some(Denial::Now(word))
    } else if has("nknown Redis command") || has("nknown command") {
        Some(Denial::Renamed)
    } else if has("one of the keys") || has("access a key") {
        Some(Denial::Key)
    } else if has("a channel") || has("the channel") {
        Some(Denial::Channel)
    } else if has("run this command") || has("permissions to run") {
        Some(Denial::Command)
    } else {
        None
    }
}

fn tried<'a>(facts: &'a Facts, what: &str) -> Option<Denial<'a>> {
    facts.get(&format!("try.{what}")).and_then(denial)
}

/// Whether its user must do without a command, or without keys that are called in small letters.
fn is_without(facts: &Facts, what: &str) -> bool {
    match tried(facts, what) {
        Some(Denial::Command | Denial::Renamed) => true,
        Some(Denial::Key) => what.starts_with(char::is_lowercase),
        Some(Denial::Channel | Denial::Now(_)) | None => false,
    }
}

/// Whether it grants locks of any kind, now.
pub(super) fn may_lock(facts: &Facts) -> bool {
    not_now(facts).is_none() && KINDS.iter().any(|kind| kind.can_be_taken(facts))
}

/// Why nothing may be written now.
fn not_now(facts: &Facts) -> Option<&str> {
    ["SET", "HSET"]
        .into_iter()
        .find_map(|what| match tried(facts, what) {
            Some(Denial::Now(word)) => Some(word),
            _ => None,
        })
}

pub(super) fn check(facts: &Facts, notes: &mut Notes<'_>) {
    writes(facts, notes);
    kinds(facts, notes);
    looks(facts, notes);
    keys(facts, notes);
    scripts(facts, notes);
    messages(facts, notes);
}

fn kinds(facts: &Facts, notes: &mut Notes<'_>) {
    let has_any = KINDS.iter().any(|kind| kind.can_be_taken(facts));
    for kind in KINDS {
        let missing = kind.missing(facts);
        if missing.is_empty() {
            continue;
        }
        let (level, why) = if kind.can_be_taken(facts) {
            (Refuse, "they can be taken, and not be given up or kept")
        } else if has_any {
            (Info, "its user cannot have such locks there")
        } else {
            (Refuse, "its user cannot have any lock there")
        };
        let value = format!("without {}", missing.join(", "));
        notes.add(level, kind.setting, value, why, kind.fix);
    }
}

/// The one right that only looking takes; the others are those of the kinds.
fn looks(facts: &Facts, notes: &mut Notes<'_>) {
    if is_without(facts, "TYPE") {
        let why = "its user cannot look at locks: inspect and is_held fail";
        let fix = "ACL SETUSER <user> +type";
        notes.add(Info, "rights to inspect", "without TYPE", why, fix);
    }
}

fn writes(facts: &Facts, notes: &mut Notes<'_>) {
    let Some(word) = not_now(facts) else {
        return;
    };
    let fix = match word {
        // Said already.
        "NOREPLICAS" if facts.is_above_zero("min-replicas-to-write") => return,
        "READONLY" | "MASTERDOWN" if facts.get("role").is_some_and(|role| role != "master") => {
            return;
        }
        "OOM" => "CONFIG SET maxmemory to more, or free memory",
        "MISCONF" => "look at its log and its disk",
        "NOREPLICAS" => "CONFIG SET min-replicas-to-write 0",
        "CLUSTERDOWN" => "CLUSTER INFO says what is missing; run standalone masters for locks",
        _ => "list independent masters only",
    };
    let why = "it refuses to lock, and also to release";
    notes.add(Warn, "writes", word, why, fix);
}

fn keys(facts: &Facts, notes: &mut Notes<'_>) {
    if tried(facts, "GET") == Some(Denial::Key) {
        let why = "it may not have the key of a lock called quorlock:check, and perhaps not yours";
        let fix = "ACL SETUSER <user> ~quorlock:check to be rid of this, or a key template of your prefix; \
                    your own keys are not looked at";
        notes.add(Unknown, "rights to keys", "not all keys", why, fix);
    }
}

fn scripts(facts: &Facts, notes: &mut Notes<'_>) {
    if facts.is("may_eval", "no") {
        let why = "a server that restarted or lost its scripts cannot be told them again";
        notes.add(Warn, "EVAL", "denied", why, "ACL SETUSER <user> +eval");
    }
}

fn messages(facts: &Facts, notes: &mut Notes<'_>) {
    let may_tell = !matches!(
        tried(facts, "PUBLISH"),
        Some(Denial::Channel | Denial::Command | Denial::Renamed)
    );
    if !may_tell || facts.is("may_listen", "no") {
        let why = "its user tells or hears nobody of a release: those who wait poll";
        let fix = "ACL SETUSER <user> +publish +subscribe +unsubscribe \
                    &quorlock:* &redisson_lock__channel:*";
        let setting = "PUBLISH, SUBSCRIBE";
        notes.add(Info, setting, "denied", why, fix);
    }
}

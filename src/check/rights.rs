//! The rights that each kind of lock needs, and the findings about missing rights. A right is
//! missing if the check tried its command or key and was refused.

use super::{
    about::About,
    facts::Facts,
    report::{Finding, Severity},
    setting::Setting,
};
use crate::master::server_error::ServerError;

/// The rights that each kind of lock needs. A row has four parts:
///
/// 1. The setting.
/// 2. The commands that acquire the lock. This part is empty for fair locks and fencing tokens,
///    because they also need the rights of another row.
/// 3. The other commands, in capitals, and the keys, in small letters.
/// 4. The fix.
///
/// If only rights of the third part are missing, the user can acquire the lock, but cannot release
/// or keep it.
const KINDS: [(Setting, &str, &str, &str); 4] = [
    (
        Setting::RightsMutex,
        "SET",
        "GET DEL PTTL PEXPIRE",
        "ACL SETUSER <user> +set +get +del +pttl +pexpire",
    ),
    (
        Setting::RightsReentrant,
        "EXISTS HSET",
        "HMGET HLEN HGETALL HDEL DEL PTTL PEXPIRE",
        "ACL SETUSER <user> +exists +hset +hmget +hlen +hgetall +hdel +del +pttl +pexpire",
    ),
    (
        Setting::RightsFair,
        "",
        "EXISTS HSET TIME ZADD ZREM ZRANGE ZRANK ZSCORE queue deadlines",
        "ACL SETUSER <user> +time +zadd +zrem +zrange +zrank +zscore \
         ~quorlock:queue:* ~quorlock:deadlines:*, and what reentrant locks need",
    ),
    (
        Setting::RightsFencing,
        "",
        "GET SET TIME fence",
        "ACL SETUSER <user> +get +set +time ~quorlock:fence:*",
    ),
];

/// Returns whether the user lacks the right to a command or to a key.
pub(super) fn is_without(facts: &Facts, right: &str) -> bool {
    match facts.error(right) {
        Some(ServerError::CommandDenied | ServerError::UnknownCommand) => true,
        // The user may have the right to the command, but not to the key of the example lock. The
        // user may still have the right to the keys of other locks.
        Some(ServerError::KeyDenied) => right.starts_with(char::is_lowercase),
        _ => false,
    }
}

fn can_be_taken(facts: &Facts, commands: &str) -> bool {
    let mut commands = commands.split_whitespace();
    commands.clone().count() > 0 && !commands.any(|command| is_without(facts, command))
}

fn has_any_kind(facts: &Facts) -> bool {
    KINDS
        .iter()
        .any(|(_, takes, ..)| can_be_taken(facts, takes))
}

/// Returns whether the master can grant at least one kind of lock now.
pub(super) fn may_lock(facts: &Facts) -> bool {
    facts.write_error().is_none() && has_any_kind(facts)
}

pub(super) fn find(facts: &Facts) -> impl Iterator<Item = Finding> {
    KINDS
        .into_iter()
        .filter_map(|(setting, takes, needs, fix)| {
            let rights = takes.split_whitespace().chain(needs.split_whitespace());
            let missing: Vec<_> = rights.filter(|right| is_without(facts, right)).collect();
            let (severity, why) = if can_be_taken(facts, takes) {
                (
                    Severity::Refuse,
                    "such locks can be acquired, and not be released or kept",
                )
            } else if has_any_kind(facts) {
                (Severity::Info, "its user cannot have such locks there")
            } else {
                (Severity::Refuse, "its user cannot have any lock there")
            };
            let about = About {
                severity,
                setting,
                why,
                fix,
            };
            let value = format!("without {}", missing.join(", "));
            (!missing.is_empty()).then(|| about.with(value))
        })
}

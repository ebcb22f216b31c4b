//! The rights that each kind of lock needs, and the findings about missing rights. A right is
//! missing if the check tried its command or key and was refused.

use super::{
    about::About,
    facts::Facts,
    report::{Finding, Severity},
    setting::Setting,
};
use crate::{
    core::{kind::spec::Rights, protocol::kind::Kind},
    master::server_error::ServerError,
};

/// The rights that fencing tokens need, in addition to those of the lock.
const FENCING: Rights = Rights {
    name: "rights for fencing tokens",
    takes: "",
    needs: "GET SET TIME fence",
    fix: "ACL SETUSER <user> +get +set +time ~quorlock:fence:*",
};

/// The fix if the server itself does not run a command in scripts.
const NOT_IN_SCRIPTS: &str = "no right helps, because the server itself forbids that in scripts: allow it there if you can, \
     or list another server; without TIME, use mutexes and reentrant locks without fencing tokens";

/// Returns the rights that each kind of lock needs, with the setting that their findings are about.
fn rights() -> impl Iterator<Item = (Setting, Rights)> {
    let kinds = Kind::ALL.into_iter();
    let kinds = kinds.map(|kind| (Setting::Rights(kind), kind.spec().rights));
    kinds.chain([(Setting::RightsFencing, FENCING)])
}

/// Returns whether the user lacks the right to a command or to a key.
pub(super) fn is_without(facts: &Facts, right: &str) -> bool {
    match facts.error(right) {
        Some(ServerError::CommandDenied | ServerError::UnknownCommand) => true,
        // The user may have the right to the command, but not to the key of the example lock. The
        // user may still have the right to the keys of other locks.
        Some(ServerError::KeyDenied) => right.starts_with(char::is_lowercase),
        Some(
            ServerError::ChannelDenied
            | ServerError::Loading
            | ServerError::MaxClients
            | ServerError::NoProtocol
            | ServerError::NoScript
            | ServerError::Other
            | ServerError::State
            | ServerError::WritesRefused(_),
        )
        | None => false,
    }
}

fn can_be_taken(facts: &Facts, takes: &str) -> bool {
    let mut rights = takes.split_whitespace();
    rights.clone().count() > 0 && !rights.any(|right| is_without(facts, right))
}

fn has_any_kind(facts: &Facts) -> bool {
    rights().any(|(_, rights)| can_be_taken(facts, rights.takes))
}

/// Returns whether the master can grant at least one kind of lock now.
pub(super) fn may_lock(facts: &Facts) -> bool {
    facts.write_error().is_none() && has_any_kind(facts)
}

pub(super) fn find(facts: &Facts) -> impl Iterator<Item = Finding> {
    rights().filter_map(|(setting, rights)| {
        let Rights {
            takes, needs, fix, ..
        } = rights;
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
        let is_forbidden = |right: &&str| facts.error(right) == Some(ServerError::UnknownCommand);
        let about = About {
            severity,
            setting,
            why,
            fix: if missing.iter().any(is_forbidden) {
                NOT_IN_SCRIPTS
            } else {
                fix
            },
        };
        let value = format!("without {}", missing.join(", "));
        (!missing.is_empty()).then(|| about.with(value))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::core::kind::table;

    #[test]
    fn the_settings_of_rights_have_their_names() {
        for (setting, rights) in rights() {
            assert_eq!(setting.name(), rights.name);
        }
        let names = Kind::ALL.map(|kind| Setting::Rights(kind).name());
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn the_rights_of_a_kind_include_its_companion_keys() {
        for spec in Kind::ALL.map(Kind::spec) {
            for companion in spec.companions {
                let Rights { takes, needs, .. } = spec.rights;
                let mut rights = takes.split(' ').chain(needs.split(' '));
                assert!(rights.any(|right| right == companion.name), "{companion:?}");
            }
        }
    }

    /// The check would not notice that such a right is missing.
    #[test]
    fn the_script_of_the_check_tries_all_rights() {
        let script = include_str!("../../lua/shared/check.lua");
        for (setting, Rights { takes, needs, .. }) in rights() {
            for right in takes.split_whitespace().chain(needs.split_whitespace()) {
                let is_key = table::companion_keys().any(|key| key.name == right);
                let is_tried = is_key || script.contains(&format!("'{right}'"));
                assert!(is_tried, "{setting}: {right}");
            }
        }
    }
}

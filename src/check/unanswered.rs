//! The finding about a master that does not answer.

use super::{about, report::Finding};
use crate::{
    core::vote::Failure,
    master::{
        dial_error::{DialError, Stage},
        probe::ProbeError,
        server_error::{ServerError, without_user},
    },
};

pub(super) fn find(error: &ProbeError) -> Finding {
    match error {
        ProbeError::Dial(error) => dial(error),
        ProbeError::Failed(failure @ Failure::Rejected(error)) => {
            // The server answers, but it does not run the script that contains the questions.
            let kind = ServerError::of(error);
            let is_lasting = kind.is_denial() || kind == ServerError::Other;
            let about = if is_lasting {
                about::EVALSHA
            } else {
                about::NOT_NOW
            };
            about.with(why(failure))
        }
        ProbeError::Failed(failure) => about::DOWN.with(why(failure)),
    }
}

/// Returns why a question has no answer, without the name of a user.
pub(super) fn why(failure: &Failure) -> String {
    match failure {
        Failure::Rejected(error) => format!("answered {}", without_user(error)),
        failure => failure.to_string(),
    }
}

pub(super) fn restart_unknown(why: &str) -> Finding {
    about::RESTART_UNKNOWN.with(without_user(why))
}

fn dial(error: &DialError) -> Finding {
    let (about, text) = match error {
        DialError::Loading(text) => (about::LOADING, text),
        DialError::Login(text) | DialError::Database(text) => (about::LOGIN, text),
        DialError::MaxClients(text) => (about::FULL, text),
        DialError::NotAMaster { role } => (about::ROLE, role),
        DialError::NotRedis6(text) => (about::NO_HELLO, text),
        DialError::RestartUnknown { why } => return restart_unknown(why),
        DialError::RightsMissing { why } => (about::STRICT, why),
        // The finding names the master, and says which stage it is. The same text for all masters
        // makes one finding.
        DialError::Failed(Stage::Lookup(_), why) => {
            return about::UNKNOWN_HOST.with(why.to_string());
        }
        DialError::Failed(_, why) => return about::DOWN.with(why.to_string()),
        DialError::Timeout(limit, Some(stage)) => {
            let about = match stage {
                Stage::Connect(_) => about::UNREACHED,
                Stage::Login(_) => about::MUTE,
                Stage::Lookup(_) => about::SLOW_LOOKUP,
                #[cfg(feature = "tls")]
                Stage::Tls(_) => return about::TLS.with(error.to_string()), // with advice
            };
            return about.with(DialError::Timeout(*limit, None).to_string());
        }
        #[cfg(feature = "sentinel")]
        DialError::At { address, error } => {
            let finding = dial(error);
            let value = format!("{} at {address}", finding.value);
            return Finding { value, ..finding };
        }
        #[cfg(feature = "sentinel")]
        DialError::Sentinel(text) => return about::SENTINELS.with(text),
        #[cfg(feature = "tls")]
        DialError::Certificate(text) | DialError::Tls(text) => return about::TLS.with(text),
        DialError::SameServer { other } => {
            return about::TWIN.with(format!("that of master {other}"));
        }
        _ if error.is_no_redis() => return about::NO_REDIS.with(error.to_string()),
        _ => return about::DOWN.with(error.to_string()),
    };
    about.with(without_user(text))
}

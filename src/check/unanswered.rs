//! The finding about a master that does not answer.

use super::{about, report::Finding};
use crate::{
    core::vote::Failure,
    master::{
        connect_error::{ConnectError, ConnectStep},
        dial_error::DialError,
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
    match error {
        DialError::Changed => about::DOWN.with(error.to_string()),
        DialError::Connect(error) => connect(error),
        DialError::RestartUnknown { why } => restart_unknown(why),
        DialError::RightsMissing { why } => about::STRICT.with(without_user(why)),
        DialError::SameServer { other } => about::TWIN.with(format!("that of master {other}")),
    }
}

fn connect(error: &ConnectError) -> Finding {
    let (about, text) = match error {
        ConnectError::Loading(text) => (about::LOADING, text),
        ConnectError::Login(text) | ConnectError::Database(text) => (about::LOGIN, text),
        ConnectError::MaxClients(text) => (about::FULL, text),
        ConnectError::NotAMaster { role } => (about::ROLE, role),
        ConnectError::NotRedis6(text) => (about::NO_HELLO, text),
        // The finding names the master, and says which stage it is. The same text for all masters
        // makes one finding.
        ConnectError::Failed(ConnectStep::Lookup(_), why) => {
            return about::UNKNOWN_HOST.with(why.to_string());
        }
        ConnectError::Failed(_, why) => return about::DOWN.with(why.to_string()),
        ConnectError::Timeout(limit, Some(stage)) => {
            let about = match stage {
                ConnectStep::Connect(_) => about::UNREACHED,
                ConnectStep::Login(_) => about::MUTE,
                ConnectStep::Lookup(_) => about::SLOW_LOOKUP,
                ConnectStep::Tls(_) => return about::TLS.with(error.to_string()), // with advice
            };
            return about.with(ConnectError::Timeout(*limit, None).to_string());
        }
        ConnectError::At { address, error } => {
            let finding = connect(error);
            let value = format!("{} at {address}", finding.value);
            return Finding { value, ..finding };
        }
        ConnectError::Sentinel(text) => return about::SENTINELS.with(text),
        ConnectError::Certificate(text) | ConnectError::Tls(text) => return about::TLS.with(text),
        _ if error.is_no_redis() => return about::NO_REDIS.with(error.to_string()),
        _ => return about::DOWN.with(error.to_string()),
    };
    about.with(without_user(text))
}

//! What helps after an error of a server.

use quorlock::tools::{ServerError, without_user};

use crate::{
    report::Finding,
    table::{LOOK_AT_LOG, Row, STATES},
};

/// Returns the finding with this value. If the value is an error of a server, the fix of the row
/// gives the right that may be missing, and `unknown` helps if the server has no such command.
pub(crate) fn after(row: Row, value: &str, unknown: &'static str) -> Finding {
    let Some(error) = value.strip_prefix(ANSWERED) else {
        return row.with(value);
    };
    let row = match ServerError::of(error) {
        kind if is_forbidden(kind) => row.fixed_by(unknown),
        kind if kind.is_denial() => row,
        _ => row.fixed_by(of_state(error)),
    };
    row.with(value)
}

const ANSWERED: &str = "answered ";

/// Returns the fix for an error that is about the state of the server, and not about rights.
pub(crate) fn of_state(error: &str) -> &'static str {
    let code = error.split(' ').next().unwrap_or_default();
    let code = match ServerError::of(error) {
        ServerError::WritesRefused(code) => code,
        ServerError::MaxClients => "maxclients",
        _ => code,
    };
    let mut states = STATES.into_iter();
    let found = states.find(|(known, _)| *known == code);
    found.map_or(LOOK_AT_LOG, |(_, fix)| fix)
}

/// Returns whether the server itself does not run the command, whatever the rights of the user are.
pub(crate) fn is_forbidden(kind: ServerError) -> bool {
    matches!(
        kind,
        ServerError::ScriptsUnknown | ServerError::UnknownCommand
    )
}

/// Returns an error of a server as the value of a finding, without the place in a script.
pub(crate) fn said(error: &str) -> String {
    let place = error.rsplit_once(" script: ");
    let place = place.filter(|(_, place)| place.contains("@user_script"));
    let error = place.map_or(error, |(error, _)| error);
    format!("{ANSWERED}{}", without_user(error))
}

//! Asks a server, on every dial, whether it may have forgotten locks; and whether it is one that we have already.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::core::guard::RestartGuard;

/// What a dialer goes by.
#[derive(Clone, Debug)]
pub(crate) struct Guarding {
    pub(crate) guard: RestartGuard,
    /// The run id of each master that has one, by its number: no server may vote twice.
    servers: Arc<Mutex<Vec<(usize, String)>>>,
}

impl Guarding {
    pub(crate) fn new(guard: RestartGuard) -> Self {
        Self {
            guard,
            servers: Arc::default(),
        }
    }

    /// Notes that `master` is the server with this run id, unless another one is.
    pub(super) fn meet(&self, master: usize, run_id: &str) -> Result<(), String> {
        let mut servers = self.servers.lock();
        servers.retain(|(number, _)| *number != master);
        if let Some((other, _)) = servers.iter().find(|(_, known)| known == run_id) {
            return Err(format!(
                "it is the same server as master {}: every master needs one of its own",
                other + 1
            ));
        }
        servers.push((master, run_id.to_owned()));
        Ok(())
    }

    /// The run id that `master` is known by.
    pub(super) fn known(&self, master: usize) -> Option<String> {
        let servers = self.servers.lock();
        let known = servers.iter().find(|(number, _)| *number == master)?;
        Some(known.1.clone())
    }
}

#[cfg(feature = "redis")]
mod ask {
    use super::{Guarding, RestartGuard};
    use crate::{
        core::{command::Reply, guard::Incarnation},
        master::wire,
    };

    const KEY: &[u8] = b"quorlock:guard";
    const TEXT: &str = include_str!("../../lua/shared/guard.lua");

    impl Guarding {
        /// Appends the question.
        pub(in crate::master) fn ask(&self, master: usize, out: &mut Vec<u8>) {
            let known = self.known(master).unwrap_or_default();
            let mode: &[u8] = match self.guard {
                RestartGuard::Strict => b"strict",
                RestartGuard::Off | RestartGuard::Observed => b"observed",
            };
            wire::encode(
                out,
                &[b"EVAL", TEXT.as_bytes(), b"1", KEY, known.as_bytes(), mode],
            );
        }

        /// What the answer says. `None` when it cannot be known, and need not.
        pub(in crate::master) fn answered(
            &self,
            master: usize,
            reply: &Reply<'_>,
        ) -> Result<Option<Incarnation>, String> {
            let why = match reply {
                Reply::Text(text) => match Incarnation::parse(text) {
                    Some(found) => {
                        self.meet(master, &found.run_id)?;
                        return Ok(Some(found));
                    }
                    None => "it says nothing of use",
                },
                Reply::Error(error) if is_for_now(error) => {
                    return Err(format!(
                        "whether it restarted cannot be known at the moment: {error}"
                    ));
                }
                Reply::Error(error) => error,
                _ => "it says nothing of use",
            };
            if self.guard == RestartGuard::Strict {
                return Err(format!(
                    "whether it restarted cannot be known: {why}; its user needs the rights \
                     +eval +info +time +hmget +hset ~quorlock:guard, or the guard must not be strict"
                ));
            }
            tracing::warn!(master = master + 1, %why, "nobody would notice if it restarted empty");
            Ok(None)
        }
    }

    /// Whether a server says that it cannot answer or write now, which is no reason not to ask again. Some put what
    /// went wrong in a script behind words of their own.
    fn is_for_now(error: &str) -> bool {
        ["BUSY", "LOADING", "MISCONF", "OOM", "READONLY"]
            .iter()
            .any(|word| error.contains(word))
    }
}

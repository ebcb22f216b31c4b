//! Real masters.
//!
//! This folder alone uses the `redis` crate, which reads URLs and every answer but votes.

mod connection;
mod dialer;
mod endpoint;
mod greeting;
mod guard_query;
mod probe;
pub(super) mod resp;
#[cfg(feature = "tls")]
mod tls;
pub(super) mod wire;
pub(super) mod wire_error;

use ::redis::Client;

use super::{MasterSpec, Spec};

#[cfg(feature = "__internals")]
pub(crate) use self::connection::encode_command;
pub(super) use self::{dialer::Dialer, endpoint::Endpoint, probe::RedisProbe};

impl From<Client> for MasterSpec {
    fn from(client: Client) -> Self {
        Self(
            Endpoint::from_info(client.get_connection_info())
                .map_or_else(Spec::Bad, |endpoint| Spec::Redis(Box::new(endpoint))),
        )
    }
}

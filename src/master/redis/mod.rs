//! Masters that are Redis or Valkey servers.
//!
//! Only this folder uses the `redis` crate, for example to read URLs. `resp` reads the replies that
//! become votes.

mod address;
mod connection;
mod dialer;
pub(super) mod encode;
mod endpoint;
pub(super) mod resolve;
mod resp;
#[cfg(feature = "sentinel")]
mod sentinel;
#[cfg(feature = "sentinel")]
mod sentinel_url;
mod stream;
#[cfg(feature = "tls")]
mod tls;
pub(super) mod wire;

#[cfg(feature = "__internals")]
pub use self::resp::{read_reply, reply_lengths};
pub use self::stream::MasterStream;
pub(super) use self::{
    address::Connecting, connection::RedisConnection, dialer::Dialer, endpoint::Endpoint,
    wire::Wire,
};
#[cfg(test)]
pub(crate) use self::{
    encode::{ScriptAs, encode_command},
    resp::reply,
};

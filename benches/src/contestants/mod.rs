//! The contestants.

pub mod bare;
pub mod kinds;
pub mod naive;
pub mod quorlock;
pub mod rslock;

use redis::{Client, IntoConnectionInfo};
use testkit::random::Random;

use crate::load::Result;

/// The crate's own release script, for the contestants that imitate its design.
pub const RELEASE: &str = include_str!("../../../lua/mutex/release.lua");

/// The usual handwritten release script. `rslock` sends it, too.
pub const PLAIN_RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
     return redis.call('DEL', KEYS[1]) else return 0 end";

/// Returns a client with TCP_NODELAY, which `redis` 1.x does not set by itself.
pub(crate) fn client(url: &str) -> Result<Client> {
    let info = url.into_connection_info()?;
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    Ok(Client::open(info.set_tcp_settings(tcp))?)
}

/// Writes random hexadecimal digits. Tokens must be new every time, but they need not be secret.
fn hex(random: &mut Random, into: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for chunk in into.chunks_mut(16) {
        let mut bits = random.number();
        for digit in chunk {
            *digit = DIGITS[(bits & 15) as usize];
            bits >>= 4;
        }
    }
}

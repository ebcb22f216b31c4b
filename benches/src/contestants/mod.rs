//! The contestants.

pub mod bare;
pub mod kinds;
pub mod lists;
#[cfg(feature = "metrics")]
pub mod metered;
pub mod naive;
pub mod pipelined;
pub mod quorlock;
pub mod rslock;

use redis::{Client, IntoConnectionInfo};

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

/// Returns 40 new hexadecimal digits.
fn token(rng: &mut Rng) -> [u8; 40] {
    let mut token = [0; 40];
    rng.hex(&mut token);
    token
}

/// A small random number generator (splitmix64). Tokens must be new every time, but they need not
/// be secret.
#[derive(Clone, Debug)]
struct Rng(u64);

impl Rng {
    fn new() -> Self {
        use std::hash::{BuildHasher, Hasher};
        Self(std::hash::RandomState::new().build_hasher().finish())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn hex(&mut self, into: &mut [u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for chunk in into.chunks_mut(16) {
            let mut bits = self.next();
            for digit in chunk {
                *digit = DIGITS[(bits & 15) as usize];
                bits >>= 4;
            }
        }
    }
}

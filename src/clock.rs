//! Where time and chance come in. Nobody else reads a clock or draws a random number.

use std::time::Instant;

/// Under tokio's paused clock this is virtual time, which is how tests drive the real code.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the crate reads a clock"
)]
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the crate draws random numbers"
)]
pub(crate) fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    rand::Rng::fill_bytes(&mut rand::rng(), &mut bytes);
    bytes
}

pub(crate) fn random_u64() -> u64 {
    u64::from_ne_bytes(random())
}

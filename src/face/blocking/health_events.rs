//! The changes of the masters' states, for code without async.

use super::park::block_on;
use crate::{
    core::view::health::MasterHealth, driver::query::health_events, face::error::ConfigError,
};

/// The changes of the masters' states, from
/// [`Coordinator::health_events`](super::Coordinator::health_events).
///
/// It yields and leaves out what the async [`HealthEvents`](crate::HealthEvents) does, and ends when
/// that ends.
#[derive(Debug)]
#[must_use = "nothing is yielded until `next` is called"]
pub struct HealthEvents(health_events::HealthEvents);

impl HealthEvents {
    pub(super) fn new(events: health_events::HealthEvents) -> Self {
        Self(events)
    }

    /// Blocks until the next change, and returns it. Returns `None` after the last one.
    ///
    /// # Errors
    ///
    /// [`CannotBlock`](ConfigError::CannotBlock). No change is lost.
    #[expect(
        clippy::should_implement_trait,
        reason = "the result says that it could not block"
    )]
    pub fn next(&mut self) -> Result<Option<MasterHealth>, ConfigError> {
        block_on(self.0.next())
    }
}

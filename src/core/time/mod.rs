//! Times that the rules know: TTL, drift and validity, timeouts, renewals and outages.

pub(crate) mod episode;
pub(crate) mod lease;
pub(crate) mod renewal;
pub(crate) mod timeout;

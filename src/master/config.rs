//! The settings of a coordinator that its supervisors need.

use super::restart::DistinctServers;
use crate::{
    core::{protocol::connection_name::ConnectionName, wait::pauses::Backoff},
    machine::session::SessionConfig,
};

/// The settings that all masters of one coordinator share.
#[derive(Clone, Debug)]
pub(crate) struct MasterConfig {
    /// The name of each connection.
    pub(crate) connection_name: ConnectionName,
    pub(crate) session: SessionConfig,
    /// The pauses between dials.
    pub(crate) redial: Backoff,
    pub(crate) servers: DistinctServers,
}

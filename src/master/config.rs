//! The settings of a coordinator that its supervisors need.

use std::time::Duration;

use super::{health::HealthBoard, restart::DistinctServers};
use crate::core::{
    protocol::connection_name::ConnectionName, restart::Quarantine, time::NodeTimeout,
    wait::pauses::Backoff,
};

/// The settings that all masters of one coordinator share.
#[derive(Clone, Debug)]
pub(crate) struct MasterConfig {
    /// The name of each connection.
    pub(crate) connection_name: ConnectionName,
    pub(crate) node_timeout: NodeTimeout,
    pub(crate) connect_timeout: Duration,
    /// The pauses between dials.
    pub(crate) redial: Backoff,
    pub(crate) servers: DistinctServers,
    pub(crate) quarantine: Quarantine,
    /// The length of a quarantine, counted from the moment at which a master may have forgotten
    /// locks.
    pub(crate) quarantine_length: Duration,
    pub(crate) health: HealthBoard,
}

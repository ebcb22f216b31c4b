//! Opens coordinators: starts their tasks, which connect to the masters.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use super::listed::Listed;
use crate::{
    core::{
        config::Config,
        protocol::{client_name::ClientName, connection_name::ConnectionName},
        restart::quarantine_length,
        vote::lists_id::ListsId,
        wait::pauses::Backoff,
    },
    driver::{context::Context, owners::Owners, time::clock},
    face::coordinator::Coordinator,
    master::{DistinctServers, HealthBoard, MasterConfig},
};

/// Opens the coordinators of one program. They share all settings but the masters and the label.
pub(in crate::face) struct Opener {
    pub(super) config: Config,
    pub(super) lists_id: ListsId,
    /// Coordinators know the owners of each other.
    pub(super) owners: Arc<Owners>,
    pub(super) runtime: Handle,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Opener {
    /// Starts the tasks of a coordinator of these masters. It has this `label`, or that of the
    /// settings.
    pub(in crate::face) fn open(&self, listed: Listed, label: Option<&Arc<str>>) -> Coordinator {
        let mut config = self.config.clone();
        config.label = label.cloned().or(config.label);
        let master_config = self.master_config(&config, &listed);
        let masters = listed.masters.into_iter();
        #[cfg(feature = "tls")]
        let masters = masters.map(|spec| match &self.tls {
            Some(tls) => spec.tls(tls.clone()),
            None => spec,
        });
        let masters = masters.enumerate();
        let masters = masters.map(|(master, spec)| spec.open(master, &master_config));
        let context = Context::start(
            config,
            self.owners.clone(),
            listed.roster,
            masters.collect(),
            master_config.health,
            &self.runtime,
        );
        Coordinator {
            context,
            lists_id: self.lists_id,
        }
    }

    fn master_config(&self, config: &Config, listed: &Listed) -> MasterConfig {
        let now = clock::monotonic;
        let key = config.key_template.example();
        let client = config.client_name.as_ref().map(ClientName::as_str);
        let max_ttl = config.max_ttl();
        MasterConfig {
            connection_name: ConnectionName::new(self.lists_id, key.key(), max_ttl, client),
            node_timeout: config.node_timeout,
            connect_timeout: config.connect_timeout,
            redial: Backoff::between(Duration::from_millis(20), Duration::from_secs(1)),
            now,
            random: clock::random_u64,
            servers: DistinctServers::new(listed.masters.len()),
            quarantine: config.quarantine,
            quarantine_length: quarantine_length(max_ttl, config.drift),
            health: HealthBoard::new(&listed.roster, config.label.as_ref(), now),
        }
    }
}

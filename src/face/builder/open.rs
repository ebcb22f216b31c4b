//! Opens the groups of a coordinator: starts their tasks, which connect to the masters.

use std::{sync::Arc, time::Duration};

use tokio::runtime::Handle;

use super::listed::Listed;
use crate::{
    core::{
        config::Config,
        protocol::{client_name::ClientName, connection_name::ConnectionName},
        restart::quarantine_length,
        view::health::MasterState,
        vote::lists_id::ListsId,
        wait::retry::Backoff,
    },
    driver::{
        engine::{Engine, Owners},
        time::clock,
    },
    face::coordinator::groups::OpenGroup,
    master::{HealthBoard, MasterConfig, RestartTracker},
};

/// The things that all groups of a coordinator share.
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) owners: Arc<Owners>,
    pub(super) lists_id: ListsId,
    pub(super) runtime: Handle,
    /// The state of a master before its first dial.
    pub(super) first_state: MasterState,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Shared {
    /// Starts the tasks of a group with these masters.
    pub(super) fn open(&self, listed: Listed) -> OpenGroup {
        #[cfg(feature = "tls")]
        let listed = match &self.tls {
            Some(tls) => listed.with_tls(tls),
            None => listed,
        };
        let master_config = self.master_config(&listed);
        let masters = listed.masters.into_iter().enumerate();
        let masters = masters.map(|(master, spec)| spec.open(master, &master_config));
        let engine = Engine::start(
            self.config.clone(),
            self.owners.clone(),
            listed.roster,
            masters.collect(),
            master_config.health,
            &self.runtime,
        );
        OpenGroup {
            engine: Arc::new(engine),
        }
    }

    fn connection_name(&self) -> ConnectionName {
        let Config {
            key_template,
            max_ttl,
            client_name,
            ..
        } = &self.config;
        let key = key_template.example();
        let client = client_name.as_ref().map(ClientName::as_str);
        ConnectionName::new(self.lists_id, key.key(), max_ttl.duration(), client)
    }

    fn master_config(&self, listed: &Listed) -> MasterConfig {
        let (config, now) = (&self.config, clock::monotonic);
        MasterConfig {
            connection_name: self.connection_name(),
            node_timeout: config.node_timeout,
            connect_timeout: config.connect_timeout,
            redial: Backoff::between(Duration::from_millis(20), Duration::from_secs(1)),
            now,
            random: clock::random_u64,
            restart_tracker: RestartTracker::new(config.quarantine, now),
            quarantine: quarantine_length(config.max_ttl, config.drift),
            health: HealthBoard::new(&listed.roster, &self.first_state, now),
        }
    }
}

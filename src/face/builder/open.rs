//! Checks lists of masters, and opens coordinators, which connect to these masters.

use std::{collections::BTreeSet, sync::Arc};

use tokio::runtime::Handle;

use crate::{
    core::{
        config::Config,
        config_error::ConfigError,
        hash::hash,
        protocol::{
            connection_name::{ConnectionName, ListsId},
            identity::ClientName,
        },
        vote::{
            MasterSet,
            quorum::{Membership, Quorum, Roster},
        },
    },
    driver::context::{Context, Owners},
    face::coordinator::Coordinator,
    master::{MasterSpec, Shared},
};

/// Opens the coordinators of one program. The coordinators share all settings except the masters
/// and the name of the coordinator.
pub(crate) struct Opener {
    pub(super) config: Config,
    pub(super) lists_id: ListsId,
    /// All coordinators share these owners, so each coordinator accepts an owner that another
    /// coordinator made.
    pub(super) owners: Arc<Owners>,
    pub(super) runtime: Handle,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Opener {
    /// Starts the tasks of a coordinator of these masters. Without a name, the coordinator has
    /// the name in the settings.
    pub(crate) fn open(
        &self,
        listed: Listed,
        coordinator: Option<&Arc<str>>,
    ) -> Result<Coordinator, ConfigError> {
        #[cfg(feature = "tls")]
        if self.tls.is_some() && !listed.masters.iter().any(MasterSpec::uses_tls) {
            return Err(ConfigError::UnusedTls);
        }
        let mut config = self.config.clone();
        config.coordinator = coordinator.cloned().or(config.coordinator);
        let key = config.key_template.example();
        let client = config.client_name.as_ref().map(ClientName::as_str);
        let name = ConnectionName::new(self.lists_id, key.key(), config.max_ttl(), client);
        let name = name.to_string();
        let addresses = listed.roster.masters.iter();
        let databases = listed.masters.iter().map(MasterSpec::database);
        let databases: BTreeSet<_> = addresses.zip(databases).collect();
        let place = format!("{} {} {databases:?}", listed.lists_id(), key.key());
        config.place = hash(place.bytes());
        let masters = listed.masters.into_iter();
        #[cfg(feature = "tls")]
        let masters = masters.map(|spec| match &self.tls {
            Some(tls) => spec.tls(tls.clone()),
            None => spec,
        });
        let masters = masters.enumerate();
        let machine = Arc::new(Shared::new(listed.roster, Arc::new(config)));
        let supervised = masters.map(|(master, spec)| spec.open(master, name.clone(), &machine));
        let supervised = supervised.collect();
        let owners = self.owners.clone();
        let context = Context::start(owners, machine, supervised, &self.runtime);
        Ok(Coordinator {
            context,
            lists_id: self.lists_id,
            has_name: None,
        })
    }
}

/// The masters of both lists. A master that is in both lists appears once.
#[derive(Clone)]
pub(crate) struct Listed {
    pub(super) masters: Vec<MasterSpec>,
    pub(crate) roster: Arc<Roster>,
}

impl Listed {
    /// Checks the number and the addresses of the masters.
    pub(crate) fn parse(
        mut masters: Vec<MasterSpec>,
        old_masters: Vec<MasterSpec>,
    ) -> Result<Self, ConfigError> {
        if masters.is_empty() {
            return Err(ConfigError::NoMasters);
        }
        let count = masters.len();
        let mut addresses = check_list(&masters, 0)?;
        let old = check_list(&old_masters, count)?;
        let mut left = Vec::new();
        for (index, (master, address)) in old_masters.into_iter().zip(old).enumerate() {
            let known = addresses.iter().position(|known| *known == address);
            let other_keys = known.filter(|at| masters[*at].database() != master.database());
            if let Some(first) = other_keys {
                return Err(ConfigError::DuplicateInOtherDatabase {
                    first: first + 1,
                    second: count + index + 1,
                    address: address.to_string(),
                });
            }
            left.push(known.unwrap_or(masters.len()));
            if known.is_none() {
                masters.push(master);
                addresses.push(address);
            }
        }
        if masters.len() > MasterSet::MOST {
            let given = format!("{} masters", masters.len());
            let range = format!("at most {}, and 3 or 5 are usual", MasterSet::MOST);
            return Err(ConfigError::out_of_range("list", given, range));
        }
        let quorum = Quorum::of_lists(count, left.into_iter().collect());
        let roster = Roster::new(addresses, quorum);
        Ok(Self { masters, roster })
    }

    pub(crate) fn lists_id(&self) -> ListsId {
        let all_but = |other: Membership| {
            let members = self.roster.members();
            let listed = members.filter(move |(_, part)| *part != other);
            listed.map(|(address, _)| &**address)
        };
        ListsId::of(all_but(Membership::Leaves), all_but(Membership::Joins))
    }
}

/// Returns each master of both lists once, with its address and its role. Fails as
/// [`Builder::build`](crate::Builder::build) does.
pub fn distinct(
    masters: &[MasterSpec],
    old_masters: &[MasterSpec],
) -> Result<Vec<(Arc<str>, MasterSpec, Membership)>, ConfigError> {
    let Listed { masters, roster } = Listed::parse(masters.to_vec(), old_masters.to_vec())?;
    let members = roster.members().zip(masters);
    let members = members.map(|((address, role), master)| (address.clone(), master, role));
    Ok(members.collect())
}

/// Checks the addresses of a list, and returns them. In errors, the first master of the list has
/// the number `before` + 1.
fn check_list(masters: &[MasterSpec], before: usize) -> Result<Vec<Arc<str>>, ConfigError> {
    let mut addresses = Vec::<Arc<str>>::with_capacity(masters.len());
    for (index, master) in masters.iter().enumerate() {
        let number = |index| before + index + 1;
        let address = master
            .usable_address()
            .map_err(|reason| ConfigError::BadMaster {
                master: number(index),
                reason,
            })?;
        if let Some(first) = addresses.iter().position(|known| *known == address) {
            return Err(ConfigError::DuplicateMaster {
                first: number(first),
                second: number(index),
                address: address.to_string(),
            });
        }
        addresses.push(address);
    }
    Ok(addresses)
}

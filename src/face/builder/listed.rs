//! The lists of masters in the settings of a coordinator.

use std::sync::Arc;

use crate::{
    core::{
        config_error::ConfigError,
        vote::{
            lists::Membership, lists_id::ListsId, master_set::MasterSet, quorum::Quorum,
            roster::Roster,
        },
    },
    master::MasterSpec,
};

/// The masters of both lists. Each master is there once, also if it is in both.
#[derive(Clone, Debug)]
pub(in crate::face) struct Listed {
    pub(super) masters: Vec<MasterSpec>,
    pub(in crate::face) roster: Arc<Roster>,
}

impl Listed {
    /// Checks the number and the addresses of the masters.
    pub(in crate::face) fn parse(
        mut masters: Vec<MasterSpec>,
        leaving: Vec<MasterSpec>,
    ) -> Result<Self, ConfigError> {
        if masters.is_empty() {
            return Err(ConfigError::NoMasters);
        }
        let count = masters.len();
        let mut addresses = check_list(&masters, 0)?;
        let old = check_list(&leaving, count)?;
        let mut left = Vec::new();
        for (index, (master, address)) in leaving.into_iter().zip(old).enumerate() {
            let known = addresses.iter().position(|known| *known == address);
            let other_keys = known.filter(|at| masters[*at].database() != master.database());
            if let Some(first) = other_keys {
                return Err(ConfigError::OtherDatabase {
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

    pub(in crate::face) fn lists_id(&self) -> ListsId {
        let all_but = |other: Membership| {
            let members = self.roster.members();
            let listed = members.filter(move |(_, part)| *part != other);
            listed.map(|(address, _)| &**address)
        };
        ListsId::of(all_but(Membership::Leaves), all_but(Membership::Joins))
    }
}

/// Checks the addresses of a list. Its first master has the number `before` + 1. Returns the
/// addresses.
fn check_list(masters: &[MasterSpec], before: usize) -> Result<Vec<Arc<str>>, ConfigError> {
    let mut addresses = Vec::<Arc<str>>::with_capacity(masters.len());
    for (index, master) in masters.iter().enumerate() {
        let number = |index| before + index + 1;
        let address = master.address().map_err(|reason| ConfigError::BadMaster {
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

//! The servers that all clients use as masters, without groups or in groups, and how they change.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use quorlock::Quarantine;
use testkit::random::Random;
use testkit::server::Server;
use tokio::runtime::Runtime;

use crate::Result;
use crate::locks::{KINDS, LockNumber, settings};
use crate::masters;
use crate::members::{List, Members};
use crate::plan::MASTERS;

/// The number of masters in a group.
const OF_A_GROUP: usize = 3;

/// The servers of a group, or all servers if there are no groups. The last owner of a server stops
/// it.
#[derive(Clone)]
struct Part {
    group: Option<String>,
    servers: Vec<Rc<Server>>,
}

#[derive(Clone)]
pub struct Layout(Vec<Part>);

#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// Replaces the first masters of a list by new ones at its end.
    Replace(usize),
    AddGroup,
    RemoveGroup,
}

impl Layout {
    pub fn members(&self) -> Members {
        let list = |part: &Part| List {
            group: part.group.clone(),
            urls: part.servers.iter().map(|server| server.url()).collect(),
        };
        Members(self.0.iter().map(list).collect())
    }
}

/// Starts servers, and draws the next layout.
pub struct Supply {
    programs: Vec<Option<PathBuf>>,
    random: Random,
    /// The number in the ID of the next group. The names that a group gets depend on it.
    next_id: u64,
}

impl Supply {
    pub fn new(mut random: Random) -> Self {
        let next_id = random.below(1_000);
        Self {
            programs: masters::programs(),
            random,
            next_id,
        }
    }

    /// Returns the layout at the start: five masters, or two groups.
    pub fn first(&mut self, has_groups: bool) -> Layout {
        if has_groups {
            return Layout(vec![self.group(), self.group()]);
        }
        let servers = self.servers(MASTERS);
        let group = None;
        Layout(vec![Part { group, servers }])
    }

    /// Returns the layout after the change, and what changes.
    pub fn next(&mut self, old: &Layout, change: Change) -> Result<(Layout, String)> {
        match change {
            Change::Replace(count) => {
                let mut next = old.clone();
                for part in &mut next.0 {
                    part.servers.drain(..count);
                    part.servers.extend(self.servers(count));
                }
                Ok((next, format!("replaced {count} of {MASTERS} masters")))
            }
            Change::AddGroup => self.add_group(old),
            Change::RemoveGroup => self.remove_group(old),
        }
    }

    /// Adds a group, with an ID that shows much.
    fn add_group(&mut self, old: &Layout) -> Result<(Layout, String)> {
        let mut next = old.clone();
        next.0.push(self.group());
        loop {
            if let Some(what) = movement(&old.members(), &next.members())? {
                return Ok((next, what));
            }
            let id = self.id();
            next.0.last_mut().ok_or("no group")?.group = Some(id);
        }
    }

    /// Removes any group whose removal shows much. That of the group that came last always does.
    fn remove_group(&mut self, old: &Layout) -> Result<(Layout, String)> {
        let mut left: Vec<_> = (0..old.0.len()).collect();
        while !left.is_empty() {
            let removed = left.swap_remove(self.random.index(left.len()));
            let mut next = old.clone();
            next.0.remove(removed);
            if let Some(what) = movement(&old.members(), &next.members())? {
                return Ok((next, what));
            }
        }
        Err("no group can be removed".into())
    }

    fn group(&mut self) -> Part {
        Part {
            group: Some(self.id()),
            servers: self.servers(OF_A_GROUP),
        }
    }

    fn id(&mut self) -> String {
        self.next_id += 1;
        format!("g{}", self.next_id)
    }

    fn servers(&mut self, count: usize) -> Vec<Rc<Server>> {
        let programs = &self.programs;
        let start = |_| {
            let program = &programs[self.random.index(programs.len())];
            Rc::new(Server::start_program(program.as_deref(), &[], &[]))
        };
        (0..count).map(start).collect()
    }
}

/// Returns what moves, if it shows much: a lock of each kind moves, one stays in each group that
/// stays, and one moves between any two groups between which names move.
fn movement(old: &Members, next: &Members) -> Result<Option<String>> {
    let [before, after] = [old, next].map(|members| members.open(settings(), &Members::default()));
    let (before, after) = (before?, after?);
    let groups = |lock: LockNumber| [&before, &after].map(|locks| locks.of(lock.name()).label());
    let used: BTreeSet<_> = LockNumber::all().map(groups).collect();
    let moved = LockNumber::all().filter(|lock| {
        let [was, is] = groups(*lock);
        was != is
    });
    let moved: Vec<_> = moved.collect();
    let is_moved = |kind| moved.iter().any(|lock| lock.kind() == kind);
    // Each group that is in both has names that stay, and others that it gets or gives.
    let pairs = 2 * old.0.len().min(next.0.len());
    if used.len() < pairs || !KINDS.into_iter().all(is_moved) {
        return Ok(None);
    }
    let (count, all) = (moved.len(), LockNumber::all().count());
    let (old, next) = (old.ids(), next.ids());
    Ok(Some(format!(
        "moved {count} of {all} locks, groups {old} to {next}"
    )))
}

/// Dials new masters before any client does, and waits until the quarantine of a first contact is
/// over.
pub fn get_to_know(layout: &Layout, quarantine: Quarantine, runtime: &Runtime) -> Result<()> {
    let settings = settings().quarantine(quarantine);
    let locks = layout.members().open(settings, &Members::default())?;
    runtime.block_on(async {
        for group in locks.coordinators() {
            group.all_ready(Duration::from_secs(30)).await?;
        }
        locks.close().await;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns groups with one master each, where no one listens.
    fn groups(numbers: impl IntoIterator<Item = usize>) -> Members {
        let list = |number| List {
            group: Some(format!("g{number}")),
            urls: vec![format!("redis://127.0.0.1:{}", number + 1)],
        };
        Members(numbers.into_iter().map(list).collect())
    }

    #[test]
    fn a_change_shows_much_only_if_enough_locks_move_and_stay() {
        let runtime = Runtime::new().unwrap();
        let _inside = runtime.enter();
        let moves = |old: &Members, next: &Members| movement(old, next).unwrap().is_some();
        let old = groups(0..2);
        assert!(!moves(&old, &old), "no lock moves");
        assert!(
            !moves(&groups(0..19), &groups(0..20)),
            "a lock for each group"
        );
        let added = (2..100).map(|number| groups([0, 1, number]));
        let added: Vec<_> = added.filter(|next| moves(&old, next)).collect();
        assert!((10..90).contains(&added.len()), "{}", added.len());
        for next in added {
            assert!(moves(&next, &old), "the same locks move back");
        }
    }
}

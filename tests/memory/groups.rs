//! Groups of masters.

use std::collections::BTreeSet;

use quorlock::{
    ConfigError, Coordinator, Fault, Group, Groups, LockKind, MemoryMaster, Reason,
    health::MasterHealth, tools::Tally,
};
use tokio::time::timeout;

use super::world::{KINDS, millis, seconds};

/// The masters of three groups.
struct World {
    masters: Vec<[MemoryMaster; 3]>,
}

const IDS: [&str; 3] = ["a", "b", "c"];

impl World {
    fn new() -> Self {
        Self {
            masters: IDS
                .iter()
                .map(|_| [(); 3].map(|()| MemoryMaster::new()))
                .collect(),
        }
    }

    fn groups(&self, ids: &[&str]) -> Vec<Group> {
        let masters = |id: &&&str| {
            let at = IDS.iter().position(|known| known == *id).unwrap();
            &self.masters[at]
        };
        ids.iter().map(|id| Group::new(*id, masters(&id))).collect()
    }

    fn open(&self, ids: &[&str], old: &[&str]) -> Groups {
        let settings = Coordinator::builder();
        Groups::with_old_groups(settings, self.groups(ids), self.groups(old)).unwrap()
    }

    /// Returns the IDs of the groups whose masters have the key.
    fn owners_of(&self, key: &str) -> BTreeSet<&str> {
        let have = |masters: &[MemoryMaster; 3]| {
            masters
                .iter()
                .any(|master| master.keys().iter().any(|other| other == key))
        };
        let groups = IDS.into_iter().zip(&self.masters);
        groups
            .filter(|(_, masters)| have(masters))
            .map(|(id, _)| id)
            .collect()
    }
}

/// Returns a name whose coordinator has this name.
fn name_in(locks: &Groups, coordinator: &str) -> String {
    let mut names = (0..).map(|number| format!("orders/{number}"));
    names
        .find(|name| locks.of(name).name() == Some(coordinator))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_name_is_on_the_masters_of_its_group_only() {
    let world = World::new();
    let locks = world.open(&IDS, &[]);
    for id in IDS {
        let name = name_in(&locks, id);
        let owner = locks.new_owner();
        for kind in KINDS {
            let lock = match kind {
                LockKind::Mutex => locks.mutex(&name),
                LockKind::Reentrant => locks.reentrant(&name, &owner),
                LockKind::Fair => locks.fair(&name).owner(&owner),
                LockKind::ReadWrite => locks.read_write(&name).owner(&owner).write().plain(),
                LockKind::Semaphore => locks.semaphore(&name, 1).plain(),
                other => panic!("groups have no {other}"),
            };
            let guard = lock.acquire().await.unwrap();
            assert_eq!(guard.all_votes().await.granted_count(), 3);
            assert_eq!(world.owners_of(&name), BTreeSet::from([id]));
            assert_eq!(lock.inspect().await.unwrap().holders.len(), 1);
            guard.release().await.unwrap();
        }
    }
    let coordinators: Vec<_> = locks.coordinators().map(Coordinator::name).collect();
    assert_eq!(coordinators, IDS.map(Some));
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_group_concerns_its_names_only() {
    let world = World::new();
    let locks = world.open(&IDS, &[]);
    for ready in locks.ready_within(seconds(5)).await {
        ready.unwrap();
    }
    world.masters[1]
        .iter()
        .for_each(|master| master.inject(Fault::Down));
    let lock = |id| {
        let name = name_in(&locks, id);
        locks.mutex(&name)
    };
    let refused = lock("b").try_acquire().await.unwrap_err();
    assert!(*refused.reason() == Reason::NoQuorum, "{refused}");
    for id in ["a", "c"] {
        drop(lock(id).try_acquire().await.unwrap());
    }
    let ready = locks.ready_within(millis(100)).await;
    let ready: Vec<_> = ready.iter().map(Result::is_ok).collect();
    assert_eq!(ready, [true, false, true]);
    let able = locks.coordinators().map(|group| {
        let lists = group.tally(MasterHealth::can_vote);
        lists.iter().all(Tally::has_quorum)
    });
    assert_eq!(able.collect::<Vec<_>>(), [true, false, true]);
}

/// Owners are those of all groups, and so is the ID that connections show.
#[tokio::test(start_paused = true)]
async fn the_coordinators_of_all_groups_are_one_program() {
    let world = World::new();
    let locks = world.open(&IDS, &["a", "b"]);
    let owner = locks.of("x").new_owner();
    for coordinator in ["a", "b", "a->c", "b->c"] {
        let name = name_in(&locks, coordinator);
        let group = locks.of(&name);
        assert_eq!(group.lists_id(), locks.of("").lists_id());
        let lock = group.reentrant(&name, &owner);
        let outer = lock.try_acquire().await.unwrap();
        assert_eq!(lock.try_acquire().await.unwrap().depth(), 2);
        drop(outer);
    }
    assert_eq!(locks.coordinators().count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_names_in_several_groups_excludes_each_of_them() {
    let world = World::new();
    let locks = world.open(&IDS, &[]);
    let names = IDS.map(|id| name_in(&locks, id));
    let all = locks.multi_mutex(&names).plain();
    let guard = all.acquire().await.unwrap();
    for name in &names {
        assert!(locks.mutex(name).try_acquire().await.is_err(), "{name}");
    }
    guard.release().await.unwrap();
    // One name is held, and then released.
    let held = locks.mutex(&names[1]);
    let held = held.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { all.acquire().await.unwrap() });
    tokio::time::sleep(seconds(30)).await; // longer than the TTL, so those before it are extended
    held.release().await.unwrap();
    let guard = timeout(seconds(5), waiting).await.unwrap().unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    locks.close().await;
    for masters in &world.masters {
        assert!(masters.iter().all(|master| master.keys().is_empty()));
    }
}

/// The end of the name that was not renewed counts, also when both have ended.
#[tokio::test(start_paused = true)]
async fn a_guard_of_names_in_several_groups_ended_when_the_first_of_them_did() {
    let world = World::new();
    let locks = world.open(&IDS, &[]);
    let names = ["a", "b"].map(|id| name_in(&locks, id));
    let guard = locks.multi_mutex(&names).plain().acquire().await.unwrap();
    let group = guard.names().last().and_then(|name| locks.of(name).name());
    let down = IDS.iter().position(|id| Some(*id) == group).unwrap();
    world.masters[down]
        .iter()
        .for_each(|master| master.inject(Fault::Down));
    tokio::time::sleep(seconds(5)).await; // the other name is renewed meanwhile
    assert!(guard.is_valid());
    let until = guard.valid_until();
    guard.stop_renewing();
    tokio::time::sleep(seconds(60)).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.valid_until(), until);
}

/// Each group that may have forgotten locks keeps a lock of its names from being free.
#[tokio::test(start_paused = true)]
async fn a_lock_of_several_names_is_acquired_once_each_group_votes() {
    let world = World::new();
    let locks = world.open(&IDS, &[]);
    let names = IDS.map(|id| name_in(&locks, id));
    let all = locks.multi_mutex(&names).plain();
    for masters in &world.masters {
        for master in masters {
            master.inject(Fault::Down);
            tokio::time::sleep(millis(1)).await;
            master.forget();
            master.inject(Fault::None);
        }
        tokio::time::sleep(seconds(2)).await; // long enough for a new connection
        assert!(!all.is_held().await.unwrap());
        all.try_acquire().await.unwrap_err();
        tokio::time::sleep(seconds(62)).await; // the quarantine
        drop(all.try_acquire().await.unwrap());
    }
}

/// Names in a group that is up are gone when the release returns.
#[tokio::test(start_paused = true)]
async fn a_release_waits_for_each_group_although_one_is_down() {
    for down in 0..2 {
        let world = World::new();
        let locks = world.open(&IDS, &[]);
        let names = ["a", "b"].map(|id| name_in(&locks, id));
        let guard = locks.multi_mutex(&names).plain().acquire().await.unwrap();
        guard.all_votes().await;
        for master in &world.masters[down] {
            master.inject(Fault::Down);
        }
        tokio::time::sleep(millis(1)).await; // the connections have ended
        let up = &world.masters[1 - down];
        up.iter()
            .for_each(|master| master.inject(Fault::Delay(millis(20))));
        let error = guard.release().await.unwrap_err();
        let name = &*names[down];
        assert!(error.name.as_deref() == Some(name), "{error}");
        let free = up.iter().filter(|master| master.keys().is_empty());
        assert!(
            free.count() >= 2,
            "the release of the other name was not awaited"
        );
    }
}

/// A waiter for names of two groups gives back the name of the one while the other is down.
#[tokio::test(start_paused = true)]
async fn an_outage_keeps_no_name_of_another_group() {
    let world = World::new();
    let locks = world.open(&IDS, &[]);
    let mut names = ["a", "b"].map(|id| name_in(&locks, id));
    names.sort();
    let down = locks.of(&names[1]).name().unwrap();
    let down = IDS.iter().position(|id| *id == down).unwrap();
    let set_down = |fault: fn(&MemoryMaster)| world.masters[down].iter().for_each(fault);
    set_down(|master| master.inject(Fault::Down));
    let all = locks.multi_mutex(&names).plain();
    let waiting = tokio::spawn(async move { all.acquire().await.unwrap() });
    tokio::time::sleep(seconds(1)).await;
    let other = locks.mutex(&names[0]);
    assert!(
        other.try_acquire().await.is_err(),
        "the waiter keeps it at first"
    );
    for _ in 0..3 {
        let guard = other.acquire_within(seconds(8)).await.unwrap();
        tokio::time::sleep(seconds(20)).await;
        assert!(!waiting.is_finished());
        drop(guard);
    }
    set_down(|master| master.inject(Fault::None));
    let guard = timeout(seconds(5), waiting).await.unwrap().unwrap();
    assert!(guard.is_valid());
}

/// One set of masters is changed to groups, and back.
#[tokio::test(start_paused = true)]
async fn masters_without_groups_become_a_group() {
    let world = World::new();
    let one = || Coordinator::builder().masters(&world.masters[0]);
    let same = world.open(&["a"], &[]);
    let locks = one().build().unwrap();
    assert_eq!(same.of("").lists_id(), locks.lists_id());
    assert_eq!(locks.name(), None);
    let both = world.open(&IDS, &["a"]);
    for number in 0..20 {
        let name = format!("orders/{number}");
        let _guard = locks.mutex(&name).try_acquire().await.unwrap();
        let refused = both.mutex(&name).try_acquire().await;
        assert!(
            matches!(&refused, Err(error) if error.is_busy()),
            "{refused:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn groups_that_cannot_be_used_are_refused() {
    let masters = [(); 3].map(|()| MemoryMaster::new());
    let group = |id: &str| Group::new(id, [MemoryMaster::new()]);
    let many = |count: usize| (0..count).map(|number| group(&number.to_string()));
    let none = Coordinator::builder;
    let of = |groups| (none(), groups, Vec::new());
    for ((settings, groups, old), expected) in [
        (of(Vec::new()), "no groups were given"),
        (
            of(vec![group("a"), group("a")]),
            "two groups are called \"a\"",
        ),
        (of(vec![group("")]), "the group ID \"\" cannot be used"),
        (
            of(vec![group("a->b")]),
            "the group ID \"a->b\" cannot be used",
        ),
        (of(vec![group(&"a".repeat(65))]), "1 to 64 ASCII letters"),
        (
            of(vec![group("a").weight(0)]),
            "group a: a weight of 0 is out of range: it must be from 1 to 16",
        ),
        (of(vec![group("a").weight(17)]), "group a: a weight of 17"),
        (
            of(many(65).collect()),
            "a list of 65 groups is out of range: it must be at most 64",
        ),
        (
            of(vec![Group::new("a", [] as [&str; 0])]),
            "group a: no masters were given",
        ),
        (
            of(vec![Group::new("a", ["nonsense"])]),
            "group a: master 1: ",
        ),
        (
            of(vec![Group::new("a", [&masters[0], &masters[0]])]),
            "group a: masters 1 and 2 are the same server",
        ),
        (
            of(vec![
                Group::new("a", [&masters[0]]),
                Group::new("b", [&masters[0]]),
            ]),
            "groups a and b have the same master",
        ),
        (
            (none().masters(&masters), vec![group("a")], Vec::new()),
            "masters were given without a group, too",
        ),
        (
            (none().old_masters(&masters), vec![group("a")], Vec::new()),
            "masters were given without a group, too",
        ),
        (
            (none(), Vec::new(), vec![group("a")]),
            "no groups were given",
        ),
        (
            (
                none(),
                many(20).collect(),
                (0..20)
                    .map(|number| group(&format!("old{number}")))
                    .collect(),
            ),
            "a change of 400 pairs of an old and a new group with names in common is out of range: it must be at most 256",
        ),
    ] {
        let refused = Groups::with_old_groups(settings, groups, old).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    let settings = none().ttl(std::time::Duration::ZERO);
    let refused = Groups::new(settings, [group("a")]).unwrap_err();
    assert!(refused.to_string().starts_with("a TTL of 0s"), "{refused}");
    assert!(Groups::new(none(), many(64)).is_ok());
}

/// On the masters of another group, a lock would exclude nobody.
#[tokio::test(start_paused = true)]
async fn the_coordinator_of_a_group_refuses_the_names_of_another() {
    let world = World::new();
    let locks = world.open(&IDS, &[]);
    let [mine, other] = [0, 1].map(|at| name_in(&locks, IDS[at]));
    let group = locks.of(&mine);
    drop(group.mutex(&mine).try_acquire().await.unwrap());
    let refused = ConfigError::ForeignName {
        name: other.clone(),
    };
    for error in [
        group.mutex(&other).try_acquire().await.unwrap_err(),
        group.fair(&other).acquire().await.unwrap_err(),
        group.semaphore(&other, 3).try_acquire().await.unwrap_err(),
        group
            .multi_mutex([&mine, &other])
            .try_acquire()
            .await
            .unwrap_err(),
    ] {
        assert_eq!(*error.reason(), Reason::Config(refused.clone()));
    }
    let write = group.read_write(&other).write().try_acquire().await;
    assert_eq!(*write.unwrap_err().reason(), Reason::Config(refused));
}

//! Groups of masters.

use std::collections::BTreeSet;

use quorlock::{
    AcquireError, ConfigError, Coordinator, Fault, Group, Guard, MasterState, MemoryMaster,
    ReadyError,
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

    fn coordinator(&self, ids: &[&str], leaving: &[&str]) -> Coordinator {
        let builder = Coordinator::builder().groups(self.groups(ids));
        builder
            .leaving_groups(self.groups(leaving))
            .build()
            .unwrap()
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

/// Returns a name in the group.
fn name_in(locks: &Coordinator, group: &str) -> String {
    let mut names = (0..).map(|number| format!("orders/{number}"));
    names
        .find(|name| locks.group_of(name) == Some(group))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_name_is_on_the_masters_of_its_group_only() {
    let world = World::new();
    let locks = world.coordinator(&IDS, &[]);
    for id in IDS {
        let name = name_in(&locks, id);
        let owner = locks.owner();
        for kind in KINDS {
            let lock = locks.of_kind(kind, &name, &owner);
            let guard = lock.acquire().await.unwrap();
            let votes = guard.settled().await;
            assert_eq!((votes.group(), votes.granted_count()), (Some(id), 3));
            assert!(
                votes.to_string().starts_with(&format!("group {id}: ")),
                "{votes}"
            );
            assert_eq!(world.owners_of(&name), BTreeSet::from([id]));
            assert_eq!(lock.inspect().await.unwrap().holders.len(), 1);
            guard.release().await.unwrap();
        }
    }
    assert_eq!((locks.master_count(), locks.quorum()), (9, 2));
    assert_eq!(locks.health().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_group_concerns_its_names_only() {
    let world = World::new();
    let locks = world.coordinator(&IDS, &[]);
    locks.all_ready(seconds(5)).await.unwrap();
    world.masters[1]
        .iter()
        .for_each(|master| master.inject(Fault::Down));
    let refused = locks
        .mutex(name_in(&locks, "b"))
        .try_acquire()
        .await
        .unwrap_err();
    assert!(
        matches!(refused, AcquireError::NoQuorum { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("group b"), "{refused}");
    for id in ["a", "c"] {
        let lock = locks.mutex(name_in(&locks, id));
        drop(lock.try_acquire().await.unwrap());
    }
    let refused = locks.ready(millis(100)).await.unwrap_err();
    let ReadyError::NoQuorum { votes, .. } = &refused else {
        panic!("{refused}");
    };
    assert_eq!(votes.group(), Some("b"));
    let lacking = locks.tally(|master| master.can_vote());
    let lacking = lacking.iter().filter(|tally| !tally.has_quorum());
    let lacking: Vec<_> = lacking.map(ToString::to_string).collect();
    assert_eq!(lacking, ["0 of 3 masters of group b (need 2)"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_is_dialled_at_its_first_use() {
    let world = World::new();
    let builder = Coordinator::builder().groups(world.groups(&IDS));
    let locks = builder.dial_at_first_use(true).build().unwrap();
    tokio::time::sleep(seconds(1)).await;
    assert!(
        locks
            .health()
            .iter()
            .all(|master| master.state == MasterState::Unused)
    );
    let lock = locks.mutex(name_in(&locks, "b"));
    drop(lock.try_acquire().await.unwrap());
    for master in locks.health() {
        let is_used = master.group.as_deref() == Some("b");
        let expected = if is_used {
            MasterState::Connected
        } else {
            MasterState::Unused
        };
        assert_eq!(master.state, expected, "{master}");
    }
    locks.all_ready(seconds(5)).await.unwrap();
    assert!(
        locks
            .health()
            .iter()
            .all(|master| master.state == MasterState::Connected)
    );
    locks.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_whose_groups_were_never_used_closes() {
    let world = World::new();
    let builder = Coordinator::builder().groups(world.groups(&IDS));
    let locks = builder.dial_at_first_use(true).build().unwrap();
    timeout(seconds(1), locks.close()).await.unwrap();
    let refused = locks.mutex("orders/42").try_acquire().await;
    assert!(matches!(refused, Err(AcquireError::Closed)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_names_in_several_groups_excludes_each_of_them() {
    let world = World::new();
    let locks = world.coordinator(&IDS, &[]);
    let names = IDS.map(|id| name_in(&locks, id));
    let all = locks.mutex_all(&names);
    let guard = all.acquire().await.unwrap();
    for name in &names {
        assert!(locks.mutex(name).try_acquire().await.is_err(), "{name}");
    }
    guard.release().await.unwrap();
    // One name is held, and then released.
    let held = locks.mutex(&names[1]).acquire().await.unwrap();
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
    let locks = world.coordinator(&IDS, &[]);
    let names = ["a", "b"].map(|id| name_in(&locks, id));
    let guard = locks.mutex_all(&names).acquire().await.unwrap();
    let group = guard.names().last().and_then(|name| locks.group_of(name));
    let down = IDS.iter().position(|id| Some(*id) == group).unwrap();
    world.masters[down]
        .iter()
        .for_each(|master| master.inject(Fault::Down));
    tokio::time::sleep(locks.ttl() / 2).await; // the other name is renewed meanwhile
    assert!(guard.is_valid());
    let until = guard.valid_until();
    guard.stop_renewing();
    tokio::time::sleep(seconds(60)).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.valid_until(), until);
}

/// A waiter for names of two groups gives back the name of the one while the other is down.
#[tokio::test(start_paused = true)]
async fn an_outage_keeps_no_name_of_another_group() {
    let world = World::new();
    let locks = world.coordinator(&IDS, &[]);
    locks.all_ready(seconds(5)).await.unwrap();
    let mut names = ["a", "b"].map(|id| name_in(&locks, id));
    names.sort();
    let down = locks.group_of(&names[1]).unwrap();
    let down = IDS.iter().position(|id| *id == down).unwrap();
    let set_down = |fault: fn(&MemoryMaster)| world.masters[down].iter().for_each(fault);
    set_down(|master| master.inject(Fault::Down));
    let all = locks.mutex_all(&names);
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

/// Programs with the old groups, with both and with the new groups: neighbours exclude each other.
#[tokio::test(start_paused = true)]
async fn programs_with_both_lists_of_groups_exclude_those_with_either() {
    let world = World::new();
    let old = world.coordinator(&["a", "b"], &[]);
    let both = world.coordinator(&IDS, &["a", "b"]);
    let new = world.coordinator(&IDS, &[]);
    let mut moved = 0;
    for number in 0..60 {
        let name = format!("orders/{number}");
        let (was, is) = (old.group_of(&name).unwrap(), new.group_of(&name).unwrap());
        let expected = if was == is {
            is.to_owned()
        } else {
            format!("{was}->{is}")
        };
        assert_eq!(both.group_of(&name), Some(&*expected));
        moved += usize::from(was != is);
        for (one, other) in [(&old, &both), (&both, &old), (&both, &new), (&new, &both)] {
            let guard: Guard = one.mutex(&name).fenced().acquire().await.unwrap();
            let refused = other.mutex(&name).fenced().try_acquire().await;
            assert!(
                matches!(refused, Err(AcquireError::Contended { .. })),
                "{refused:?}"
            );
            let token = guard.fencing_token();
            guard.release().await.unwrap();
            let guard = other.mutex(&name).fenced().acquire().await.unwrap();
            assert!(guard.fencing_token() > token);
            guard.release().await.unwrap();
        }
    }
    assert!((10..=30).contains(&moved), "{moved} of 60 names moved");
    assert_eq!(
        BTreeSet::from([
            old.lists_id().to_string(),
            both.lists_id().to_string(),
            new.lists_id().to_string()
        ])
        .len(),
        3
    );
}

/// Old and new programs do not exclude each other for a name that moves. That is why the groups are
/// changed in steps.
#[tokio::test(start_paused = true)]
async fn a_change_of_the_groups_in_one_step_has_two_holders() {
    let world = World::new();
    let (old, new) = (
        world.coordinator(&["a", "b"], &[]),
        world.coordinator(&IDS, &[]),
    );
    let name = name_in(&new, "c");
    let _old = old.mutex(&name).try_acquire().await.unwrap();
    let _new = new.mutex(&name).try_acquire().await.unwrap();
}

/// One set of masters is changed to groups, and back.
#[tokio::test(start_paused = true)]
async fn masters_without_groups_become_a_group() {
    let world = World::new();
    let one = || Coordinator::builder().masters(&world.masters[0]);
    let [group] = [world.groups(&["a"])];
    let same = Coordinator::builder().groups(group).build().unwrap();
    assert_eq!(same.lists_id(), one().build().unwrap().lists_id());
    let locks = one().build().unwrap();
    assert_eq!(locks.group_of("orders/42"), None);
    let both = world.coordinator(&IDS, &["a"]);
    for number in 0..20 {
        let name = format!("orders/{number}");
        let _guard = locks.mutex(&name).try_acquire().await.unwrap();
        let refused = both.mutex(&name).try_acquire().await;
        assert!(
            matches!(refused, Err(AcquireError::Contended { .. })),
            "{refused:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn groups_that_cannot_be_used_are_refused() {
    let masters = [(); 3].map(|()| MemoryMaster::new());
    let group = |id: &str| Group::new(id, [MemoryMaster::new()]);
    let many = |count: usize| (0..count).map(|number| group(&number.to_string()));
    let of = |groups: Vec<Group>| Coordinator::builder().groups(groups);
    for (builder, expected) in [
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
            "65 groups are too many: the maximum is 64",
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
            of(vec![group("a")]).masters(&masters),
            "masters were given without a group, too",
        ),
        (
            of(vec![group("a")]).leaving(&masters),
            "masters were given without a group, too",
        ),
        (
            of(Vec::new()).leaving_groups([group("a")]),
            "no masters were given",
        ),
        (
            of(many(20).collect())
                .leaving_groups((0..20).map(|number| group(&format!("old{number}")))),
            "400 pairs of groups between which names move are too many: the maximum is 256",
        ),
    ] {
        let refused: ConfigError = builder.build().unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    assert!(of(many(64).collect()).build().is_ok());
}

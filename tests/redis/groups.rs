//! Groups of real masters.

use std::{collections::BTreeSet, time::Duration};

use quorlock::{AcquireError, Builder, Group, Groups, ListsId, Lock, MasterSpec, Quarantine};
use tokio::time::sleep;

use crate::{
    change::{Shape, change},
    check::shared,
    common::*,
    connection_name::names,
    programs::clients,
};

const IDS: [&str; 3] = ["a", "b", "c"];

/// Returns the groups with these IDs. Each has as many of the masters.
fn groups(urls: &[String], ids: &[&str]) -> Vec<Group> {
    let sets = IDS.iter().zip(urls.chunks(urls.len() / IDS.len()));
    let sets = sets.filter(|(id, _)| ids.contains(id));
    sets.map(|(id, urls)| Group::new(*id, urls)).collect()
}

/// Starts a program with these groups of the masters.
fn open(settings: Builder, urls: &[String], ids: &[&str], leaving: &[&str]) -> Groups {
    Groups::change(settings, groups(urls, ids), groups(urls, leaving)).unwrap()
}

/// Returns a lock whose coordinator has this label.
fn lock_in(locks: &Groups, label: &str) -> Lock {
    let mut names = (0..).map(|number| format!("orders/{number}"));
    let name = names.find(|name| locks.of(name).label() == Some(label));
    let name = name.unwrap();
    locks.mutex(&name)
}

#[test]
fn an_old_process_that_wakes_up_after_the_change_overlaps() {
    let test = "groups::an_old_process_that_wakes_up_after_the_change_overlaps";
    change(test, Shape::Groups, 0);
}

/// It is barred on the masters of the group that had the lock.
#[test]
fn an_old_process_that_is_barred_gets_errors_only() {
    let test = "groups::an_old_process_that_is_barred_gets_errors_only";
    change(test, Shape::Groups, 2);
}

#[test]
fn a_third_group_takes_a_third_of_the_names() {
    const COUNT: usize = 30_000;
    run(async {
        // No one listens there, and no one is asked.
        let urls = [1, 2, 3].map(|port| format!("redis://127.0.0.1:{port}"));
        let locks = |ids, leaving| open(patient(), &urls, ids, leaving);
        let old = locks(&["a", "b"], &[]);
        let (both, new) = (locks(&IDS, &["a", "b"]), locks(&IDS, &[]));
        let mut moved = 0_usize;
        for number in 0..COUNT {
            let name = format!("orders/{number}");
            let [was, during, is] =
                [&old, &both, &new].map(|locks| locks.of(&name).label().unwrap());
            if was == is {
                assert_eq!(during, is, "{name}");
            } else {
                assert_eq!((during, is), (&*format!("{was}->c"), "c"), "{name}");
                moved += 1;
            }
        }
        let third = COUNT / 3;
        assert!(
            moved.abs_diff(third) <= third * 3 / 100,
            "{moved} of {COUNT}"
        );
    });
}

/// Returns how many commands the server has had, with the one that asks.
fn commands(master: &Server) -> u64 {
    let stats = master.command(&["INFO", "stats"]);
    let mut lines = stats.lines();
    let count = lines.find_map(|line| line.strip_prefix("total_commands_processed:"));
    count.unwrap().trim().parse().unwrap()
}

/// Returns how many commands each server gets in this time.
async fn sent_within(time: Duration, masters: &[Server]) -> Vec<u64> {
    let before: Vec<_> = masters.iter().map(commands).collect();
    sleep(time).await;
    let sent = masters.iter().zip(before);
    sent.map(|(master, before)| commands(master) - before - 1)
        .collect()
}

#[test]
fn names_that_move_have_no_connections_before_they_are_used_and_idle_groups_send_nothing() {
    with_masters(9, async |masters| {
        let locks = open(patient(), &urls(&masters), &IDS, &["a", "b"]);
        for ready in locks.ready(TEST_TIMEOUT / 2).await {
            ready.unwrap();
        }
        let connections = || masters.iter().map(|master| names(master).len());
        assert!(connections().eq([1, 1, 1, 1, 1, 1, 0, 0, 0]));
        let label = "b->c";
        let guard = acquire_on_all(&lock_in(&locks, label)).await;
        guard.release().await.unwrap();
        let opened: Vec<_> = locks.coordinators().map(|group| group.label()).collect();
        assert!(opened.contains(&Some(label)));
        // What follows a first use takes some time.
        until("no more commands", async || {
            let sent = sent_within(millis(300), &masters).await;
            (sent == [0; 9]).then_some(())
        })
        .await;
        assert_eq!(sent_within(millis(3_000), &masters).await, [0; 9]);
        locks.close().await;
    });
}

#[test]
fn the_outage_of_a_group_leaves_the_others_as_they_are() {
    with_masters(9, async |mut masters| {
        let locks = open(patient(), &urls(&masters), &IDS, &[]);
        for group in locks.coordinators() {
            group.all_ready(TEST_TIMEOUT / 2).await.unwrap();
        }
        let [a, b, c] = IDS.map(|id| lock_in(&locks, id));
        let held = c.acquire().await.unwrap();
        masters[3..6].iter_mut().for_each(Server::kill);
        let waiter = tokio::spawn({
            let b = b.clone();
            async move { b.acquire_within(TEST_TIMEOUT / 2).await }
        });
        for _ in 0..50 {
            let refused = b.try_acquire().await.unwrap_err();
            assert!(
                matches!(refused, AcquireError::NoQuorum { .. }),
                "{refused}"
            );
            let guard = a.try_acquire().await.unwrap();
            assert_eq!(guard.settled().await.granted_count(), 3);
            guard.release().await.unwrap();
        }
        held.extend(LONG).await.unwrap();
        assert!(!waiter.is_finished());
        masters[3..6].iter_mut().for_each(Server::restart);
        let guard = waiter.await.unwrap().unwrap();
        guard.release().await.unwrap();
        held.release().await.unwrap();
        locks.close().await;
    });
}

/// Starts a program, and uses a name of each of its coordinators.
async fn start(name: &str, urls: &[String], (ids, leaving): (&[&str], &[&str])) -> Groups {
    let locks = open(patient().client_name(name), urls, ids, leaving);
    let moving = if leaving.is_empty() {
        &[][..]
    } else {
        &["a->c", "b->c"]
    };
    let staying = ids
        .iter()
        .filter(|id| leaving.is_empty() || leaving.contains(id));
    for label in staying.chain(moving) {
        let guard = acquire_on_all(&lock_in(&locks, label)).await;
        guard.release().await.unwrap();
    }
    locks
}

/// Returns the clients with these lists that the masters of each group show.
async fn seen(urls: &[String], lists: ListsId) -> Vec<BTreeSet<String>> {
    let mut seen = Vec::new();
    for urls in urls.chunks(urls.len() / IDS.len()) {
        let masters: Vec<_> = urls.iter().map(MasterSpec::from).collect();
        let shared = shared(Quarantine::Off);
        let report = quorlock_check::check(&masters, &[], &shared).await.unwrap();
        let clients = report.programs.iter().map(|master| clients(master, lists));
        seen.push(clients.flatten().collect());
    }
    seen
}

/// All coordinators of a program show the same lists, so it can be seen who is late in a change.
#[test]
fn masters_show_which_groups_programs_use() {
    with_masters(3, async |masters| {
        let urls = urls(&masters);
        let before = start("before", &urls, (&["a", "b"], &[])).await;
        let both = start("both", &urls, (&IDS, &["a", "b"])).await;
        let after = start("after", &urls, (&IDS, &[])).await;
        for (locks, name, groups) in [
            (&before, "before", 2),
            (&both, "both", 3),
            (&after, "after", 3),
        ] {
            let mut expected = vec![BTreeSet::from([name.to_owned()]); groups];
            expected.resize_with(IDS.len(), BTreeSet::new);
            assert_eq!(
                seen(&urls, locks.of("").lists_id()).await,
                expected,
                "{name}"
            );
        }
        let lists = before.of("").lists_id();
        before.close().await;
        drop(before);
        until("the old program is gone", async || {
            let seen = seen(&urls, lists).await;
            seen.iter().all(BTreeSet::is_empty).then_some(())
        })
        .await;
        both.close().await;
        after.close().await;
    });
}

//! Groups of real masters.

use std::time::Duration;

use quorlock::{AcquireError, Builder, Coordinator, Group, MasterState};
use tokio::time::sleep;

use crate::{
    change::{Shape, change},
    common::*,
    connection_name::names,
};

const IDS: [&str; 3] = ["a", "b", "c"];

/// Returns the groups with these IDs. Each has as many of the masters.
fn groups(urls: &[String], ids: &[&str]) -> Vec<Group> {
    let sets = IDS.iter().zip(urls.chunks(urls.len() / IDS.len()));
    let sets = sets.filter(|(id, _)| ids.contains(id));
    sets.map(|(id, urls)| Group::new(*id, urls)).collect()
}

/// Returns the settings of a program with these groups of the masters.
fn program(urls: &[String], ids: &[&str], leaving: &[&str]) -> Builder {
    let builder = patient().groups(groups(urls, ids));
    builder.leaving_groups(groups(urls, leaving))
}

/// Returns a name in the group.
fn name_in(locks: &Coordinator, group: &str) -> String {
    let mut names = (0..).map(|number| format!("orders/{number}"));
    names
        .find(|name| locks.group_of(name) == Some(group))
        .unwrap()
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
        let locks = |ids, leaving| {
            let builder = program(&urls, ids, leaving).dial_at_first_use(true);
            builder.build().unwrap()
        };
        let old = locks(&["a", "b"], &[]);
        let (both, new) = (locks(&IDS, &["a", "b"]), locks(&IDS, &[]));
        let mut moved = 0_usize;
        for number in 0..COUNT {
            let name = format!("orders/{number}");
            let [was, during, is] = [&old, &both, &new].map(|locks| locks.group_of(&name).unwrap());
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
fn unused_groups_have_no_connections_and_idle_ones_send_nothing() {
    with_masters(9, async |masters| {
        let builder = program(&urls(&masters), &IDS, &[]).dial_at_first_use(true);
        let locks = builder.build().unwrap();
        let guard = acquire_on_all(&locks.mutex(name_in(&locks, "b"))).await;
        guard.release().await.unwrap();
        let is_used = |at: usize| (3..6).contains(&at);
        for (at, (master, health)) in masters.iter().zip(locks.health()).enumerate() {
            let is_unused = health.state == MasterState::Unused;
            assert_eq!(is_unused, !is_used(at), "{health}");
            assert_eq!(names(master).len(), usize::from(is_used(at)), "{health}");
        }
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
        let locks = program(&urls(&masters), &IDS, &[]).build().unwrap();
        locks.all_ready(TEST_TIMEOUT / 2).await.unwrap();
        let [a, b, c] = IDS.map(|id| locks.mutex(name_in(&locks, id)));
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
            assert!(refused.to_string().contains("group b"), "{refused}");
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

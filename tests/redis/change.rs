//! A change of the masters, while a process with the old masters is stopped. It was believed gone,
//! and wakes up at the end.

use std::{env, io, mem, time::Duration};

use quorlock::{AcquireError, Group, Groups, Lock};
use tokio::{task::block_in_place, time::sleep};

use crate::{common::*, process::Process};

const TTL: Duration = Duration::from_secs(1);

/// The wait before the first process with only new masters: the longest TTL with its drift, or
/// three seconds if that is shorter.
const WAIT: Duration = Duration::from_secs(3);

const NAMES: [&str; 3] = ["old", "joint", "new"];

/// Environment variables of the old process, which is a second run of a test.
const MASTERS: &str = "QUORLOCK_CHANGE_MASTERS";
const IS_BARRED: &str = "QUORLOCK_CHANGE_BARRED";

/// What is changed. The lock is on the first three masters before, and on the next three after.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    /// The list of masters of one group.
    List,
    /// Groups of masters. There are groups `a` and `b` before, and `c`, too, after.
    Groups,
}

impl Shape {
    fn master_count(self) -> usize {
        if self == Self::List { 6 } else { 7 }
    }

    fn before(self, urls: &[String]) -> Groups {
        open(self.old_groups(urls), Vec::new())
    }

    fn during(self, urls: &[String]) -> Groups {
        open(self.new_groups(urls), self.old_groups(urls))
    }

    fn after(self, urls: &[String]) -> Groups {
        open(self.new_groups(urls), Vec::new())
    }

    fn old_groups(self, urls: &[String]) -> Vec<Group> {
        match self {
            Self::List => vec![Group::new("all", &urls[..3])],
            Self::Groups => groups(urls, &["a", "b"]),
        }
    }

    fn new_groups(self, urls: &[String]) -> Vec<Group> {
        match self {
            Self::List => vec![Group::new("all", &urls[3..])],
            Self::Groups => groups(urls, &["a", "b", "c"]),
        }
    }

    /// Returns the name of the lock.
    fn name(self, urls: &[String]) -> String {
        let locks = self.during(urls);
        let label = if self == Self::List { "all" } else { "a->c" };
        let mut names = (0..).map(|number| format!("r{number}"));
        names
            .find(|name| locks.of(name).label() == Some(label))
            .unwrap()
    }
}

fn groups(urls: &[String], ids: &[&str]) -> Vec<Group> {
    let masters = |id: &str| match id {
        "a" => &urls[..3],
        "c" => &urls[3..6],
        _ => &urls[6..],
    };
    ids.iter().map(|id| Group::new(*id, masters(id))).collect()
}

fn open(groups: Vec<Group>, leaving: Vec<Group>) -> Groups {
    let settings = patient().node_timeout(TTL / 4).ttl(TTL).max_ttl(TTL);
    Groups::change(settings, groups, leaving).unwrap()
}

/// Returns the masters' URLs with the user that the programs of one rollout have.
fn urls_of(user: &str, masters: &[Server]) -> Vec<String> {
    let url = |master: &Server| format!("redis://{user}:pw@127.0.0.1:{}", master.port());
    masters.iter().map(url).collect()
}

#[test]
fn an_old_process_that_wakes_up_after_the_change_overlaps() {
    let test = "change::an_old_process_that_wakes_up_after_the_change_overlaps";
    change(test, Shape::List, 0);
}

#[test]
fn an_old_process_that_is_barred_on_too_few_masters_overlaps() {
    let test = "change::an_old_process_that_is_barred_on_too_few_masters_overlaps";
    change(test, Shape::List, 1);
}

#[test]
fn an_old_process_that_is_barred_gets_errors_only() {
    let test = "change::an_old_process_that_is_barred_gets_errors_only";
    change(test, Shape::List, 2);
}

/// Changes masters while an old process is stopped, and deletes its user on `barred` of the three
/// old masters that have the lock. Two make it certain that a majority is missing.
pub(crate) fn change(test: &str, shape: Shape, barred: usize) {
    if let Ok(masters) = env::var(MASTERS) {
        let masters: Vec<_> = masters.split(',').map(str::to_owned).collect();
        let is_barred = env::var(IS_BARRED).unwrap() == "true";
        return run(wake_up_late(shape, &masters, is_barred));
    }
    with_masters(shape.master_count(), async |masters| {
        for master in &masters {
            for name in NAMES {
                let words = ["ACL", "SETUSER", name, "on", ">pw", "~*", "&*", "+@all"];
                assert_eq!(master.command(&words), "OK");
            }
        }
        let old = &masters[..3];
        let urls = NAMES.map(|user| urls_of(user, &masters));
        let name = shape.name(&urls[0]);
        let mut late = Process::start(
            test,
            [
                (MASTERS, urls[0].join(",").into()),
                (IS_BARRED, (barred == 2).to_string().into()),
            ],
        );
        until_held(&name, old).await;
        until_renewed(&name, &old[0]).await;
        late.pause();

        let joint = shape.during(&urls[1]);
        let lock = joint.mutex(&name);
        let held = lock.acquire_within(TTL * 10).await.unwrap();
        held.release().await.unwrap();
        for master in &old[..barred] {
            assert_eq!(master.command(&["ACL", "DELUSER", "old"]), "1");
        }
        sleep(WAIT).await;
        let locks = shape.after(&urls[2]);
        let next = locks.mutex(&name);
        let next = next.acquire_within(TTL * 10).await.unwrap();
        joint.close().await;

        late.resume();
        late.write_line();
        if barred < 2 {
            until_held(&name, &old[1..]).await;
            assert!(next.is_valid());
            late.write_line();
        }
        block_in_place(|| late.finish());
        // This guard was valid at all times while the old process tried.
        assert!(next.is_valid());
        next.release().await.unwrap();
        locks.close().await;
    });
}

/// Waits until two masters of `masters` hold the lock.
async fn until_held(name: &str, masters: &[Server]) {
    until("a held lock", async || {
        let held = masters.iter().filter(|master| pttl(master, name) > 0);
        (held.count() >= 2).then_some(())
    })
    .await;
}

/// Waits until a master extends the lock. By then, the holder has its guard: one that is stopped
/// before it knows that it has won acquires the lock again.
async fn until_renewed(name: &str, master: &Server) {
    let mut last = i64::MAX;
    until("a renewal", async || {
        let before = mem::replace(&mut last, pttl(master, name));
        (before > 0 && last > before).then_some(())
    })
    .await;
}

/// Holds the lock until it was stopped for so long that the lock is lost. Then acquires it again,
/// or fails to, on the old masters.
async fn wake_up_late(shape: Shape, masters: &[String], is_barred: bool) {
    let (locks, name) = (shape.before(masters), shape.name(masters));
    let lock = locks.mutex(&name);
    let held = lock.acquire_within(TTL * 10).await.unwrap();
    until_told();
    assert!(!held.is_valid());
    drop(held);
    if is_barred {
        return get_errors(&lock).await;
    }
    let again = lock.acquire_within(TTL * 10).await.unwrap();
    until_told();
    assert!(again.is_valid());
    again.release().await.unwrap();
}

/// Tries to acquire the lock for a while, and fails if it gets it.
async fn get_errors(lock: &Lock) {
    let mut last = String::new();
    for _ in 0..30 {
        let error = lock.try_acquire().await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        last = error.to_string();
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(last.matches("WRONGPASS").count(), 2, "{last}");
    let late = lock.acquire_within(TTL).await.unwrap_err();
    assert!(late.to_string().contains("WRONGPASS"), "{late}");
}

fn until_told() {
    block_in_place(|| io::stdin().read_line(&mut String::new())).unwrap();
}

//! Locks that are kept by renewal, and locks that are lost, on real servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use quorlock::{
    Builder, Coordinator, ExtendError, Guard, LockState, LostReason, Renewal, RunError,
};
use tokio::time::{error::Elapsed, sleep, timeout};

use crate::common::*;

const TTL: Duration = Duration::from_millis(1_500);

fn renewing() -> Builder {
    brisk().ttl(TTL)
}

fn is_lost(guard: &Guard) -> bool {
    matches!(guard.state(), LockState::Lost(_))
}

/// Waits until `guard` has this state, and fails if the lock is lost first.
async fn until_state(guard: &Guard, state: LockState) {
    until(&format!("{state:?}"), async || {
        let now = guard.state();
        assert!(now == state || !is_lost(guard), "{now:?}");
        (now == state).then_some(())
    })
    .await;
}

#[test]
fn a_lock_is_kept_through_a_rolling_restart_of_all_masters() {
    with_masters(5, async |mut masters| {
        let locks = coordinator(renewing(), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        let token = masters[0].command(&["GET", "r"]);
        for master in &mut masters {
            master.kill();
            sleep(TTL / 5).await;
            assert!(!is_lost(&guard));
            master.restart();
            until("the key put back", async || {
                assert!(!is_lost(&guard));
                (master.command(&["GET", "r"]) == token).then_some(())
            })
            .await;
        }
        until_state(&guard, LockState::Held).await;
        for master in &masters {
            assert_eq!(master.command(&["GET", "r"]), token);
        }
        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn two_of_five_masters_that_stand_still_do_not_cost_the_lock() {
    with_masters(5, async |masters| {
        let ttl = millis(600);
        let locks = coordinator(brisk().ttl(ttl), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        masters[0].pause();
        masters[1].pause();
        let start = Instant::now();
        while start.elapsed() < ttl * 10 {
            assert!(guard.is_valid(), "after {:?}", start.elapsed());
            assert!(!is_lost(&guard));
            sleep(millis(20)).await;
        }
        masters[0].resume();
        masters[1].resume();
        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn three_of_five_masters_that_stand_still_put_the_lock_in_doubt_and_then_end_it() {
    with_masters_alone(5, async |masters| {
        let locks = coordinator(renewing(), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        masters[..3].iter().for_each(Server::pause);
        until_state(&guard, LockState::InDoubt).await;
        let until = guard.valid_until();
        let lost = timeout(TEST_TIMEOUT / 4, guard.lost()).await.unwrap();
        let now = Instant::now();
        assert_eq!(lost.reason, LostReason::Expired);
        assert_eq!(guard.valid_until(), until);
        assert!(now >= until, "{:?} too early", until - now);
        assert!(now - until < millis(1_000), "{:?} too late", now - until);

        masters[..3].iter().for_each(Server::resume);
        sleep(TTL / 2).await; // long enough for a renewal, which must not revert the loss
        assert_eq!(guard.state(), LockState::Lost(LostReason::Expired));
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert!(guard.ensure_held().is_err());
        let refused = guard.extend(LONG).await.unwrap_err();
        assert!(matches!(refused, ExtendError::Expired { .. }), "{refused}");
    });
}

#[test]
fn masters_that_come_back_in_time_end_the_doubt() {
    with_masters_alone(5, async |masters| {
        let locks = coordinator(renewing().ttl(TTL * 2), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        masters[..3].iter().for_each(Server::pause);
        until_state(&guard, LockState::InDoubt).await;
        masters[..3].iter().for_each(Server::resume);
        until_state(&guard, LockState::Held).await;
        sleep(TTL * 2).await; // without renewal, the validity would end in this time
        assert!(guard.is_valid());
    });
}

#[test]
fn a_key_that_a_majority_lost_is_a_lost_lock_at_the_next_renewal() {
    with_masters_alone(5, async |masters| {
        let locks = coordinator(renewing(), &masters);
        for lost_on in [3, 5] {
            let guard = acquire_on_all(&locks.mutex("r")).await;
            for master in &masters[..lost_on] {
                assert_eq!(master.command(&["DEL", "r"]), "1");
            }
            let start = Instant::now();
            let lost = timeout(TTL * 3, guard.lost()).await.unwrap();
            assert_eq!(lost.reason, LostReason::Disowned);
            assert!(start.elapsed() < TTL - millis(200));
            assert!(matches!(
                guard.extend(TTL).await,
                Err(ExtendError::Lost { .. })
            ));
            guard.release().await.unwrap();
        }
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn a_key_that_a_minority_lost_is_put_back() {
    with_masters(5, async |masters| {
        let locks = coordinator(renewing(), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        let token = masters[4].command(&["GET", "r"]);
        for master in &masters[..2] {
            assert_eq!(master.command(&["DEL", "r"]), "1");
        }
        for master in &masters[..2] {
            until("the key put back", async || {
                assert!(!is_lost(&guard));
                (master.command(&["GET", "r"]) == token).then_some(())
            })
            .await;
        }
        assert!(guard.is_valid());
    });
}

#[test]
fn the_key_of_another_owner_is_left_alone() {
    with_masters(3, async |masters| {
        let locks = coordinator(renewing(), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        for master in &masters {
            let set = master.command(&["SET", "r", "another's", "PX", "60000"]);
            assert_eq!(set, "OK");
        }
        let lost = timeout(TTL * 3, guard.lost()).await.unwrap();
        assert_eq!(lost.reason, LostReason::Disowned);
        guard.release().await.unwrap();
        locks.close().await;
        for master in &masters {
            assert_eq!(master.command(&["GET", "r"]), "another's");
            assert!((50_000..=60_000).contains(&pttl(master, "r")));
        }
    });
}

/// Guards are released just before the first renewal is due, at that time, and just after it.
#[test]
fn no_renewal_is_sent_after_a_release_in_ten_thousand_locks() {
    with_masters(3, async |masters| {
        let locks = coordinator(renewing().node_timeout(millis(1_000)), &masters);
        // The servers then have the scripts, which are called by their hashes.
        let guard = acquire_on_all(&locks.mutex("first")).await;
        guard.extend(TTL).await.unwrap();
        guard.release().await.unwrap();
        let monitor = Monitor::start(&masters[0]);
        for round in 0..10 {
            let mut tasks = Vec::new();
            for n in 0..1_000_u64 {
                let lock = locks.mutex(format!("{round}/{n}"));
                tasks.push(tokio::spawn(async move {
                    let guard = lock.acquire_within(TEST_TIMEOUT / 4).await.unwrap();
                    let ahead = (TTL - TTL / 100 - millis(2)) / 3 * 2;
                    let due = guard.remaining().saturating_sub(ahead);
                    let off = Duration::from_micros(rand::random_range(0..30_000));
                    sleep(due.saturating_sub(millis(15)) + off).await;
                    match n % 2 {
                        0 => drop(guard),
                        _ => guard.release().await.unwrap(),
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        }
        close_at_once(&locks).await;
        assert_no_keys(&masters);
        let before: Vec<_> = masters.iter().map(commands).collect();
        sleep(TTL / 2).await; // more than one renewal period
        for (master, before) in masters.iter().zip(before) {
            assert_eq!(commands(master), before + 1, "only the test's own command");
        }
        assert_no_keys(&masters);

        let seen = monitor.seen(&masters[0]);
        assert_eq!(seen.len(), 10_000);
        // Servers with a command for releases get some by that command, and others by the script.
        let releases: BTreeSet<_> = seen
            .values()
            .filter_map(|commands| commands.last())
            .collect();
        let mut renewed = 0;
        for (name, commands) in &seen {
            let last = commands
                .iter()
                .position(|command| releases.contains(command));
            assert_eq!(last, Some(commands.len() - 1), "{name}: {commands:?}");
            renewed += usize::from(commands.len() > 2);
        }
        assert!(
            (1_000..9_000).contains(&renewed),
            "{renewed}: releases and renewals do not race"
        );
    });
}

/// The commands that a server executes, as reported by `MONITOR`.
struct Monitor {
    lines: thread::JoinHandle<Vec<String>>,
}

impl Monitor {
    fn start(master: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", master.port())).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        (&stream).write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "+OK");
        Self {
            lines: thread::spawn(move || {
                let is_last = |line: &String| line.contains("that is all");
                lines.take_while(|line| !is_last(line)).collect()
            }),
        }
    }

    /// Returns the commands for each lock name, in order. A script is shown by its hash, any other
    /// command by its name.
    fn seen(self, master: &Server) -> BTreeMap<String, Vec<String>> {
        master.command(&["ECHO", "that is all"]);
        let mut seen = BTreeMap::<_, Vec<_>>::new();
        for line in self.lines.join().unwrap() {
            let words: Vec<_> = line.split('"').skip(1).step_by(2).collect();
            let (command, name) = match words[..] {
                _ if line.contains(" lua] ") => continue, // commands run by scripts
                ["EVALSHA", script, "1", name, ..] => (script, name),
                [command @ ("DELEX" | "DELIFEQ" | "SET"), name, ..] => (command, name),
                _ => continue,
            };
            let commands = seen.entry(name.to_owned()).or_default();
            commands.push(command.to_owned());
        }
        seen
    }
}

/// The number of commands that the server has executed.
fn commands(master: &Server) -> u64 {
    let info = master.command(&["INFO", "stats"]);
    let count = info
        .lines()
        .find_map(|line| line.strip_prefix("total_commands_processed:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn a_lock_ends_at_its_renewal_limit() {
    with_masters_alone(3, async |masters| {
        let locks = coordinator(renewing().ttl(millis(600)), &masters);
        let most = millis(1_500);
        let bounded = acquire_on_all(&locks.mutex("bounded").renewal(Renewal::UpTo(most))).await;
        let fixed =
            acquire_on_all(&locks.mutex("fixed").ttl(millis(600)).renewal(Renewal::Off)).await;
        let off = acquire_on_all(&locks.mutex("off").renewal(Renewal::Off)).await;
        let stopped = acquire_on_all(&locks.mutex("stopped")).await;
        let kept = acquire_on_all(&locks.mutex("kept")).await;
        stopped.stop_renewing();
        let start = Instant::now();
        for guard in [&fixed, &off, &stopped] {
            let lost = timeout(millis(1_100), guard.lost()).await.unwrap();
            assert_eq!(lost.reason, LostReason::Expired);
        }
        assert!(bounded.is_valid());
        let lost = timeout(most + TTL, bounded.lost()).await.unwrap();
        assert_eq!(lost.reason, LostReason::RenewalLimit);
        assert!(start.elapsed() > most - millis(100));
        kept.extend(millis(700)).await.unwrap();
        assert!(kept.is_valid());
        until("the keys gone", async || {
            (masters[0].command(&["KEYS", "*"]) == "kept").then_some(())
        })
        .await;
    });
}

#[test]
fn a_thousand_locks_are_kept_while_a_master_stands_still() {
    with_masters(3, async |masters| {
        let builder = renewing().node_timeout(millis(300));
        let locks = coordinator(builder, &masters);
        acquire_on_all(&locks.mutex("warm"))
            .await
            .release()
            .await
            .unwrap();
        let acquiring: Vec<_> = (0..1_000)
            .map(|n| {
                let lock = locks.mutex(format!("lock {n}"));
                tokio::spawn(async move { lock.acquire_within(TEST_TIMEOUT / 8).await.unwrap() })
            })
            .collect();
        let mut guards = Vec::new();
        for acquired in acquiring {
            guards.push(acquired.await.unwrap());
        }
        masters[0].pause();
        let start = Instant::now();
        while start.elapsed() < TTL * 2 {
            sleep(millis(50)).await;
            assert!(guards.iter().all(Guard::is_valid));
        }
        masters[0].resume();
        drop(guards);
        locks.close().await;
        assert_no_keys(&masters);
    });
}

struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn work_under_a_lock_ends_with_it() {
    with_masters(3, async |masters| {
        let locks = coordinator(renewing(), &masters);
        let lock = locks.mutex("r");
        acquire_on_all(&lock).await.release().await.unwrap();
        let done = lock
            .run(async |guard| {
                sleep(TTL * 2).await;
                guard.ensure_held().map_err(|lost| lost.to_string())?;
                Ok::<_, String>(42)
            })
            .await;
        assert_eq!(done.unwrap(), 42);

        let dropped = Arc::<AtomicBool>::default();
        let flag = Flag(dropped.clone());
        let run = lock.run(async |_| {
            let _flag = flag;
            for master in &masters {
                master.command(&["DEL", "r"]);
            }
            pending::<Result<(), ()>>().await
        });
        let outcome = timeout(TTL * 3, run).await.unwrap();
        let is_lost =
            matches!(&outcome, Err(RunError::Lost(lost)) if lost.reason == LostReason::Disowned);
        assert!(is_lost, "{outcome:?}");
        assert!(dropped.load(Ordering::SeqCst));

        let run = lock.run(async |_| pending::<Result<(), ()>>().await);
        assert!(timeout(TTL, run).await.is_err());
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

/// A renewal is under way when most of the runs are dropped. It must put the key back on a master.
#[test]
fn a_run_that_is_dropped_while_it_is_renewed_leaves_nothing_and_the_next_gets_it() {
    with_masters(3, async |masters| {
        let locks = coordinator(renewing(), &masters);
        let warm = locks.mutex("warm");
        acquire_on_all(&warm).await.release().await.unwrap();
        let (masters, ran) = (Arc::new(masters), Arc::<AtomicUsize>::default());
        for round in 0..3 {
            let runs = (0..20).map(|number| {
                let (masters, ran) = (masters.clone(), ran.clone());
                let name = format!("r{number}");
                let lock = locks.mutex(&*name);
                tokio::spawn(async move {
                    let run = lock.run(async |_| {
                        ran.fetch_add(1, Ordering::SeqCst);
                        masters[number as usize % 3].command(&["DEL", &name]);
                        pending::<Result<(), ()>>().await
                    });
                    // The first renewal is due about 494 ms after the lock is asked for.
                    let moment = Duration::from_micros(490_000 + 200 * (20 * round + number));
                    let ended = timeout(moment, run).await;
                    assert!(ended.is_err(), "{ended:?}");
                    let next = timeout(TTL - millis(100), lock.acquire()).await;
                    let next = next.expect("the lock is still held").unwrap();
                    next.release().await.unwrap();
                })
            });
            for run in runs.collect::<Vec<_>>() {
                run.await.unwrap();
            }
        }
        assert!(ran.load(Ordering::SeqCst) > 50);
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

#[test]
fn the_loss_can_be_waited_for_again_after_a_dropped_wait() {
    with_masters_alone(3, async |masters| {
        let locks = coordinator(renewing(), &masters);
        for polls in 0..5 {
            let guard = acquire_on_all(&locks.mutex("r")).await;
            let dropped = timeout(TTL, polled(polls, guard.lost())).await;
            assert!(matches!(dropped, Err(_) | Ok(None)), "{dropped:?}");
            assert!(guard.is_valid());
            for master in &masters {
                assert_eq!(master.command(&["DEL", "r"]), "1");
            }
            let lost = timeout(TTL - millis(200), guard.lost()).await;
            assert_eq!(lost.unwrap().reason, LostReason::Disowned);
        }
    });
}

#[test]
fn close_does_not_end_a_guard_in_doubt() {
    with_masters(5, async |masters| {
        let locks = coordinator(renewing().ttl(TTL * 2), &masters);
        let guard = acquire_on_all(&locks.mutex("r")).await;
        masters[..3].iter().for_each(Server::pause);
        until_state(&guard, LockState::InDoubt).await;
        let until = guard.valid_until();
        close_within(&locks, millis(100)).await.unwrap();
        assert_eq!(guard.state(), LockState::InDoubt);
        assert_eq!(guard.valid_until(), until);
        masters[..3].iter().for_each(Server::resume);
        until_state(&guard, LockState::Held).await;
        assert!(guard.valid_until() > until);

        masters[..3].iter().for_each(Server::pause);
        until_state(&guard, LockState::InDoubt).await;
        drop(guard);
        let early = close_within(&locks, millis(300)).await;
        assert!(
            early.is_err(),
            "three masters have not received the release"
        );
        masters[..3].iter().for_each(Server::resume);
        close_at_once(&locks).await;
        assert_no_keys(&masters);
    });
}

async fn close_within(locks: &Coordinator, time: Duration) -> Result<(), Elapsed> {
    timeout(time, locks.close()).await
}

#[test]
fn renewed_guards_outlive_their_runtime_without_harm() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(3);
    let theirs = runtime();
    let (locks, guards) = theirs.block_on(async {
        let locks = coordinator(renewing(), &masters);
        let mut guards = Vec::new();
        for name in ["thread", "here", "lost"] {
            guards.push(acquire_on_all(&locks.mutex(name)).await);
        }
        (locks, guards)
    });
    let [thread, here, lost] = <[_; 3]>::try_from(guards).unwrap();
    thread::spawn(move || drop(thread)).join().unwrap();
    theirs.block_on(until("the key of the first gone", async || {
        (masters[0].command(&["EXISTS", "thread"]) == "0").then_some(())
    }));
    drop(theirs);
    drop(here);
    run(async {
        let error = timeout(TTL * 2, lost.lost()).await.unwrap();
        assert_eq!(error.reason, LostReason::Ended);
        drop(lost);
        close_at_once(&locks).await;
    });
}

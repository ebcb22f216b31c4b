//! Locks that are kept by renewal, and locks that are lost, on real servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use quorlock::{Builder, ExtendError, Guard, LockState, LostReason};
use tokio::time::{sleep, timeout};

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

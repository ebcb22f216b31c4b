//! No connection is given up because of a stall of the client or a burst of commands.

use std::{thread, time::Duration};

use quorlock::{Coordinator, Quarantine};
use testkit::hostile::{fake_server::Fake, load, process_stats::Log};
use tokio::time::{sleep, timeout};

use crate::own_process::{current_thread, in_own_process, multi_thread};

/// The runtime stalls while an attempt is under way, and while masters are dialled.
#[test]
fn a_stall_in_the_middle_of_a_dial_or_an_attempt_gives_up_no_connection() {
    in_own_process(|| {
        let log = Log::listen();
        for _ in 0..5 {
            let fakes = [(); 3].map(|()| Fake::honest(ANSWER));
            current_thread().block_on(async {
                let locks = coordinator(&fakes);
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                thread::sleep(STALL);
                sleep(Duration::from_millis(1)).await;
                let guard = locks.mutex("a").try_acquire().await.unwrap();
                guard.all_votes().await;
                let extending = tokio::spawn(async move {
                    let _ = guard.extend(Duration::from_secs(10)).await;
                    guard
                });
                tokio::task::yield_now().await;
                thread::sleep(STALL);
                sleep(Duration::from_millis(1)).await;
                drop(extending.await.unwrap());
                timeout(Duration::from_secs(5), locks.close())
                    .await
                    .unwrap();
                assert_eq!(fakes.each_ref().map(Fake::connections), [1, 1, 1]);
            });
        }
        assert_eq!(log.downs(), 0, "{}", log.lines());
    });
}

/// The masters answer one command after the other, and none of them is silent for long.
#[test]
fn ten_thousand_guards_dropped_at_once_give_up_no_connection() {
    in_own_process(|| {
        let log = Log::listen();
        let fakes = [(); 3].map(|()| Fake::honest(Duration::from_micros(50)));
        multi_thread().block_on(async {
            let locks = coordinator(&fakes);
            let guards = load::hold(&locks, 10_000, Duration::from_secs(60)).await;
            let before = fakes.each_ref().map(Fake::connections);
            log.clear();
            drop(guards);
            timeout(Duration::from_secs(30), locks.close())
                .await
                .unwrap();
            assert_eq!(log.downs(), 0, "{}", log.lines());
            assert_eq!(fakes.each_ref().map(Fake::connections), before);
            // An acquire that waited too long for a busy master was never sent, and needs no
            // release there.
            let acquires = fakes.each_ref().map(Fake::acquires);
            let commands = fakes.each_ref().map(Fake::commands);
            assert!(acquires.iter().sum::<usize>() >= 20_000, "{acquires:?}");
            assert!(
                (0..3).all(|at| commands[at] >= 2 * acquires[at]),
                "{acquires:?} {commands:?}"
            );
        });
    });
}

fn coordinator(fakes: &[Fake]) -> Coordinator {
    Coordinator::builder()
        .masters(fakes.iter().map(Fake::url))
        .quarantine(Quarantine::Off)
        .response_timeout(RESPONSE_TIMEOUT)
        .build()
        .unwrap()
}

/// The time that a master takes for a command. This time is so long that answers arrive only after
/// this process has noticed the stall.
const ANSWER: Duration = Duration::from_millis(15);

const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);
/// This is longer than a connection may be silent.
const STALL: Duration = Duration::from_millis(400);

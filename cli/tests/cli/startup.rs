//! The time from the start to the first instruction of the command.

use std::{
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use testkit::server::{Server, masters};

use crate::support::{Running, ended, run, with};

#[test]
fn the_start_takes_little_longer_than_flock() {
    if Command::new("flock").arg("--version").output().is_err() {
        println!("skipped: flock is not installed");
        return;
    }
    let masters = masters(3);
    let file = masters[0].directory().join("lock");
    let file = file.to_str().unwrap();
    let median = |command: &mut dyn FnMut() -> Command| {
        let mut times: Vec<_> = (0..41).map(|_| start(&mut command())).collect();
        times.sort();
        times[times.len() / 2]
    };
    let flock = median(&mut || {
        let mut flock = Command::new("flock");
        flock.args([file, "date", "+%s%N"]);
        flock
    });
    let run = median(&mut || with(&masters, "run a -- date +%s%N"));
    let over = run.saturating_sub(flock);
    println!(
        "figure cli_run_over_flock_ms {:.1} ms",
        over.as_secs_f64() * 1e3
    );
    println!("figure flock_ms {:.1} ms", flock.as_secs_f64() * 1e3);
    // The goal is 25 ms on a machine with nothing else to do.
    assert!(over < Duration::from_millis(250), "{over:?}");
}

/// Returns the time until the command, which is `date`, has read the clock.
fn start(command: &mut Command) -> Duration {
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
    };
    let before = now();
    let out = ended(command).is(0).out;
    let then = Duration::from_nanos(out.trim().parse().unwrap());
    then.saturating_sub(before)
}

/// A silent master never confirms the release. One that refuses connections is no reason to wait.
#[test]
fn silent_masters_delay_the_end_little() {
    let mut masters = masters(5);
    let _holder = Running::hold(&masters[2..], "held");
    let fastest = |masters: &[Server]| {
        let times = (0..5).map(|_| {
            let since = Instant::now();
            for (words, code) in [("run a -- true", 0), ("run -n held -- true", 75)] {
                run(masters, words).is(code);
            }
            since.elapsed()
        });
        times.min().unwrap()
    };
    masters[..2].iter().for_each(Server::pause);
    let silent = fastest(&masters);
    masters[..2].iter().for_each(Server::resume);
    masters[..2].iter_mut().for_each(Server::kill);
    let refusing = fastest(&masters);
    println!(
        "figure cli_two_runs_beside_silent_ms {:.0} ms",
        silent.as_secs_f64() * 1e3
    );
    println!(
        "figure cli_two_runs_beside_refusing_ms {:.0} ms",
        refusing.as_secs_f64() * 1e3
    );
    assert!(
        silent < refusing * 2 + Duration::from_millis(150),
        "{silent:?} {refusing:?}"
    );
}

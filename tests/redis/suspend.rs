//! A lock holder whose machine is suspended while the masters are not.

use std::{
    env, fs,
    fs::OpenOptions,
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use quorlock::{Builder, LockState, LostReason};
use tokio::{
    task::block_in_place,
    time::{sleep, timeout},
};

use crate::{common::*, process::Process};

const TTL: Duration = Duration::from_millis(2_000);

/// An environment variable of the holder's process. That process is a second run of this test.
const MASTERS: &str = "QUORLOCK_SUSPENDED_MASTERS";

fn renewing() -> Builder {
    patient().response_timeout(TTL / 4).ttl(TTL)
}

/// No test can suspend a machine. So this test stops the process, and holds back its monotonic
/// clock.
#[test]
fn a_holder_that_wakes_up_after_its_ttl_knows_that_its_lock_is_lost() {
    if let Ok(masters) = env::var(MASTERS) {
        return run(hold_until_told(masters));
    }
    with_masters(3, async |masters| {
        let Some(shim) = shim("suspended_clock.c", &masters[0]) else {
            return;
        };
        let slept = shim.with_file_name("slept");
        fs::write(&slept, 0_i64.to_ne_bytes()).unwrap();
        let test = "suspend::a_holder_that_wakes_up_after_its_ttl_knows_that_its_lock_is_lost";
        let mut holder = Process::start(
            test,
            [
                (MASTERS, urls(&masters).join(",").into()),
                ("QUORLOCK_SLEPT", slept.clone().into()),
                ("LD_PRELOAD", shim.into()),
            ],
        );
        until("its keys", async || {
            let held = |master: &Server| pttl(master, "r") > 0;
            masters.iter().all(held).then_some(())
        })
        .await;
        sleep(TTL / 2).await;

        holder.pause();
        let since = Instant::now();
        let others = coordinator(patient(), &masters);
        let guard = others.mutex("r").acquire_within(TTL * 2).await.unwrap();
        let nanos = i64::try_from(since.elapsed().as_nanos()).unwrap();
        let file = OpenOptions::new().write(true).open(&slept).unwrap();
        file.write_all_at(&nanos.to_ne_bytes(), 0).unwrap();
        holder.resume();
        holder.write_line();
        block_in_place(|| holder.finish());
        assert_eq!(guard.state(), LockState::Held);
        guard.release().await.unwrap();
        others.close().await;
        assert_no_keys(&masters);
    });
}

async fn hold_until_told(masters: String) {
    let locks = renewing().masters(masters.split(',')).build().unwrap();
    let guard = acquire_on_all(&locks.mutex("r")).await;
    let (monotonic, wall) = (Instant::now(), SystemTime::now());
    block_in_place(|| io::stdin().read_line(&mut String::new())).unwrap();
    let mut now = guard.state();
    for _ in 0..4 {
        // A check that is delayed does not compare the clocks, so the state is read several times.
        sleep(Duration::from_millis(3)).await;
        now = guard.state();
    }
    let (monotonic, wall) = (monotonic.elapsed(), wall.elapsed().unwrap());
    assert!(
        monotonic < TTL,
        "the monotonic clock went on: {monotonic:?}"
    );
    assert!(wall > TTL, "{wall:?}");
    assert_eq!(now, LockState::Lost(LostReason::Expired));
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    let lost = timeout(TTL / 2, guard.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::Expired);
    guard.release().await.unwrap();
    locks.close().await;
}

/// Compiles the C file `source`, which replaces functions of the C library, into a preloadable
/// library next to a master's files. Returns `None` where that is not possible.
pub(crate) fn shim(source: &str, master: &Server) -> Option<PathBuf> {
    if !cfg!(all(
        target_os = "linux",
        target_env = "gnu",
        target_pointer_width = "64"
    )) {
        skipped("replacing functions of the C library is not implemented for this system");
        return None;
    }
    let path = master.directory().join(source).with_extension("so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("redis")
        .join(source);
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&path, &source])
        .status();
    match compiled {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skipped("there is no C compiler called cc");
            return None;
        }
        Err(error) => panic!("{error}"),
    }
    Some(path)
}

//! A wrapper that is killed or stopped: the command does not go on without it.

use std::{
    fs,
    io::{Read, Write},
    process::{Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::Signal,
    time::{ClockId, clock_gettime},
};
use testkit::server::masters;

use crate::support::{PROGRAM, Running, dead_by, is_alive, script, until};

/// Prints the process IDs of two children and of itself. None of them ends by itself or obeys
/// signals that can be ignored.
const FAMILY: &str = "trap '' HUP INT QUIT TERM USR1 USR2; \
                      sleep 1000 & echo $!; (sleep 1000; :) & echo $!; echo $$; wait";

fn family(running: &mut Running) -> [String; 3] {
    let family = [(); 3].map(|()| running.line());
    assert!(family.iter().all(|pid| is_alive(pid)), "{family:?}");
    family
}

#[test]
fn killing_all_programs_called_quorlock_spares_the_keeper() {
    let masters = masters(3);
    let mut running = Running::start(&mut script(&masters, "a", FAMILY));
    let family = family(&mut running);
    // It is in the group of the command, which the shell leads.
    let in_group = |pid: &String| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let group = stat.rsplit(") ").next().unwrap().split(' ').nth(2);
        group == Some(&family[2]) && stat.contains("(lock-keeper)")
    };
    let processes = fs::read_dir("/proc").unwrap();
    let names = processes.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let others: Vec<_> = names.filter(in_group).collect();
    let [keeper] = &others[..] else {
        panic!("no keeper: {others:?}");
    };
    let line = fs::read_to_string(format!("/proc/{keeper}/cmdline")).unwrap();
    assert!(line.starts_with("lock-keeper"), "{line}");
    running.signal(Signal::SIGKILL);
    until("all are dead", || !family.iter().any(|pid| is_alive(pid)));
}

#[test]
fn no_instant_of_the_start_is_too_early_to_be_killed() {
    let masters = masters(3);
    let mark = masters[0].directory().join("mark");
    let mark = format!("echo $$ >> {0}; exec sleep 1000", mark.display());
    // The wrapper is killed at many instants, before, at and after the start of the command.
    for n in 0..40 {
        let running = Running::start(&mut script(&masters, &format!("k{n}"), &mark));
        let key = format!("k{n}");
        until("it holds the lock", || {
            masters[1].command(&["EXISTS", &key]) == "1"
        });
        (0..n * 20_000).for_each(|n| _ = std::hint::black_box(n));
        running.signal(Signal::SIGKILL);
    }
    let pids = fs::read_to_string(masters[0].directory().join("mark")).unwrap_or_default();
    println!("{} of 40 commands had started", pids.lines().count());
    until("all are dead", || !pids.lines().any(is_alive));
}

#[test]
fn the_command_dies_at_the_deadline_of_a_wrapper_that_is_stopped() {
    let masters = masters(3);
    let script_text = format!("echo $QUORLOCK_VALID_UNTIL_MS; {FAMILY}");
    let mut running = Running::start(&mut script(&masters, "--ttl 4s a", &script_text));
    let deadline = running.line().parse().unwrap();
    let family = family(&mut running);
    running.signal(Signal::SIGSTOP); // long before the first renewal
    dead_by(&family, deadline);
    running.signal(Signal::SIGCONT);
    let says = "; its keeper killed the command if it had not ended; not renewed since 20";
    running.ended().is(76).says(says).in_lines(1);
}

/// The keeper sees a clock that is an hour ahead, as after a suspension of an hour. The clock that
/// stands still during a suspension is not ahead.
#[test]
fn a_suspended_machine_does_not_move_the_deadline() {
    let mut command = Command::new("unshare");
    let namespace = ["--time", "--boottime", "3600", "--fork", "setsid"];
    command.args(namespace).args([PROGRAM, "--keeper"]);
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let Ok(mut child) = child.spawn() else {
        println!("skipped: unshare is not installed");
        return;
    };
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut answer = [0];
    if stdout.read(&mut answer).unwrap() == 0 {
        println!("skipped: this user has no right to make a clock namespace");
        return;
    }
    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap());
    let deadline = u64::try_from((now + Duration::from_secs(600)).as_nanos()).unwrap();
    stdin.write_all(&deadline.to_ne_bytes()).unwrap();
    until("the keeper has killed its group", || {
        child.try_wait().unwrap().is_some()
    });
    stdout.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"d");
}

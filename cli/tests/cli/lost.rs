//! Locks that are lost while a command runs.

use std::{
    fs,
    io::Write,
    process::Stdio,
    time::{Duration, Instant},
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::signal::Signal,
};
use testkit::server::{Server, masters};

use crate::support::{
    Running, all_have, assert_free, dead_by, each, ended, is_alive, run, script, until, urls, with,
};

/// A command that cleans up and succeeds when it is asked to end.
const CLEAN: &str =
    "trap 'echo cleaned up; exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done";

/// A command that does not end when it is asked to, and prints the process ID of its child.
const STUBBORN: &str = "trap '' TERM; echo ready; sleep 1000 & echo $!; while :; do wait; done";

/// The end of a line about an outage.
const ADVICE: &str = "; run `quorlock doctor` with the same masters\n";

/// No renewal is due before the end of the last two.
#[test]
fn a_lost_lock_is_76_whatever_the_command_returns() {
    let masters = masters(3);
    let long = "--ttl 60s a";
    for (words, work, out, then) in [
        ("--ttl 3s a", CLEAN, "cleaned up\n", "ending the command; "),
        (long, "echo ready; exec sleep 1000", "", ""),
        (long, "", "", ""),
    ] {
        let running = match work {
            "" => Running::hold(&masters, "a"),
            _ => Running::ready(&mut script(&masters, words, work)),
        };
        each(&masters, "DEL a");
        if words == long {
            running.signal(Signal::SIGTERM);
        }
        let reason = "quorlock: lost \"a\": a majority of masters no longer hold it: it was broken, \
                      released or forgotten; ";
        let ended = running.ended().gives(76, out).in_lines(1).last_says(ADVICE);
        let ended = ended.first_says(&format!("{reason}{then}"));
        // Two decide, and the third may come later.
        assert!(ended.err.matches(" holds nothing").count() >= 2, "{ended}");
    }
}

#[test]
fn a_command_that_leaves_its_group_ends_with_the_lock() {
    let masters = masters(3);
    let start = || {
        let mut command = with(&masters, "run --ttl 3s a -- perl -e");
        command.arg("$| = 1; setpgrp(0, getpgrp(getppid())) or die; print \"$$\\n\"; sleep 1000");
        let mut running = Running::start(&mut command);
        let pid = running.line();
        (running, pid)
    };
    let (running, pid) = start();
    each(&masters, "DEL a");
    running.ended().is(76);
    assert!(!is_alive(&pid));

    let (running, pid) = start();
    running.terminated().is(143);
    assert!(!is_alive(&pid));

    let (running, pid) = start();
    running.signal(Signal::SIGKILL);
    until("it is dead", || !is_alive(&pid));
}

#[test]
fn nobody_who_reads_messages_is_needed_to_end_a_command() {
    let masters = masters(3);
    let mark = masters[0].directory().join("mark");
    let (_reader, stderr) = std::io::pipe().unwrap();
    let filled = fcntl(&stderr, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).and_then(|_| {
        while (&stderr).write(&[0; 4096]).is_ok() {}
        fcntl(&stderr, FcntlArg::F_SETFL(OFlag::empty()))
    });
    filled.unwrap();
    let clean = format!(
        "trap 'echo term > {0}; exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done",
        mark.display()
    );
    let mut command = script(&masters, "--ttl 10s a", &clean);
    let running = Running::ready(command.stderr(stderr));
    each(&masters, "DEL a");
    running.ended().is(76);
    assert_eq!(fs::read_to_string(mark).unwrap(), "term\n");
}

#[test]
fn a_command_that_ignores_term_is_killed_with_its_children() {
    let masters = masters(3);
    let words = "--ttl 3s --kill-after 300ms a";
    let mut running = Running::ready(&mut script(&masters, words, STUBBORN));
    let child = running.line();
    let since = Instant::now();
    each(&masters, "DEL a");
    running.ended().is(76);
    let took = since.elapsed();
    assert!(took > Duration::from_millis(300), "{took:?}");
    assert!(took < Duration::from_secs(3), "after the validity");
    until("its child is dead", || !is_alive(&child));
}

#[test]
fn a_lock_that_cannot_be_renewed_ends_the_command_in_time() {
    let masters = masters(5);
    let words = "--ttl 6s --kill-after 1s a";
    let script_text = format!("echo $QUORLOCK_VALID_UNTIL_MS; {STUBBORN}");
    let mut running = Running::start(&mut script(&masters, words, &script_text));
    let deadline = running.line().parse().unwrap();
    assert_eq!(running.line(), "ready");
    let child = running.line();
    // Long before the first renewal. They answer nothing, and still have the key.
    masters[..3].iter().for_each(Server::pause);
    dead_by(&[child], deadline);
    let ended = running.ended().is(76).last_says(ADVICE);
    let last = ended.err.lines().last().unwrap();
    let loss =
        "\"a\" cannot be renewed, and is about to end; ending the command; not renewed since 20";
    assert!(last.contains(loss), "{last}");
    for master in &masters[..3] {
        assert!(last.contains(&format!("127.0.0.1:{} ", master.port())));
    }
    masters[..3].iter().for_each(Server::resume);
}

/// The keeper may kill the command a moment before the wrapper does. So this runs it many times.
#[test]
fn a_lock_that_ends_without_time_for_term_is_76() {
    let masters = masters(3);
    let running = (0..12).map(|number| {
        let words = format!("--ttl 2s --kill-after 0s k{number}");
        Running::ready(&mut script(&masters, &words, STUBBORN))
    });
    let running: Vec<_> = running.collect();
    masters.iter().for_each(Server::pause);
    let ended: Vec<_> = running.into_iter().map(Running::ended).collect();
    masters.iter().for_each(Server::resume);
    for ended in ended {
        let err = ended.is(76).err;
        let says = [
            "cannot be renewed, and is about to end; ending the command; ",
            "was not renewed in time; its keeper killed the command if it had not ended; ",
            "cannot be renewed, and is about to end; its keeper killed the command if it had not ended; ",
            // On a busy machine, the wrapper hears of the kill after the end of the validity, or did
            // not run for a while.
            "its validity ended without an extension",
        ];
        let last = err.lines().last().unwrap();
        assert!(says.iter().any(|says| last.contains(says)), "{err}");
        assert!(last.contains("; not renewed since 20"), "{err}");
    }
}

/// The TTL is long, so a lock that is only no longer renewed would live for longer than the test
/// allows.
#[test]
fn the_longest_hold_ends_the_command_and_the_lock() {
    let masters = masters(3);
    let since = Instant::now();
    let words = "--ttl 1m --max-hold 1s a";
    ended(&mut script(&masters, words, CLEAN))
        .gives(76, "ready\ncleaned up\n")
        .says("\"a\" was held for the time of --max-hold");
    assert_free(&masters, "a");
    run(&masters, &format!("hold {words}")).is(76);
    assert_free(&masters, "a");
    assert!(since.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_lock_is_renewed_while_the_command_runs_or_is_stopped() {
    let masters = masters(3);
    let mut running = Running::ready(&mut script(
        &masters,
        "--ttl 1s a",
        "echo ready; echo $$; kill -STOP $$; exit 5",
    ));
    let command = running.line();
    let since = Instant::now();
    until("three TTLs have passed", || {
        let has = |master: &&Server| master.command(&["EXISTS", "a"]) == "1";
        assert!(masters.iter().filter(has).count() >= 2);
        since.elapsed() > Duration::from_secs(3)
    });
    let pid = nix::unistd::Pid::from_raw(command.parse().unwrap());
    nix::sys::signal::kill(pid, Signal::SIGCONT).unwrap();
    running.ended().is(5).in_lines(0);
}

#[test]
fn a_holder_that_was_stopped_says_so() {
    let masters = masters(3);
    let names = ["a", "b", "c", "d", "e", "f"];
    let holders = names.map(|name| {
        let words = format!("hold --ttl 1s --until-eof --max-hold 4s {name}");
        Running::held(with(&masters, &words).stdin(Stdio::piped()))
    });
    for holder in &holders {
        holder.signal(Signal::SIGSTOP);
    }
    let since = Instant::now();
    until("the locks and the longest hold have ended", || {
        let is_empty =
            |master: &Server| master.command(&["EXISTS", "a", "b", "c", "d", "e", "f"]) == "0";
        since.elapsed() > Duration::from_secs(4) && masters.iter().all(is_empty)
    });
    // An end that comes at the same moment does not hide the loss.
    for (number, mut holder) in holders.into_iter().enumerate() {
        match number {
            0 => {}
            1 | 2 => holder.signal(Signal::SIGTERM),
            _ => holder.say(""),
        }
        holder.signal(Signal::SIGCONT);
        let why = ", because quorlock did not run for at least ";
        holder.ended().is(76).says(why).in_lines(1);
    }
}

#[test]
fn an_outage_is_told_once_while_a_lock_is_held() {
    let masters = masters(3);
    let mut holder = Running::hold(&masters, "--ttl 12s a");
    let quiet = Running::hold(&masters, "--ttl 12s -q b");
    let [first, second] = [0, 1].map(|at: usize| format!("127.0.0.1:{}", masters[at].port()));
    let down = [&first, &second].map(|master| format!("master {master} is down: "));
    let doubt = "\"a\" is in doubt; not renewed since 20";
    masters[..2].iter().for_each(Server::pause);
    let begun = holder.errors_until(&[doubt, &down[0], &down[1]]);
    let doubt = begun.lines().find(|line| line.contains(doubt)).unwrap();
    // It says why, unless that has been told of the masters.
    let is_first = begun.starts_with(doubt);
    for master in [&first, &second] {
        assert_eq!(doubt.contains(master), is_first, "{begun}");
    }
    assert_eq!(begun.lines().count(), 3, "{begun}");
    masters[..2].iter().for_each(Server::resume);
    let up = [&first, &second].map(|master| format!("master {master} votes again after "));
    let ended = holder.errors_until(&["\"a\" is renewed again after ", &up[0], &up[1]]);
    assert_eq!(ended.lines().count(), 3, "{ended}");
    for running in [holder, quiet] {
        running.terminated().is(0).in_lines(0);
    }
}

#[test]
fn masters_that_can_never_vote_are_told_once_at_the_start() {
    let masters = masters(4);
    let port = masters[0].port().to_string();
    masters[3].command(&["REPLICAOF", "127.0.0.1", &port]);
    let urls = format!("{},redis://localhost:{port}", urls(&masters));
    let run = |words: &str, urls: &str| {
        let mut command = with(&[], words);
        ended(command.env("QUORLOCK_MASTERS", urls)).is(0)
    };
    let replica = format!(
        "quorlock: master 127.0.0.1:{} can never vote as it is listed: it is a replica, not a master",
        masters[3].port()
    );
    run("run a -- sleep 3", &urls)
        .in_lines(2)
        .says(&replica)
        .says(" can never vote as it is listed: it is the same server as ");
    // A mistake is no outage, and does not end.
    run("run -q a -- sleep 3", &urls).in_lines(2).says(&replica);
    // With another key template, this program has other locks.
    let words = "run --key-template b:{name} a -- sleep 1";
    run(words, &self::urls(&masters[..3])).in_lines(0);
    run("run a -- sleep 1", &self::urls(&masters[..3]))
        .in_lines(1)
        .says(" (sleep) used other lists of masters lately");
}

/// It is up, and its answer says what to change.
#[test]
fn a_master_that_refuses_the_login_is_not_said_to_be_down() {
    let masters = masters(3);
    each(&masters, "ACL SETUSER bob on >pw ~* &* +@all");
    let mut hold = with(&masters, "hold --ttl 1m a");
    let urls = urls(&masters).replace("redis://", "redis://bob:pw@");
    let mut holder = Running::held(hold.env("QUORLOCK_MASTERS", urls));
    assert_eq!(masters[0].command(&["ACL", "DELUSER", "bob"]), "1");
    holder.errors_until(&[&format!(
        "master 127.0.0.1:{} takes no locks: refused the login: WRONGPASS",
        masters[0].port()
    )]);
}

#[test]
fn a_release_that_fails_is_a_line() {
    let masters = masters(3);
    for (words, name, expected) in [
        ("run a -- sleep 1000", "a", 143),
        ("run -q b -- sleep 1000", "b", 143),
        ("hold c", "c", 0),
    ] {
        let running = Running::start(&mut with(&masters, words));
        until("it is held", || all_have(&masters, name));
        masters[..2].iter().for_each(Server::pause);
        let ended = running.terminated().is(expected).last_says(ADVICE);
        masters[..2].iter().for_each(Server::resume);
        ended.first_says(&format!(
            "quorlock: no majority confirmed the release of \"{name}\", \
             which ends with its TTL where no release arrives; 127.0.0.1:{} ",
            masters[0].port()
        ));
    }
}

/// The command did its work, so the status is its own. A loss is a loss.
#[test]
fn a_minimum_time_that_cannot_be_kept_is_a_line() {
    let masters = masters(3);
    let line =
        "quorlock: --min-hold of 1m could not be kept: others may get \"a\" before it is over";
    for is_lost in [false, true] {
        let job = "echo ready; exec sleep 1000";
        let running = Running::ready(&mut script(&masters, "-q --min-hold 1m --ttl 30s a", job));
        if is_lost {
            each(&masters, "DEL a");
            let ended = running.terminated().is(76);
            ended.first_says(&format!("{line}\nquorlock: lost \"a\": "));
        } else {
            masters[..2].iter().for_each(Server::pause);
            let ended = running.terminated().is(143).in_lines(1).last_says(ADVICE);
            masters[..2].iter().for_each(Server::resume);
            ended.first_says(&format!("{line}; 127.0.0.1:{} ", masters[0].port()));
            each(&masters, "DEL a");
        }
    }
}

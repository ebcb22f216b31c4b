//! Signals, to a wrapper that waits and to one that runs a command.

use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use testkit::server::masters;

use crate::support::{
    PROGRAM, Running, assert_free, ended, is_stopped, script, shell, signals, until, urls, with,
};

#[test]
fn signals_are_passed_on() {
    let masters = masters(3);
    // A shell acts on a trap when `wait` returns. The group has the shell and its children.
    let traps = "for s in HUP INT QUIT TERM USR1 USR2; do trap \"echo got $s; exit 42\" $s; done; \
                 echo ready; while :; do sleep 2 >/dev/null 2>&1 & wait; done";
    for signal in signals() {
        let name = signal.as_str().trim_start_matches("SIG");
        let number = 128 + signal as i32;
        for (work, code, out) in [
            (traps, 42, format!("got {name}\n")),
            ("echo ready; exec sleep 1000", number, String::new()),
        ] {
            let running = Running::ready(&mut script(&masters, "a", work));
            running.signal(signal);
            running.ended().gives(code, &out).in_lines(0);
            assert_free(&masters, "a");
        }
    }
}

#[test]
fn a_signal_ends_the_wait_and_leaves_nothing() {
    let masters = masters(3);
    for (words, key, asks) in [("a", "a", "set"), ("--fair b", "b", "zadd")] {
        let holder = Running::hold(&masters, words);
        // A majority is enough to hold. This master may be the last to hear of it.
        until("it is held here", || {
            masters[0].command(&["EXISTS", key]) == "1"
        });
        let asked = || masters[0].calls(|command| command == asks);
        for signal in signals() {
            let before = asked();
            let running = Running::start(&mut script(&masters, words, "echo ran"));
            until("it waits", || asked() > before);
            let since = Instant::now();
            running.signal(signal);
            running.ended().gives(128 + signal as i32, "");
            assert!(since.elapsed() < Duration::from_secs(5), "{signal}");
        }
        holder.terminated().is(0);
        for key in ["a", "b", "quorlock:queue:{b}", "quorlock:deadlines:{b}"] {
            assert_free(&masters, key);
        }
    }
}

/// Its children are in its group for a moment before they lead groups of their own.
#[test]
fn a_signal_to_the_whole_group_ends_the_start_of_the_command() {
    let masters = masters(3);
    for _ in 0..12 {
        let mut command = script(&masters, "a", "echo ran; exec sleep 1000");
        let running = Running::start(command.process_group(0));
        let pid = running.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        while fs::read_to_string(&children).unwrap().is_empty() {}
        killpg(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).unwrap();
        running.ended().is(143).in_lines(0);
        assert_free(&masters, "a");
    }
}

#[test]
fn a_holder_releases_on_a_signal() {
    let masters = masters(3);
    for signal in signals() {
        let holder = Running::hold(&masters, "a --fence");
        holder.signal(signal);
        holder.ended().is(0).in_lines(0);
        assert_free(&masters, "a");
    }
}

#[test]
fn a_holder_says_what_it_holds() {
    let masters = masters(3);
    let hold = |words: &[&str]| {
        let mut command = with(&masters, "hold");
        Running::start(command.args(words)).line()
    };
    let line = hold(&["--fence", "orders/42"]);
    let words: Vec<_> = line.split(' ').collect();
    assert_eq!(words[..2], ["held", "orders/42"]);
    let is_of_three = words[2].starts_with("votes=") && words[2].ends_with("/3");
    assert!(is_of_three, "{line}");
    let token = words[3].strip_prefix("token=").unwrap();
    assert!(token.parse::<u64>().unwrap() > 0);

    // A name does not move the cursor.
    let line = hold(&["a\x1b[2J\tb"]);
    assert!(line.starts_with("held a [2J b votes="), "{line:?}");

    let line: serde_json::Value = serde_json::from_str(&hold(&["--json", "a"])).unwrap();
    assert_eq!((&line["name"], &line["masters"]), (&"a".into(), &3.into()));
    assert!(line["granted"].as_u64() >= Some(2) && line["fencing_token"].is_null());
    assert!(line["valid_until_ms"].as_u64() > Some(1_700_000_000_000));
}

#[test]
fn nohup_keeps_its_meaning() {
    let masters = masters(3);
    let line = r#"trap '' HUP; exec "$0" run a -- sh -c 'echo ready; read line; echo $line'"#;
    let mut command = shell(&masters, line);
    let mut running = Running::ready(command.stdin(Stdio::piped()));
    running.signal(Signal::SIGHUP);
    running.say("still here\n");
    running.ended().gives(0, "still here\n");
}

#[test]
fn a_signal_without_a_name_ends_the_command_as_any_other() {
    let masters = masters(3);
    ended(&mut script(&masters, "a", "kill -34 $$"))
        .is(162)
        .in_lines(0);
    assert_free(&masters, "a");
}

/// A script without job control and its wrapper are one process group.
#[test]
fn a_stop_of_the_wrapper_spares_its_script() {
    let masters = masters(3);
    let line = r#""$0" run a -- sleep 1000 & echo $!; read line; echo $line; kill -KILL $!"#;
    let mut shell = shell(&masters, line);
    let mut script = Running::start(shell.process_group(0).stdin(Stdio::piped()));
    let wrapper = script.line();
    until("it holds the lock", || {
        masters[0].command(&["EXISTS", "a"]) == "1"
    });
    let catches_stops = || {
        let status = fs::read_to_string(format!("/proc/{wrapper}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & 1 << (Signal::SIGTSTP as i32 - 1) != 0
    };
    until("it runs the command", catches_stops);
    kill(Pid::from_raw(wrapper.parse().unwrap()), Signal::SIGTSTP).unwrap();
    until("the wrapper has stopped", || is_stopped(&wrapper));
    assert!(!is_stopped(&script.id().to_string()));
    script.say("goes on\n");
    assert_eq!(script.line(), "goes on");
}

#[test]
fn a_command_that_stops_itself_keeps_its_lock() {
    let masters = masters(3);
    let mut command = Command::new("setsid"); // there is no terminal, and no shell
    let job = "echo $$; kill -TSTP $$; echo goes on; echo $$; kill -TSTP $$; sleep 1000";
    command.args([PROGRAM, "run", "--ttl=1s", "a", "--", "sh", "-c", job]);
    command.env("QUORLOCK_MASTERS", urls(&masters));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::start(&mut command);
    let pid = running.line();
    let renewals = |name: &str| name == "evalsha" || name == "eval";
    let before = masters[0].calls(renewals);
    until("it is renewed", || masters[0].calls(renewals) > before + 3);
    kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGCONT).unwrap();
    assert_eq!(running.line(), "goes on");
    let pid = running.line();
    until("it has stopped", || is_stopped(&pid));
    running.terminated().is(143);
}

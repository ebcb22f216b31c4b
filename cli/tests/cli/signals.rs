//! Signals, to a wrapper that waits and to one that runs a command.

use std::{
    fs,
    os::unix::process::{CommandExt, ExitStatusExt},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use testkit::server::masters;

use crate::support::{Running, assert_free, ended, script, signals, until, urls, with};

#[test]
fn signals_are_passed_on() {
    let masters = masters(3);
    // A shell acts on a trap when `wait` returns. The group has the shell and its children.
    let traps = "for s in HUP INT QUIT TERM USR1 USR2; do trap \"echo got $s; exit 42\" $s; done; \
                 echo ready; while :; do sleep 2 >/dev/null 2>&1 & wait; done";
    for signal in signals() {
        let running = Running::ready(&mut script(&masters, "a", traps));
        running.signal(signal);
        let (status, out, err) = running.ended();
        assert_eq!(status.code(), Some(42), "{signal}: {err}");
        let name = signal.as_str().trim_start_matches("SIG");
        assert_eq!(out, format!("got {name}\n"));
        assert_free(&masters, "a");
    }
}

#[test]
fn a_command_that_a_signal_ends_is_128_and_its_number() {
    let masters = masters(3);
    for signal in signals() {
        let running = Running::ready(&mut script(&masters, "a", "echo ready; exec sleep 1000"));
        running.signal(signal);
        let (status, _, err) = running.ended();
        assert_eq!(status.code(), Some(128 + signal as i32), "{signal}: {err}");
        assert_eq!((status.signal(), &*err), (None, ""));
        assert_free(&masters, "a");
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
            let (status, out, err) = running.ended();
            assert_eq!(status.code(), Some(128 + signal as i32), "{signal}: {err}");
            assert_eq!(out, "");
            assert!(since.elapsed() < Duration::from_secs(5), "{signal}");
        }
        holder.signal(Signal::SIGTERM);
        assert_eq!(holder.ended().0.code(), Some(0));
        for key in ["a", "b", "quorlock:queue:{b}", "quorlock:deadlines:{b}"] {
            assert_free(&masters, key);
        }
    }
}

#[test]
fn a_signal_ends_the_wait_for_masters() {
    let mut masters = masters(3);
    masters[0].kill();
    masters[1].kill();
    let asked = || masters[2].calls(|command| command == "set");
    let running = Running::start(&mut script(&masters, "a", "echo ran"));
    until("it waits", || asked() > 0);
    running.signal(Signal::SIGTERM);
    let (status, out, _) = running.ended();
    assert_eq!((status.code(), &*out), (Some(143), ""));
    assert_free(&masters[2..], "a");
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
        let (status, _, err) = running.ended();
        assert_eq!((status.code(), &*err), (Some(143), ""));
        assert_free(&masters, "a");
    }
}

#[test]
fn a_holder_releases_on_a_signal() {
    let masters = masters(3);
    for signal in signals() {
        let holder = Running::hold(&masters, "a --fence");
        holder.signal(signal);
        let (status, _, err) = holder.ended();
        assert_eq!((status.code(), &*err), (Some(0), ""), "{signal}");
        assert_free(&masters, "a");
    }
}

#[test]
fn a_holder_says_what_it_holds() {
    let masters = masters(3);
    let mut holder = Running::start(&mut with(&masters, "hold --fence orders/42"));
    let line = holder.line();
    let words: Vec<_> = line.split(' ').collect();
    assert_eq!(words[..2], ["held", "orders/42"]);
    assert!(
        words[2].starts_with("votes=") && words[2].ends_with("/3"),
        "{line}"
    );
    let token = words[3].strip_prefix("token=").unwrap();
    assert!(token.parse::<u64>().unwrap() > 0);
}

#[test]
fn a_name_does_not_move_the_cursor() {
    let masters = masters(3);
    let mut command = with(&masters, "hold");
    let mut holder = Running::start(command.arg("a\x1b[2J\tb"));
    let line = holder.line();
    assert!(line.starts_with("held a [2J b votes="), "{line:?}");
}

#[test]
fn a_holder_says_it_in_json() {
    let masters = masters(3);
    let mut holder = Running::start(&mut with(&masters, "hold --json a"));
    let line = holder.line();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (line["name"].as_str(), line["masters"].as_u64()),
        (Some("a"), Some(3))
    );
    assert!(line["granted"].as_u64() >= Some(2) && line["fencing_token"].is_null());
    assert!(line["deadline_ms"].as_u64() > Some(1_700_000_000_000));
}

#[test]
fn nohup_keeps_its_meaning() {
    let masters = masters(3);
    let mut command = std::process::Command::new("sh");
    let program = r#"trap '' HUP; exec "$0" run a -- sh -c 'echo ready; read line; echo $line'"#;
    command
        .args(["-c", program, env!("CARGO_BIN_EXE_quorlock")])
        .env(
            "QUORLOCK_MASTERS",
            masters
                .iter()
                .map(testkit::server::Server::url)
                .collect::<Vec<_>>()
                .join(","),
        )
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut running = Running::ready(&mut command);
    running.signal(Signal::SIGHUP);
    running.say("still here\n");
    let (status, out, err) = running.ended();
    assert_eq!((status.code(), &*out), (Some(0), "still here\n"), "{err}");
}

#[test]
fn a_signal_without_a_name_ends_the_command_as_any_other() {
    let masters = masters(3);
    let (status, _, err) = ended(&mut script(&masters, "a", "kill -34 $$"));
    assert_eq!((status, &*err), (162, ""));
    assert_free(&masters, "a");
}

/// A script without job control and its wrapper are one process group.
#[test]
fn a_stop_of_the_wrapper_spares_its_script() {
    let masters = masters(3);
    let mut shell = std::process::Command::new("sh");
    let line = r#""$0" run a -- sleep 1000 & echo $!; read line; echo $line; kill -KILL $!"#;
    shell
        .args(["-c", line, env!("CARGO_BIN_EXE_quorlock")])
        .env("QUORLOCK_MASTERS", urls(&masters))
        .process_group(0)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut script = Running::start(&mut shell);
    let wrapper = script.line();
    until("it holds the lock", || {
        masters[0].command(&["EXISTS", "a"]) == "1"
    });
    let state = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    let catches_stops = || {
        let status = fs::read_to_string(format!("/proc/{wrapper}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & 1 << (Signal::SIGTSTP as i32 - 1) != 0
    };
    until("it runs the command", catches_stops);
    kill(Pid::from_raw(wrapper.parse().unwrap()), Signal::SIGTSTP).unwrap();
    until("the wrapper has stopped", || state(&wrapper) == 'T');
    assert_ne!(state(&script.id().to_string()), 'T');
    script.say("goes on\n");
    assert_eq!(script.line(), "goes on");
}

#[test]
fn a_command_that_stops_itself_keeps_its_lock() {
    let masters = masters(3);
    let mut command = std::process::Command::new("setsid"); // there is no terminal, and no shell
    let job = "echo $$; kill -TSTP $$; echo goes on; echo $$; kill -TSTP $$; sleep 1000";
    command.args([
        env!("CARGO_BIN_EXE_quorlock"),
        "run",
        "--ttl",
        "1s",
        "a",
        "--",
        "sh",
        "-c",
        job,
    ]);
    command.env("QUORLOCK_MASTERS", urls(&masters));
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut running = Running::start(&mut command);
    let pid = running.line();
    let renewals = |name: &str| name == "evalsha" || name == "eval";
    let before = masters[0].calls(renewals);
    until("it is renewed", || masters[0].calls(renewals) > before + 3);
    kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGCONT).unwrap();
    assert_eq!(running.line(), "goes on");
    let pid = running.line();
    until("it has stopped", || {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .unwrap()
            .contains(") T ")
    });
    running.signal(Signal::SIGTERM);
    assert_eq!(running.ended().0.code(), Some(143));
}

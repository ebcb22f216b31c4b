//! Exit statuses and the environment of the command.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use nix::sys::signal::Signal;
use testkit::server::{Server, masters};

use crate::support::{
    Running, assert_free, ended, ignores_interrupts, quorlock, script, until, urls, with,
};

#[test]
fn the_status_is_that_of_the_command() {
    let masters = masters(3);
    for code in [0, 1, 2, 64, 75, 76, 126, 255] {
        let (status, out, err) = ended(&mut script(&masters, "a", &format!("exit {code}")));
        assert_eq!((status, &*out, &*err), (code, "", ""));
        assert_free(&masters, "a"); // it is released before the end
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("SEGV", 139)] {
        if signal == "INT" && ignores_interrupts() {
            println!("skipped INT: this process ignores it");
            continue;
        }
        let (status, _, _) = ended(&mut script(&masters, "a", &format!("kill -{signal} $$")));
        assert_eq!(status, code);
    }
}

#[test]
fn a_command_that_cannot_run_is_126_or_127_and_takes_no_lock() {
    let masters = masters(3);
    let file = masters[0].directory().join("file");
    fs::write(&file, "#!/nonexistent/interpreter\n").unwrap();
    let file = file.to_str().unwrap();
    let folder = masters[0].directory().to_str().unwrap();
    for (command, code, says) in [
        ("no-such-command", 127, "command not found"),
        ("/nonexistent/command", 127, "command not found"),
        ("/tmp", 126, "it is a directory"),
        (file, 126, "permissions"),
        (folder, 126, "cannot be executed"),
    ] {
        let (status, _, err) = ended(&mut with(&masters, &format!("run a -- {command}")));
        assert_eq!(status, code, "{command}: {err}");
        assert!(err.contains(says), "{err}");
    }
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    let (status, _, err) = ended(&mut with(&masters, &format!("run a -- {file}")));
    assert_eq!(status, 126, "{err}");
    let says = "its interpreter does not exist: the one in its first line (#!), without a line break of \
                Windows, or the loader of a program";
    assert!(err.contains(says), "{err}");
    assert_free(&masters, "a");
}

#[test]
fn a_lock_that_is_held_is_75() {
    let masters = masters(3);
    let holder = Running::hold(&masters, "a");
    for words in [
        "--nonblock",
        "-n",
        "--wait 0s",
        "--wait 300ms",
        "-n --fence",
        "-n -v",
    ] {
        let (status, out, err) = ended(&mut script(&masters, &format!("{words} a"), "echo ran"));
        assert_eq!((status, &*out), (75, ""), "{words}: {err}");
        assert!(err.contains("quorlock: \"a\" is held by "), "{err}");
        let waits = words == "--wait 300ms";
        assert_eq!(err.contains(" (waited 300ms); "), waits, "{err}");
        let lines = if words.contains("-v") { 6 } else { 1 };
        assert_eq!(err.lines().count(), lines, "{err}");
    }
    let named = format!("/{} (started ", holder.id());
    for words in ["-n", "--wait 300ms"] {
        until(
            "it names the holder, unless the machine is very busy",
            || {
                let (_, _, err) = ended(&mut script(&masters, &format!("{words} a"), "echo ran"));
                err.contains(&named)
            },
        );
    }
    for (words, advice) in [
        ("-n", "; try again later, or wait with --wait\n"),
        (
            "--wait 300ms",
            "; try again later, or with a longer --wait\n",
        ),
    ] {
        let (_, _, err) = ended(&mut script(&masters, &format!("{words} a"), "echo ran"));
        assert!(err.ends_with(advice), "{words}: {err}");
    }
    for (words, expected) in [("-n -E 3", 3), ("-q --conflict-exit-code 0 -n", 0)] {
        let (status, out, _) = ended(&mut script(&masters, &format!("{words} a"), "echo ran"));
        assert_eq!((status, &*out), (expected, ""), "{words}");
    }
    let quiet = ended(&mut script(&masters, "-q -n a", "echo ran"));
    assert_eq!(quiet, (75, String::new(), String::new()));
    // The same name as another kind of lock is a mistake, and no contention.
    let (status, _, err) = ended(&mut script(&masters, "-n --fair a", "echo ran"));
    assert_eq!(status, 78, "{err}");
}

/// The grants of several programs that ask at once may look like a holder, but they are new. Here,
/// one look of ten falls on a new renewal.
#[test]
fn a_holder_that_is_not_new_is_asked_for_once() {
    let masters = masters(3);
    let _holder = Running::hold(&masters, "a");
    until(
        "one attempt is enough, unless the machine is very busy",
        || {
            let before = masters[0].calls(|name| name == "set");
            let (status, _, err) = ended(&mut script(&masters, "-q -n a", "echo ran"));
            assert_eq!(status, 75, "{err}");
            // The first attempt also tries the right to SET.
            masters[0].calls(|name| name == "set") == before + 2
        },
    );
}

#[test]
fn a_wait_without_a_terminal_is_told_with_its_end() {
    let masters = masters(3);
    let holder = Running::hold(&masters, "a");
    let start = |words: &str| Running::start(&mut script(&masters, words, "echo ran"));
    let (mut waiter, quiet) = (start("a"), start("-q a"));
    let waiting = waiter.errors_until(&["waiting for \"a\""]);
    assert!(waiting.contains(", which is held by "), "{waiting}");
    holder.signal(Signal::SIGTERM);
    let (status, out, err) = waiter.ended();
    assert_eq!((status.code(), &*out), (Some(0), "ran\n"), "{err}");
    assert!(err.starts_with("quorlock: got \"a\" after "), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    let (status, out, err) = quiet.ended();
    assert_eq!((status.code(), &*out, &*err), (Some(0), "ran\n", ""));
}

#[test]
fn a_key_without_a_ttl_is_told_at_once_and_not_hidden() {
    let masters = masters(3);
    for master in &masters {
        master.command(&["SET", "a", "x"]);
    }
    let text = "\"a\" is held without a TTL, so it may be no lock; ";
    for (words, expected) in [("-n", 75), ("-q -n", 75), ("-q -n -E 7", 7)] {
        let (status, out, err) = ended(&mut script(&masters, &format!("{words} a"), "echo ran"));
        assert_eq!((status, &*out), (expected, ""), "{words}: {err}");
        assert!(err.starts_with(&format!("quorlock: {text}")), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    for words in ["a", "-q a"] {
        let mut waiter = Running::start(&mut script(&masters, words, "echo ran"));
        let line = waiter.errors_until(&["\n"]);
        assert!(
            line.contains(&format!("waiting for \"a\": {text}")),
            "{line}"
        );
    }
}

#[test]
fn a_key_that_is_not_a_lock_is_78() {
    let masters = masters(3);
    for master in &masters {
        master.command(&["RPUSH", "list", "x"]);
        master.command(&["HSET", "hash", "field", "value"]);
    }
    for words in [
        "-n list",
        "list",
        "-n --fair list",
        "-n --permits 2 list",
        "-n hash",
    ] {
        let (status, out, err) = ended(&mut script(&masters, words, "echo ran"));
        assert_eq!((status, &*out), (78, ""), "{words}: {err}");
        assert!(err.contains(": its key is not a lock; "), "{words}: {err}");
    }
}

#[test]
fn no_majority_is_69() {
    let mut masters = masters(5);
    for master in &mut masters[..2] {
        master.kill();
    }
    let (status, out, err) = ended(&mut script(&masters, "-n a", "echo $QUORLOCK_VOTES"));
    assert_eq!((status, &*out), (0, "3/5\n"), "{err}");
    masters[2].kill();
    for words in [
        "--nonblock",
        "--wait 300ms",
        "--wait 300ms --fair",
        "-n --fence",
    ] {
        let since = Instant::now();
        let (status, out, err) = ended(&mut script(&masters, &format!("{words} a"), "echo ran"));
        assert_eq!((status, &*out), (69, ""), "{words}: {err}");
        assert!(
            err.contains(" 2 of 5 masters can vote, and 3 are needed; 127.0.0.1:")
                && err.matches(": Connection refused").count() == 3,
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(since.elapsed() < Duration::from_secs(10), "{words}");
    }
    let (_, _, err) = ended(&mut script(&masters, "-v -n a", "echo ran"));
    let rows = err.lines().filter(|line| line.starts_with("  "));
    let refused = rows.filter(|row| row.contains("refused"));
    assert_eq!(
        refused.count(),
        3,
        "a row for each master that is down: {err}"
    );
}

#[test]
fn wrong_arguments_are_64() {
    let masters = masters(3);
    for words in [
        "",
        "run",
        "run a",
        "run a true",
        "run --wait -1s a -- true",
        "run --wait 1s --nonblock a -- true",
        "run --ttl 2h a -- true", // more than the longest TTL
        "run --ttl 1ms a -- true",
        "run --kill-after 6s a -- true", // more than half the TTL
        "hold",
        "hold a -- true", // it would lock "true", too
        "fly",
    ] {
        let (status, out, err) = ended(&mut with(&masters, words));
        assert_eq!((status, &*out), (64, ""), "{words:?}: {err}");
    }
    let empty = ended(quorlock(&masters).args(["run", "", "--", "true"]));
    assert_eq!(empty.0, 64, "{}", empty.2);
    let (status, _, err) = ended(with(&[], "run a -- true").env("QUORLOCK_MASTERS", ""));
    assert_eq!(status, 64);
    assert!(err.contains("--master URL"), "{err}");
    for words in ["run -- -job", "run -n -job -- true", "hold -- -job"] {
        let (_, _, err) = ended(&mut with(&masters, words));
        assert!(err.contains("names stand before --"), "{err}");
    }
    let (_, _, err) = ended(&mut with(&masters, "run a --tll 5s -- true"));
    assert!(!err.contains("names stand"), "{err}");
    let (_, _, err) = ended(&mut with(&masters, "run --wait -1s a -- true"));
    assert!(
        err.contains("is not a time, expected one such as 10s, 500ms or 1m"),
        "{err}"
    );
    let (_, _, err) = ended(&mut with(&masters, "run --ttl 2h a -- true"));
    assert!(
        err.contains("or a longer --max-ttl or max_ttl in all programs"),
        "{err}"
    );
    // A look that is strict would begin a quarantine for the other one.
    for words in [
        "run --strict=false a -- echo --strict true",
        "status true --strict",
    ] {
        let (status, _, err) = ended(&mut with(&masters, words));
        assert!(status == 0 || status == 69, "{words}: {err}");
    }
    for words in ["--help", "--version", "run --help", "help", "help run"] {
        let (status, out, _) = ended(&mut with(&masters, words));
        assert_eq!(status, 0);
        assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    }
}

#[test]
fn a_program_without_a_terminal_says_that_it_waits_for_masters() {
    let mut masters = masters(3);
    masters[0].kill();
    masters[1].kill();
    let mut running = Running::start(&mut script(&masters, "a", "echo ran"));
    let news = running.error_line();
    let expected = format!(
        "waiting for \"a\": only 1 of 3 masters can vote, and 2 are needed; 127.0.0.1:{0}: \
         connecting to 127.0.0.1:{0}: Connection refused",
        masters[0].port()
    );
    assert!(news.contains(&expected), "{news}");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.ended().0.code(), Some(143));
}

#[test]
fn a_master_without_a_vote_yet_is_not_one_that_failed() {
    let mut masters = masters(3);
    assert_eq!(ended(&mut script(&masters, "a", "true")).0, 0); // writes the keys of the guard
    masters[1].command(&["HSET", "quorlock:guard", "run_id", "another"]);
    masters[0].kill();
    let (status, _, err) = ended(&mut script(&masters, "-n a", "true"));
    assert_eq!(status, 69, "{err}");
    let expected =
        "only 1 of 3 masters can vote, and 2 are needed; masters that may have forgotten locks ";
    assert!(err.contains(expected), "{err}");
    assert!(err.contains("wait longer with --ready"), "{err}");
}

#[test]
fn masters_that_may_have_forgotten_locks_are_waited_for() {
    let masters = masters(3);
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    let file = masters[0].directory().join("strict.toml");
    let text =
        format!("[set.s]\nmasters = {urls:?}\nstrict = true\nttl = \"2s\"\nmax_ttl = \"3s\"\n");
    fs::write(&file, text).unwrap();
    let strict = |words: &str| {
        ended(&mut with(
            &[],
            &format!("--config {} --set s {words}", file.display()),
        ))
    };
    let (status, _, err) = strict("run -n a -- true");
    assert_eq!(status, 69, "{err}");
    assert!(err.contains("; wait longer with --ready"), "{err}");
    let (status, shown, _) = strict("status a");
    assert_eq!(status, 69, "{shown}");
    assert!(
        shown.contains("a  free, but nobody can lock it: only 0 of 3 masters"),
        "{shown}"
    );
    assert_eq!(shown.matches("  free, no vote for ").count(), 3, "{shown}");
    let (status, _, err) = strict("run -n --ready 10ms a -- true");
    assert_eq!(status, 69, "{err}");
    assert!(err.contains("have no vote for "), "{err}");
    let (status, out, err) = strict("run -v -q -n --ready 20s a -- echo ran");
    assert_eq!((status, &*out), (0, "ran\n"), "{err}");
    assert!(!err.contains("waiting for"), "it ends by itself: {err}");
}

#[test]
fn a_database_that_the_masters_do_not_have_is_78() {
    let masters = masters(3);
    let urls: Vec<_> = masters.iter().map(|master| master.url() + "/99").collect();
    let mut command = with(&masters, "run a -- echo ran");
    let (status, out, err) = ended(command.env("QUORLOCK_MASTERS", urls.join(",")));
    assert_eq!((status, &*out), (78, ""), "{err}");
    assert!(
        err.contains("refused the database 99: ERR DB index is out of range"),
        "{err}"
    );
}

#[test]
fn a_command_is_found_without_a_path() {
    let masters = masters(1);
    let (status, out, err) = ended(with(&masters, "run a -- echo ran").env_remove("PATH"));
    assert_eq!((status, &*out), (0, "ran\n"), "{err}");
}

#[test]
fn too_few_files_are_71() {
    let masters = masters(3);
    let limited = |files: u32| {
        let script = format!("ulimit -n {files}; exec \"$0\" run -n a -- true");
        let mut shell = Command::new("sh");
        let program = quorlock(&masters);
        shell.args(["-c", &script]).arg(program.get_program());
        let known = program.get_envs();
        shell.envs(known.filter_map(|(name, value)| Some((name, value?))));
        ended(&mut shell)
    };
    for files in 4.. {
        let (status, _, err) = limited(files);
        if status == 0 {
            break;
        }
        assert_eq!(status, 71, "{files}: {err}");
        assert!(err.starts_with("quorlock: cannot "), "{files}: {err}");
        assert_eq!(err.lines().count(), 1, "{files}: {err}");
        assert_free(&masters, "a");
    }
}

#[test]
fn the_command_knows_the_lock() {
    let masters = masters(5);
    let show = "echo $QUORLOCK_LOCK,$QUORLOCK_FENCING_TOKEN,$QUORLOCK_DEADLINE_MS,$QUORLOCK_VOTES";
    let now = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.unwrap().as_millis()
    };
    let mut last = 0;
    for words in [
        "a",
        "--ttl 20s a",
        "--fence a",
        "--fence --ttl 20s a",
        "--fence a",
    ] {
        let before = now();
        let (status, out, err) = ended(script(&masters, words, show).env("QUORLOCK_LOCK", "outer"));
        assert_eq!((status, &*err), (0, ""));
        let fields: Vec<_> = out.trim_end().split(',').collect();
        assert_eq!(fields[0], "a");
        let ttl = if words.contains("20s") {
            20_000
        } else {
            10_000
        };
        let deadline: u128 = fields[2].parse().unwrap();
        assert!(
            deadline > before + ttl / 2 && deadline < now() + ttl,
            "{out}"
        );
        let (granted, of) = fields[3].split_once('/').unwrap();
        assert!(
            (3..=5).contains(&granted.parse::<u32>().unwrap()) && of == "5",
            "{out}"
        );
        if words.contains("fence") {
            let token: u64 = fields[1].parse().unwrap();
            assert!(token > last, "{out}");
            last = token;
        } else {
            assert_eq!(fields[1], "");
        }
    }
    // An inner run does not show the token of the outer one.
    let inner = format!(
        "exec {} run b -- sh -c '{show}'",
        env!("CARGO_BIN_EXE_quorlock")
    );
    let (status, out, err) = ended(&mut script(&masters, "--fence a", &inner));
    assert_eq!(status, 0, "{err}");
    assert!(out.starts_with("b,,"), "{out}");
}

#[test]
fn a_minimum_time_outlives_the_command() {
    let masters = masters(3);
    for code in [0, 3] {
        let words = format!("-n --min-hold 1m job{code}");
        let (status, _, err) = ended(&mut script(&masters, &words, &format!("exit {code}")));
        assert_eq!((status, &*err), (code, ""));
        let (status, _, _) = ended(&mut script(&masters, &words, "exit 0"));
        assert_eq!(status, 75);
        let left: u64 = masters[0]
            .command(&["PTTL", &format!("job{code}")])
            .parse()
            .unwrap();
        assert!(left > 50_000, "{left} ms");
    }
}

#[test]
fn stdin_and_both_outputs_are_those_of_the_command() {
    let masters = masters(3);
    let mut shell = Command::new("sh");
    let pipeline =
        r#"printf 'a\nb\n' | "$0" run a -- sh -c 'cat; echo e >&2; cat /proc/self/status'"#;
    shell.args(["-c", pipeline, env!("CARGO_BIN_EXE_quorlock")]);
    let (status, out, err) = ended(shell.env("QUORLOCK_MASTERS", urls(&masters)));
    assert_eq!((status, &*err), (0, "e\n"));
    assert!(out.starts_with("a\nb\n"), "{out}");
    assert!(
        out.contains("SigBlk:\t0000000000000000\n"),
        "no signal is blocked: {out}"
    );
}

#[test]
fn a_time_of_zero_that_would_run_nothing_is_64() {
    for (words, says) in [
        (
            "--max-hold 0s",
            "invalid value '0s' for '--max-hold <TIME>'",
        ),
        ("--ttl 0s", "a TTL of 0s is out of range"),
    ] {
        let masters = masters(1);
        let words = format!("run -n {words} a -- echo ran");
        let (status, out, err) = ended(&mut with(&masters, &words));
        assert_eq!((status, &*out), (64, ""), "{err}");
        assert!(err.contains(says), "{err}");
    }
}

/// A second lock would be held, of which nobody thought.
#[test]
fn a_unit_or_a_value_of_a_flag_is_no_name() {
    let masters = masters(3);
    for (words, wrong, name) in [
        ("run --ttl 10 s a -- true", "write --ttl 10s", "s"),
        ("run -w 5 m a -- true", "write -w 5m", "m"),
        ("run --timeout 1.5 h a -- true", "write --timeout 1.5h", "h"),
        (
            "status --node-timeout 500 ms a",
            "write --node-timeout 500ms",
            "ms",
        ),
        ("run yes -n -- true", "", ""),
        (
            "run --strict yes a -- true",
            "--strict takes no separate value",
            "yes",
        ),
        (
            "status --strict false",
            "--strict takes no separate value",
            "false",
        ),
        ("hold a --fence on", "--fence takes no separate value", "on"),
        ("run --permits 3 s -- true", "", ""),
        ("run --label no a -- true", "", ""),
        ("run --ttl 10 a s -- true", "", ""),
        ("run -w 5s s -- echo --ttl 10 s", "", ""),
    ] {
        let (status, out, err) = ended(&mut with(&masters, words));
        if wrong.is_empty() {
            assert_eq!((status, &*err), (0, ""), "{words}");
            continue;
        }
        assert_eq!((status, &*out), (64, ""), "{words}: {err}");
        let option = words.split(' ').take_while(|word| *word != name);
        let option = option.filter(|word| word.starts_with('-')).last();
        let expected = format!(
            "quorlock: {wrong}; if {name} is a name, put it before {}\n",
            option.unwrap()
        );
        assert_eq!(err, expected, "{words}");
    }
}

#[test]
fn options_have_the_names_that_other_programs_give_them() {
    let masters = masters(3);
    let _holder = Running::hold(&masters, "a");
    for words in ["-w 0.01", "--timeout 10ms", "--no-wait"] {
        let (status, _, err) = ended(&mut with(&masters, &format!("run {words} a -- true")));
        assert_eq!(status, 75, "{words}: {err}");
    }
    for words in ["-f", "--force"] {
        let (status, _, err) = ended(&mut with(&masters, &format!("break {words} none")));
        assert_ne!(status, 64, "{words}: {err}");
    }
    for (words, tip) in [("-x", false), ("--fly", false), ("--fairr", true)] {
        let (status, _, err) = ended(&mut with(&masters, &format!("run {words} a -- true")));
        assert_eq!((status, err.contains("tip: ")), (64, tip), "{words}: {err}");
        assert!(!err.contains("as a value"), "{err}");
    }
}

#[test]
fn a_wrong_value_is_told_what_was_expected() {
    let masters = masters(3);
    let time = "is not a time, expected one such as 10s, 500ms or 1m";
    for (words, expected) in [
        ("run --ttl abc a -- true", time),
        ("run --ttl 10x a -- true", time),
        ("run --wait 200years a -- true", "is longer than 100 years"),
        ("run -E x a -- true", "expected a number from 0 to 255"),
        ("run -E 256 a -- true", "expected a number from 0 to 255"),
        (
            "doctor --textfile q.txt",
            "expected a name that ends with .prom",
        ),
    ] {
        let (status, _, err) = ended(&mut with(&masters, words));
        let line = err.lines().next().unwrap_or_default();
        assert!(status == 64 && line.ends_with(expected), "{words}: {err}");
    }
}

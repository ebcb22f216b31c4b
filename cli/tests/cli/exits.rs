//! Exit statuses and the environment of the command.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant, SystemTime},
};

use nix::sys::signal::Signal;
use testkit::server::{Server, masters};

use crate::support::{
    PROGRAM, Running, assert_free, configure, each, ended, ignores_interrupts, list, quorlock, run,
    script, shell, until, with,
};

#[test]
fn the_status_is_that_of_the_command() {
    let masters = masters(3);
    for code in [0, 1, 2, 64, 75, 76, 126, 255] {
        let ended = ended(&mut script(&masters, "a", &format!("exit {code}")));
        ended.gives(code, "").in_lines(0);
        assert_free(&masters, "a"); // it is released before the end
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130), ("SEGV", 139)] {
        if signal == "INT" && ignores_interrupts() {
            println!("skipped INT: this process ignores it");
            continue;
        }
        ended(&mut script(&masters, "a", &format!("kill -{signal} $$"))).is(code);
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
        run(&masters, &format!("run a -- {command}"))
            .is(code)
            .says(says);
    }
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    run(&masters, &format!("run a -- {file}")).is(126).says(
        "its interpreter does not exist: the one in its first line (#!), without a line break of \
         Windows, or the loader of a program",
    );
    for line in ["echo hi; ls", "echo hi", "/bin/echo hi", "ls|wc"] {
        ended(quorlock(&masters).args(["run", "a", "--", line]))
            .gives(127, "")
            .last_says("no shell in between, so give a line for a shell as sh -c '..'\n");
    }
    assert_free(&masters, "a");
}

#[test]
fn a_lock_that_is_held_is_75() {
    let masters = masters(3);
    let holder = Running::hold(&masters, "a");
    let asked = |words: &str| ended(&mut script(&masters, &format!("{words} a"), "echo ran"));
    for (words, lines, advice) in [
        ("--nonblock", 1, "; try again later, or wait with --wait\n"),
        ("-n", 1, "; try again later, or wait with --wait\n"),
        ("--wait 0s", 1, ""),
        (
            "--wait 300ms",
            1,
            "; try again later, or with a longer --wait\n",
        ),
        ("-n --fence", 1, ""),
        ("-n -v", 3, ""),
    ] {
        let ended = asked(words).gives(75, "").in_lines(lines).last_says(advice);
        let ended = ended.says("quorlock: \"a\" is held by ");
        let waits = words == "--wait 300ms";
        assert_eq!(ended.err.contains(" (waited 300ms); "), waits, "{ended}");
    }
    let named = format!("/{}, since ", holder.id());
    for words in ["-n", "--wait 300ms"] {
        let what = "it names the holder, unless the machine is very busy";
        until(what, || asked(words).err.contains(&named));
    }
    asked("-n -E 3").gives(3, "");
    asked("-q --conflict-exit-code 0 -n").gives(0, "");
    asked("-q -n").gives(75, "").in_lines(0);
    // The same name as another kind of lock is a mistake, and no contention.
    asked("-n --fair").is(78);
}

/// The grants of several programs that ask at once may look like a holder, but they are new. Here,
/// one look of ten falls on a new renewal.
#[test]
fn a_holder_that_is_not_new_is_asked_for_once() {
    let masters = masters(3);
    let _holder = Running::hold(&masters, "a");
    let sets = || masters[0].calls(|name| name == "set");
    let what = "one attempt is enough, unless the machine is very busy";
    until(what, || {
        let before = sets();
        ended(&mut script(&masters, "-q -n a", "echo ran")).is(75);
        // The first attempt also tries the right to SET.
        sets() == before + 2
    });
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
    let ended = waiter.ended().gives(0, "ran\n").in_lines(1);
    ended.first_says("quorlock: got \"a\" after ");
    quiet.ended().gives(0, "ran\n").in_lines(0);
}

#[test]
fn a_new_holder_is_told_to_those_who_wait() {
    let masters = masters(3);
    let first = Running::hold(&masters, "--fair a");
    let mut next = Running::start(&mut with(&masters, "hold --fair a"));
    next.errors_until(&["waiting for \"a\", which is held by "]);
    let mut waiter = Running::start(&mut script(&masters, "-v --fair a", "echo ran"));
    let held_by = |id: u32| format!("/{id} for ");
    waiter.errors_until(&["waiting for \"a\", which is held by ", &held_by(first.id())]);
    first.terminated().is(0);
    waiter.errors_until(&["waiting for \"a\", which is held by ", &held_by(next.id())]);
    next.terminated().is(0);
    waiter.ended().gives(0, "ran\n").omits("waiting for");
}

#[test]
fn a_key_without_a_ttl_is_told_at_once_and_not_hidden() {
    let masters = masters(3);
    each(&masters, "SET a x");
    let text = "\"a\" is held without a TTL, so it may be no lock; ";
    for (words, expected) in [("-n", 75), ("-q -n", 75), ("-q -n -E 7", 7)] {
        let ended = ended(&mut script(&masters, &format!("{words} a"), "echo ran"));
        let ended = ended.gives(expected, "").in_lines(1);
        ended.first_says(&format!("quorlock: {text}"));
    }
    for words in ["a", "-q a"] {
        let mut waiter = Running::start(&mut script(&masters, words, "echo ran"));
        waiter.errors_until(&["waiting for \"a\": ", text, "\n"]);
    }
}

#[test]
fn a_key_that_is_not_a_lock_is_78() {
    let masters = masters(3);
    each(&masters, "RPUSH list x");
    each(&masters, "HSET hash field value");
    for words in [
        "-n list",
        "list",
        "-n --fair list",
        "-n --permits 2 list",
        "-n hash",
    ] {
        let ended = ended(&mut script(&masters, words, "echo ran"));
        ended.gives(78, "").says(": its key is not a lock; ");
    }
}

#[test]
fn no_majority_is_69() {
    let mut masters = masters(5);
    masters[..2].iter_mut().for_each(Server::kill);
    ended(&mut script(&masters, "-n a", "echo $QUORLOCK_VOTES")).gives(0, "3/5\n");
    masters[2].kill();
    for words in [
        "--nonblock",
        "--wait 300ms",
        "--wait 300ms --fair",
        "-n --fence",
    ] {
        let since = Instant::now();
        let ended = ended(&mut script(&masters, &format!("{words} a"), "echo ran"));
        let ended = ended.gives(69, "").in_lines(1);
        let ended = ended.says(" 2 of 5 masters can vote, and 3 are needed; 127.0.0.1:");
        assert_eq!(
            ended.err.matches(": Connection refused").count(),
            3,
            "{ended}"
        );
        assert!(since.elapsed() < Duration::from_secs(10), "{words}");
    }
    // A quiet wait with an end says at its end what was wrong.
    run(&masters, "run -q -n --ready 7s a -- echo ran")
        .gives(69, "")
        .in_lines(1);
    // The line of the votes has each master.
    let ended = run(&masters, "run -v -n a -- echo ran");
    let votes = ended
        .err
        .lines()
        .find(|line| line.contains("the votes were "))
        .unwrap();
    assert_eq!(votes.matches(" unreachable: ").count(), 3, "{ended}");
    assert_eq!(votes.matches(" granted").count(), 2, "{ended}");
}

#[test]
fn wrong_arguments_are_64_and_settings_that_cannot_be_used_78() {
    let masters = masters(3);
    run(&masters, "").gives(64, "");
    for row in include_str!("wrong_arguments.txt").lines() {
        let (words, says) = row.split_once(" |").unwrap();
        let says = says.trim();
        run(&masters, words).gives(64, "").says(says);
    }
    for (ttl, says) in [
        (
            "2h",
            "or first a longer --max-ttl or max_ttl (QUORLOCK_MAX_TTL) in all programs",
        ),
        ("1ms", "a TTL of 1ms is out of range"),
        ("0s", "a TTL of 0s is out of range"),
    ] {
        run(&masters, &format!("run --ttl {ttl} a -- true"))
            .gives(78, "")
            .says(says);
    }
    run(&masters, "run --permits 1000 a -- true").is(0);
    ended(quorlock(&masters).args(["run", "", "--", "true"])).is(64);
    run(&[], "run a -- true").is(64).says("--master URL");
    run(&masters, "run a --tll 5s -- true").omits("names stand");
    // A look that is strict would begin a quarantine for the other one.
    for words in [
        "run --quarantine=off a -- echo --quarantine strict",
        "status true --quarantine strict",
    ] {
        let ended = run(&masters, words);
        assert!([0, 69].contains(&ended.status), "{ended}");
    }
    for words in ["--help", "--version", "run --help", "help", "help run"] {
        let ended = run(&masters, words).is(0);
        let mut lines = ended.out.lines();
        assert!(lines.all(|line| line.chars().count() <= 80), "{ended}");
    }
}

#[test]
fn a_program_without_a_terminal_says_that_it_waits_for_masters() {
    let mut masters = masters(3);
    masters[..2].iter_mut().for_each(Server::kill);
    let mut running = Running::start(&mut script(&masters, "a", "echo ran"));
    running.errors_until(&[&format!(
        "waiting for \"a\": only 1 of 3 masters can vote, and 2 are needed; 127.0.0.1:{0}: \
         connecting to 127.0.0.1:{0}: Connection refused",
        masters[0].port()
    )]);
    running.terminated().gives(143, "");
    assert_free(&masters[2..], "a");
}

#[test]
fn a_master_without_a_vote_yet_is_not_one_that_failed() {
    let mut masters = masters(3);
    run(&masters, "run a -- true").is(0); // writes the keys of the guard
    masters[1].command(&["HSET", "quorlock:origin", "run_id", "another"]);
    masters[0].kill();
    run(&masters, "run -n a -- true")
        .is(69)
        .says("only 1 of 3 masters can vote, and 2 are needed; 127.0.0.1:")
        .says(": Connection refused; masters that may have forgotten ")
        .says("wait longer with --ready");
}

#[test]
fn masters_that_may_have_forgotten_locks_are_waited_for() {
    let masters = masters(3);
    let settings = "quarantine = \"strict\"\nttl = \"2s\"\nmax_ttl = \"3s\"";
    let file = configure(masters[0].directory(), &list(&masters), settings);
    let strict = |words: &str| run(&[], &format!("--config {} {words}", file.display()));
    strict("run -n a -- true")
        .is(69)
        .says("; wait longer with --ready");
    strict("status a")
        .is(69)
        .shows("a  free, but nobody can lock it: only 0 of 3 masters")
        .shows_times(3, "  free, no vote for ");
    strict("run -n --ready 10ms a -- true")
        .is(69)
        .says("have no vote for ");
    let first = masters[0].port().to_string();
    masters[2].command(&["REPLICAOF", "127.0.0.1", &first]);
    strict("run -n a -- true")
        .is(69)
        .says(&format!(
            "needed; 127.0.0.1:{}: it is a replica",
            masters[2].port()
        ))
        .says("; masters that may have forgotten locks have no vote for ")
        .last_says("; wait longer with --ready\n");
    masters[2].command(&["REPLICAOF", "NO", "ONE"]);
    strict("run -v -q -n --ready 20s a -- echo ran")
        .gives(0, "ran\n")
        .omits("waiting for"); // it ends by itself
}

#[test]
fn a_database_that_the_masters_do_not_have_is_78() {
    let masters = masters(3);
    let urls: Vec<_> = masters.iter().map(|master| master.url() + "/99").collect();
    let mut command = with(&masters, "run a -- echo ran");
    ended(command.env("QUORLOCK_MASTERS", urls.join(",")))
        .gives(78, "")
        .says("refused the database 99: ERR DB index is out of range");
}

#[test]
fn a_command_is_found_without_a_path() {
    let masters = masters(1);
    ended(with(&masters, "run a -- echo ran").env_remove("PATH")).gives(0, "ran\n");
}

#[test]
fn too_few_files_are_71() {
    let masters = masters(3);
    for files in 4.. {
        let line = format!("ulimit -n {files}; exec \"$0\" run -n a -- true");
        let ended = ended(&mut shell(&masters, &line));
        if ended.status == 0 {
            break;
        }
        ended.is(71).in_lines(1).first_says("quorlock: cannot ");
        assert_free(&masters, "a");
    }
}

#[test]
fn the_command_knows_the_lock() {
    let masters = masters(5);
    let show =
        "echo $QUORLOCK_LOCK,$QUORLOCK_FENCING_TOKEN,$QUORLOCK_VALID_UNTIL_MS,$QUORLOCK_VOTES";
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
        let ended = ended(script(&masters, words, show).env("QUORLOCK_LOCK", "outer"));
        let out = ended.is(0).in_lines(0).out;
        let fields: Vec<_> = out.trim_end().split(',').collect();
        assert_eq!(fields[0], "a");
        let ttl = if words.contains("20s") {
            20_000
        } else {
            10_000
        };
        let deadline: u128 = fields[2].parse().unwrap();
        let is_in_time = deadline > before + ttl / 2 && deadline < now() + ttl;
        assert!(is_in_time, "{out}");
        let votes: u32 = fields[3].strip_suffix("/5").unwrap().parse().unwrap();
        assert!((3..=5).contains(&votes), "{out}");
        if words.contains("fence") {
            let token: u64 = fields[1].parse().unwrap();
            assert!(token > last, "{out}");
            last = token;
        } else {
            assert_eq!(fields[1], "");
        }
    }
    // An inner run does not show the token of the outer one.
    let inner = format!("exec {PROGRAM} run b -- sh -c '{show}'");
    ended(&mut script(&masters, "--fence a", &inner))
        .is(0)
        .begins("b,,");
}

#[test]
fn a_minimum_time_outlives_the_command() {
    let masters = masters(3);
    for code in [0, 3] {
        let words = format!("-n --min-hold 1m job{code}");
        ended(&mut script(&masters, &words, &format!("exit {code}")))
            .is(code)
            .in_lines(0);
        ended(&mut script(&masters, &words, "exit 0")).is(75);
        let left = masters[0].command(&["PTTL", &format!("job{code}")]);
        assert!(left.parse::<u64>().unwrap() > 50_000, "{left} ms");
    }
}

#[test]
fn stdin_and_both_outputs_are_those_of_the_command() {
    let masters = masters(3);
    let line = r#"printf 'a\nb\n' | "$0" run a -- sh -c 'cat; echo e >&2; cat /proc/self/status'"#;
    let ended = ended(&mut shell(&masters, line)).is(0).begins("a\nb\n");
    assert_eq!(ended.err, "e\n");
    ended.shows("SigBlk:\t0000000000000000\n"); // no signal is blocked
}

/// A second lock would be held, of which nobody thought.
#[test]
fn a_unit_is_no_name() {
    let masters = masters(3);
    for (words, wrong, name) in [
        ("run --ttl 10 s a -- true", "write --ttl 10s", "s"),
        ("run -w 5 m a -- true", "write -w 5m", "m"),
        ("run --timeout 1.5 h a -- true", "write --timeout 1.5h", "h"),
        (
            "status --response-timeout 500 ms a",
            "write --response-timeout 500ms",
            "ms",
        ),
    ] {
        let option = words.split(' ').take_while(|word| *word != name);
        let option = option.filter(|word| word.starts_with('-')).last().unwrap();
        let ended = run(&masters, words).gives(64, "");
        let expected = format!("quorlock: {wrong}; if {name} is a name, put it before {option}\n");
        assert_eq!(ended.err, expected, "{words}");
    }
    for words in [
        "run yes -n -- true",
        "run --permits 3 s -- true",
        "run --label no a -- true",
        "run --ttl 10 a s -- true",
        "run -w 5s s -- echo --ttl 10 s",
    ] {
        run(&masters, words).is(0).in_lines(0);
    }
}

#[test]
fn options_have_the_names_that_other_programs_give_them() {
    let masters = masters(3);
    let _holder = Running::hold(&masters, "a");
    for words in ["-w 0.01", "--timeout 10ms", "--no-wait"] {
        run(&masters, &format!("run {words} a -- true")).is(75);
    }
    for words in ["-f", "--force"] {
        let ended = run(&masters, &format!("break {words} none"));
        assert_ne!(ended.status, 64, "{ended}");
    }
    for (words, tip) in [("-x", false), ("--fly", false), ("--fairr", true)] {
        let ended = run(&masters, &format!("run {words} a -- true")).is(64);
        let ended = ended.omits("as a value");
        assert_eq!(ended.err.contains("tip: "), tip, "{ended}");
    }
}

//! Users of the masters that lack rights.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use testkit::server::{self, Server, masters};

use crate::support::{Running, ended, urls, with};

/// Gives the user `bob` these rights.
fn allow(master: &Server, rules: &str) {
    let words = ["ACL", "SETUSER", "bob", "reset", "on", ">pw", "&*"];
    let rules: Vec<_> = rules.split(' ').collect();
    master.command(&[&words[..], &rules].concat());
}

/// Returns the program as the user `bob`.
fn as_bob(masters: &[Server], words: &str) -> Command {
    let urls = urls(masters).replace("redis://", "redis://bob:pw@");
    let mut command = with(masters, words);
    command.env("QUORLOCK_MASTERS", urls);
    command
}

const LACKS: &str = ": a right or a command is missing on 127.0.0.1:";
const ALL: &str = "+@all ~*";
const NO_SCRIPTS: &str = "+@all -eval -evalsha ~*";
const OTHER_KEYS: &str = "+@all ~locks:* ~quorlock:*";

#[test]
fn masters_that_deny_the_lock_are_78_at_once() {
    let masters = masters(3);
    for (rules, words) in [
        (OTHER_KEYS, "run a -- echo ran"),
        (OTHER_KEYS, "run --fair a -- echo ran"),
        (OTHER_KEYS, "run -n a -- echo ran"),
        (OTHER_KEYS, "run --wait 1m a -- echo ran"),
        (OTHER_KEYS, "run locks:a a -- echo ran"),
        (OTHER_KEYS, "hold a"),
        (NO_SCRIPTS, "run --fair a -- echo ran"),
        (NO_SCRIPTS, "run --permits 2 a -- echo ran"),
        (NO_SCRIPTS, "hold --read a"),
    ] {
        masters.iter().for_each(|master| allow(master, rules));
        let since = Instant::now();
        let (status, out, err) = ended(&mut as_bob(&masters, words));
        assert_eq!((status, &*out), (78, ""), "{words}: {err}");
        assert!(since.elapsed() < Duration::from_secs(20), "{words}");
        for part in [
            "cannot lock ",
            LACKS,
            "NOPERM",
            "; run `quorlock doctor` with the same masters\n",
        ] {
            assert!(err.contains(part), "{words}: {part}: {err}");
        }
        assert_eq!(err.lines().count(), 1, "{words}: {err}");
    }
}

/// A strict program has no vote of a master before it has asked whether that one restarted.
#[test]
fn masters_that_deny_the_question_of_a_strict_program_are_78_at_once() {
    let masters = masters(3);
    for rules in ["+@all -time ~*", "+@all ~a"] {
        masters.iter().for_each(|master| allow(master, rules));
        for words in [
            "run -n a -- echo ran",
            "run a -- echo ran",
            "hold --wait 1m a",
            "status a",
            "break --yes a",
        ] {
            let since = Instant::now();
            let strict = format!("--strict {words}");
            let (status, out, err) = ended(&mut as_bob(&masters, &strict));
            assert_eq!(
                (status, out.contains("ran\n")),
                (78, false),
                "{words}: {err}"
            );
            assert!(since.elapsed() < Duration::from_secs(5), "{words}");
            for part in [
                "it cannot be asked whether it restarted: ",
                "+time",
                "~quorlock:guard",
            ] {
                assert!(err.contains(part), "{words}: {part}: {err}");
            }
            assert_eq!(err.lines().count(), 1, "{words}: {err}");
        }
    }
}

/// A master that refuses the dial and one that denies the lock leave no majority together.
#[test]
fn refused_dials_and_missing_rights_count_together() {
    let masters = masters(3);
    allow(&masters[1], OTHER_KEYS);
    allow(&masters[2], ALL);
    for words in [
        "run -n a -- echo ran",
        "run a -- echo ran",
        "hold a",
        "status a",
    ] {
        let (status, out, err) = ended(&mut as_bob(&masters, words));
        assert_eq!(
            (status, out.contains("ran\n")),
            (78, false),
            "{words}: {err}"
        );
        for part in ["refused the login: WRONGPASS", "answered NOPERM"] {
            assert!(err.contains(part), "{words}: {part}: {err}");
        }
        assert_eq!(err.lines().count(), 1, "{words}: {err}");
    }
}

/// Old servers say inside a script in other words that a right is missing.
#[test]
fn a_right_that_is_missing_in_a_script_is_78_at_once_on_each_version() {
    let own = server::find_binary().into_iter();
    let versions = ["redis-6.2", "redis-7.0", "redis-8.6", "valkey-9.1"];
    let versions = versions.into_iter().filter_map(server::version);
    for program in own.chain(versions) {
        let masters: Vec<_> = (0..3).map(|_| Server::start_version(&program)).collect();
        for rules in [
            "+@all -time ~*",
            "+@all -pexpire ~*",
            "+@all -hset ~*",
            "+@all ~a",
        ] {
            masters.iter().for_each(|master| allow(master, rules));
            for words in ["", "-n ", "--wait 1m "] {
                let since = Instant::now();
                let words = format!("run --permits 2 {words}a -- echo ran");
                let (status, out, err) = ended(&mut as_bob(&masters, &words));
                let case = format!("{}: {rules}: {words}: {err}", program.display());
                assert_eq!((status, &*out), (78, ""), "{case}");
                assert!(err.contains(LACKS), "{case}");
                assert!(since.elapsed() < Duration::from_secs(5), "{case}");
            }
        }
        // Such a user sees mutexes, and no queue.
        masters.iter().for_each(|master| allow(master, "+@all ~a"));
        let (status, out, err) = ended(&mut as_bob(&masters, "status a"));
        assert_eq!(status, 0, "{}: {out}{err}", program.display());
    }
}

/// Whichever command needs the right first, and whichever call meets the denial.
#[test]
fn each_missing_right_is_78_within_a_second_for_each_kind() {
    const MUTEX: &str = "eval evalsha set get";
    const QUEUED: &str = "eval evalsha hset time";
    const WORDS: [(&str, &str, &str); 6] = [
        ("run -n a -- echo ran", MUTEX, ""),
        ("run -n --ready 3s a -- echo ran", MUTEX, ""),
        ("run --ready 90s a b -- echo ran", MUTEX, ""),
        ("run -n --fence a -- echo ran", MUTEX, "time"),
        ("run -n --ready 3s --permits 2 a -- echo ran", QUEUED, ""),
        ("run --fair a -- echo ran", QUEUED, ""),
    ];
    let masters = masters(3);
    for missing in "eval evalsha set get hset time config".split(' ') {
        if missing == "evalsha" && server::is_before_7() {
            continue; // these servers do not tell scripts
        }
        let rules = format!("+@all -{missing} ~*");
        masters.iter().for_each(|master| allow(master, &rules));
        for (words, needed, also) in WORDS {
            let needs_it = needed.split(' ').any(|one| one == missing) || also == missing;
            let expected = if needs_it { 78 } else { 0 };
            let since = Instant::now();
            let (status, out, err) = ended(&mut as_bob(&masters, words));
            let case = format!("without {missing}: {words}: {err}");
            assert_eq!(
                (status, out.contains("ran\n")),
                (expected, expected == 0),
                "{case}"
            );
            assert!(since.elapsed() < Duration::from_secs(3), "{case}");
            if expected == 78 {
                assert!(err.to_lowercase().contains(missing), "{case}");
                assert!(!err.contains("::"), "{case}");
                assert_eq!(err.lines().count(), 1, "{case}");
            }
        }
        for master in &masters {
            for name in ["a", "b"] {
                assert_eq!(master.command(&["EXISTS", name]), "0", "without {missing}");
            }
        }
    }
}

/// Some hosts rename commands.
#[test]
fn a_server_without_a_command_is_78() {
    for missing in ["EVAL", "EVALSHA", "GET"] {
        let masters: Vec<_> = (0..3)
            .map(|_| Server::start_with(&["--rename-command", missing, ""]))
            .collect();
        for words in ["run -n a -- echo ran", "run --ready 90s a -- echo ran"] {
            let (status, out, err) = ended(&mut with(&masters, words));
            assert_eq!(
                (status, &*out),
                (78, ""),
                "without {missing}: {words}: {err}"
            );
            assert!(err.contains(missing), "{err}");
        }
    }
}

#[test]
fn a_wait_for_masters_of_which_some_deny_the_lock_says_so() {
    let mut masters = masters(3);
    masters.iter().for_each(|master| allow(master, ALL));
    allow(&masters[0], OTHER_KEYS);
    let (status, out, err) = ended(&mut as_bob(&masters, "run a -- echo ran"));
    assert_eq!((status, &*out, &*err), (0, "ran\n", ""), "two are enough");

    masters[2].kill();
    let mut running = Running::start(&mut as_bob(&masters, "run a -- echo ran"));
    let news = running.error_line();
    let port = masters[0].port();
    for part in [
        "waiting for \"a\": ",
        " 1 of 3 masters can vote, and 2 are needed; ",
        &format!("127.0.0.1:{port}: "),
        "NOPERM",
        "; run `quorlock doctor`",
    ] {
        assert!(news.contains(part), "{part}: {news}");
    }
    allow(&masters[0], ALL);
    assert_eq!(running.line(), "ran", "the wait went on");
    assert!(running.ended().0.success());
}

/// `run` and `status` agree about a user who lacks a right.
#[test]
fn the_status_of_a_lock_whose_key_is_denied_is_78() {
    let masters = masters(3);
    masters.iter().for_each(|master| allow(master, ALL));
    // From now on, the masters have the script that inspects locks.
    assert_eq!(ended(&mut as_bob(&masters, "status a")).0, 0);
    for (rules, words) in [
        (OTHER_KEYS, "status a"),
        (OTHER_KEYS, "status --json a"),
        (OTHER_KEYS, "break --yes a"),
        ("+@all -eval ~*", "status a"),
    ] {
        masters.iter().for_each(|master| allow(master, rules));
        let (status, _, err) = ended(&mut as_bob(&masters, words));
        assert_eq!(status, 78, "{words}: {err}");
        assert!(
            err.contains(LACKS) && err.contains("; run `quorlock doctor`"),
            "{words}: {err}"
        );
    }
}

#[test]
fn the_commands_of_the_doctor_give_all_rights() {
    let masters = masters(1);
    allow(&masters[0], "+hello");
    let as_bob = |words| ended(as_bob(&masters, words).env("QUORLOCK_KEY_TEMPLATE", "jobs:{name}"));
    let before = format!("redis-cli -h 127.0.0.1 -p {} ", masters[0].port());
    for round in 1.. {
        let (_, shown, err) = as_bob("doctor");
        let lines = shown.lines().map(str::trim);
        let commands: Vec<_> = lines
            .filter_map(|line| line.strip_prefix(&*before))
            .collect();
        for command in &commands {
            let words = command.replace('\'', "");
            masters[0].command(&words.split(' ').collect::<Vec<_>>());
        }
        if commands.is_empty() {
            break;
        }
        assert!(round < 6, "{shown}{err}"); // scripts, commands, keys, deletions, none
        assert!(round > 1 || commands.len() == 1, "{shown}");
    }
    for words in ["run --fair --fence a -- true", "run --permits 2 b -- true"] {
        assert_eq!(as_bob(words).0, 0, "{words}");
    }
}

/// A command for another user would give that user rights, and would not help.
#[test]
fn the_doctor_names_no_user_if_there_are_several() {
    let masters = masters(2);
    masters
        .iter()
        .for_each(|master| allow(master, "+@all -set ~*"));
    let mut doctor = as_bob(&masters, "doctor");
    let urls = urls(&masters).replacen("redis://", "redis://bob:pw@", 1);
    let (_, shown, err) = ended(doctor.env("QUORLOCK_MASTERS", urls));
    assert!(shown.contains("ACL SETUSER <user> +set"), "{shown}{err}");
    assert!(!shown.contains("redis-cli -h 127.0.0.1 -p"), "{shown}");
}

/// Such a user may not run `quorlock run --fence`.
#[test]
fn the_doctor_says_what_is_not_well_without_the_right_to_counters() {
    let masters = masters(3);
    let rules = "+@all ~quorlock:[cdgqrw]*";
    masters.iter().for_each(|master| allow(master, rules));
    let (status, shown, err) = ended(&mut as_bob(&masters, "doctor"));
    assert_eq!(status, 0, "{shown}{err}");
    for part in [
        "no fencing tokens without fence",
        "'~quorlock:fence:*'",
        "; all is well, but not for all kinds of locks\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

//! Users of the masters that lack rights.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use testkit::server::{self, Server, masters};

use crate::support::{Ended, Running, each, ended, urls, with};

/// Gives the user `bob` these rights.
pub fn allow(masters: &[Server], rules: &str) {
    each(masters, &format!("ACL SETUSER bob reset on >pw &* {rules}"));
}

/// Returns the program as the user `bob`.
pub fn as_bob(masters: &[Server], words: &str) -> Command {
    let urls = urls(masters).replace("redis://", "redis://bob:pw@");
    let mut command = with(masters, words);
    command.env("QUORLOCK_MASTERS", urls);
    command
}

/// Runs the program as the user `bob`. It must end at once, with this status and at most one line
/// of errors, and run its command only if the status is 0.
#[track_caller]
fn ends_at_once(masters: &[Server], words: &str, expected: i32) -> Ended {
    let since = Instant::now();
    let ended = ended(&mut as_bob(masters, words)).is(expected);
    assert_eq!(ended.out.contains("ran\n"), expected == 0, "{ended}");
    assert!(expected == 0 || ended.err.lines().count() == 1, "{ended}");
    let took = since.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}: {ended}");
    ended
}

const LACKS: &str = ": a right or a command is missing on 127.0.0.1:";
const ADVICE: &str = " run `quorlock doctor` with the same masters\n";
const NOT_READ: &str = "; %R~ is not enough for scripts\n";
const ALL: &str = "+@all ~*";
const NO_SCRIPTS: &str = "+@all -eval -evalsha ~*";
const OTHER_KEYS: &str = "+@all ~locks:* ~quorlock:*";

#[test]
fn masters_that_deny_the_lock_are_78_at_once() {
    let masters = masters(3);
    // From now on, the masters have the script that inspects locks.
    allow(&masters, ALL);
    ended(&mut as_bob(&masters, "status a")).is(0);
    for (rules, words) in [
        (OTHER_KEYS, "run a -- echo ran"),
        (OTHER_KEYS, "run --fair a -- echo ran"),
        (OTHER_KEYS, "run -n a -- echo ran"),
        (OTHER_KEYS, "run --wait 1m a -- echo ran"),
        (OTHER_KEYS, "run locks:a a -- echo ran"),
        (OTHER_KEYS, "hold a"),
        (OTHER_KEYS, "status a"),
        (OTHER_KEYS, "status --json a"),
        (OTHER_KEYS, "break --yes a"),
        (NO_SCRIPTS, "run --fair a -- echo ran"),
        (NO_SCRIPTS, "run --permits 2 a -- echo ran"),
        (NO_SCRIPTS, "hold --read a"),
        ("+@all -eval ~*", "status a"),
        ("+@all -pexpire ~*", "run --permits 2 a -- echo ran"),
        ("+@all ~a", "run --permits 2 --wait 1m a -- echo ran"),
    ] {
        allow(&masters, rules);
        let looks = words.starts_with("status") || words.starts_with("break");
        ends_at_once(&masters, words, 78)
            .says("quorlock: cannot ")
            .says(LACKS)
            .says("NOPERM")
            .last_says(if looks { NOT_READ } else { ADVICE });
    }
    // The doctor tries another key.
    let look =
        "+eval +evalsha +scan +type +getrange +get +hmget +hgetall +hlen +pttl +zrange +time";
    let also = "+del +hdel +zrem +zscore +publish";
    for (rules, words, rights, status) in [
        (OTHER_KEYS, "status --now a", look.to_owned(), 75),
        ("+@all -eval ~*", "status --now a", look.to_owned(), 75),
        (OTHER_KEYS, "break --yes a", format!("{look} {also}"), 0),
    ] {
        allow(&masters, rules);
        ends_at_once(&masters, words, 78)
            .says(&format!(
                "; ACL SETUSER bob {rights} ~a ~quorlock:*; %R~ is not"
            ))
            .omits("doctor");
        allow(&masters, &format!("+hello {rights} ~a ~quorlock:*"));
        for kind in ["", "--fair", "--read", "--write", "--permits 2"] {
            let mut holder = with(
                &masters,
                &format!("acquire {kind} --ttl 9s --handle-file - a"),
            );
            ended(&mut holder).is(0);
            let ended = ended(&mut as_bob(&masters, words));
            ended.is(status).hides("NOPERM").hides("may not read");
            each(&masters, "DEL a");
        }
    }
    // A user who only looks cannot break.
    ended(&mut with(&masters, "acquire --ttl 9s --handle-file - a")).is(0);
    allow(&masters, &format!("+hello {look} ~a ~quorlock:*"));
    ended(&mut as_bob(&masters, "break --yes a"))
        .is(78)
        .says("quorlock: \"a\" is not broken: a right or a command is missing on ")
        .says(&format!("; ACL SETUSER bob {look} {also} ~a ~quorlock:*; "));
    each(&masters, "DEL a");
    // Such a user sees mutexes, and no queue.
    allow(&masters, "+@all ~a");
    ended(&mut as_bob(&masters, "status a")).is(0);
}

/// A strict program has no vote of a master before it has asked whether that one restarted.
#[test]
fn masters_that_deny_the_question_of_a_strict_program_are_78_at_once() {
    let masters = masters(3);
    for rules in ["+@all -time ~*", "+@all ~a"] {
        allow(&masters, rules);
        for words in [
            "run -n a -- echo ran",
            "run a -- echo ran",
            "hold --wait 1m a",
            "status a",
            "break --yes a",
        ] {
            ends_at_once(&masters, &format!("--quarantine strict {words}"), 78)
                .says("it cannot be asked whether it restarted: ")
                .says("+time")
                .says("~quorlock:origin");
        }
    }
}

/// A master that refuses the dial and one that denies the lock leave no majority together.
#[test]
fn refused_dials_and_missing_rights_count_together() {
    let masters = masters(3);
    allow(&masters[1..2], OTHER_KEYS);
    allow(&masters[2..], ALL);
    for words in [
        "run -n a -- echo ran",
        "run a -- echo ran",
        "hold a",
        "status a",
    ] {
        ends_at_once(&masters, words, 78)
            .says("refused the login: WRONGPASS")
            .says("answered NOPERM");
    }
}

/// Whichever command needs the right first, and whichever call meets the denial.
#[test]
fn each_missing_right_is_78_at_once_for_each_kind() {
    const MUTEX: &str = "eval evalsha set get";
    const QUEUED: &str = "eval evalsha hset time";
    let masters = masters(3);
    for missing in "eval evalsha set get hset time config".split(' ') {
        if missing == "evalsha" && server::is_before_7() {
            continue; // these servers do not tell scripts
        }
        allow(&masters, &format!("+@all -{missing} ~*"));
        for (words, needed, also) in [
            ("run -n a -- echo ran", MUTEX, ""),
            ("run -n --ready 3s a -- echo ran", MUTEX, ""),
            ("run --ready 90s a b -- echo ran", MUTEX, ""),
            ("run -n --fence a -- echo ran", MUTEX, "time"),
            ("run -n --ready 3s --permits 2 a -- echo ran", QUEUED, ""),
            ("run --fair a -- echo ran", QUEUED, ""),
        ] {
            let needs_it = needed.split(' ').any(|one| one == missing) || also == missing;
            let ended = ends_at_once(&masters, words, if needs_it { 78 } else { 0 }).omits("::");
            let names_it = ended.err.to_lowercase().contains(missing);
            assert!(names_it || !needs_it, "{missing}: {ended}");
        }
        for master in &masters {
            let left = master.command(&["EXISTS", "a", "b"]);
            assert_eq!(left, "0", "without {missing}");
        }
    }
}

#[test]
fn a_wait_for_masters_of_which_some_deny_the_lock_says_so() {
    let mut masters = masters(3);
    allow(&masters, ALL);
    allow(&masters[..1], OTHER_KEYS);
    let run = "run a -- echo ran";
    ended(&mut as_bob(&masters, run))
        .gives(0, "ran\n")
        .in_lines(0); // two are enough

    masters[2].kill();
    let mut running = Running::start(&mut as_bob(&masters, run));
    running.errors_until(&[
        "waiting for \"a\": ",
        " 1 of 3 masters can vote, and 2 are needed; ",
        &format!("127.0.0.1:{}: ", masters[0].port()),
        "NOPERM",
        "; run `quorlock doctor`",
    ]);
    allow(&masters[..1], ALL);
    assert_eq!(running.line(), "ran", "the wait went on");
    running.ended().is(0);
}

#[test]
fn the_commands_of_the_doctor_give_all_rights() {
    let masters = masters(1);
    let as_bob = |words| ended(as_bob(&masters, words).env("QUORLOCK_KEY_TEMPLATE", "jobs:{name}"));
    // Without scripts, keys are tried in a second round.
    let one = "+hello +eval +client +subscribe +unsubscribe +publish";
    for (rules, most) in [(one, 1), ("+hello", 2)] {
        allow(&masters, rules);
        let mut rounds = 0;
        while repair(&masters, &as_bob("doctor")) {
            rounds += 1;
            assert!(rounds <= most, "{rules}: {rounds} rounds");
        }
        for words in ["run --fair --fence a -- true", "run --permits 2 b -- true"] {
            as_bob(words).is(0);
        }
    }
}

/// Runs the commands of the doctor. Returns whether there are any.
fn repair(masters: &[Server], doctor: &Ended) -> bool {
    let before = format!("redis-cli -h 127.0.0.1 -p {} ", masters[0].port());
    let lines = doctor.out.lines().map(str::trim);
    let commands = lines.filter_map(|line| line.strip_prefix(&*before));
    let commands: Vec<_> = commands.map(|one| one.replace('\'', "")).collect();
    for command in &commands {
        each(masters, command);
    }
    !commands.is_empty()
}

/// A command for another user would give that user rights, and would not help.
#[test]
fn the_doctor_names_no_user_if_there_are_several() {
    let masters = masters(2);
    allow(&masters, "+@all -set ~*");
    let mut doctor = as_bob(&masters, "doctor");
    let urls = urls(&masters).replacen("redis://", "redis://bob:pw@", 1);
    ended(doctor.env("QUORLOCK_MASTERS", urls))
        .shows("ACL SETUSER <user> +set")
        .hides("redis-cli -h 127.0.0.1 -p");
}

/// Such a user may not run `quorlock run --fence`.
#[test]
fn the_doctor_says_what_is_not_well_without_the_right_to_counters() {
    let masters = masters(3);
    allow(&masters, "+@all ~quorlock:[cdoqrw]*");
    ended(&mut as_bob(&masters, "doctor"))
        .is(0)
        .shows("no fencing tokens without fence")
        .shows("'~quorlock:fence:*'")
        .shows("; all is well, but not for all kinds of locks\n");
}

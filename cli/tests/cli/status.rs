//! `quorlock status`: verdicts, and what is shown.

use std::{
    thread::sleep,
    time::{Duration, SystemTime},
};

use nix::{sys::signal::Signal, unistd::gethostname};
use testkit::server::{Server, masters};

use crate::support::{Running, each, run, script, until, with, write_fair, write_mutex};

#[test]
fn the_status_of_a_lock_is_0_if_it_is_free_and_75_if_it_is_held() {
    let masters = masters(3);
    let mut ended = run(&masters, "status job")
        .is(0)
        .in_lines(0)
        .begins("job  free\n");
    for master in &masters {
        ended = ended.shows(&format!("127.0.0.1:{}  free", master.port()));
    }
    ended.hides("\x1b"); // a pipe gets no colours
    write_mutex(&masters, "job", "t");
    write_fair(&masters, "queue", "an-owner");
    run(&masters, "status job queue other")
        .is(75)
        .shows("job  held as a mutex, 5") // of 60 s
        .shows("queue  held as a fair lock by an-owner (2 times), 5")
        .shows("other  free");
}

#[test]
fn a_label_keeps_its_spaces() {
    let masters = masters(3);
    let mut hold = with(&masters, "hold job --label");
    let _holder = Running::held(hold.arg(" nightly back-up "));
    let label = "nightly back-up";
    run(&masters, "status job")
        .is(75)
        .shows(&format!(" ({label}), since "));
    let shown = run(&masters, "status job --json").json();
    assert_eq!(shown["locks"][0]["holder"]["label"], label);
    let name = masters[0].command(&["GET", "job"]);
    assert!(name.ends_with("+nightly~back-up"), "{name}");
}

#[test]
fn the_status_looks_twice_at_a_held_lock_or_once() {
    let masters = masters(3);
    run(&masters, "status -h")
        .is(0)
        .tells("--now Look once. Otherwise status looks twice");
    let _holder = Running::hold(&masters, "job");
    let says = "quorlock: looks twice, for up to ";
    for words in ["status job", "status -v --json job"] {
        run(&masters, words)
            .is(75)
            .omits("looks twice")
            .shows("renewed");
    }
    let ended = run(&masters, "status -v job").is(75);
    let ended = ended.shows(" ago, renewed ");
    ended
        .shows(" ago, next renewal due in ")
        .says(says)
        .says("s, to see whether the lock is renewed; --now looks once\n");
    let ended = run(&masters, "status -v --now job").is(75);
    ended
        .omits("looks twice")
        .shows("s left, acquired or renewed ");
}

#[test]
fn the_status_says_which_process_holds_a_lock() {
    let masters = masters(3);
    let [one, other] =
        ["job", "printer --fair --label spooler"].map(|words| Running::hold(&masters, words));
    let host = gethostname().unwrap().into_string().unwrap();
    let [one, other] = [&one, &other].map(|held| format!("{host}/{}", held.id()));
    run(&masters, "status job printer")
        .is(75)
        .shows(&format!("job  held as a mutex by {one}, since "))
        .shows(&format!(
            "printer  held as a fair lock by {other} (spooler, "
        ))
        .shows("), program started ")
        .shows_times(2, " ago, next renewal due in ")
        .shows_times(1, "  WAITING: ")
        .shows("  WAITING: unknown, no master knows who waits for a mutex\n")
        .shows_times(3, &format!("  mutex {one}  "))
        .shows_times(3, &format!("  fair {other}  "));

    let shown = run(&masters, "status job printer --json").json();
    for (at, client) in [one, other].into_iter().enumerate() {
        let lock = &shown["locks"][at];
        assert_eq!(lock["holder"]["client"], *client);
        assert_eq!(lock["masters"][2]["holder"]["client"], *client);
        assert_eq!(lock["holder"]["renewal"], "renewed");
        assert_eq!(
            lock["holder"]["label"].as_str(),
            [None, Some("spooler")][at]
        );
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap().as_millis();
        let age = |field: &str| Some(now - u128::from(lock["holder"][field].as_u64()?));
        assert!(age("started_ms") < Some(60_000), "{lock}");
        let since = age("held_since_ms");
        assert_eq!(since.is_some(), at == 0, "{lock}");
        assert!(since < Some(60_000), "{lock}");
    }
}

/// The program may have waited for the lock for a long time.
#[test]
fn a_lock_is_shown_since_it_was_acquired() {
    let masters = masters(3);
    let first = Running::hold(&masters, "job");
    let waiter = Running::start(&mut with(&masters, "hold job"));
    sleep(Duration::from_secs(3));
    first.terminated().is(0);
    until("the waiter has it", || {
        let shown = run(&masters, "status --now job --json").json();
        let holder = &shown["locks"][0]["holder"];
        let time = |field: &str| holder[field].as_u64().unwrap_or_default();
        let is_waiter = holder["client"]
            .as_str()
            .is_some_and(|client| client.ends_with(&format!("/{}", waiter.id())));
        is_waiter && time("held_since_ms") > time("started_ms") + 2_000
    });
    let ended = run(&masters, "run -n job -- true").is(75);
    ended
        .says(", since ")
        .says(" ago, for ")
        .says(" more, or longer if it is renewed");
}

/// Nobody renews a lock that `quorlock acquire` left, and nobody has to.
#[test]
fn a_lock_that_was_left_is_not_late() {
    let masters = masters(3);
    let text = " left, left by quorlock acquire, and renewed only if a program has attached it";
    run(&masters, "acquire --ttl 60s a --handle-file -").is(0);
    run(&masters, "status a").shows(text).shows(", since ");
    run(&masters, "acquire --ttl 3s b --handle-file -").is(0);
    let shown = run(&masters, "status b --json").json();
    assert_eq!(
        shown["locks"][0]["holder"]["renewal"], "detached",
        "{shown}"
    );
    run(&masters, "status --all-keys").shows(" ago, left by quorlock acquire");
}

#[test]
fn a_command_is_the_label_of_its_lock() {
    let masters = masters(3);
    let _job = Running::ready(&mut script(&masters, "job", "echo ready; sleep 60"));
    run(&masters, "status job").shows(" (sh), since ");
    let ended = run(&masters, "run -n job -- true").is(75);
    ended.says(" (sh), since ").says(" UTC, ");
}

/// A holder that is stopped renews nothing.
#[test]
fn a_lock_that_nobody_renews_is_marked() {
    let masters = masters(3);
    let kept = " left, kept by --min-hold, unless ";
    run(&masters, "run --min-hold 1h rare -- true").is(0);
    run(&masters, "status rare")
        .is(75)
        .shows(kept)
        .shows(" ago, 1h ");

    // The TTL keeps it for longer.
    run(&masters, "run --ttl 3s --min-hold 1s soon -- true").is(0);
    run(&masters, "status soon").shows(kept);

    let holder = Running::hold(&masters, "job --ttl 3s");
    holder.signal(Signal::SIGSTOP);
    run(&masters, "status job").shows(" ago, not renewed in time, ");
}

#[test]
fn an_owner_from_a_master_does_not_move_the_cursor() {
    let masters = masters(3);
    write_fair(&masters, "queue", "an\x1b[2J-owner\u{202e}");
    for (words, who) in [
        ("status queue", "by an [2J-owner  (2 times)"),
        (
            "break queue --yes",
            "was held as a fair lock by an [2J-owner ",
        ),
    ] {
        let ended = run(&masters, words).shows(who);
        let is_odd = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
        assert!(!ended.out.contains(is_odd), "{:?}", ended.out);
    }
}

#[test]
fn a_lock_that_no_one_has_on_a_majority_is_contested() {
    let mut masters = masters(3);
    write_mutex(&masters[..1], "job", "one");
    write_mutex(&masters[1..2], "job", "another");
    let ended = run(&masters, "status job").is(75);
    ended.begins("job  split: no holder has a majority");

    each(&masters[1..2], "DEL job"); // a minority keeps no one away
    let ended = run(&masters, "status job").is(0);
    ended.begins("job  free, but still held on 1 of 3 masters");
    masters[1].kill(); // it may have the lock
    let ended = run(&masters, "status job").is(75);
    ended.begins("job  split: held on 1 of 3 masters");
}

#[test]
fn without_a_majority_the_status_is_69() {
    let mut masters = masters(3);
    write_mutex(&masters, "job", "t");
    masters[..2].iter_mut().for_each(Server::kill);
    // It still shows what it knows.
    run(&masters, "status job")
        .is(69)
        .begins("job  unknown: only 1 of 3 masters answered, and 2 are needed")
        .shows(&format!("  127.0.0.1:{}  mutex", masters[2].port()));
    masters[2].kill();
    let shown = run(&masters, "status job --json").is(69).json();
    assert_eq!(shown["locks"][0]["verdict"], "no_quorum");
}

/// A strict program has not seen these masters before. Those that do not know the holder may have
/// forgotten it.
#[test]
fn a_holder_on_masters_in_quarantine_keeps_the_lock() {
    let masters = masters(3);
    write_mutex(&masters, "job", "t");
    write_mutex(&masters[..1], "rare", "t");
    let ended = run(&masters, "--quarantine strict status job").is(75);
    ended.shows_times(3, "mutex, no vote for ");
    run(&masters, "--quarantine strict status rare")
        .is(75)
        .begins("rare  split: held on 1 of 3 masters, and too few others are free")
        .shows_times(2, "free, no vote for ");
}

/// The masters answer all questions, and take no locks.
#[test]
fn masters_without_memory_are_shown_to_take_no_locks() {
    let masters = masters(3);
    run(&masters, "status job").is(0); // writes the keys of the guard
    each(&masters[..1], "CONFIG SET maxmemory 1");
    let ended = run(&masters, "status job").is(0).begins("job  free\n");
    ended.shows_times(1, "no vote: answered OOM");
    each(&masters[1..2], "CONFIG SET maxmemory 1");
    let cannot =
        "job  free, but nobody can lock it: only 1 of 3 masters can vote, and 2 are needed";
    let ended = run(&masters, "status job").is(69).begins(cannot);
    ended.shows_times(2, "no vote: answered OOM");
}

/// One master knows a holder, one restarted without its keys, and one is down. The holder may have
/// a majority of them. The two that are free make none.
#[test]
fn two_free_masters_of_five_do_not_make_a_lock_free() {
    let mut masters = masters(5);
    run(&masters, "status job").is(0); // writes the keys of the guard
    write_mutex(&masters[..1], "job", "t");
    each(&masters[1..2], "HSET quorlock:origin run_id another");
    masters[2].kill();
    let split = "job  split: held on 1 of 5 masters, and too few others are free";
    let ended = run(&masters, "status job").is(75).begins(split);
    ended.shows_times(1, "free, no vote for ");

    // The same with a master that takes no locks.
    each(&masters[1..2], "DEL quorlock:origin");
    each(&masters[1..2], "CONFIG SET maxmemory 1");
    run(&masters, "status job").is(75).begins(split);
}

//! `quorlock status`: verdicts, and what is shown.

use std::time::SystemTime;

use nix::{sys::signal::Signal, unistd::gethostname};
use testkit::server::masters;

use crate::support::{Running, ended, json, script, with, write_fair, write_mutex};

#[test]
fn the_status_of_a_free_lock_is_0() {
    let masters = masters(3);
    let (status, shown, error) = ended(&mut with(&masters, "status job"));
    assert_eq!((status, &*error), (0, ""));
    assert!(shown.starts_with("job  free\n"), "{shown}");
    for master in &masters {
        assert!(
            shown.contains(&format!("127.0.0.1:{}  free", master.port())),
            "{shown}"
        );
    }
    assert!(!shown.contains('\x1b'), "a pipe gets no colours");
}

#[test]
fn the_status_of_a_held_lock_is_75() {
    let masters = masters(3);
    write_mutex(&masters, "job", "t");
    write_fair(&masters, "queue", "an-owner");
    let (status, shown, _) = ended(&mut with(&masters, "status job queue other"));
    assert_eq!(status, 75);
    assert!(shown.contains("job  held as a mutex, 5"), "{shown}"); // of 60 s
    let fair = "queue  held as a fair lock by an-owner (2 times), 5";
    assert!(shown.contains(fair), "{shown}");
    assert!(shown.contains("other  free"), "{shown}");
}

#[test]
fn the_status_says_which_process_holds_a_lock() {
    let masters = masters(3);
    let [one, other] =
        ["job", "printer --fair --label spooler"].map(|words| Running::hold(&masters, words));
    let host = gethostname().unwrap().into_string().unwrap();
    let [one, other] = [&one, &other].map(|held| format!("{host}/{}", held.id()));
    let (status, shown, _) = ended(&mut with(&masters, "status job printer"));
    assert_eq!(status, 75);
    let mutex = format!("job  held as a mutex by {one} (started ");
    assert!(shown.contains(&mutex), "{shown}");
    let fair = format!("printer  held as a fair lock by {other} (spooler, started ");
    assert!(shown.contains(&fair), "{shown}");
    assert_eq!(shown.matches("), renewed\n").count(), 2, "{shown}");
    let unknown = "  WAITING: unknown, no master knows who waits for a mutex\n";
    assert_eq!(shown.matches("  WAITING: ").count(), 1, "{shown}");
    assert!(shown.contains(unknown), "{shown}");
    assert_eq!(
        shown.matches(&format!("  mutex {one}  ")).count(),
        3,
        "{shown}"
    );
    assert_eq!(
        shown.matches(&format!("  fair {other}  ")).count(),
        3,
        "{shown}"
    );

    let (_, shown, _) = ended(&mut with(&masters, "status job printer --json"));
    let shown = json(&shown);
    for (at, client) in [one, other].into_iter().enumerate() {
        let lock = &shown["locks"][at];
        assert_eq!(lock["holder"]["client"], *client);
        assert_eq!(lock["masters"][2]["holder"]["client"], *client);
        assert_eq!(lock["holder"]["lease"], "renewed");
        assert_eq!(
            lock["holder"]["label"].as_str(),
            [None, Some("spooler")][at]
        );
        let started = lock["holder"]["started_ms"].as_u64().unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let age = now.unwrap().as_millis() - u128::from(started);
        assert!(age < 60_000, "{age}");
    }
}

#[test]
fn a_command_is_the_label_of_its_lock() {
    let masters = masters(3);
    let _job = Running::ready(&mut script(&masters, "job", "echo ready; sleep 60"));
    let (_, shown, _) = ended(&mut with(&masters, "status job"));
    assert!(shown.contains(" (sh, started "), "{shown}");
    let (status, _, said) = ended(&mut with(&masters, "run -n job -- true"));
    assert_eq!(status, 75, "{said}");
    assert!(said.contains(" (sh, started "), "{said}");
    assert!(said.contains(" UTC, "), "{said}");
}

/// A holder that is stopped renews nothing.
#[test]
fn a_lock_that_nobody_renews_is_marked() {
    let masters = masters(3);
    let (status, ..) = ended(&mut with(&masters, "run --min-hold 1h rare -- true"));
    assert_eq!(status, 0);
    let (status, shown, _) = ended(&mut with(&masters, "status rare"));
    assert_eq!(status, 75);
    let kept = " left, kept by --min-hold, unless ";
    assert!(shown.contains("), 1h ") && shown.contains(kept), "{shown}");

    // The TTL keeps it for longer.
    let (status, ..) = ended(&mut with(
        &masters,
        "run --ttl 3s --min-hold 1s soon -- true",
    ));
    assert_eq!(status, 0);
    let (_, shown, _) = ended(&mut with(&masters, "status soon"));
    assert!(shown.contains(kept), "{shown}");

    let holder = Running::hold(&masters, "job --ttl 3s");
    holder.signal(Signal::SIGSTOP);
    let (_, shown, _) = ended(&mut with(&masters, "status job"));
    assert!(shown.contains("), not renewed in time, "), "{shown}");
}

#[test]
fn an_owner_from_a_master_does_not_move_the_cursor() {
    let masters = masters(3);
    write_fair(&masters, "queue", "an\x1b[2J-owner\u{202e}");
    let (_, shown, _) = ended(&mut with(&masters, "status queue"));
    assert!(shown.contains("by an [2J-owner  (2 times)"), "{shown}");
    let is_odd = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
    assert!(!shown.contains(is_odd), "{shown:?}");
    let (_, shown, _) = ended(&mut with(&masters, "break queue --yes"));
    assert!(
        shown.contains("was held as a fair lock by an [2J-owner "),
        "{shown}"
    );
    assert!(!shown.contains(is_odd), "{shown:?}");
}

#[test]
fn a_lock_that_no_one_has_on_a_majority_is_contested() {
    let masters = masters(3);
    write_mutex(&masters[..1], "job", "one");
    write_mutex(&masters[1..2], "job", "another");
    let (status, shown, _) = ended(&mut with(&masters, "status job"));
    assert_eq!(status, 75);
    assert!(
        shown.starts_with("job  contested: no holder has a majority"),
        "{shown}"
    );

    masters[1].command(&["DEL", "job"]);
    let (status, shown, _) = ended(&mut with(&masters, "status job"));
    assert_eq!(status, 0, "a minority keeps no one away");
    assert!(
        shown.starts_with("job  free, but still held on 1 of 3 masters"),
        "{shown}"
    );
}

#[test]
fn without_a_majority_the_status_is_69() {
    let mut masters = masters(3);
    write_mutex(&masters, "job", "t");
    masters[0].kill();
    masters[1].kill();
    let (status, shown, _) = ended(&mut with(&masters, "status job"));
    assert_eq!(status, 69);
    let unknown = "job  unknown: only 1 of 3 masters answered, and 2 are needed";
    assert!(shown.starts_with(unknown), "{shown}");
    let answer = format!("  127.0.0.1:{}  mutex", masters[2].port());
    assert!(
        shown.contains(&answer),
        "it still shows what it knows: {shown}"
    );
    masters[2].kill();
    let (status, shown, _) = ended(&mut with(&masters, "status job --json"));
    assert_eq!(status, 69);
    assert_eq!(json(&shown)["locks"][0]["verdict"], "no_quorum");
}

#[test]
fn a_lock_that_may_be_held_is_not_free() {
    let mut masters = masters(3);
    write_mutex(&masters[..2], "job", "t");
    masters[0].kill();
    let (status, shown, _) = ended(&mut with(&masters, "status job"));
    assert_eq!(status, 75, "{shown}");
    assert!(
        shown.starts_with("job  contested: held on 1 of 3 masters"),
        "{shown}"
    );
}

/// A strict program has not seen these masters before.
#[test]
fn a_holder_on_a_master_in_quarantine_is_shown_with_both() {
    let masters = masters(3);
    write_mutex(&masters, "job", "t");
    let (status, shown, error) = ended(&mut with(&masters, "--strict status job"));
    assert_eq!(status, 75, "{error}");
    assert_eq!(shown.matches("mutex, no vote for ").count(), 3, "{shown}");
}

/// The masters that do not know the holder may have forgotten it.
#[test]
fn a_holder_on_a_minority_of_masters_in_quarantine_keeps_the_lock() {
    let masters = masters(3);
    write_mutex(&masters[..1], "job", "t");
    let (status, shown, error) = ended(&mut with(&masters, "--strict status job"));
    assert_eq!(status, 75, "{error}");
    let contested = "job  contested: no holder has a majority\n";
    assert!(shown.starts_with(contested), "{shown}");
    assert_eq!(shown.matches("free, no vote for ").count(), 2, "{shown}");
}

/// The masters answer all questions, and take no locks.
#[test]
fn masters_without_memory_are_shown_to_take_no_locks() {
    let masters = masters(3);
    assert_eq!(ended(&mut with(&masters, "status job")).0, 0); // writes the keys of the guard
    masters[0].command(&["CONFIG", "SET", "maxmemory", "1"]);
    let (status, shown, error) = ended(&mut with(&masters, "status job"));
    assert_eq!(status, 0, "{error}");
    assert!(shown.starts_with("job  free\n"), "{shown}");
    assert_eq!(shown.matches("no vote: answered OOM").count(), 1, "{shown}");
    masters[1].command(&["CONFIG", "SET", "maxmemory", "1"]);
    let (status, shown, error) = ended(&mut with(&masters, "status job"));
    assert_eq!(status, 69, "{error}");
    let verdict =
        "job  free, but nobody can lock it: only 1 of 3 masters can vote, and 2 are needed";
    assert!(shown.starts_with(verdict), "{shown}");
    assert_eq!(shown.matches("no vote: answered OOM").count(), 2, "{shown}");
}

/// One master knows a holder, one restarted without its keys, and one is down. The holder may have
/// a majority of them. The two that are free make none.
#[test]
fn two_free_masters_of_five_do_not_make_a_lock_free() {
    let mut masters = masters(5);
    let (status, ..) = ended(&mut with(&masters, "status job")); // writes the keys of the guard
    assert_eq!(status, 0);
    write_mutex(&masters[..1], "job", "t");
    masters[1].command(&["HSET", "quorlock:guard", "run_id", "another"]);
    masters[2].kill();
    let (status, shown, error) = ended(&mut with(&masters, "status job"));
    assert_eq!(status, 75, "{shown}{error}");
    let contested = "job  contested: held on 1 of 5 masters, and too few others are free";
    assert!(shown.starts_with(contested), "{shown}");
    assert_eq!(shown.matches("free, no vote for ").count(), 1, "{shown}");

    // The same with a master that takes no locks.
    masters[1].command(&["DEL", "quorlock:guard"]);
    masters[1].command(&["CONFIG", "SET", "maxmemory", "1"]);
    let (status, shown, error) = ended(&mut with(&masters, "status job"));
    assert_eq!(status, 75, "{shown}{error}");
    assert!(shown.starts_with(contested), "{shown}");
}

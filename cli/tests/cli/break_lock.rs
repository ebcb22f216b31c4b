//! `quorlock break`, without a terminal.

use std::time::{Duration, Instant};

use testkit::server::{Server, masters};

use crate::support::{Running, ended, json, until, with, write_fair, write_mutex};

#[test]
fn a_break_without_a_terminal_needs_yes() {
    let masters = masters(3);
    write_mutex(&masters, "job", "t");
    let (status, shown, error) = ended(&mut with(&masters, "break job"));
    assert_eq!((status, &*shown), (64, ""));
    assert!(error.contains("give --yes"), "{error}");
    assert!(
        masters
            .iter()
            .all(|master| master.command(&["GET", "job"]) == "t")
    );

    let (status, shown, _) = ended(&mut with(&masters, "break job --yes"));
    assert_eq!(status, 0);
    assert!(shown.starts_with("job  was held as a mutex, 5"), "{shown}"); // of 60 s
    assert_eq!(shown.matches("  broken\n").count(), 3, "{shown}");
    assert!(
        masters
            .iter()
            .all(|master| master.command(&["EXISTS", "job"]) == "0")
    );

    let (status, shown, _) = ended(&mut with(&masters, "break job --yes"));
    assert_eq!((status, &*shown), (0, "job is free: nothing to break\n"));
}

#[test]
fn a_break_wakes_the_waiters_of_each_kind() {
    for is_fair in [false, true] {
        let masters = masters(3);
        let kind = if is_fair { "--fair" } else { "" };
        // The holder does not renew, so it is as if it were dead.
        if is_fair {
            write_fair(&masters, "job", "dead-owner");
        } else {
            write_mutex(&masters, "job", "t");
        }
        let run = format!("run {kind} job -- echo mine");
        let mut waiter = Running::start(&mut with(&masters, &run));
        until("the waiter has asked", || {
            let counted = |name: &str| name == "eval" || name == "evalsha" || name == "set";
            let is_queued = masters[0].command(&["EXISTS", "quorlock:queue:{job}"]) == "1";
            if is_fair {
                is_queued
            } else {
                masters[0].calls(counted) >= 2
            }
        });
        let (status, shown, _) = ended(&mut with(&masters, "break job --yes"));
        assert_eq!(status, 0, "{shown}");
        let since = Instant::now();
        assert_eq!(waiter.line(), "mine");
        let took = since.elapsed();
        assert!(took < Duration::from_secs(10), "the TTL is 60 s: {took:?}");
        assert!(waiter.ended().0.success());
    }
}

#[test]
fn a_break_without_a_majority_says_so() {
    let mut masters = masters(3);
    write_mutex(&masters, "job", "t");
    masters[0].kill();
    masters[1].kill();
    let (status, _, error) = ended(&mut with(&masters, "break job --yes"));
    assert_eq!(status, 69);
    assert!(error.contains("only 1 of 3 masters answered"), "{error}");
    assert_eq!(
        masters[2].command(&["GET", "job"]),
        "t",
        "nothing is destroyed"
    );
}

#[test]
fn what_prevents_a_break_decides_the_status() {
    let mut masters = masters(4);
    for master in &masters[..2] {
        master.command(&["HSET", "job", "field", "value"]);
    }
    let (status, _, error) = ended(&mut with(&masters, "break job --yes"));
    assert_eq!(status, 78, "half of the keys are not locks: {error}");
    masters[3].kill();
    masters[2].command(&["HSET", "job", "field", "value"]);
    let (status, _, error) = ended(&mut with(&masters, "break job --yes"));
    assert_eq!(status, 78, "the dead master could not help: {error}");
}

#[test]
fn a_key_that_is_not_a_lock_is_left_alone() {
    let masters = masters(3);
    for master in &masters {
        master.command(&["HSET", "job", "field", "value"]);
    }
    let (status, shown, error) = ended(&mut with(&masters, "break job --yes"));
    assert_eq!(status, 78, "{error}");
    assert!(shown.contains("not a lock, left alone"), "{shown}");
    assert!(
        masters
            .iter()
            .all(|master| master.command(&["EXISTS", "job"]) == "1")
    );
}

/// Every lock of a library has a TTL, so the key is probably the data of an application.
#[test]
fn a_key_without_a_ttl_is_only_broken_if_that_is_said() {
    let masters = masters(3);
    for master in &masters {
        master.command(&["SET", "text", "x"]);
        master.command(&["HSET", "hash", "page", "5"]);
    }
    for name in ["text", "hash"] {
        let (_, shown, _) = ended(&mut with(&masters, &format!("status {name}")));
        let doubt = "without a TTL, so it may be no lock";
        assert!(shown.contains(doubt), "{shown}");
        let (status, shown, error) = ended(&mut with(&masters, &format!("break -y {name}")));
        assert_eq!((status, &*shown), (78, ""), "{error}");
        assert!(error.contains("--without-ttl"), "{error}");
        let exists = |master: &Server| master.command(&["EXISTS", name]) == "1";
        assert!(masters.iter().all(exists), "nothing is destroyed");

        let words = format!("break -y --without-ttl {name}");
        let (status, _, error) = ended(&mut with(&masters, &words));
        assert_eq!(status, 0, "{error}");
        assert!(!masters.iter().any(exists));
    }
}

/// The locks of other libraries look like that, and so does a session of an application.
#[test]
fn a_text_with_a_ttl_may_be_data() {
    let masters = masters(3);
    write_mutex(&masters, "job", "x");
    let doubt = "left, without a client name, so it may be a lock of another library, or data";
    let (_, shown, _) = ended(&mut with(&masters, "status job"));
    assert!(shown.contains(doubt), "{shown}");
    let (_, help, _) = ended(&mut with(&masters, "break --help"));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("of another library, or data"), "{help}");
    let _holder = Running::hold(&masters, "ours");
    let (_, shown, _) = ended(&mut with(&masters, "status ours"));
    assert!(!shown.contains("or data"), "{shown}");
    let (status, shown, _) = ended(&mut with(&masters, "break -y job"));
    assert_eq!(status, 0, "{shown}");
    assert!(shown.contains(doubt), "{shown}");
}

/// One master is enough for a doubt.
#[test]
fn a_key_without_a_ttl_on_one_master_is_not_broken() {
    let masters = masters(3);
    write_mutex(&masters[..2], "job", "t");
    masters[2].command(&["SET", "job", "x"]);
    let (status, _, error) = ended(&mut with(&masters, "break -y job"));
    assert_eq!(status, 78, "{error}");
    assert_eq!(masters[2].command(&["GET", "job"]), "x");
}

/// A script may break a lock only if the holder that it knows still has it.
#[test]
fn a_mutex_is_broken_by_the_name_of_its_holder() {
    let masters = masters(3);
    let holder = Running::hold(&masters, "--label web job");
    let (_, shown, _) = ended(&mut with(&masters, "status --json job"));
    let client = json(&shown)["locks"][0]["holder"]["client"].clone();
    let client = client.as_str().unwrap();
    assert!(client.ends_with(&format!("/{}", holder.id())), "{shown}");
    let (_, shown, _) = ended(&mut with(&masters, "status job"));
    assert!(shown.contains(client), "{shown}");

    let other = format!("break -y --holder {client}0 job");
    let (status, _, error) = ended(&mut with(&masters, &other));
    assert_eq!(status, 64, "{error}");
    assert!(error.contains("is not one holder of \"job\""), "{error}");
    assert_eq!(masters[0].command(&["EXISTS", "job"]), "1");

    let words = format!("break -y --holder {client} job");
    let (status, shown, error) = ended(&mut with(&masters, &words));
    assert_eq!(status, 0, "{error}");
    assert_eq!(shown.matches("  broken\n").count(), 3, "{shown}");
}

//! `quorlock break`, without a terminal.

use std::time::{Duration, Instant};

use testkit::server::{Server, masters};

use crate::support::{
    Running, all_have, assert_free, each, ended, run, until, with, write_fair, write_mutex,
};

#[test]
fn a_break_without_a_terminal_needs_yes() {
    let masters = masters(3);
    write_mutex(&masters, "job", "t");
    run(&masters, "break job").gives(64, "").says("give --yes");
    assert!(all_have(&masters, "job"));

    run(&masters, "break job --yes")
        .is(0)
        .begins("job  was held as a mutex, 5") // of 60 s
        .shows_times(3, "  broken\n");
    assert_free(&masters, "job");
    run(&masters, "break job --yes").gives(0, "job is free: nothing to break\n");
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
        let words = format!("run {kind} job -- echo mine");
        let mut waiter = Running::start(&mut with(&masters, &words));
        until("the waiter has asked", || {
            let counted = |name: &str| name == "eval" || name == "evalsha" || name == "set";
            let is_queued = masters[0].command(&["EXISTS", "quorlock:queue:{job}"]) == "1";
            if is_fair {
                is_queued
            } else {
                masters[0].calls(counted) >= 2
            }
        });
        run(&masters, "break job --yes").is(0);
        let since = Instant::now();
        assert_eq!(waiter.line(), "mine");
        let took = since.elapsed();
        assert!(took < Duration::from_secs(10), "the TTL is 60 s: {took:?}");
        waiter.ended().is(0);
    }
}

#[test]
fn what_prevents_a_break_decides_the_status() {
    let mut masters = masters(4);
    each(&masters[..2], "HSET job field value");
    run(&masters, "break job --yes").is(78); // half of the keys are not locks
    masters[3].kill();
    each(&masters[2..3], "HSET job field value");
    let ended = run(&masters, "break job --yes").is(78); // the dead master could not help
    ended.shows_times(3, "not a lock, left alone");
    assert!(all_have(&masters[..3], "job"), "nothing is destroyed");

    each(&masters[..3], "DEL job");
    write_mutex(&masters[..3], "job", "t");
    masters[..2].iter_mut().for_each(Server::kill);
    let few = "only 1 of 4 masters answered";
    run(&masters, "break job --yes").is(69).says(few);
    assert!(all_have(&masters[2..3], "job"), "nothing is destroyed");
}

/// Every lock of a library has a TTL, so the key is probably the data of an application.
#[test]
fn a_key_without_a_ttl_is_only_broken_if_that_is_said() {
    let masters = masters(3);
    each(&masters, "SET text x");
    each(&masters, "HSET hash page 5");
    // One master is enough for a doubt.
    write_mutex(&masters[..2], "one", "t");
    each(&masters[2..], "SET one x");
    for name in ["text", "hash", "one"] {
        if name != "one" {
            let doubt = "without a TTL, so it may be no lock";
            run(&masters, &format!("status {name}")).shows(doubt);
        }
        run(&masters, &format!("break -y {name}"))
            .gives(78, "")
            .says("--without-ttl");
        assert!(all_have(&masters, name), "nothing is destroyed");
        run(&masters, &format!("break -y --without-ttl {name}")).is(0);
        assert_free(&masters, name);
    }
}

/// The locks of other libraries look like that, and so does a session of an application.
#[test]
fn a_text_with_a_ttl_may_be_data() {
    let masters = masters(3);
    write_mutex(&masters, "job", "x");
    let doubt = "left, without a client name, so it may be a lock of another library, or data";
    run(&masters, "status job").shows(doubt);
    run(&masters, "break --help").tells("of another library, or data");
    let _holder = Running::hold(&masters, "ours");
    run(&masters, "status ours").hides("or data");
    run(&masters, "break -y job").is(0).shows(doubt);
}

/// A script may break a lock only if the holder that it knows still has it.
#[test]
fn a_mutex_is_broken_by_the_name_of_its_holder() {
    let masters = masters(3);
    let holder = Running::hold(&masters, "--label web job");
    let shown = run(&masters, "status --json job").json();
    let client = shown["locks"][0]["holder"]["client"].as_str().unwrap();
    assert!(client.ends_with(&format!("/{}", holder.id())), "{shown}");
    run(&masters, "status job").shows(client);

    for json in ["", "--json"] {
        run(&masters, &format!("break -y {json} --holder {client}0 job"))
            .gives(76, "")
            .says(&format!("\"job\" is held by {client} (web), since "))
            .last_says(&format!(" ago, not by \"{client}0\"\n"))
            .in_lines(1);
    }
    assert!(all_have(&masters[..1], "job"));

    // As `status` shows it.
    let mut shown = with(&masters, "--response-timeout 5s break -y job --holder");
    shown.arg(format!("{client} (web)"));
    ended(&mut shown).is(0).shows_times(3, "  broken\n");
    run(&masters, &format!("break -y --holder {client} job"))
        .is(76)
        .says(&format!("\"job\" is free, not held by \"{client}\"\n"));
}

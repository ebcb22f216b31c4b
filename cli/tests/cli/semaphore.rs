//! `--permits`.

use testkit::server::{Server, masters};

use crate::support::{Running, all_have, assert_free, ended, json, run, script, until, with};

#[test]
fn at_most_that_many_hold_a_lock_each_in_a_slot_of_its_own() {
    let masters = masters(3);
    let slot = |words: &str| {
        let show = "echo $QUORLOCK_SLOT,$QUORLOCK_FENCING_TOKEN";
        ended(script(&masters, words, show).env("QUORLOCK_SLOT", "outer"))
    };
    let mut holders = [(); 2].map(|()| Running::start(&mut with(&masters, "hold --permits 2 job")));
    let lines = holders.each_mut().map(Running::line);
    let slots = lines
        .each_ref()
        .map(|line| line.rsplit_once(' ').unwrap().1);
    let mut sorted = slots;
    sorted.sort_unstable();
    assert_eq!(sorted, ["slot=0", "slot=1"], "{lines:?}");

    let mut refused = slot("-n --permits 2 job").gives(75, "");
    for holder in &holders {
        refused = refused.says(&format!("/{}", holder.id()));
    }
    slot("-n -E 9 -q --permits 2 job").gives(9, "");
    // A program that allows more holders gets the next slot.
    slot("-n --permits 3 job").gives(0, "2,\n");

    let [_killed, other] = holders;
    other.terminated().is(0);
    let out = slot("-n --fence --permits 2 job").is(0).out;
    let (slot_of_fenced, token) = out.trim_end().split_once(',').unwrap();
    assert_eq!(format!("slot={slot_of_fenced}"), slots[1]);
    assert!(token.parse::<u64>().unwrap() > 0, "{out}");
    // A mutex has no slot, even inside of a holder that has one.
    slot("-n other").gives(0, ",\n");
}

#[test]
fn a_line_of_json_has_the_slot() {
    let masters = masters(1);
    let mut holder = Running::start(&mut with(&masters, "hold --json --fence --permits 1 job"));
    let line = json(&holder.line());
    assert_eq!(line["slot"], 0);
    assert!(line["fencing_token"].is_u64());
    let mut mutex = Running::start(&mut with(&masters, "hold --json other"));
    assert!(json(&mutex.line())["slot"].is_null());
}

#[test]
fn a_waiter_gets_the_permit_that_is_given_back() {
    let masters = masters(3);
    let holders = ["job --permits 2"; 2].map(|words| Running::hold(&masters, words));
    let words = "--permits 2 --label web job";
    let mut waiter = Running::start(&mut script(&masters, words, "echo mine"));
    until("the waiter is in the queues", || {
        all_have(&masters, "quorlock:waiters:{job}")
    });
    let shown = run(&masters, "status --json job").json();
    let waiters = shown["locks"][0]["waiters"].as_array();
    assert_eq!(waiters.map(Vec::len), Some(1), "{shown}");
    let seen = &waiters.unwrap()[0];
    assert_eq!(seen["label"], "web");
    let client = seen["client"].as_str().unwrap();
    assert!(client.ends_with(&format!("/{}", waiter.id())), "{shown}");
    let [holder, _other] = holders;
    holder.terminated().is(0);
    assert_eq!(waiter.line(), "mine");
    waiter.ended().is(0);
}

#[test]
fn status_shows_all_holders_and_break_removes_them() {
    let masters = masters(3);
    let _holders = ["job --permits 3"; 2].map(|words| Running::hold(&masters, words));
    let shown = run(&masters, "status --json job").is(75).json();
    let lock = &shown["locks"][0];
    assert_eq!(lock["verdict"], "held", "{shown}");
    for holder in [&lock["holder"], &lock["others"][0]] {
        let seen = (&holder["kind"], &holder["is_shared"]);
        assert_eq!(seen, (&"semaphore".into(), &true.into()), "{shown}");
    }
    let ended = run(&masters, "status job")
        .begins("job  held as a semaphore by 2 holders\n")
        .shows_times(2, ", renewed "); // a row for each
    assert!(ended.out.matches("  2 holders  ").count() >= 2, "{ended}");
    let mut lines = ended.out.lines();
    assert!(lines.all(|line| line.chars().count() <= 100), "{ended}");

    let ended = run(&masters, "run -n job -- true").is(78);
    ended.says("always with --permits");
    let ended = run(&masters, "break --yes job").is(0);
    ended.shows_times(3, "  broken\n");
    assert_free(&masters, "job");
}

#[test]
fn a_break_can_name_one_holder() {
    let masters = masters(3);
    let [dead, alive] = ["job --permits 2"; 2].map(|words| Running::hold(&masters, words));
    let (client, owner) = names(&masters, &dead).unwrap();
    let others = names(&masters, &alive);
    let break_it = |who: &str| run(&masters, &format!("break --yes --holder {who} job"));
    break_it("nobody")
        .is(76)
        .says("\"job\" is held by ")
        .says(&client)
        .last_says(", not by \"nobody\"\n");

    masters[0].command(&["HDEL", "job", &format!("quorlock:permit:{owner}")]);
    let ended = break_it(&client).is(0).hides("newer holder");
    let ended = ended.shows_times(1, "as a semaphore by ");
    assert!(ended.out.matches("  broken\n").count() >= 2, "{ended}");
    assert_eq!(names(&masters, &alive), others, "the other has its permit");
    dead.ended().is(76);
}

/// Returns the client and the ID of the owner that `status` shows of a program.
fn names(masters: &[Server], program: &Running) -> Option<(String, String)> {
    let shown = run(masters, "status --json job").json();
    let lock = &shown["locks"][0];
    let both = [&lock["holder"], &lock["others"][0]];
    let names = both.map(|one| [&one["client"], &one["owner"]].map(|name| name.as_str()));
    let end = format!("/{}", program.id());
    names.iter().find_map(|names| match names {
        [Some(client), Some(owner)] if client.ends_with(&end) => {
            Some((client.to_string(), owner.to_string()))
        }
        _ => None,
    })
}

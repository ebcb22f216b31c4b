//! `--permits`.

use nix::sys::signal::Signal;
use testkit::server::{Server, masters};

use crate::support::{Running, assert_free, ended, json, script, until, with};

#[test]
fn at_most_that_many_hold_a_lock_each_in_a_slot_of_its_own() {
    let masters = masters(3);
    let slot = |words: &str| {
        let show = "echo $QUORLOCK_SLOT,$QUORLOCK_FENCING_TOKEN";
        ended(script(&masters, words, show).env("QUORLOCK_SLOT", "outer"))
    };
    let mut holders = ["job", "job"].map(|name| {
        let words = format!("hold --permits 2 {name}");
        Running::start(&mut with(&masters, &words))
    });
    let lines = holders.each_mut().map(Running::line);
    let mut slots = lines
        .each_ref()
        .map(|line| line.rsplit_once(' ').unwrap().1);
    slots.sort_unstable();
    assert_eq!(slots, ["slot=0", "slot=1"], "{lines:?}");

    let (status, out, said) = slot("-n --permits 2 job");
    assert_eq!((status, &*out), (75, ""), "{said}");
    for holder in &holders {
        assert!(said.contains(&format!("/{}", holder.id())), "{said}");
    }
    let (status, out, _) = slot("-n -E 9 -q --permits 2 job");
    assert_eq!((status, &*out), (9, ""));
    // A program that allows more holders gets the next slot.
    let (status, out, said) = slot("-n --permits 3 job");
    assert_eq!((status, &*out), (0, "2,\n"), "{said}");

    let [_killed, other] = holders;
    other.signal(Signal::SIGTERM);
    assert!(other.ended().0.success());
    let (status, out, said) = slot("-n --fence --permits 2 job");
    assert_eq!(status, 0, "{said}");
    let (slot_of_fenced, token) = out.trim_end().split_once(',').unwrap();
    assert!(["0", "1"].contains(&slot_of_fenced), "{out}");
    assert!(token.parse::<u64>().unwrap() > 0, "{out}");
    // A mutex has no slot, even inside of a holder that has one.
    assert_eq!(slot("-n other").1, ",\n");
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
    let mut waiter = Running::start(&mut script(&masters, "--permits 2 job", "echo mine"));
    is_queued(&masters);
    let shown = ended(&mut with(&masters, "status --json job")).1;
    let lock = &json(&shown)["locks"][0];
    assert_eq!(lock["waiters"].as_array().unwrap().len(), 1, "{shown}");
    holders[0].signal(Signal::SIGTERM);
    assert_eq!(waiter.line(), "mine");
    assert!(waiter.ended().0.success());
}

#[track_caller]
fn is_queued(masters: &[Server]) {
    let key = ["EXISTS", "quorlock:waiters:{job}"];
    until("the waiter is in the queues", || {
        masters.iter().all(|master| master.command(&key) == "1")
    });
}

#[test]
fn status_shows_all_holders_and_break_removes_them() {
    let masters = masters(3);
    let _holders = ["job --permits 3"; 2].map(|words| Running::hold(&masters, words));
    let (status, shown, _) = ended(&mut with(&masters, "status --json job"));
    let lock = &json(&shown)["locks"][0];
    assert_eq!((status, &lock["verdict"]), (75, &"held".into()), "{shown}");
    for holder in [&lock["holder"], &lock["others"][0]] {
        let seen = (&holder["kind"], &holder["access"]);
        assert_eq!(seen, (&"semaphore".into(), &"shared".into()), "{shown}");
    }
    let (_, shown, _) = ended(&mut with(&masters, "status job"));
    assert!(
        shown.starts_with("job  held as a semaphore by 2 holders\n"),
        "{shown}"
    );
    assert_eq!(shown.matches("), renewed\n").count(), 0, "{shown}");
    assert_eq!(
        shown.matches("  renewed\n").count(),
        2,
        "a row for each: {shown}"
    );
    assert!(shown.matches("  2 holders  ").count() >= 2, "{shown}");
    assert!(
        shown.lines().all(|line| line.chars().count() <= 100),
        "{shown}"
    );

    let (status, _, said) = ended(&mut with(&masters, "run -n job -- true"));
    assert_eq!(status, 78, "{said}");
    assert!(said.contains("always with --permits"), "{said}");
    let (status, shown, said) = ended(&mut with(&masters, "break --yes job"));
    assert_eq!(status, 0, "{said}");
    assert_eq!(shown.matches("  broken\n").count(), 3, "{shown}");
    assert_free(&masters, "job");
}

#[test]
fn a_break_can_name_one_holder() {
    let masters = masters(3);
    let [dead, alive] = ["job --permits 2"; 2].map(|words| Running::hold(&masters, words));
    let (client, owner) = names(&masters, &dead).unwrap();
    let others = names(&masters, &alive);
    let break_it = |who: &str| {
        let words = format!("break --yes --holder {who} job");
        ended(&mut with(&masters, &words))
    };
    let (status, _, said) = break_it("nobody");
    assert_eq!(status, 64, "{said}");
    assert!(said.contains("is not one holder of \"job\""), "{said}");

    masters[0].command(&["HDEL", "job", &format!("quorlock:permit:{owner}")]);
    let (status, shown, said) = break_it(&client);
    assert_eq!(status, 0, "{said}");
    assert!(shown.matches("  broken\n").count() >= 2, "{shown}");
    assert!(!shown.contains("newer holder"), "{shown}");
    assert_eq!(shown.matches("as a semaphore by ").count(), 1, "{shown}");
    assert_eq!(names(&masters, &alive), others, "the other has its permit");
    let (status, _, said) = dead.ended();
    assert_eq!(status.code(), Some(76), "{said}");
}

/// Returns the client and the ID of the owner that `status` shows of a program.
fn names(masters: &[Server], program: &Running) -> Option<(String, String)> {
    let (_, shown, _) = ended(&mut with(masters, "status --json job"));
    let lock = &json(&shown)["locks"][0];
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

#[test]
fn a_number_of_permits_is_from_1_to_1000() {
    let masters = masters(1);
    let run = |words: &str| ended(&mut with(&masters, &format!("run {words} job -- true")));
    let calls = || masters[0].calls(|name| name == "hello" || name.starts_with("eval"));
    let before = calls();
    let number = "expected a number from 1 to 1000";
    for (words, why) in [
        ("--permits 0", number),
        ("--permits 1001", number),
        ("--permits=-1", number),
        ("--permits many", number),
        ("--permits 2 --fair", "cannot be used with"),
        ("--permits 2 --read", "cannot be used with"),
        ("--permits 2 --write", "cannot be used with"),
    ] {
        let (status, _, said) = run(words);
        assert_eq!((status, said.contains(why)), (64, true), "{words}: {said}");
    }
    assert_eq!(calls(), before, "nothing was sent");
    assert_eq!(run("--permits 1000").0, 0);
    assert!(calls() > before);
}

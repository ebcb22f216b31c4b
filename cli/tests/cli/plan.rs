//! `quorlock plan`: the next step, with programs that use the old masters, both lists, and none.

use std::{
    io::Write,
    net::TcpStream,
    process::Command,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use quorlock::Coordinator;
use testkit::server::{Server, masters};
use tokio::sync::oneshot;

use crate::support::{Running, ended, json, until, urls, with};

/// Returns `quorlock plan` for a change from the `old` masters to the `new` ones.
fn plan(old: &str, new: &str) -> Command {
    let mut command = with(&[], "plan --to");
    command.arg(new).env("QUORLOCK_MASTERS", old);
    command
}

/// Returns the number and the text of the marked step, or `None`.
fn marked(shown: &str) -> Option<&str> {
    let mut lines = shown.lines();
    lines.find_map(|line| line.trim_start().strip_prefix("-> "))
}

/// Returns who uses these masters.
fn who<'a>(shown: &'a str, masters: &str) -> Option<&'a str> {
    let mut lines = shown.lines();
    let who = lines.find_map(|line| line.trim_start().strip_prefix(masters));
    who.map(str::trim)
}

/// Runs the plan from the first three of four masters to the last three.
fn planned(masters: &[Server], is_it: impl Fn(&str) -> bool) -> (i32, String) {
    planned_from([&urls(&masters[..3]), &urls(&masters[1..])], is_it)
}

/// Runs the plan until `is_it` accepts what is shown: a server notices the end of a connection a
/// little later. Returns the exit status, and what is shown.
fn planned_from([old, new]: [&str; 2], is_it: impl Fn(&str) -> bool) -> (i32, String) {
    let (mut status, mut shown) = (0, String::new());
    until("the plan shows it", || {
        let (code, out, err) = ended(&mut plan(old, new));
        assert_eq!(err, "");
        (status, shown) = (code, out);
        is_it(&shown)
    });
    (status, shown)
}

/// A program that leaves the first three masters for the last three.
struct Joint {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Joint {
    fn start(masters: &[Server]) -> Self {
        let (end, ended) = oneshot::channel();
        let (is_ready, ready) = mpsc::channel();
        let (old, new) = (list(&masters[..3]), list(&masters[1..]));
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let builder = Coordinator::builder().client_name("web-2/7");
                let locks = builder.masters(new).leaving(old).build().unwrap();
                locks.all_ready(Duration::from_secs(20)).await.unwrap();
                is_ready.send(()).unwrap();
                let _ = ended.await;
            });
        });
        ready.recv().unwrap();
        Self {
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Joint {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn list(masters: &[Server]) -> Vec<String> {
    masters.iter().map(Server::url).collect()
}

#[test]
fn the_plan_shows_each_step() {
    let masters = masters(4);
    let (status, shown) = planned(&masters, |_| true);
    assert_eq!(status, 0, "{shown}");
    assert!(marked(&shown).unwrap().starts_with("1  "), "{shown}");
    assert!(shown.contains("No program is connected. "), "{shown}");
    assert!(shown.contains("(a quarantine takes 1m 1s)"), "{shown}");
    assert!(shown.contains("wait for 1m 1s"), "{shown}");
    assert!(shown.contains("2 of the 3"), "{shown}");
    let stop = format!("Then stop 127.0.0.1:{}.\n", masters[0].port());
    assert!(shown.contains(&stop), "{shown}");

    let before = Running::hold(&masters[..3], "job");
    let (status, shown) = planned(&masters, |_| true);
    assert_eq!(status, 0, "{shown}");
    assert!(marked(&shown).unwrap().starts_with("1  "), "{shown}");
    assert!(shown.contains(&format!("/{}\n", before.id())), "{shown}");
    assert!(!shown.contains("No program"), "{shown}");

    let joint = Joint::start(&masters);
    let (status, shown) = planned(&masters, |_| true);
    assert_eq!(status, 1, "{shown}");
    assert!(marked(&shown).unwrap().starts_with("2  "), "{shown}");
    assert!(who(&shown, "both lists") == Some("web-2/7"), "{shown}");

    drop(before);
    let (status, shown) = planned(&masters, |shown| {
        who(shown, "only the old masters") == Some("none")
    });
    assert_eq!(status, 1, "{shown}");
    assert!(shown.contains("No master can tell."), "{shown}");
    assert!(marked(&shown).unwrap().starts_with("3  "), "{shown}");

    let after = Running::hold(&masters[1..], "other");
    let (status, shown) = planned(&masters, |_| true);
    assert_eq!(status, 1, "{shown}");
    assert!(marked(&shown).unwrap().starts_with("4  "), "{shown}");

    drop(joint);
    let (status, shown) = planned(&masters, |shown| who(shown, "both lists") == Some("none"));
    assert_eq!(status, 0, "{shown}");
    assert!(marked(&shown).unwrap().starts_with("5  "), "{shown}");

    // The step of both lists was left out.
    let late = Running::hold(&masters[..3], "third");
    let (status, shown) = planned(&masters, |_| true);
    assert_eq!((status, marked(&shown)), (3, None), "{shown}");
    assert!(
        shown.contains("Stop the programs with only the new masters"),
        "{shown}"
    );
    drop((after, late));
}

#[test]
fn the_plan_says_so_if_it_cannot_see_all() {
    let masters = masters(4);
    let joint = Joint::start(&masters);
    let cannot = "Not all can be seen.";
    // One of three old masters is not a majority.
    let deny = |master: &Server, rule| {
        let words = ["ACL", "SETUSER", "default", rule];
        assert_eq!(master.command(&words), "OK");
    };
    deny(&masters[0], "-client");
    let (_, shown) = planned(&masters, |_| true);
    assert!(!shown.contains(cannot), "{shown}");
    let why = format!(
        "127.0.0.1:{}       shows no programs: answered NOPERM",
        masters[0].port()
    );
    assert!(shown.contains(&why), "{shown}");
    deny(&masters[1], "-client");
    let (status, shown) = planned(&masters, |_| true);
    assert!(status == 1 && shown.contains(cannot), "{shown}");
    assert!(shown.contains("+client|list"), "{shown}");
    for master in &masters[..2] {
        deny(master, "+client");
    }
    assert!(!planned(&masters, |_| true).1.contains(cannot));

    // A program that says nothing, and one with other masters.
    let mut silent = TcpStream::connect(("127.0.0.1", masters[0].port())).unwrap();
    silent.write_all(b"PING\r\n").unwrap();
    let (status, shown) = planned(&masters, |shown| shown.contains("1 without a name"));
    assert!(status == 1 && shown.contains(cannot), "{shown}");
    drop(silent);
    let other = Running::hold(&masters[..2], "job");
    let (status, shown) = planned(&masters, |shown| !shown.contains("without a name"));
    assert!(status == 1 && shown.contains("other lists"), "{shown}");
    drop((joint, other));
}

#[test]
fn the_plan_refuses_what_is_not_safe() {
    let masters = masters(4);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ahead = (now.unwrap() + Duration::from_secs(3_600))
        .as_micros()
        .to_string();
    for master in &masters[..2] {
        master.command(&["SET", "quorlock:fence:{job}", &ahead]);
    }
    let (status, shown) = planned(&masters, |_| true);
    assert_eq!(status, 3, "{shown}");
    assert!(shown.contains("ahead of time"), "{shown}");
    assert!(shown.contains("quorlock:fence:{job}"), "{shown}");
    masters[0].command(&["DEL", "quorlock:fence:{job}"]);
    assert_eq!(planned(&masters, |_| true).0, 0);

    // A server of both lists under two addresses would vote twice.
    let twin = masters[0].url().replace("127.0.0.1", "localhost");
    let words = format!("plan --to {},{twin}", urls(&masters[1..]));
    let (status, shown, _) = ended(&mut with(&masters[..3], &words));
    assert_eq!(status, 3, "{shown}");
    assert!(shown.contains("run_id"), "{shown}");

    let down = Server::reserve();
    let words = format!("plan --to {}", down.url());
    let (status, shown, _) = ended(&mut with(&masters[..3], &words));
    assert_eq!(status, 3, "{shown}");
    assert!(shown.contains("only 0 of 1 masters now"), "{shown}");

    let same = format!("plan --to {}", urls(&masters));
    for (words, expected) in [
        ("plan", 64),
        (&*same, 64),
        ("plan --to ,", 78), // the list has an empty URL
        (
            "plan --to redis://a --master redis://b --from redis://c",
            64,
        ),
    ] {
        let (status, _, error) = ended(&mut with(&masters, words));
        assert_eq!(status, expected, "{words}: {error}");
    }
}

#[test]
fn no_step_is_needed_for_the_same_masters() {
    let masters = masters(3);
    let turned: Vec<_> = masters.iter().rev().map(Server::url).collect();
    let words = format!("plan --from {} --to {}", turned.join(","), urls(&masters));
    let (status, shown, _) = ended(&mut with(&[], &words));
    assert_eq!(status, 0, "{shown}");
    assert!(
        shown.starts_with("Both lists have the same masters"),
        "{shown}"
    );
    assert!(shown.ends_with(" no vote for 1m 1s.\n"), "{shown}");
    assert_eq!(marked(&shown), None, "{shown}");
}

/// The fields are those of cli/JSON.md.
#[test]
fn the_plan_is_shown_as_json() {
    let masters = masters(4);
    let [old, new] = [0..3, 1..4].map(|some| urls(&masters[some]));
    let of = |old: &str, new: &str| {
        let (status, shown, err) = ended(plan(old, new).arg("--json"));
        assert_eq!(err, "");
        (status, json(&shown))
    };
    let (status, shown) = of(&old, &new);
    assert_eq!((status, &shown["step"]), (0, &1.into()), "{shown}");
    assert_eq!(shown["steps"].as_array().unwrap().len(), 5);
    assert_eq!(shown["source"], "QUORLOCK_MASTERS");
    assert_eq!(shown["lists"][1]["list"], "leaving");
    assert_eq!(shown["programs"], serde_json::json!([]));

    let _before = Running::hold(&masters[..3], "job");
    let _joint = Joint::start(&masters);
    masters[0].command(&["ACL", "SETUSER", "default", "-client"]);
    let (status, shown) = of(&old, &new);
    assert_eq!((status, &shown["step"]), (1, &2.into()), "{shown}");
    let both = serde_json::json!({"uses": "both", "clients": ["web-2/7"], "unnamed": 0});
    assert_eq!(shown["programs"][0]["uses"], "old");
    assert_eq!(shown["programs"][1], both);
    assert_eq!(shown["unseen"].as_object().unwrap().len(), 1, "{shown}");
    assert!(shown["verdict"].as_str().unwrap().starts_with("Not yet: "));

    let mut same = plan(&old, &old);
    let (status, shown, _) = ended(
        same.args(["--json", "--from", &old])
            .env_remove("QUORLOCK_MASTERS"),
    );
    assert_eq!(
        (status, &json(&shown)["step"]),
        (0, &serde_json::Value::Null)
    );
}

/// A program with other lists is no reason to go on as if there was none.
#[test]
fn the_plan_does_not_begin_while_programs_use_other_lists() {
    let masters = masters(4);
    let _program = Running::hold(&masters[..3], "job");
    let [old, new] = [1..3, 2..4].map(|some| urls(&masters[some]));
    let lists = [&*new, &*old];
    let (status, shown) = planned_from(lists, |shown| who(shown, "other lists").is_some());
    assert_eq!((status, marked(&shown)), (1, None), "{shown}");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("use neither the old nor the new list"),
        "{shown}"
    );
    assert!(!words.contains("No program is connected"), "{shown}");
}

/// They cannot hold the same locks. Programs with the old list have to change all the same.
#[test]
fn programs_with_other_lists_and_other_keys_are_no_reason_to_wait() {
    let masters = masters(4);
    let hold =
        |masters, name| Running::hold(masters, &format!("{name} --key-template app:{{name}}"));
    let _other = hold(&masters[..2], "job");
    let (status, shown) = planned(&masters, |_| true);
    assert_eq!((status, who(&shown, "other lists")), (0, None), "{shown}");
    let old = hold(&masters[..3], "another");
    let (_, shown) = planned(&masters, |_| true);
    let who = who(&shown, "only the old masters").unwrap();
    assert!(who.ends_with(&format!("/{}", old.id())), "{shown}");
}

/// With --strict, masters that no program has used have no vote for a while.
#[test]
fn the_plan_does_not_begin_while_new_masters_have_no_vote() {
    let masters = masters(4);
    let [old, new] = [0..3, 1..4].map(|some| urls(&masters[some]));
    let (status, shown, _) = ended(plan(&old, &new).arg("--strict"));
    assert_eq!(status, 1, "{shown}");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Not yet: too few masters can vote"),
        "{shown}"
    );
}

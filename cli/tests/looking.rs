//! Runs `status`, `doctor`, `break`, `bench` and the texts for shells against real masters.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

#[path = "../../examples/support/server.rs"]
mod server;

use server::{Server, masters};

fn quorlock(masters: &[Server], words: &[&str]) -> Command {
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorlock"));
    command
        .args(words)
        .env("QUORLOCK_MASTERS", urls.join(","))
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the program. Returns the exit status, stdout and stderr.
fn run(masters: &[Server], words: &[&str]) -> (i32, String, String) {
    finished(quorlock(masters, words).output().unwrap())
}

fn finished(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let status = output.status.code().unwrap();
    (status, text(output.stdout), text(output.stderr))
}

#[track_caller]
fn json(text: &str) -> Value {
    assert_eq!(text.matches('\n').count(), 1, "{text}");
    serde_json::from_str(text).unwrap()
}

/// Writes a mutex as another library would.
fn write_mutex(masters: &[Server], name: &str, token: &str) {
    for master in masters {
        master.command(&["SET", name, token, "PX", "60000"]);
    }
}

/// Writes a fair lock that its owner has acquired twice.
fn write_fair(masters: &[Server], name: &str, owner: &str) {
    for master in masters {
        let fields = [owner, "2", "quorlock:fair", "7", "mode", "quorlock"];
        master.command(&[&["HSET", name], &fields[..]].concat());
        master.command(&["PEXPIRE", name, "60000"]);
    }
}

/// A process that is killed if the test fails.
struct Running(Child);

impl Running {
    fn start(masters: &[Server], words: &[&str]) -> Self {
        Self(quorlock(masters, words).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let killed = Command::new("kill").args(["-s", name, &id]).status();
        assert!(killed.unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `is_so`.
#[track_caller]
fn eventually(mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(20), "it never was so");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_status_of_a_free_lock_is_0() {
    let masters = masters(3);
    let (status, shown, error) = run(&masters, &["status", "job"]);
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
    let (status, shown, _) = run(&masters, &["status", "job", "queue", "other"]);
    assert_eq!(status, 75);
    assert!(shown.contains("job  held as a mutex, 59."), "{shown}");
    let fair = "queue  held as a fair lock by an-owner (2 times), 59.";
    assert!(shown.contains(fair), "{shown}");
    assert!(shown.contains("other  free"), "{shown}");
}

#[test]
fn a_lock_that_no_one_has_on_a_majority_is_contested() {
    let masters = masters(3);
    write_mutex(&masters[..1], "job", "one");
    write_mutex(&masters[1..2], "job", "another");
    let (status, shown, _) = run(&masters, &["status", "job"]);
    assert_eq!(status, 75);
    assert!(
        shown.starts_with("job  contested: no holder has a majority"),
        "{shown}"
    );

    masters[1].command(&["DEL", "job"]);
    let (status, shown, _) = run(&masters, &["status", "job"]);
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
    let (status, shown, _) = run(&masters, &["status", "job"]);
    assert_eq!(status, 69);
    let unknown = "job  unknown: only 1 of 3 masters answered, and 2 are needed";
    assert!(shown.starts_with(unknown), "{shown}");
    let answer = format!("  127.0.0.1:{}  mutex", masters[2].port());
    assert!(
        shown.contains(&answer),
        "it still shows what it knows: {shown}"
    );
    masters[2].kill();
    let (status, shown, _) = run(&masters, &["status", "job", "--json"]);
    assert_eq!(status, 69);
    assert_eq!(json(&shown)["locks"][0]["verdict"], "no_quorum");
}

/// Returns the names of the fields that a section of `JSON.md` documents, with the fields of a
/// holder at each path that has one.
fn documented(section: &str) -> Vec<String> {
    let page = include_str!("../JSON.md");
    let from = page.split(&format!("\n## `{section}`\n")).nth(1).unwrap();
    let table = from.split("\n## ").next().unwrap();
    let names = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let fields = names.flat_map(|line| {
        let cell = line.split(" |").next().unwrap();
        let names = cell
            .split(", ")
            .map(|name| name.trim_matches('`').to_owned());
        names.collect::<Vec<_>>()
    });
    fields.collect()
}

/// Collects the paths of all fields.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                found.push(path.clone());
                paths(value, &path, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                paths(item, &format!("{path}[]"), found);
            }
        }
        _ => {}
    }
}

/// Checks that each field is documented, and that each documented field is there.
#[track_caller]
fn is_documented(section: &str, value: &Value) {
    let mut found = Vec::new();
    paths(value, "", &mut found);
    let mut known = documented(section);
    let holder = ["kind", "owner", "depth", "remaining_ms"];
    let holders = ["locks[].holder", "locks[].masters[].holder", "holder"];
    known.extend(
        holders
            .iter()
            .flat_map(|at| holder.map(|field| format!("{at}.{field}"))),
    );
    if section == "status --watch" {
        known.extend(documented("status"));
    }
    for path in &found {
        let is_part = path.starts_with("acquire_us.") || path.starts_with("release_us.");
        assert!(
            is_part || known.contains(path),
            "{section}: {path} is not documented"
        );
    }
    // The fields of a holder and the verdicts are documented in tables of their own.
    let verdicts = ["free", "held", "contested", "no_quorum"];
    for name in documented(section) {
        let is_path = !holder.contains(&&*name) && !verdicts.contains(&&*name);
        assert!(!is_path || found.contains(&name), "{section}: no {name}");
    }
}

#[test]
fn the_json_has_the_documented_fields() {
    let mut masters = masters(3);
    write_fair(&masters, "queue", "an-owner");
    masters[2].kill();
    let (status, shown, _) = run(&masters, &["status", "queue", "--json"]);
    assert_eq!(status, 75);
    let shown = json(&shown);
    is_documented("status", &shown);
    let lock = &shown["locks"][0];
    let holder = &lock["holder"];
    assert_eq!(
        (&lock["verdict"], &holder["kind"]),
        (&"held".into(), &"fair".into())
    );
    assert_eq!(
        (&holder["owner"], &holder["depth"]),
        (&"an-owner".into(), &2.into())
    );
    assert!(holder["remaining_ms"].as_u64().unwrap() > 50_000);
    let views: Vec<_> = (0..3)
        .map(|at| lock["masters"][at]["view"].as_str())
        .collect();
    assert_eq!(views, [Some("held"), Some("held"), Some("no_answer")]);

    let (_, shown, _) = run(&masters, &["doctor", "--json"]);
    is_documented("doctor", &json(&shown));
    let (status, shown, _) = run(&masters, &["break", "queue", "--yes", "--json"]);
    assert_eq!(status, 0);
    let shown = json(&shown);
    is_documented("break", &shown);
    assert_eq!(
        (&shown["is_broken"], &shown["holder"]["depth"]),
        (&true.into(), &2.into())
    );
    let (status, shown, _) = run(&masters, &["bench", "--time", "200ms", "--json"]);
    assert_eq!(status, 0);
    let shown = json(&shown);
    is_documented("bench", &shown);
    assert!(shown["cycles"].as_u64().unwrap() > 0);
}

#[test]
fn a_watch_prints_changes_until_it_is_interrupted() {
    let masters = masters(3);
    let words = ["status", "job", "--watch", "--json", "--interval", "100ms"];
    let mut watch = Running::start(&masters, &words);
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap());
    let mut until = |verdict: &str| loop {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let frame = json(&line);
        is_documented("status --watch", &frame);
        if frame["locks"][0]["verdict"] == verdict {
            return;
        }
    };
    until("free");
    write_mutex(&masters, "job", "t");
    until("held");
    watch.signal("INT");
    let status = watch.0.wait().unwrap();
    assert_eq!(status.code(), Some(130));
}

#[test]
fn a_watch_without_json_prints_blocks() {
    let masters = masters(3);
    let mut watch = Running::start(&masters, &["status", "job", "--watch"]);
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut until = |part: &str| {
        let found = lines.find(|line| line.as_ref().unwrap().contains(part));
        found.unwrap().unwrap()
    };
    until("can vote");
    until("job  free");
    write_mutex(&masters, "job", "t");
    until("job  held as a mutex");
    let row = until("mutex");
    assert!(!row.contains('\x1b'), "{row}");
    watch.signal("TERM");
    assert_eq!(watch.0.wait().unwrap().code(), Some(143));
}

#[test]
fn the_doctor_exits_by_severity() {
    let masters = masters(3);
    // All test servers are on one host.
    let (status, shown, _) = run(&masters, &["doctor"]);
    assert_eq!(status, 2, "{shown}");
    assert!(shown.contains("3 masters: 1 warn"), "{shown}");

    masters[1].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    masters[1].command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let (status, shown, _) = run(&masters, &["doctor"]);
    assert_eq!(status, 3, "{shown}");
    assert!(
        shown.starts_with("refuse  maxmemory_policy is allkeys-lru\n"),
        "{shown}"
    );
    let fix = format!(
        "\n  redis-cli -h 127.0.0.1 -p {} CONFIG SET maxmemory-policy noeviction\n",
        masters[1].port()
    );
    assert!(shown.contains(&fix), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80));

    // A finding about all masters has a command for each.
    for master in &masters {
        master.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        master.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    }
    let (status, shown, _) = run(&masters, &["doctor"]);
    assert_eq!(
        (status, shown.matches("redis-cli -h").count()),
        (3, 3),
        "{shown}"
    );

    // The commands fix what they say.
    for master in &masters {
        master.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    }
    let (status, _, _) = run(&masters, &["doctor"]);
    assert_eq!(status, 2);
}

#[test]
fn the_doctor_says_so_if_no_majority_answers() {
    let mut masters = masters(3);
    masters[0].kill();
    masters[1].kill();
    let (status, shown, _) = run(&masters, &["doctor"]);
    assert_eq!(status, 3);
    assert!(shown.contains("no lock can be acquired"), "{shown}");
    assert!(shown.ends_with("do not use these masters yet\n"), "{shown}");
}

#[test]
fn a_break_without_a_terminal_needs_yes() {
    let masters = masters(3);
    write_mutex(&masters, "job", "t");
    let (status, shown, error) = run(&masters, &["break", "job"]);
    assert_eq!((status, &*shown), (64, ""));
    assert!(error.contains("give --yes"), "{error}");
    assert!(
        masters
            .iter()
            .all(|master| master.command(&["GET", "job"]) == "t")
    );

    let (status, shown, _) = run(&masters, &["break", "job", "--yes"]);
    assert_eq!(status, 0);
    assert!(
        shown.starts_with("job  was held as a mutex, 59."),
        "{shown}"
    );
    assert_eq!(shown.matches("  broken\n").count(), 3, "{shown}");
    assert!(
        masters
            .iter()
            .all(|master| master.command(&["EXISTS", "job"]) == "0")
    );

    let (status, shown, _) = run(&masters, &["break", "job", "--yes"]);
    assert_eq!((status, &*shown), (0, "job is free: nothing to break\n"));
}

#[test]
fn a_break_wakes_the_waiters_of_each_kind() {
    for is_fair in [false, true] {
        let masters = masters(3);
        let kind: &[&str] = if is_fair { &["--fair"] } else { &[] };
        // The holder does not renew, so it is as if it were dead.
        if is_fair {
            write_fair(&masters, "job", "dead-owner");
        } else {
            write_mutex(&masters, "job", "t");
        }
        let run = [&["run", "job"], kind, &["--", "echo", "mine"]].concat();
        let mut waiter = Running::start(&masters, &run);
        eventually(|| {
            let counted = |name: &str| name == "eval" || name == "evalsha" || name == "set";
            let is_queued = masters[0].command(&["EXISTS", "quorlock:queue:{job}"]) == "1";
            if is_fair {
                is_queued
            } else {
                masters[0].calls(counted) >= 2
            }
        });
        let (status, shown, _) = self::run(&masters, &["break", "job", "--yes"]);
        assert_eq!(status, 0, "{shown}");
        let since = Instant::now();
        let mut said = String::new();
        waiter
            .0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(said, "mine\n");
        let took = since.elapsed();
        assert!(took < Duration::from_secs(10), "the TTL is 60 s: {took:?}");
        assert!(waiter.0.wait().unwrap().success());
    }
}

#[test]
fn a_break_without_a_majority_says_so() {
    let mut masters = masters(3);
    write_mutex(&masters, "job", "t");
    masters[0].kill();
    masters[1].kill();
    let (status, _, error) = run(&masters, &["break", "job", "--yes"]);
    assert_eq!(status, 69);
    assert!(error.contains("only 1 of 3 masters answered"), "{error}");
    assert_eq!(
        masters[2].command(&["GET", "job"]),
        "t",
        "nothing is destroyed"
    );
}

#[test]
fn a_key_that_is_not_a_lock_is_left_alone() {
    let masters = masters(3);
    for master in &masters {
        master.command(&["HSET", "job", "field", "value"]);
    }
    let (status, shown, error) = run(&masters, &["break", "job", "--yes"]);
    assert_eq!(status, 78, "{error}");
    assert!(shown.contains("not a lock, left alone"), "{shown}");
    assert!(
        masters
            .iter()
            .all(|master| master.command(&["EXISTS", "job"]) == "1")
    );
}

#[test]
fn a_bench_leaves_nothing() {
    let masters = masters(3);
    let words = ["bench", "--time", "300ms", "--tasks", "4"];
    let (status, shown, error) = run(&masters, &words);
    assert_eq!((status, &*error), (0, ""));
    assert!(shown.starts_with("3 masters, 4 tasks: "), "{shown}");
    assert!(shown.ends_with("  no failures\n"), "{shown}");
    for master in &masters {
        assert_eq!(master.command(&["KEYS", "*"]), "quorlock:guard");
    }
}

#[test]
fn a_bench_that_is_interrupted_leaves_nothing() {
    let masters = masters(3);
    let mut bench = Running::start(&masters, &["bench", "--time", "1h"]);
    eventually(|| masters[0].calls(|name| name == "set") > 10);
    bench.signal("INT");
    assert_eq!(bench.0.wait().unwrap().code(), Some(130));
    for master in &masters {
        assert_eq!(master.command(&["KEYS", "*"]), "quorlock:guard");
    }
}

#[test]
fn a_bench_without_masters_fails() {
    let mut masters = masters(3);
    masters.iter_mut().for_each(Server::kill);
    let (status, _, error) = run(&masters, &["bench", "--time", "1s"]);
    assert_eq!(status, 69);
    assert!(error.contains("3 of 3 masters failed"), "{error}");
}

#[test]
fn a_closed_or_full_output_is_an_exit_status() {
    let masters = masters(3);
    for words in [
        &["status", "job"][..],
        &["doctor"],
        &["man"],
        &["completions", "bash"],
    ] {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = quorlock(&masters, words).stdout(full).output().unwrap();
        let (status, _, error) = finished(output);
        assert_eq!(status, 74, "{words:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");

        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = quorlock(&masters, words).stdout(writer).output().unwrap();
        let (status, _, error) = finished(output);
        assert_eq!(status, 74, "{words:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn completions_can_be_read_by_their_shells() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (status, script, _) = run(&[], &["completions", shell]);
        assert_eq!(status, 0, "{shell}");
        assert!(script.contains("nonblock"), "{shell}: {script}");
        if shell != "bash" {
            continue;
        }
        let mut bash = Command::new("bash");
        let mut bash = bash.arg("-n").stdin(Stdio::piped()).spawn().unwrap();
        bash.stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        assert!(bash.wait().unwrap().success());
    }
    let (status, _, error) = run(&[], &["completions", "tcsh"]);
    assert_eq!(status, 64, "{error}");
}

#[test]
fn the_manual_page_is_up_to_date() {
    let (status, page, _) = run(&[], &["man"]);
    assert_eq!(status, 0);
    let kept = include_str!("../man/quorlock.1");
    assert!(page == kept, "run: quorlock man > cli/man/quorlock.1");
    for word in ["QUORLOCK STATUS", "fair", "Exit status"] {
        assert!(page.contains(word), "{word}");
    }
}

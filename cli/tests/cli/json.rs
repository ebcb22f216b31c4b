//! The JSON, which has the fields that `JSON.md` documents.

use serde_json::Value;
use testkit::server::masters;

use crate::support::{Running, all_have, run, script, until, write_fair};

/// Returns the names of the fields that a section of `JSON.md` documents, with the fields of a
/// holder at each path that has one.
fn documented(section: &str) -> Vec<String> {
    let page = include_str!("../../JSON.md");
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
    let holder = [
        "kind",
        "is_shared",
        "owner",
        "client",
        "client_name",
        "label",
        "started_ms",
        "ttl_ms",
        "held_since_ms",
        "left_by_acquire",
        "depth",
        "remaining_ms",
        "renewal",
    ];
    let holders = ["locks[].holder", "locks[].masters[].holder", "holder"];
    known.extend(
        holders
            .iter()
            .flat_map(|at| holder.map(|field| format!("{at}.{field}"))),
    );
    let waiter = &holder[2..8];
    for at in ["locks[].waiters[]", "waiters[]"] {
        known.extend(waiter.iter().map(|field| format!("{at}.{field}")));
    }
    for path in &found {
        assert!(known.contains(path), "{section}: {path} is not documented");
    }
    // The fields of a holder and the verdicts are documented in tables of their own.
    let verdicts = ["free", "held", "split", "quarantined", "no_quorum"];
    for name in documented(section) {
        let is_path = !holder.contains(&&*name) && !verdicts.contains(&&*name);
        assert!(!is_path || found.contains(&name), "{section}: no {name}");
    }
}

#[test]
fn the_json_has_the_documented_fields() {
    let mut masters = masters(3);
    write_fair(&masters, "queue", "an-owner");
    let _waiter = Running::start(&mut script(&masters, "--fair queue", "true"));
    until("it waits", || all_have(&masters, "quorlock:queue:{queue}"));
    masters[2].kill();
    let shown = run(&masters, "status queue --json").is(75).json();
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
    assert!(holder["client"].is_null() && holder["renewal"].is_null());
    assert!(holder["remaining_ms"].as_u64().unwrap() > 50_000);
    let views: Vec<_> = (0..3)
        .map(|at| lock["masters"][at]["view"].as_str())
        .collect();
    assert_eq!(views, [Some("held"), Some("held"), Some("no_answer")]);

    is_documented("doctor", &run(&masters, "doctor --json").json());
    let shown = run(&masters, "break queue --yes --json").is(0).json();
    is_documented("break", &shown);
    assert_eq!(
        (&shown["is_broken"], &shown["holder"]["depth"]),
        (&true.into(), &2.into())
    );
}

//! `quorlock doctor`: severities, and commands that fix.

use std::{fs, path::Path};

use serde_json::Value;
use testkit::server::{Server, masters};

use crate::support::{ended, json, with};

#[test]
fn the_doctor_exits_by_severity() {
    let masters = masters(3);
    let (status, shown, _) = ended(&mut with(&masters, "doctor"));
    assert_eq!(status, 0, "{shown}");
    masters[1].command(&["CONFIG", "SET", "timeout", "60"]);
    let (status, shown, _) = ended(&mut with(&masters, "doctor"));
    assert_eq!(status, 2, "{shown}");
    assert!(shown.contains("3 masters; findings: 1 warn"), "{shown}");

    masters[1].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    masters[1].command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let (status, shown, _) = ended(&mut with(&masters, "doctor"));
    assert_eq!(status, 3, "{shown}");
    assert!(
        shown.starts_with("refuse  maxmemory_policy: allkeys-lru\n"),
        "{shown}"
    );
    assert!(
        shown.ends_with("; do not use these masters yet\n"),
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
    let (status, shown, _) = ended(&mut with(&masters, "doctor"));
    assert_eq!(
        (status, shown.matches("redis-cli -h").count()),
        (3, 4),
        "{shown}"
    );

    // The commands fix what they say.
    for master in &masters {
        master.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    }
    let (status, _, _) = ended(&mut with(&masters, "doctor"));
    assert_eq!(status, 2);
}

#[test]
fn the_doctor_says_so_if_no_majority_answers() {
    let mut masters = masters(3);
    masters[0].kill();
    masters[1].kill();
    let (status, shown, _) = ended(&mut with(&masters, "doctor"));
    assert_eq!(status, 3);
    assert!(shown.contains("why  no lock can be acquired\n"), "{shown}");
    assert!(
        shown.ends_with("; no lock can be acquired now\n"),
        "{shown}"
    );
}

/// Without replicas, such masters refuse the key of the quarantine, too.
#[test]
fn the_doctor_shows_the_settings_of_masters_that_refuse_writes() {
    let settings = [
        ("min-replicas-to-write", "1"),
        ("maxmemory", "100mb"),
        ("maxmemory-policy", "allkeys-lru"),
    ];
    let masters = masters(3);
    for (master, (name, value)) in masters
        .iter()
        .flat_map(|one| settings.map(|set| (one, set)))
    {
        master.command(&["CONFIG", "SET", name, value]);
    }
    let (status, shown, _) = ended(&mut with(&masters, "doctor"));
    assert_eq!(status, 3, "{shown}");
    for part in [
        "maxmemory_policy: allkeys-lru",
        "CONFIG SET maxmemory-policy noeviction",
        "fix  let its replicas connect again; only if no Sentinel",
        "no lock can be acquired",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(
        shown.contains("quorlock:guard: missing"),
        "it was never written: {shown}"
    );
    // A command would take away what keeps an old master from voting in a partition.
    for part in ["it lost its keys", "min-replicas-to-write 0"] {
        assert!(!shown.contains(part), "{part}: {shown}");
    }
}

/// The texts are for people who write no code.
#[test]
fn the_doctor_suggests_strict_programs_and_says_what_its_commands_need() {
    let masters = masters(3);
    let doctor = |words: &str| {
        let (_, shown, _) = ended(&mut with(&masters, &format!("doctor {words}")));
        assert!(shown.lines().all(|line| line.chars().count() <= 80));
        shown
    };
    let advice = "set strict = true";
    let needs = ["CONFIG REWRITE", "REDISCLI_AUTH"];
    let shown = doctor("");
    for part in [advice, "have strict = true"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for word in needs.into_iter().chain(["Strict", "origin key"]) {
        assert!(!shown.contains(word), "{word}: {shown}");
    }
    let shown = doctor("--strict --max-ttl 1s");
    assert!(!shown.contains(advice), "{shown}");
    masters[0].command(&["CONFIG", "SET", "timeout", "60"]);
    let shown = doctor("");
    assert!(needs.iter().all(|word| shown.contains(word)), "{shown}");
}

#[test]
fn the_doctor_writes_metrics_for_the_node_exporter() {
    let mut masters = masters(3);
    masters[1].command(&["CONFIG", "SET", "timeout", "60"]);
    masters[2].kill();
    let file = masters[0].directory().join("quorlock.prom");
    fs::write(&file, "old").unwrap();
    let textfile = |file: &Path| {
        let words = format!("doctor --textfile {}", file.display());
        ended(&mut with(&masters, &words))
    };
    let (status, out, err) = textfile(&file);
    assert_eq!((status, &*out, &*err), (2, "", ""));
    let text = fs::read_to_string(&file).unwrap();
    let source = "source=\"QUORLOCK_MASTERS\"";
    for line in [
        &format!("quorlock_doctor_findings{{severity=\"warn\",{source}}} 1\n"),
        &format!("quorlock_doctor_findings{{severity=\"unknown\",{source}}} "),
        &format!("quorlock_doctor_findings{{severity=\"refuse\",{source}}} 0\n"),
        &format!("quorlock_masters{{{source}}} 3\n"),
        &format!("quorlock_masters_voting{{{source}}} 2\n"),
        &format!("\nquorlock_doctor_timestamp_seconds{{{source}}} 1"),
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(text.lines().count(), 7, "{text}");
    let beside = fs::read_dir(masters[0].directory()).unwrap();
    let mut names = beside.map(|entry| entry.unwrap().file_name());
    assert!(!names.any(|name| name.to_string_lossy().contains(".prom.")));

    let nowhere = masters[0].directory().join("missing/quorlock.prom");
    let (status, _, err) = textfile(&nowhere);
    assert_eq!(status, 74, "{err}");
    let sentence = format!("quorlock: cannot write {}: ", nowhere.display());
    assert!(err.starts_with(&sentence), "{err}");
}

/// `ready` takes two names of one server for two masters if there is no quarantine.
#[test]
fn the_doctor_finds_a_server_under_two_names() {
    let masters = masters(2);
    let urls = masters.iter().map(Server::url).collect::<Vec<_>>();
    let twin = urls[0].replace("127.0.0.1", "localhost");
    let mut doctor = with(&masters, "doctor --json");
    doctor.env(
        "QUORLOCK_MASTERS",
        format!("{},{twin},{}", urls[0], urls[1]),
    );
    let (status, shown, err) = ended(&mut doctor);
    assert_eq!(status, 3, "{err}");
    let shown = json(&shown);
    let mut findings = shown["findings"].as_array().unwrap().iter();
    let twins = findings.find(|one| one["setting"] == "run_id").unwrap();
    let addresses = [("127.0.0.1", 0), ("localhost", 0)];
    let addresses = addresses.map(|(host, at)| format!("{host}:{}", masters[at].port()));
    assert_eq!(twins["masters"], Value::from(addresses.to_vec()), "{shown}");
}

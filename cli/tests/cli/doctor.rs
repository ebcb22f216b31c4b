//! `quorlock doctor`: severities, and commands that fix.

use std::{fs, path::Path};

use testkit::server::masters;

use crate::support::{Ended, Running, each, ended, run, urls, with};

#[test]
fn the_doctor_exits_by_severity() {
    let masters = masters(3);
    let doctor = || run(&masters, "doctor");
    doctor().is(0);
    each(&masters[1..2], "CONFIG SET timeout 60");
    doctor().is(2).shows("3 masters; findings: 1 warn");

    each(&masters[1..2], "CONFIG SET maxmemory-policy allkeys-lru");
    each(&masters[1..2], "CONFIG SET maxmemory 100mb");
    let ended = doctor()
        .is(3)
        .begins("critical  maxmemory_policy: allkeys-lru\n")
        .ends("; do not use these masters yet\n")
        .shows(&format!(
            "\n  redis-cli -h 127.0.0.1 -p {} CONFIG SET maxmemory-policy noeviction\n",
            masters[1].port()
        ));
    assert_narrow(&ended);

    // A finding about all masters has a command for each.
    each(&masters, "CONFIG SET maxmemory-policy allkeys-lru");
    each(&masters, "CONFIG SET maxmemory 100mb");
    doctor().is(3).shows_times(4, "redis-cli -h");

    // The commands fix what they say.
    each(&masters, "CONFIG SET maxmemory-policy noeviction");
    doctor().is(2);
}

#[track_caller]
fn assert_narrow(ended: &Ended) {
    let mut lines = ended.out.lines();
    assert!(lines.all(|line| line.chars().count() <= 80), "{ended}");
}

#[test]
fn the_doctor_says_that_an_even_number_is_no_better() {
    run(&masters(4), "doctor")
        .is(0)
        .tells("info masters: 4 in the list of masters")
        .tells("why an even number of masters tolerates no more failures than one less")
        .shows("4 masters; findings: 3 info, all is well\n"); // they are new, and not strict, too
}

/// A host that was forgotten in a change of the masters, and only runs short jobs.
#[test]
fn the_doctor_sees_a_job_with_other_lists_that_is_gone() {
    let masters = masters(4);
    let [old, new] = [0..3, 1..4].map(|some| &masters[some]);
    run(old, "run --label nightly cron -- true").is(0);
    run(new, "run cron -- true").is(0);
    // Its locks may not have ended.
    run(new, "doctor")
        .is(3)
        .tells("critical lists: ")
        .tells(" s if none comes again");
    let fields = (0..32).map(|number| format!(" lists.{number}"));
    let fields: String = fields.collect();
    let forget = || each(new, &format!("HDEL quorlock:origin{fields}"));
    forget();
    run(new, "run cron -- true").is(0);
    // Commands that take no lock are no danger.
    run(&masters[..1], "status cron").is(0);
    run(&masters[..1], "break --yes cron").is(0);
    run(new, "doctor").is(0);
    run(old, "run --label nightly cron -- true").is(0);
    run(new, "doctor")
        .is(3)
        .tells("critical lists: ")
        .tells("nightly")
        .tells(" 60 min if none comes again")
        .tells("they and you may hold one lock at once");

    // If it was a mistake, what it left can be deleted.
    forget();
    run(new, "doctor").is(0).hides("nightly");
    run(new, "run cron -- true").is(0).in_lines(0);
    run(new, "doctor").is(0);

    // It was no mistake, and programs that are connected have not noted themselves again.
    let _held = Running::hold(new, "other");
    forget();
    run(old, "run --label nightly cron -- true").is(0);
    run(new, "doctor").is(3).tells("nightly");
}

/// Without replicas, such masters refuse the key of the quarantine, too.
#[test]
fn the_doctor_shows_the_settings_of_masters_that_refuse_writes() {
    let masters = masters(3);
    each(&masters, "CONFIG SET min-replicas-to-write 1");
    each(&masters, "CONFIG SET maxmemory 100mb");
    each(&masters, "CONFIG SET maxmemory-policy allkeys-lru");
    run(&masters, "doctor")
        .is(3)
        .shows("maxmemory_policy: allkeys-lru")
        .shows("CONFIG SET maxmemory-policy noeviction")
        .shows("fix  let its replicas connect again; only if no Sentinel")
        .shows("why  no lock can be acquired\n")
        .ends("; no lock can be acquired now\n")
        .shows("quorlock:origin: missing") // it was never written
        .hides("it lost its keys")
        // A command would take away what keeps an old master from voting in a partition.
        .hides("min-replicas-to-write 0");
}

/// The texts are for people who write no code.
#[test]
fn the_doctor_suggests_strict_programs_and_says_what_its_commands_need() {
    let masters = masters(3);
    let doctor = |words: &str| {
        let ended = run(&masters, &format!("doctor {words}"));
        assert_narrow(&ended);
        ended
    };
    let advice = "jobs that come and go";
    let [save, login] = ["CONFIG REWRITE", "REDISCLI_AUTH"];
    let ended = doctor("").shows("info      quarantine: not strict\n");
    let ended = ended.tells(advice).tells("have strict quarantine");
    let ended = ended.hides(save).hides(login);
    ended.hides("Strict").hides("origin key");
    doctor("--quarantine strict --max-ttl 1s").hides(advice);
    each(&masters[..1], "CONFIG SET timeout 60");
    doctor("").shows(save).shows(login);
}

#[test]
fn the_doctor_writes_metrics_for_the_node_exporter() {
    let mut masters = masters(3);
    each(&masters[1..2], "CONFIG SET timeout 60");
    masters[2].kill();
    let file = masters[0].directory().join("quorlock.prom");
    fs::write(&file, "old").unwrap();
    let textfile = |file: &Path| run(&masters, &format!("doctor --textfile {}", file.display()));
    textfile(&file).gives(2, "").in_lines(0);
    let text = fs::read_to_string(&file).unwrap();
    let source = "source=\"QUORLOCK_MASTERS\"";
    for line in [
        &format!("quorlock_doctor_findings{{severity=\"warn\",{source}}} 1\n"),
        &format!("quorlock_doctor_findings{{severity=\"unknown\",{source}}} "),
        &format!("quorlock_doctor_findings{{severity=\"critical\",{source}}} 0\n"),
        &format!("quorlock_masters{{{source}}} 3\n"),
        &format!("quorlock_masters_voting{{{source}}} 2\n"),
        &format!("quorlock_majority{{{source}}} 1\n"),
        &format!("\nquorlock_doctor_timestamp_seconds{{{source}}} 1"),
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(text.lines().count(), 8, "{text}");
    let beside = fs::read_dir(masters[0].directory()).unwrap();
    let mut names = beside.map(|entry| entry.unwrap().file_name());
    assert!(!names.any(|name| name.to_string_lossy().contains(".prom.")));

    let nowhere = masters[0].directory().join("missing/quorlock.prom");
    let sentence = format!("quorlock: cannot write {}: ", nowhere.display());
    textfile(&nowhere).is(74).first_says(&sentence);
}

/// In a change of the masters, most of all masters may be no majority of one list.
#[test]
fn the_metrics_tell_whether_each_list_has_a_majority() {
    let mut masters = masters(5);
    let file = masters[0].directory().join("quorlock.prom");
    let mut majority = |dead: &[usize]| {
        dead.iter().for_each(|master| masters[*master].kill());
        let mut command = with(&masters[2..], "doctor --textfile");
        command.env("QUORLOCK_OLD_MASTERS", urls(&masters[..3]));
        ended(command.arg(&file));
        let text = fs::read_to_string(&file).unwrap();
        let (_, rest) = text.split_once("quorlock_majority{").unwrap();
        rest.lines().next().unwrap().ends_with(" 1")
    };
    assert!(majority(&[3]), "2 of 3 and 3 of 3");
    assert!(majority(&[1]), "2 of 3 and 2 of 3");
    assert!(!majority(&[4]), "1 of 3 and 2 of 3");
}

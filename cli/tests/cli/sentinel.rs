//! Masters behind Sentinel.

use std::{
    process::{Command, Stdio},
    slice,
    time::{Duration, Instant},
};

use testkit::{
    sentinels::{Group, sentinel_url, watch},
    server::{self, Server, masters},
};

use crate::support::{Running, all_have, assert_free, configure, ended, one_line, until, with};

/// The TTL of the locks, and the time for which a new master has no vote.
const TTL: Duration = Duration::from_secs(4);

/// Returns the program with these masters.
fn quorlock(folder: &Server, urls: impl IntoIterator<Item = String>, words: &str) -> Command {
    let urls: Vec<_> = urls.into_iter().collect();
    let times = format!("ttl = \"{TTL:?}\"\nmax_ttl = \"{TTL:?}\"");
    let file = configure(folder.directory(), &urls, &times);
    with(&[], &format!("--config {} {words}", file.display()))
}

/// Returns the program with two plain masters and one behind Sentinel.
fn behind(group: &Group, plain: &[Server], words: &str) -> Command {
    let urls = plain.iter().map(Server::url).chain([group.url()]);
    quorlock(&plain[0], urls, words)
}

fn name(sentinels: &[Server]) -> String {
    let ports = sentinels.iter().map(Server::port);
    format!("sentinel:svc@127.0.0.1:{}", ports.min().unwrap())
}

fn has(master: &Server, key: &str) -> bool {
    all_have(slice::from_ref(master), key)
}

#[test]
fn a_master_behind_sentinel_is_one_of_the_masters() {
    if server::is_mixed() {
        return;
    }
    let (group, mut plain) = (Group::start(3), masters(2));
    let name = name(&group.sentinels);
    // Without one of the plain masters, the one behind Sentinel decides.
    plain[1].kill();
    ended(&mut behind(
        &group,
        &plain,
        "run -v a -- printenv QUORLOCK_VOTES",
    ))
    .gives(0, "2/3\n")
    .says(&format!("{name} granted"));
    assert_free(slice::from_ref(&group.primary), "a");

    let _holder = Running::held(&mut behind(&group, &plain, "hold a"));
    assert!(has(&group.primary, "a"));
    let ended = ended(&mut behind(&group, &plain, "status a"))
        .is(75)
        .in_lines(0);
    let row = ended.out.lines().find(|line| line.contains(&name));
    assert!(row.is_some_and(|row| row.contains("mutex")), "{ended}");
    self::ended(&mut behind(&group, &plain, "doctor"))
        .is(2)
        .shows("connected_slaves")
        .shows(&name);
}

/// The new master has no vote until its locks would have ended. Then it decides.
#[test]
fn a_command_outlives_a_failover() {
    if server::is_mixed() {
        return;
    }
    let (mut group, mut plain) = (Group::start(3), masters(2));
    let script = "echo ready; read line; echo $line";
    let mut command = behind(&group, &plain, "run a -- sh -c");
    command.arg(script).stdin(Stdio::piped());
    let mut running = Running::ready(&mut command);
    until("the master behind Sentinel has the lock", || {
        has(&group.primary, "a")
    });
    group.primary.kill();
    let new = &group.replica;
    until("a failover", || {
        // Sentinel ends all connections of a server that it promotes.
        let role = new.try_command(&["ROLE"], TTL);
        role.is_ok_and(|role| role.starts_with("master"))
    });
    new.command(&["DEL", "a"]);
    until("a renewal restores the lock", || has(new, "a"));
    ended(&mut behind(&group, &plain, "status a")).is(75);

    // Renewals need the new master from now on.
    plain[0].kill();
    let since = Instant::now();
    until("the lock would have ended", || {
        assert!(has(&plain[1], "a"));
        since.elapsed() > TTL + TTL / 4
    });
    running.say("worked\n");
    let ended = running.ended().gives(0, "worked\n");
    let is_of_a_master = |line: &str| line.starts_with("quorlock: master ");
    assert!(ended.err.lines().all(is_of_a_master), "{ended}");
    assert_free(slice::from_ref(new), "a");
}

#[test]
fn sentinels_that_do_not_help_are_explained() {
    let masters = masters(1);
    let sentinels = [(); 2].map(|()| watch(&masters[0], 1, "requirepass hunter2\n", &[]));
    let url = sentinel_url(&sentinels);
    for (end, expected) in [
        ("/svc", "NOAUTH Authentication required"),
        (
            "/svc?sentinel_password=hunter3",
            "refused the login: WRONGPASS",
        ),
        (
            "/nope?sentinel_password=hunter2",
            "knows no master \"nope\"",
        ),
    ] {
        let url = url.replace("/svc", end);
        for (words, expected_status) in [
            ("run -v -n a -- echo ran", 78),
            ("status a", 78),
            ("doctor", 3),
        ] {
            let ended = ended(&mut quorlock(&masters[0], [url.clone()], words));
            let ended = ended.is(expected_status).hides("hunter").omits("hunter");
            let text = one_line(&ended.to_string());
            assert!(text.contains(expected), "{expected}: {ended}");
            let is_told = ended.out.contains("fix  look at the service");
            assert_eq!(is_told, words == "doctor", "{ended}");
        }
    }
    let right = url.replace("/svc", "/svc?sentinel_password=hunter2");
    let mut command = quorlock(&masters[0], [right], "run a -- true");
    ended(&mut command).gives(0, "").in_lines(0);
}

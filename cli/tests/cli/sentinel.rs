//! Masters behind Sentinel.

use std::{fs, process::Command, slice, time::Duration, time::Instant};

use testkit::{
    sentinels::{Group, sentinel_url, watch},
    server::{self, Server, masters},
};

use crate::support::{Running, assert_free, ended, until, with};

/// The TTL of the locks, and the time for which a new master has no vote.
const TTL: Duration = Duration::from_secs(4);

/// Returns the program with these masters.
fn quorlock(folder: &Server, urls: impl IntoIterator<Item = String>, words: &str) -> Command {
    let urls: Vec<_> = urls.into_iter().collect();
    let text = format!("[set.s]\nmasters = {urls:?}\nttl = \"{TTL:?}\"\nmax_ttl = \"{TTL:?}\"\n");
    let file = folder.directory().join("quorlock.toml");
    fs::write(&file, text).unwrap();
    let mut command = with(&[], &format!("--config {} {words}", file.display()));
    command.env_remove("QUORLOCK_MASTERS");
    command
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

#[track_caller]
fn has(master: &Server, key: &str) -> bool {
    master.command(&["EXISTS", key]) == "1"
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
    let mut run = behind(&group, &plain, "run -v a -- printenv QUORLOCK_VOTES");
    let (status, out, err) = ended(&mut run);
    assert_eq!((status, &*out), (0, "2/3\n"), "{err}");
    assert!(err.contains(&format!("  {name}  granted")), "{err}");
    assert_free(slice::from_ref(&group.primary), "a");

    let mut holder = Running::start(&mut behind(&group, &plain, "hold a"));
    assert!(holder.line().starts_with("held "));
    assert!(has(&group.primary, "a"));
    let (status, shown, err) = ended(&mut behind(&group, &plain, "status a"));
    assert_eq!((status, &*err), (75, ""), "{shown}");
    let row = shown.lines().find(|line| line.contains(&name));
    assert!(row.is_some_and(|row| row.contains("mutex")), "{shown}");
    let (status, shown, _) = ended(&mut behind(&group, &plain, "doctor"));
    assert_eq!(status, 2, "{shown}");
    assert!(
        shown.contains("connected_slaves") && shown.contains(&name),
        "{shown}"
    );
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
    command.arg(script).stdin(std::process::Stdio::piped());
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
    let (status, shown, _) = ended(&mut behind(&group, &plain, "status a"));
    assert_eq!(status, 75, "{shown}");

    // Renewals need the new master from now on.
    plain[0].kill();
    let since = Instant::now();
    until("the lock would have ended", || {
        assert!(has(&plain[1], "a"));
        since.elapsed() > TTL + TTL / 4
    });
    running.say("worked\n");
    let (status, out, err) = running.ended();
    assert_eq!((status.code(), &*out), (Some(0), "worked\n"), "{err}");
    let is_of_a_master = |line: &str| line.starts_with("quorlock: master ");
    assert!(err.lines().all(is_of_a_master), "{err}");
    assert_free(slice::from_ref(new), "a");
}

#[test]
fn a_failover_of_the_only_master_loses_the_lock() {
    if server::is_mixed() {
        return;
    }
    let mut group = Group::start(1);
    let folder = masters(1);
    let mut command = quorlock(&folder[0], [group.url()], "run a -- sh -c");
    let running = Running::ready(command.arg("echo ready; exec sleep 1000"));
    group.primary.kill();
    let (status, _, err) = running.ended();
    assert_eq!(status.code(), Some(76), "{err}");
    assert!(err.contains("\"a\" cannot be renewed"), "{err}");
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
        let command = |words: &str| quorlock(&masters[0], [url.clone()], words);
        let (status, _, votes) = ended(&mut command("run -v -n a -- echo ran"));
        assert_eq!(status, 78, "{votes}");
        let (status, shown, _) = ended(&mut command("status a"));
        assert_eq!(status, 78, "{shown}");
        let (status, found, _) = ended(&mut command("doctor"));
        assert_eq!(status, 3, "{found}");
        assert!(found.contains("fix  look at the service"), "{found}");
        for text in [votes, shown, found] {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(expected), "{expected}: {text}");
            assert!(!text.contains("hunter"), "{text}");
        }
    }
    let right = url.replace("/svc", "/svc?sentinel_password=hunter2");
    let mut command = quorlock(&masters[0], [right], "run a -- true");
    assert_eq!(ended(&mut command), (0, String::new(), String::new()));
}

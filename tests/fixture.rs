//! Tests of the fixture that the other tests rely on.

use std::fs;
use std::process::Command;
use std::time::Duration;

use testkit::server::{self, Server};

#[test]
fn a_restarted_master_is_empty_and_keeps_its_address() {
    if server::only_urls() {
        return;
    }
    let mut master = Server::start();
    let (port, pid) = (master.port(), master.pid());
    assert_eq!(master.command(&["SET", "k", "v"]), "OK");
    assert_eq!(master.command(&["GET", "k"]), "v");

    master.kill();
    assert!(master.try_command(&["PING"], SHORT).is_err());

    master.restart();
    assert_eq!(master.port(), port);
    assert_ne!(master.pid(), pid);
    assert_eq!(master.command(&["GET", "k"]), "(nil)");
}

#[test]
fn a_paused_master_is_silent_until_it_resumes() {
    if server::only_urls() {
        return;
    }
    let master = Server::start();
    master.pause();
    assert!(master.try_command(&["PING"], SHORT).is_err());
    master.resume();
    assert_eq!(master.command(&["PING"]), "PONG");
}

#[test]
fn a_reserved_master_refuses_connections_until_it_is_started() {
    if server::only_urls() {
        return;
    }
    let mut master = Server::reserve_with(&["--requirepass", "secret"]);
    assert!(master.try_command(&["PING"], SHORT).is_err());
    master.restart();
    assert_eq!(master.command(&["PING"]), "PONG");
}

#[test]
fn replies_are_given_as_text() {
    if server::only_urls() {
        return;
    }
    let master = Server::start();
    assert_eq!(master.command(&["RPUSH", "list", "a", ""]), "2");
    assert_eq!(master.command(&["LRANGE", "list", "0", "-1"]), "a\n");
    assert_eq!(master.command(&["ECHO", ""]), "");
    assert!(master.command(&["INCR", "list"]).starts_with("WRONGTYPE "));
}

#[test]
fn a_dropped_master_leaves_nothing_behind() {
    if server::only_urls() {
        return;
    }
    let masters = server::masters(5);
    let left = masters
        .iter()
        .map(|master| (master.pid().to_string(), master.socket()))
        .collect::<Vec<_>>();
    masters[0].pause();
    drop(masters);
    for (pid, socket) in left {
        let probe = ["-c", r#"kill -0 "$1" 2> /dev/null"#, "sh", &pid];
        assert!(!Command::new("sh").args(probe).status().unwrap().success());
        assert!(!socket.parent().unwrap().exists());
    }
}

#[test]
fn the_server_that_dev_has_linked_is_found_after_those_on_the_path() {
    if server::only_urls() {
        return;
    }
    let master = Server::start();
    let (bin, workspace) = (master.directory().join("bin"), master.directory());
    let linked = workspace.join("target/server");
    let find = || server::find_in(bin.as_os_str(), workspace);
    assert_eq!(find(), None);
    for program in [linked.join("valkey-server"), bin.join("valkey-server")] {
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "").unwrap();
        assert_eq!(find(), Some(program));
    }
}

const SHORT: Duration = Duration::from_millis(50);

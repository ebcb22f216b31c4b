//! Addresses of masters: IPv6, unix sockets, database numbers, and the schemes of URLs.

use std::{net::TcpListener, os::unix::fs::symlink};

use quorlock::{Coordinator, Renewal};

use crate::{check::check, common::*};

#[test]
fn locks_work_over_ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        return skipped("this machine has no IPv6");
    }
    with_masters(0, async |_| {
        let masters = [(); 3].map(|()| Server::start_with(&["--bind", "127.0.0.1", "::1"]));
        let urls = masters
            .iter()
            .map(|master| format!("redis://[::1]:{}", master.port()));
        let locks = patient().masters(urls).build().unwrap();
        let guard = acquire_on_all(&locks.mutex("r")).await;
        let address = format!("[::1]:{}", masters[0].port());
        assert_eq!(row(&guard.votes(), 0).master, address);
        guard.release().await.unwrap();
        locks.close().await;
        assert_no_keys(&masters);
    });
}

#[test]
fn the_path_of_a_socket_may_have_spaces_and_a_missing_file_is_explained() {
    with_masters(1, async |masters| {
        let path = masters[0].directory().join("a socket with spaces");
        symlink(masters[0].socket(), &path).unwrap();
        let path = path.display().to_string();
        for url in [
            format!("unix://{path}"),
            format!("unix://{}", path.replace(' ', "%20")),
        ] {
            let locks = patient().master(url).build().unwrap();
            let guard = acquire_on_all(&locks.mutex("r")).await;
            assert_eq!(row(&guard.votes(), 0).master, format!("unix:{path}"));
            guard.release().await.unwrap();
            locks.close().await;
        }
        let locks = patient()
            .master(format!("unix://{path}.none"))
            .build()
            .unwrap();
        let said = refusal(&locks).await;
        let expected =
            format!("unix:{path}.none unreachable: connecting to unix:{path}.none: No such file");
        assert!(said.contains(&expected), "{said}");
    });
}

/// Every server has the locks in database 3, over TCP or over a socket.
fn in_database_3(masters: &[Server]) -> [String; 3] {
    [
        format!("{}/3", masters[0].url()),
        format!("{}?db=3", masters[1].unix_url()),
        format!("{}/3", masters[2].url()),
    ]
}

/// The masters report changes without the number of the database.
#[test]
fn locks_of_two_databases_are_apart_and_waiters_are_woken() {
    with_masters(3, async |masters| {
        let never = (LONG, LONG);
        let build = |urls: &[String]| {
            let builder = patient().poll_interval(never.0..=never.1).masters(urls);
            builder.build().unwrap()
        };
        let [first, second] = [(); 2].map(|()| build(&in_database_3(&masters)));
        let elsewhere = build(&urls(&masters));
        for kind in KINDS {
            let name = format!("{kind:?}");
            let lock = |locks: &Coordinator| {
                let lock = locks.of_kind(kind, &name, &locks.new_owner());
                lock.renewal(Renewal::Off)
            };
            let held = acquire_on_all(&lock(&first)).await;
            for master in &masters {
                assert_eq!(exists(master, 3, &name), "1");
                assert_eq!(exists(master, 0, &name), "0");
            }
            let next = lock(&second);
            let waits = tokio::spawn(async move { next.acquire_within(TEST_TIMEOUT / 2).await });
            // A lock of the same name comes and goes in database 0.
            for _ in 0..5 {
                acquire_on_all(&lock(&elsewhere))
                    .await
                    .release()
                    .await
                    .unwrap();
            }
            assert!(!waits.is_finished() && held.is_valid());
            held.release().await.unwrap();
            waits.await.unwrap().unwrap().release().await.unwrap();
        }
        for locks in [first, second, elsewhere] {
            locks.close().await;
        }
        for master in &masters {
            for kind in KINDS {
                assert_eq!(exists(master, 3, &format!("{kind:?}")), "0");
            }
        }
    });
}

fn exists(master: &Server, database: u32, key: &str) -> String {
    let script = "redis.call('SELECT', ARGV[1]); return redis.call('EXISTS', KEYS[1])";
    master.command(&["EVAL", script, "1", key, &database.to_string()])
}

#[test]
fn a_database_that_does_not_exist_is_explained() {
    with_masters(1, async |masters| {
        let urls = [format!("{}/99", masters[0].url())];
        let locks = Coordinator::new(&urls).unwrap();
        let said = refusal(&locks).await;
        assert!(said.contains("refused the database 99: ERR"), "{said}");
        let report = check(&urls).await.to_string();
        assert!(
            report.contains("login: refused the database 99: ERR"),
            "{report}"
        );
        assert!(
            report.contains("+select") && !report.contains("password"),
            "{report}"
        );
    });
}

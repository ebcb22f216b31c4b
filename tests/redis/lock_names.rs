//! Lock names.

use quorlock::{__internals::plain, ConfigError, Reason};

use crate::common::*;

#[test]
fn any_string_can_be_a_name() {
    with_masters(3, async |masters| {
        let locks = coordinator(patient(), &masters);
        let long = "n".repeat(10_000);
        for name in [
            "a name with spaces",
            "ключ/🔒/é",
            "line\r\nbreaks\r\n*1\r\n$7\r\nFLUSHDB\r\n",
            "nul\0in\0it",
            "\"quoted\" {braced} %s *?[a-z]",
            " ",
            &long,
        ] {
            let lock = locks.mutex(name);
            let guard = lock.try_acquire().await.unwrap();
            assert_eq!(guard.name(), name);
            assert_eq!(guard.all_votes().await.granted_count(), 3);
            for master in &masters {
                assert_eq!(master.command(&["KEYS", "*"]), name);
            }
            let second = lock.try_acquire().await;
            assert!(matches!(&second, Err(error) if error.is_busy()));
            guard.extend(LONG).await.unwrap();
            assert_eq!(guard.all_votes().await.granted_count(), 3);
            guard.release().await.unwrap();
        }
        let nameless = locks.mutex("").try_acquire().await;
        assert!(matches!(
            nameless,
            Err(error) if *error.reason() == Reason::Config(ConfigError::EmptyName)
        ));
        locks.close().await;
        assert_no_keys(&masters);
    });
}

/// All keys of a lock are in one slot, so a script may use all of them.
#[test]
fn any_string_can_be_a_name_in_a_cluster() {
    if server::only_urls() || server::is_before_7() {
        return;
    }
    let bus = Server::reserve(); // a port that no other test takes
    let port = bus.port().to_string();
    let cluster = ["--cluster-enabled", "yes", "--cluster-port", &port];
    let master = Server::start_with(&cluster);
    run(async {
        assert_eq!(
            master.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]),
            "OK"
        );
        until("a cluster that serves", async || {
            let info = master.command(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok").then_some(())
        })
        .await;
        let masters = [master];
        let locks = coordinator(patient(), &masters);
        let owner = locks.new_owner();
        for name in [
            "a", "{a}b", "x{", "{}", "a}b{c", "}{", "{}{a}", "{{a}}", "a}",
        ] {
            for lock in [
                locks.mutex(name),
                locks.reentrant(name, &owner),
                locks.fair(name).owner(&owner),
            ] {
                for lock in [lock.clone(), plain(lock.fenced())] {
                    let guard = lock.try_acquire().await.unwrap();
                    lock.inspect().await.unwrap();
                    guard.release().await.unwrap();
                }
            }
        }
    });
}

//! The names of the connections to real servers.

use std::collections::BTreeSet;

use quorlock::Builder;

use crate::common::*;

const CLIENT: &str = "web-3/812";

/// Returns the names of the connections to a master that have one.
pub(crate) fn names(master: &Server) -> Vec<String> {
    let clients = master.command(&["CLIENT", "LIST"]);
    let words = clients.lines().flat_map(|client| client.split(' '));
    let names = words.filter_map(|word| word.strip_prefix("name="));
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Connects to all masters. Returns the only name that the new connections have.
async fn name_of(builder: Builder, masters: &[Server]) -> String {
    let locks = builder.client_name(CLIENT).build().unwrap();
    locks.all_ready_within(TEST_TIMEOUT / 2).await.unwrap();
    let names: Vec<_> = masters.iter().flat_map(names).collect();
    assert_eq!(names.len(), masters.len(), "{names:?}");
    let one: BTreeSet<_> = names.into_iter().collect();
    assert_eq!(one.len(), 1, "{one:?}");
    locks.close().await;
    drop(locks);
    until("the connections are closed", async || {
        masters
            .iter()
            .all(|master| self::names(master).is_empty())
            .then_some(())
    })
    .await;
    one.into_iter().next().unwrap()
}

#[test]
fn connections_say_which_lists_and_keys_their_program_uses() {
    with_masters(3, async |masters| {
        let (urls, plain) = (urls(&masters), || patient().max_ttl(LONG));
        let first = name_of(plain().masters(&urls), &masters).await;
        let id = first.strip_prefix("quorlock:").unwrap();
        let id = id
            .strip_suffix(&format!(":26610b92:600000:{CLIENT}"))
            .unwrap();
        assert_eq!(id.len(), 16, "{first}");

        let turned: Vec<_> = urls.iter().rev().collect();
        let same = [
            plain().masters(turned),
            plain().masters(&urls).old_masters(&urls),
        ];
        for builder in same {
            assert_eq!(name_of(builder, &masters).await, first);
        }
        let mut all = BTreeSet::from([first]);
        for other in [
            plain().masters(&urls).key_template("app:{name}"),
            plain().masters(&urls).max_ttl(LONG * 2),
        ] {
            assert!(all.insert(name_of(other, &masters).await));
        }
        for (new, old) in [(&urls[..2], &urls[..]), (&urls[..], &urls[..2])] {
            let joint = plain().masters(new).old_masters(old);
            assert!(all.insert(name_of(joint, &masters).await));
        }
    });
}

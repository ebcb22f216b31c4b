//! Many at once.

use std::fs;

use testkit::server::masters;

use crate::support::{Running, shell};

#[test]
fn two_hundred_scripts_lose_no_increment() {
    let masters = masters(3);
    let counter = masters[0].directory().join("counter");
    fs::write(&counter, "0\n").unwrap();
    let start = |_| {
        // As in a crontab: a shell starts the program, and the program another shell. The first one
        // becomes the program, so that no program waits on if this test fails.
        let line = r#"exec "$0" run counter -- sh -c 'read n < "$0"; echo $((n + 1)) > "$0"' "$1""#;
        Running::start(shell(&masters, line).arg(&counter))
    };
    let scripts: Vec<_> = (0..200).map(start).collect();
    for script in scripts {
        script.ended().is(0); // on a busy machine, it may say that masters are slow to connect
    }
    assert_eq!(fs::read_to_string(counter).unwrap(), "200\n");
}

//! `quorlock bench`.

use nix::sys::signal::Signal;

use crate::{
    server::{Server, masters},
    support::{Running, ended, until, with},
};

#[test]
fn a_bench_leaves_nothing() {
    let masters = masters(3);
    let (status, shown, error) = ended(&mut with(&masters, "bench --time 300ms --tasks 4"));
    assert_eq!((status, &*error), (0, ""));
    assert!(shown.starts_with("3 masters, 4 tasks: "), "{shown}");
    assert!(shown.ends_with("  no failures\n"), "{shown}");
    for master in &masters {
        assert_eq!(master.command(&["KEYS", "*"]), "quorlock:guard");
    }
}

#[test]
fn a_bench_that_is_interrupted_leaves_nothing() {
    let masters = masters(3);
    let bench = Running::start(&mut with(&masters, "bench --time 1h"));
    until("it has begun", || {
        masters[0].calls(|name| name == "set") > 10
    });
    bench.signal(Signal::SIGTERM);
    assert_eq!(bench.ended().0.code(), Some(143));
    for master in &masters {
        assert_eq!(master.command(&["KEYS", "*"]), "quorlock:guard");
    }
}

#[test]
fn a_bench_without_masters_fails() {
    let mut masters = masters(3);
    masters.iter_mut().for_each(Server::kill);
    let (status, _, error) = ended(&mut with(&masters, "bench --time 1s"));
    assert_eq!(status, 69);
    assert!(error.contains("only 0 of 3 masters can vote"), "{error}");
}

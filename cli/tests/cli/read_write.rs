//! `--read` and `--write`.

use testkit::server::masters;

use crate::support::{Running, run, until, with};

#[test]
fn readers_share_a_lock_and_a_writer_has_it_alone() {
    let masters = masters(3);
    let asked = |words: &str| run(&masters, &format!("run -n {words} -- true"));
    let readers = ["job --read", "job --read"].map(|words| Running::hold(&masters, words));
    asked("--read job").is(0);
    asked("--write job").is(75);
    let seen = run(&masters, "status --json job").is(75).json();
    let lock = &seen["locks"][0];
    let (kind, is_shared) = (&lock["holder"]["kind"], &lock["holder"]["is_shared"]);
    assert_eq!((kind, is_shared), (&"read_write".into(), &true.into()));
    assert_eq!(lock["others"].as_array().unwrap().len(), 1);
    drop(readers);

    let _writer = Running::hold(&masters, "job --write --fence");
    asked("--read job").is(75);
    asked("job").is(78).says("always with --read or --write");
    run(&masters, "status job").shows("held as a read-write lock by a writer ");
}

#[test]
fn a_reader_that_gives_up_hears_of_the_writer_before_it() {
    let masters = masters(3);
    let _readers = ["conf --read"; 2].map(|words| Running::hold(&masters, words));
    let writer = Running::start(&mut with(&masters, "hold --write conf"));
    until("the writer waits", || {
        let shown = run(&masters, "status --json conf").json();
        shown["locks"][0]["waiters"][0].is_object()
    });
    run(&masters, "run -n --read conf -- true")
        .is(75)
        .says("a writer waits for \"conf\"");

    let shown = run(&masters, "status conf").out;
    let (_, waiting) = shown.split_once("WAITING: 1\n").unwrap();
    let row: Vec<_> = waiting.lines().next().unwrap().split_whitespace().collect();
    let [at, client, id, "program", "started", ..] = row[..] else {
        panic!("{shown}");
    };
    assert_eq!(at, "1");
    assert!(client.ends_with(&format!("/{}", writer.id())), "{shown}");
    assert_eq!(id.len(), "(01234567:1),".len(), "{shown}");
}

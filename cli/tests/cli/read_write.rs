//! `--read` and `--write`.

use testkit::server::masters;

use crate::support::{Running, ended, json, until, with};

#[test]
fn readers_share_a_lock_and_a_writer_has_it_alone() {
    let masters = masters(3);
    let run = |words: &str| ended(&mut with(&masters, &format!("run -n {words} -- true")));
    let readers = ["job --read", "job --read"].map(|words| Running::hold(&masters, words));
    assert_eq!(run("--read job").0, 0);
    let (status, _, said) = run("--write job");
    assert_eq!(status, 75, "{said}");
    let (status, shown, _) = ended(&mut with(&masters, "status --json job"));
    let seen = json(&shown);
    let lock = &seen["locks"][0];
    assert_eq!(status, 75);
    assert_eq!(
        (&lock["holder"]["kind"], &lock["holder"]["access"]),
        (&"read_write".into(), &"shared".into())
    );
    assert_eq!(lock["others"].as_array().unwrap().len(), 1);
    drop(readers);

    let _writer = Running::hold(&masters, "job --write --fence");
    assert_eq!(run("--read job").0, 75);
    let (status, _, said) = run("job");
    assert_eq!(status, 78, "{said}");
    assert!(said.contains("always with --read or --write"), "{said}");
    let (_, shown, _) = ended(&mut with(&masters, "status job"));
    assert!(
        shown.contains("held as a read-write lock by a writer "),
        "{shown}"
    );
}

#[test]
fn one_lock_is_read_or_written() {
    let masters = masters(1);
    for words in [
        "--read --write",
        "--read --fair",
        "--write --fair",
        "--read --fence",
    ] {
        let (status, _, said) = ended(&mut with(&masters, &format!("run {words} job -- true")));
        assert_eq!(
            (status, said.contains("cannot be used with")),
            (64, true),
            "{said}"
        );
    }
}

#[test]
fn a_reader_that_gives_up_hears_of_the_writer_before_it() {
    let masters = masters(3);
    let _readers = ["conf --read"; 2].map(|words| Running::hold(&masters, words));
    let writer = Running::start(&mut with(&masters, "hold --write conf"));
    until("the writer waits", || {
        let (_, shown, _) = ended(&mut with(&masters, "status --json conf"));
        json(&shown)["locks"][0]["waiters"][0].is_string()
    });
    let (status, _, said) = ended(&mut with(&masters, "run -n --read conf -- true"));
    assert_eq!(status, 75, "{said}");
    assert!(said.contains("a writer waits for \"conf\""), "{said}");

    let (_, shown, _) = ended(&mut with(&masters, "status conf"));
    let (_, waiting) = shown.split_once("WAITING: 1\n").unwrap();
    let row: Vec<_> = waiting.lines().next().unwrap().split_whitespace().collect();
    let [at, client, .., id] = row[..] else {
        panic!("{shown}");
    };
    assert_eq!(at, "1");
    assert!(client.ends_with(&format!("/{}", writer.id())), "{shown}");
    assert_eq!(id.len(), "01234567:1)".len(), "{shown}");
}

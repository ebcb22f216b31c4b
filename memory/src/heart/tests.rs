//! Scripts and commands on keys alone.

use std::collections::BTreeSet;

use super::*;

const NOW: u64 = 1_700_000_000_000_000;

fn eval(keys: &mut Keyspace, script: &str) -> Ran {
    keys.eval(&Script::new(script), &["key"], &["argument"], NOW)
}

#[test]
fn a_run_tells_what_it_has_changed() {
    let mut keys = Keyspace::default();
    let none: [&[u8]; 0] = [];
    for (script, changed) in [
        ("redis.call('GET', KEYS[1])", &none[..]),
        ("redis.call('SET', KEYS[1], 1)", &[b"key"]),
        ("redis.call('SET', KEYS[1], 1, 'NX')", &none),
        ("redis.call('DEL', 'none', KEYS[1])", &[b"key"]),
        (
            "redis.call('HSET', 'b', 'f', 1) redis.call('HSET', 'a', 'f', 1)",
            &[b"b", b"a"],
        ),
        ("redis.call('HDEL', 'a', 'none')", &none),
        (
            "redis.call('ZADD', 'z', 1, 'm') redis.call('ZADD', 'z', 1, 'm')",
            &[b"z"],
        ),
        ("redis.call('PEXPIRE', 'z', 9) error('too late')", &[b"z"]),
    ] {
        assert_eq!(eval(&mut keys, script).changed, changed, "{script}");
    }
    let ran = eval(&mut keys, "return redis.call('PUBLISH', KEYS[1], ARGV[1])");
    assert_eq!(ran.reply, Reply::Int(0));
    assert_eq!(ran.published, [(b"key".to_vec(), b"argument".to_vec())]);
}

#[test]
fn keys_that_are_the_same_are_equal() {
    let states = [
        "redis.call('SET', 'a', 1) redis.call('SET', 'b', 2)",
        "redis.call('SET', 'b', 2) redis.call('SET', 'a', 1)",
        "redis.call('SET', 'b', 2) redis.call('SET', 'a', 1) redis.call('HSET', 'h', 'f', 1) redis.call('HDEL', 'h', 'f')",
        "redis.call('SET', 'a', 1, 'PX', 5) redis.call('SET', 'b', 2)",
        "redis.call('ZADD', 'a', 0, 'm')",
        "redis.call('ZADD', 'a', '-0', 'm')",
        "redis.call('ZADD', 'a', 1, 'm')",
    ]
    .map(|script| {
        let mut keys = Keyspace::default();
        eval(&mut keys, script);
        keys
    });
    let sorted: BTreeSet<_> = states.iter().collect();
    let hashed: std::collections::HashSet<_> = states.iter().collect();
    assert_eq!((sorted.len(), hashed.len()), (4, 4));
}

#[test]
fn a_key_lives_until_the_end_of_its_last_millisecond() {
    let mut keys = Keyspace::default();
    keys.run(&["SET", "a", "1", "PX", "60"], NOW + 999);
    assert_eq!(keys.pttl("a", NOW + 60_999), 0);
    assert!(keys.value("a", NOW + 60_999).is_some());
    assert_eq!(keys.pttl("a", NOW + 61_000), -2);
    assert_eq!(keys.names(NOW + 61_000).count(), 0);
    let mut other = keys.clone();
    let ran = other.run(&["HSET", "a", "f", "1"], NOW + 61_000);
    assert_eq!(ran.reply, Reply::Int(1));
    assert_eq!(other.pttl("a", NOW + 61_000), -1);
    let ran = keys.run(&["SET", "a", "2", "NX"], NOW + 61_000);
    assert_eq!(ran.reply, Reply::Status("OK".into()));
    let ran = keys.run(&["HSET", "a", "f", "1"], NOW + 61_000);
    assert!(matches!(ran.reply, Reply::Error(error) if error.starts_with("WRONGTYPE")));
}

#[test]
fn a_script_leaves_nothing_for_the_next_one() {
    let mut keys = Keyspace::default();
    eval(&mut keys, "KEYS[3] = 'mine' ARGV = {'mine'}");
    let ran = eval(&mut keys, "return {KEYS[1], ARGV[1], #KEYS, #ARGV}");
    let text = |text: &str| Reply::Bulk(text.into());
    let expected = [text("key"), text("argument"), Reply::Int(1), Reply::Int(1)];
    assert_eq!(ran.reply, Reply::Array(expected.to_vec()));
    // A script that fails does not spoil the keys, nor the interpreter.
    let ran = eval(&mut keys, "redis.call('SET', 'a', 1) return nil .. 'x'");
    assert!(matches!(ran.reply, Reply::Error(_)));
    assert_eq!(keys.names(NOW).count(), 1);
}

#[test]
fn a_scan_misses_no_key_while_others_are_deleted() {
    let mut keys = Keyspace::default();
    for number in 0..100 {
        keys.run(&["SET", &format!("key:{number}"), "1"], NOW);
    }
    let (mut cursor, mut pages) = (b"0".to_vec(), 0);
    loop {
        let reply = keys.run(&[b"SCAN", &*cursor, b"COUNT", b"10"], NOW).reply;
        let Reply::Array(parts) = reply else {
            panic!("{reply:?}");
        };
        let [Reply::Bulk(next), Reply::Array(names)] = &*parts else {
            panic!("{parts:?}");
        };
        for name in names {
            let Reply::Bulk(name) = name else {
                panic!("{name:?}");
            };
            keys.run(&[b"DEL", &**name], NOW);
        }
        (cursor, pages) = (next.clone(), pages + 1);
        if cursor == b"0" {
            break;
        }
    }
    assert_eq!(keys.names(NOW).count(), 0);
    assert!((10..=100).contains(&pages), "{pages}");
}

/// A server returns an error, too, but only at a greater depth.
#[test]
fn a_table_that_contains_itself_ends_in_an_error() {
    let ran = eval(&mut Keyspace::default(), "local t = {} t[1] = t return t");
    let (mut reply, mut depth) = (&ran.reply, 0);
    while let Reply::Array(items) = reply {
        (reply, depth) = (&items[0], depth + 1);
    }
    let error = "ERR reached lua stack limit".to_owned();
    assert_eq!((reply, depth), (&Reply::Error(error), 129));
}

#[test]
fn commands_of_connections_fail_on_keys() {
    let mut keys = Keyspace::default();
    for words in [
        &["HELLO", "3"][..],
        &["SUBSCRIBE", "c"],
        &["CLIENT", "GETNAME"],
        &["QUIT"],
    ] {
        let ran = keys.run(words, NOW);
        let error = "ERR this command needs a connection".to_owned();
        assert_eq!(ran.reply, Reply::Error(error), "{words:?}");
    }
}

#[test]
fn keys_that_have_expired_do_not_pile_up() {
    let mut server = Server::new("test", Version::default());
    server.run(&["SET", "a", "1"], NOW);
    for number in 0..10_000 {
        let key = format!("key:{number}");
        server.run(&["SET", &key, "1", "PX", "1"], NOW + 10_000 * number);
    }
    let count = server.snapshot()[&0].entries.len();
    assert!(count <= 1_010, "{count} keys, of which 2 are alive");
    assert_eq!(server.run(&["EXISTS", "a"], NOW), Reply::Int(1));
}

/// A command may arrive twice, or after its connection has ended.
#[test]
fn a_command_without_a_connection_runs_and_is_not_answered() {
    let mut server = Server::new("test", Version::default());
    let number = server.connect();
    server.receive(number, b"HELLO 3\r\nCLIENT TRACKING ON\r\nGET a\r\n", NOW);
    server.outputs();
    assert_eq!(server.execute(99, &["INCR", "a"], NOW), Reply::Int(1));
    let pushed = server.outputs();
    assert_eq!(pushed.keys().copied().collect::<Vec<_>>(), [number]);
    server.close(number);
    assert_eq!(server.execute(number, &["INCR", "a"], NOW), Reply::Int(2));
    assert!(server.outputs().is_empty());
    server.refuse_with(Some("READONLY no"));
    let refused = server.execute(number, &["INCR", "a"], NOW);
    assert_eq!(refused, Reply::Error("READONLY no".into()));
    assert_eq!(server.commands(), 4);
}

//! A server in memory and real servers, since Redis 7.0, answer the same bytes with the same bytes.

#![allow(clippy::unwrap_used, reason = "a failed test ends")]

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, SystemTime},
};

use quorlock_memory::{
    Version,
    heart::{Reply, Server},
};
use testkit::server;

/// Lists of rows of commands. The commands of one row are sent at once. All keys are deleted before
/// each list.
const ROWS: &[&[&str]] = &[
    // Strings.
    &[
        "GET none",
        "SET a 1",
        "GET a",
        "SET a 2 NX",
        "SET a 2 XX GET",
        "SET b 2 XX",
        "GET b",
        "SET b 3 GET",
        "SET b x NX GET",
        "SET a 1 PX",
        "SET a 1 PX 0",
        "SET a 1 PX x",
        "SET a 1 NX XX",
        "SET a 1 NX NX",
        "SET a 1 XX XX",
        "SET a 1 EX 10 PX 10",
        "SET a 1 EX 100",
        "~TTL a",
        "~PTTL a",
        "SET a 2 KEEPTTL",
        "~PTTL a",
        "SET a 2",
        "PTTL a",
        "TTL none",
        "SET a x IFX",
        "~PTTL a",
        "GET a",
        "SETEX a 100 y",
        "~TTL a",
        "GET a",
        "SETEX a 0 z",
        "SETEX a x z",
        "SETEX a 9223372036854775807 z",
        "SETEX a 1",
        "GET a",
        "SETNX a 1",
        "SETNX a 2",
        "~PTTL a",
        "MGET a b none",
        "GET a",
        "INCR n",
        "INCRBY n 41",
        "DECR n",
        "SET n x",
        "INCR n",
        "INCRBY n x",
        "SET n 9223372036854775807",
        "INCR n",
        "SET n ' 1'",
        "INCR n",
        "SET n '+1'",
        "INCR n",
        "SET n 007",
        "INCR n",
        "SET n -0",
        "INCR n",
        "INCRBY n 01",
        "SET",
        "GET",
        "GET a b",
        "get a",
        "NOSUCH a 'b c'",
        "SET a ''",
        "GET a",
        "DEL a",
        "HSET h f v",
        "GET h",
        "INCR h",
        "MGET h",
        "SET h 1 GET",
        "SET h 1",
        "TYPE h",
        "HSET s f v",
        "SETEX s 100 1",
        "~PTTL s",
    ],
    // Keys of any type.
    &[
        "SET a 1",
        "HSET h f v",
        "ZADD z 1 m",
        "TYPE a",
        "TYPE h",
        "TYPE z",
        "TYPE none",
        "EXISTS a h a none",
        "DEL none",
        "DEL a none h",
        "UNLINK z",
        "DBSIZE",
        "SET a 1",
        "PEXPIRE none 1000",
        "PEXPIRE a 100000",
        "~PTTL a",
        "EXPIRE a 100",
        "~TTL a",
        "~TTL a",
        "EXPIRE a x",
        "EXPIRE a 9223372036854775807",
        "~PTTL a",
        "EXISTS a",
        "SET a 1",
        "EXPIRE a 0",
        "EXISTS a",
        "SET a 1",
        "PEXPIRE a -5",
        "GET a",
        "SET k:1 1",
        "KEYS a*",
        "KEYS nope",
        "SCAN 0",
        "SCAN 0 MATCH x*",
        "SCAN x",
        "SCAN 0 COUNT 0",
        "SCAN 0 WHAT",
        "FLUSHALL",
        "DBSIZE",
        "EXPIRE",
        "PING",
        "PING hi",
        "ECHO hi",
        "PING a b",
        "SELECT 1",
        "SET a one",
        "SELECT 0",
        "GET a",
        "SELECT 1",
        "GET a",
        "FLUSHALL",
        "GET a",
        "SET a one",
        "SELECT 0",
        "SET a zero",
        "EVAL 'redis.call(\"FLUSHALL\") return redis.call(\"SET\", KEYS[1], 1)' 1 b",
        "KEYS *",
        "SELECT 1",
        "DBSIZE",
        "SET a one",
        "FLUSHDB WHAT",
        "FLUSHDB SYNC SYNC",
        "FLUSHALL WHAT",
        "DBSIZE",
        "FLUSHDB",
        "DBSIZE",
        "SELECT 0",
        "KEYS *",
        "FLUSHDB async",
        "FLUSHALL sync",
        "SELECT 16",
        "SELECT x",
    ],
    // Hashes.
    &[
        "HSET h a 1 b 2",
        "HSET h a 3",
        "HSET h a",
        "HSET h a 1 b",
        "HGET h a",
        "HGET h none",
        "HGET none a",
        "HMGET h a none b",
        "HMGET none a",
        "HGETALL h",
        "HGETALL none",
        "HLEN h",
        "HLEN none",
        "HEXISTS h a",
        "HEXISTS h x",
        "HDEL h x",
        "HDEL h a x",
        "HDEL h b",
        "EXISTS h",
        "HDEL none x",
        "HSET h a x",
        "SET t 1",
        "HGET t a",
        "HSET t a 1",
        "HDEL t a",
        "HGETALL t",
        "HLEN t",
        "HMGET t a",
    ],
    // Sorted sets.
    &[
        "ZADD z 1 a",
        "ZADD z 1 a 2 b",
        "ZADD z 5 a",
        "ZADD z x a",
        "ZADD z nan a",
        "ZADD z 1",
        "ZADD z 1 a 2",
        "ZSCORE z a",
        "ZSCORE z none",
        "ZSCORE none a",
        "ZADD z 1.5 half",
        "ZSCORE z half",
        "ZADD z 1e20 much",
        "ZSCORE z much",
        "ZREM z much",
        "ZADD z inf last",
        "ZSCORE z last",
        "ZADD z 1700000000000 t",
        "ZSCORE z t",
        "ZRANGE z 0 -1",
        "ZRANGE z 0 0",
        "ZRANGE z 1 2 WITHSCORES",
        "ZRANGE z -2 -1",
        "ZRANGE z 5 1",
        "ZRANGE z 0 999",
        "ZRANGE z 0 -100",
        "ZRANGE z -100 1",
        "ZRANGE z 0 1 WHAT",
        "ZRANGE z x 1",
        "ZRANGE none 0 -1",
        "ZRANK z a",
        "ZRANK z t",
        "ZRANK z none",
        "ZCARD z",
        "ZCARD none",
        "ZREM z none",
        "ZREM z a half none",
        "ZRANGE z 0 -1",
        "ZREM z last t",
        "EXISTS z",
        "ZREM none a",
        "ZADD l 0 a 0 b 0 c",
        "ZLEXCOUNT l - +",
        "ZLEXCOUNT l - (c",
        "ZLEXCOUNT l [b +",
        "ZLEXCOUNT l (b (c",
        "ZLEXCOUNT l + -",
        "ZLEXCOUNT l - -",
        "ZLEXCOUNT l a b",
        "SET t 1",
        "ZADD t 1 a",
        "ZSCORE t a",
        "ZREM t a",
        "ZRANGE t 0 1",
        "ZCARD t",
        "ZLEXCOUNT t - +",
        "ZRANK t a",
    ],
    // Scripts: values.
    &[
        "EVAL 'return 1' 0",
        "EVAL 'return 1.9' 0",
        "EVAL 'return -1.9' 0",
        "EVAL 'return nil' 0",
        "EVAL 'return false' 0",
        "EVAL 'return true' 0",
        "EVAL 'return \"text\"' 0",
        "EVAL 'return {1, 2, {3, \"x\"}}' 0",
        "EVAL 'return {1, nil, 3}' 0",
        "EVAL 'local all = 1 for _ = 1, 128 do all = {all} end return all' 0",
        "EVAL 'return {ok = \"fine\"}' 0",
        "EVAL 'return {ok = \"a\\r\\n+b\"}' 0",
        "EVAL 'return {err = \"ERR mine\"}' 0",
        "EVAL 'return redis.error_reply(\"ERR own\")' 0",
        "EVAL 'return redis.error_reply(\"MYERR\")' 0",
        "EVAL 'return redis.error_reply(\"-MYERR\")' 0",
        "EVAL 'return redis.error_reply(\"-MY ERR\")' 0",
        "EVAL 'return redis.status_reply(\"own\")' 0",
        "EVAL 'return {}' 0",
        "EVAL 'return KEYS[1] .. ARGV[1] .. #KEYS .. #ARGV' 1 a b c",
        "EVAL 'return KEYS[2]' 1 a",
        "EVAL 'return redis.sha1hex(\"\")' 0",
        "EVAL 'return' x",
        "EVAL 'return' -1",
        "EVAL 'return' 1",
        "EVAL 'return #ARGV' 0",
        "EVAL 'return tonumber(\"0x10\")' 0",
        "EVAL 'return string.format(\"%.0f\", 2^53)' 0",
        "EVAL 'return ARGV[1]' 0 'a\nb'",
        "EVAL 'return redis.call(\"SET\", \"n\", 1700000000000)' 0",
        "GET n",
        "EVAL 'return redis.call(\"SET\", \"n\", 2^53)' 0",
        "GET n",
        "EVAL 'return redis.call(\"INCRBY\", KEYS[1], 1)' 1 n",
        "EVAL 'return type(redis.call(\"GET\", \"none\"))' 0",
        "EVAL 'return redis.call(\"SET\", \"a\", \"x\").ok' 0",
        "EVAL 'return redis.call(\"SET\", \"a\", \"x\", \"NX\")' 0",
        "EVAL 'redis.call(\"HSET\", \"h\", \"f\", 1) return redis.call(\"HGETALL\", \"h\")' 0",
        "EVAL 'redis.call(\"ZADD\", \"z\", 1.5, \"m\") return redis.call(\"ZSCORE\", \"z\", \"m\")' 0",
        "EVAL 'return redis.call(\"ZRANGE\", \"z\", 0, -1, \"WITHSCORES\")' 0",
        "EVAL 'return redis.call(\"TYPE\", \"z\")' 0",
        "EVAL 'return redis.call(\"TYPE\", \"z\").ok' 0",
        "EVAL 'return redis.call(\"HMGET\", \"h\", \"f\", \"g\")' 0",
        "EVAL 'return redis.call(\"SCAN\", \"0\", \"MATCH\", \"z\")' 0",
        "EVAL 'return redis.call(\"PUBLISH\", \"c\", \"m\")' 0",
        "EVAL 'return redis.acl_check_cmd(\"GET\", \"a\") and 1 or 0' 0",
    ],
    // Scripts: errors.
    &[
        "SET t 1",
        "EVAL 'return redis.call(\"HGET\", \"t\", \"f\")' 0",
        "EVAL 'return redis.pcall(\"HGET\", \"t\", \"f\")' 0",
        "EVAL 'return redis.pcall(\"HGET\", \"t\", \"f\").err' 0",
        "EVAL 'local ok, e = pcall(redis.call, \"HGET\", \"t\", \"f\") return e.err' 0",
        "EVAL 'return redis.call(\"NOSUCH\")' 0",
        "EVAL 'return redis.call(\"GET\")' 0",
        "EVAL 'return redis.call()' 0",
        "EVAL 'return redis.call(\"SUBSCRIBE\", \"c\")' 0",
        "EVAL 'return redis.call(\"GET\", {})' 0",
        "EVAL 'return nil + 1' 0",
        "EVAL 'return theirs' 0",
        "EVAL 'mine = 1' 0",
        "EVAL 'return print' 0",
        "EVAL 'error(\"mine\")' 0",
        "EVAL 'error({err = \"ERR mine\"})' 0",
        "EVAL 'return (' 0",
        "EVAL 'redis.call(\"SET\", \"half\", 1) error(\"x\")' 0",
        "GET half",
        "EVALSHA 0000000000000000000000000000000000000000 0",
        "SCRIPT LOAD 'return 7'",
        "EVALSHA ad7d9ff3c81a2bb5db9a1d7d7ebd3f2ea7f0ea1b 0",
        "SCRIPT LOAD 'return ('",
        "SCRIPT EXISTS none 83a1b8ad6ad2bd9a1ab4dd8a3f67ec0d8cbcbff1",
        "SCRIPT EXISTS",
        "SCRIPT FLUSH FOO",
        "SCRIPT FLUSH SYNC SYNC",
        "SCRIPT FLUSH ASYNC",
        "SCRIPT FLUSH",
        "SCRIPT NOSUCH",
        "SCRIPT LOAD",
        "EVAL 'return 8' 0",
        "EVALSHA fe9b1ea59a2b8fc3a6a2a1bdb7b4af8b4b83a7ab 0",
    ],
    // Settings.
    &[
        "CONFIG GET appendfsyncx",
        "CONFIG SET maxmemory-policy noeviction",
        "CONFIG GET maxmemory-policy",
        "CONFIG GET",
        "CONFIG NOSUCH",
        "CONFIG SET",
        "CONFIG SET nope 1",
        "CLIENT SETNAME a",
        "CLIENT GETNAME",
        "CLIENT SETNAME 'a b'",
        "CLIENT NOSUCH",
        "CLIENT SETNAME",
        "AUTH x",
        "AUTH default x",
        "AUTH nobody x",
        "HELLO 4",
        "HELLO x",
        "HELLO 2 WHAT",
        "CLIENT CACHING YES",
        "CLIENT KILL ID x",
        "CLIENT KILL ID 0",
        "CLIENT KILL ID 99999",
    ],
];

/// Commands that only some versions know.
const OF_VERSIONS: &[&str] = &[
    "SET a 1",
    "DELEX",
    "DELIFEQ",
    "DELEX a IFEQ 2",
    "DELEX a IFEQ 1",
    "DELEX a IFEQ 1",
    "HSET h f 1",
    "DELEX h IFEQ 1",
    "DELIFEQ h 1",
    "SET b 1",
    "DELIFEQ b 2",
    "DELIFEQ b 1",
    "DELIFEQ b 1",
];

/// Rows for clients of RESP3.
const PUSHES: &[&[&str]] = &[
    &["PUBLISH c m", "SUBSCRIBE", "SUBSCRIBE c; UNSUBSCRIBE"],
    &[
        "SUBSCRIBE c d",
        "PUBLISH c m",
        "SUBSCRIBE c",
        "EVAL 'return redis.call(\"PUBLISH\", \"d\", \"x\")' 0",
        "UNSUBSCRIBE c",
        "PUBLISH c m",
        "UNSUBSCRIBE",
        "PUBLISH d m",
    ],
    &[
        "CLIENT TRACKING ON OPTIN",
        "SET a 1",
        "GET a",
        "SET a 2",
        "CLIENT CACHING YES; GET a",
        "SET a 3",
        "SET a 4",
        "CLIENT CACHING YES; PING; GET a",
        "SET a 5",
        "CLIENT CACHING YES; CLIENT GETNAME; GET a",
        "DEL a",
        "DEL a",
        "CLIENT CACHING YES; GET none",
        "SET none 1",
        "CLIENT CACHING YES; SET b 1",
        "SET b 2",
        "CLIENT CACHING YES; EXISTS b c; SET c 1",
        "SET b 3",
        "SET b 4",
        "CLIENT CACHING YES; PTTL b",
        "PEXPIRE b 100000",
        "CLIENT CACHING YES; HGETALL h",
        "HSET h f 1",
        "CLIENT CACHING YES; HLEN h",
        "HDEL h x",
        "HDEL h f",
        "CLIENT CACHING YES; ZRANGE z 0 0",
        "ZADD z 1 m",
        "CLIENT CACHING YES; ZSCORE z m",
        "ZADD z 1 m",
        "ZADD z 2 m",
        "CLIENT CACHING YES; GET b",
        "FLUSHALL",
        "SET b 1",
        "CLIENT CACHING YES; GET b",
        "FLUSHDB",
        "SET b 1",
        "CLIENT CACHING YES; EVAL 'return redis.call(\"GET\", KEYS[1])' 1 b",
        "SET b 2",
        "CLIENT CACHING YES; EVAL 'redis.call(\"GET\", KEYS[1]) redis.call(\"SET\", KEYS[1], 1)' 1 b",
        "SET b 3",
        "CLIENT CACHING YES; EVAL 'return redis.call(\"SET\", KEYS[1], 1, \"NX\")' 1 b",
        "SET b 4",
        "CLIENT CACHING YES; SET b 5 NX",
        "SET b 6",
        "CLIENT TRACKING OFF",
        "CLIENT CACHING YES",
        "CLIENT TRACKING WHAT",
    ],
    &[
        "CLIENT TRACKING ON",
        "GET a",
        "SET a 1",
        "SET a 2",
        "GET a",
        "FLUSHALL",
        "SET a 1",
    ],
];

const MARK: &[u8] = b"$6\r\n<mark>\r\n";

fn mark_in(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MARK.len()).position(|part| part == MARK)
}

/// A client that sends bytes, and gets those that come back until the answer to a marker.
enum Client {
    Memory(Box<Server>, u64),
    Real(TcpStream),
}

impl Client {
    fn ask(&mut self, row: &str) -> String {
        let mut sent = Vec::new();
        for command in row.split("; ").chain(["ECHO <mark>"]) {
            let words = words(command);
            write!(sent, "*{}\r\n", words.len()).unwrap();
            for word in words {
                write!(sent, "${}\r\n{word}\r\n", word.len()).unwrap();
            }
        }
        let mut got = match self {
            Self::Memory(server, number) => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                server.receive(*number, &sent, now.unwrap().as_micros() as u64);
                server.outputs().remove(number).unwrap_or_default()
            }
            Self::Real(stream) => {
                stream.write_all(&sent).unwrap();
                let (mut got, mut bytes) = (Vec::new(), [0; 4096]);
                while mark_in(&got).is_none() {
                    let count = stream.read(&mut bytes).unwrap();
                    assert!(count > 0, "the server has closed the connection");
                    got.extend_from_slice(&bytes[..count]);
                }
                got
            }
        };
        let at = mark_in(&got).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&got)));
        got.drain(at..at + MARK.len()); // a push may have come after it
        String::from_utf8(got).unwrap()
    }
}

/// Splits a command at its blanks. A word with blanks is in quotation marks.
fn words(command: &str) -> Vec<String> {
    let parts = command.trim_start_matches('~').split('\'').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// Returns the answer without what may differ: the place of an error in a script, a note on the
/// arguments of an unknown command that has none, and for rows with `~`, up to five seconds. Some
/// servers have other errors, of which only the first word counts.
fn alike(row: &str, answer: &str, has_other_errors: bool) -> String {
    let lines = answer.split_inclusive("\r\n").map(|line| {
        let cut = match line.strip_prefix('-') {
            Some(error) if has_other_errors => error.find(' '),
            Some(error) => error.find(" script: "),
            None => None,
        };
        let line = cut.map_or(line, |at| &line[..=at]).trim_end();
        let line = line
            .strip_suffix(", with args beginning with:")
            .unwrap_or(line);
        match line.strip_prefix(':') {
            Some(number) if row.starts_with('~') && !number.starts_with('-') => {
                let (number, unit) = (
                    number.parse::<u64>().unwrap(),
                    if row.contains("PTTL") { 10_000 } else { 10 },
                );
                format!("about {}", (number + unit / 2) / unit)
            }
            _ => line.to_owned(),
        }
    });
    let mut lines: Vec<_> = lines.collect();
    // Versions differ in which comes first, a reply or a push to the same connection.
    if answer.contains("\r\ninvalidate\r\n") || answer.contains("\r\nmessage\r\n") {
        lines.sort();
    }
    lines.join(" ")
}

fn compare(program: Option<&std::path::Path>, version: Version, has_other_errors: bool) {
    let real = program.map_or_else(server::Server::start, server::Server::start_version);
    let mut found = Vec::new();
    let lists = ["2", "3"].map(|protocol| ROWS.iter().map(move |rows| (rows, protocol)));
    let lists = lists
        .into_iter()
        .flatten()
        .chain(program.map(|_| (&OF_VERSIONS, "2")));
    for (rows, protocol) in lists.chain(PUSHES.iter().map(|rows| (rows, "3"))) {
        let has_other_errors = has_other_errors && *rows != OF_VERSIONS;
        let stream = TcpStream::connect(("127.0.0.1", real.port())).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let mut memory = Server::new("conformance", version);
        let number = memory.connect();
        let mut clients = [
            Client::Real(stream),
            Client::Memory(Box::new(memory), number),
        ];
        for client in &mut clients {
            client.ask(&format!("FLUSHALL; HELLO {protocol}"));
        }
        for row in *rows {
            let [real, memory] = clients.each_mut().map(|client| {
                let answer = client.ask(row);
                alike(row, &answer, has_other_errors)
            });
            if real != memory {
                found.push(format!(
                    "RESP{protocol} {row}\n    real:   {real}\n    memory: {memory}"
                ));
            }
        }
    }
    assert!(
        found.is_empty(),
        "{}\n{} differ",
        found.join("\n"),
        found.len()
    );
}

#[test]
fn the_server_at_hand_replies_alike() {
    compare(None, Version::Redis7, true);
}

macro_rules! versions {
    ($($test:ident: $program:literal, $version:ident, $has_other_errors:literal;)*) => { $(
        #[test]
        fn $test() {
            if let Some(program) = server::version($program) {
                compare(Some(&program), Version::$version, $has_other_errors);
            }
        }
    )* };
}

versions! {
    redis_7_0_replies_alike: "redis-7.0", Redis7, true;
    redis_8_0_replies_alike: "redis-8.0", Redis7, false;
    redis_8_6_replies_alike: "redis-8.6", Redis8, false;
    valkey_8_0_replies_alike: "valkey-8.0", Redis7, true;
    valkey_8_1_replies_alike: "valkey-8.1", Redis7, true;
    valkey_9_1_replies_alike: "valkey-9.1", Valkey9, true;
}

#[test]
fn a_key_that_expires_is_pushed_like_on_a_server() {
    let mut memory = Server::new("conformance", Version::default());
    let connection = memory.connect();
    let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.unwrap_or_default()).unwrap();
    memory.receive(
        connection,
        b"HELLO 3\r\nCLIENT TRACKING ON\r\nSET a 1 PX 50\r\nGET a\r\n",
        0,
    );
    memory.outputs();
    assert_eq!(memory.next_expiry(connection), Some(51_001));
    memory.expire(50_999);
    assert_eq!(text(memory.outputs().remove(&connection)), "");
    memory.expire(51_000);
    let push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n";
    assert_eq!(text(memory.outputs().remove(&connection)), push);
    assert_eq!(memory.run(&["GET", "a"], 51_000), Reply::Nil);

    let real = server::Server::start();
    let stream = TcpStream::connect(("127.0.0.1", real.port())).unwrap();
    let mut real = Client::Real(stream);
    real.ask("HELLO 3; CLIENT TRACKING ON; SET a 1 PX 50; GET a");
    let mut got = String::new();
    while got.is_empty() {
        got = real.ask("PING").replace("+PONG\r\n", "");
    }
    assert_eq!(got, push);
}

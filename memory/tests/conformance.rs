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

/// Lists of rows of commands, each with a heading. The commands of one row are sent at once. All
/// keys are deleted before each list. `␤` stands for a line feed.
const ROWS: &str = include_str!("rows.txt");

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
    let lists = ROWS.split("# ").skip(1).flat_map(|list| {
        let (heading, rows) = list.split_once('\n').unwrap();
        let is_of_versions = heading == "Commands that only some versions know.";
        let protocols: &[_] = match heading.starts_with("Clients of RESP3") {
            true => &["3"],
            false if !is_of_versions => &["2", "3"],
            false if program.is_some() => &["2"],
            false => &[],
        };
        let protocols = protocols.iter();
        protocols.map(move |protocol| (rows, is_of_versions, protocol))
    });
    for (rows, is_of_versions, protocol) in lists {
        let has_other_errors = has_other_errors && !is_of_versions;
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
        for row in rows.lines().filter(|row| !row.is_empty()) {
            let row = &row.replace('␤', "\n");
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

//! The answers of good servers, and answers that no server gives.

/// The reply of a good master on which every lock is free. An inspection gets `1`, which is not a
/// valid reply.
pub fn honest(words: &[Vec<u8>]) -> Vec<u8> {
    if let Some(reply) = greeting(words) {
        return reply;
    }
    match words[0].as_slice() {
        b"SET" => b"+OK\r\n".to_vec(),
        b"EVAL" | b"EVALSHA" => b":1\r\n".to_vec(),
        b"SUBSCRIBE" => subscription("subscribe", &words[1]),
        b"UNSUBSCRIBE" => subscription("unsubscribe", &words[1]),
        b"CONFIG" => b"%0\r\n".to_vec(),
        _ => b"+OK\r\n".to_vec(),
    }
}

/// The reply to a command of the greeting, or `None` for any other command.
pub fn greeting(words: &[Vec<u8>]) -> Option<Vec<u8>> {
    match words[0].as_slice() {
        b"HELLO" => Some(b"%2\r\n+role\r\n+master\r\n+proto\r\n:3\r\n".to_vec()),
        b"SELECT" | b"AUTH" | b"CLIENT" => Some(b"+OK\r\n".to_vec()),
        b"DELEX" | b"DELIFEQ" => Some(b"-ERR unknown command\r\n".to_vec()),
        _ => None,
    }
}

/// A server's confirmation of a changed subscription in RESP3.
pub fn subscription(what: &str, channel: &[u8]) -> Vec<u8> {
    let mut reply =
        format!(">3\r\n${}\r\n{what}\r\n${}\r\n", what.len(), channel.len()).into_bytes();
    reply.extend_from_slice(channel);
    reply.extend_from_slice(b"\r\n:1\r\n");
    reply
}

/// A value in `depth` collections of one `kind`, each of which claims to have one entry.
pub fn nested(kind: u8, depth: usize) -> Vec<u8> {
    [&[kind, b'1', b'\r', b'\n'].repeat(depth)[..], b":1\r\n"].concat()
}

pub const NO_SCRIPT: &[u8] = b"-NOSCRIPT No matching script. Please use EVAL.\r\n";

/// Returns the answers under this heading of the table: `Replies`, `Errors`, `Huge` (which announce
/// more than they have), or `Pushes`.
pub fn answers(heading: &str) -> Vec<Vec<u8>> {
    let mut lists = include_str!("answers.txt").split("# ");
    let list = lists.find_map(|list| list.strip_prefix(heading)).unwrap();
    let lines = list.trim_end().lines().skip(1);
    let answers = lines.map(|line| line.replace("\\r\\n", "\r\n").into_bytes());
    answers.collect()
}

pub const CHANNELS: &[&[u8]] = &[
    b"x",
    b"redisson_lock__channel:{n0}",
    b"redisson_lock__channel:{n1}",
    b"",
];

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

pub const REPLIES: &[&[u8]] = &[
    b"+OK\r\n",
    b":1\r\n",
    b":0\r\n",
    b":-5\r\n",
    b":9223372036854775807\r\n",
    b":-9223372036854775808\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"_\r\n",
    b"*0\r\n",
    b"%0\r\n",
    b"#t\r\n",
    b",inf\r\n",
    b"(3492890328409238509324850943850943825024385\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"!11\r\nERR unknown\r\n",
    b"~2\r\n:1\r\n:2\r\n",
    b"|1\r\n+a\r\n+b\r\n:1\r\n",
    b"$0\r\n\r\n",
    b"$6\r\nqueued\r\n",
    b"$8\r\nqueued 1\r\n",
    b"$20\r\nheld 5000 1 1 nobody\r\n",
    b"$4\r\nkind\r\n",
    b"$22\r\nskew 1700000000000000 \r\n",
    b"$21\r\nskew 1700000000000000\r\n",
    b"$8\r\nstale 99\r\n",
    b"$25\r\nstale 9223372036854775807\r\n",
    b"+QUEUED\r\n",
    b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n",
    b"*3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n0\r\n",
];

pub const ERRORS: &[&[u8]] = &[
    b"-ERR no\r\n",
    b"-BUSY Redis is busy running a script.\r\n",
    b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    b"-READONLY You can't write against a read only replica.\r\n",
    b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-NOREPLICAS Not enough good replicas to write.\r\n",
    b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
    b"-NOPERM this user has no permissions\r\n",
    b"-MOVED 1 127.0.0.1:1\r\n",
    b"-\r\n",
    b"-NOSCRIPT\r\n",
];

pub const HUGE: &[&[u8]] = &[
    b"$16777215\r\n",
    b"$99999999999\r\n",
    b"*16777215\r\n",
    b"%16777215\r\n",
    b"*9223372036854775807\r\n",
    b"$18446744073709551615\r\n",
    b"$-2\r\n",
    b"*-99\r\n",
    b"%9223372036854775807\r\n",
    b"|9223372036854775807\r\n",
    b":99999999999999999999999999\r\n",
];

pub const PUSHES: &[&[u8]] = &[
    b">0\r\n",
    b">1\r\n+invalidate\r\n",
    b">2\r\n+invalidate\r\n_\r\n",
    b">2\r\n+invalidate\r\n*1\r\n$1\r\nx\r\n",
    b">3\r\n+message\r\n:1\r\n:2\r\n",
    b">3\r\n+subscribe\r\n_\r\n:1\r\n",
    b">2\r\n+subscribe\r\n+x\r\n",
    b">-1\r\n",
    b">1\r\n:1\r\n",
    b">4\r\n+pmessage\r\n+x\r\n+y\r\n+z\r\n",
];

pub const CHANNELS: &[&[u8]] = &[
    b"x",
    b"redisson_lock__channel:{n0}",
    b"redisson_lock__channel:{n1}",
    b"",
];

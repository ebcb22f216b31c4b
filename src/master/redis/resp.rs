//! Parses the part of RESP that the replies to lock commands need.
//!
//! [`FrameScan`] finds the end of any RESP2 or RESP3 value. [`reply`] reads single values: `+OK`,
//! nil, integers, strings and errors. The `redis` crate reads maps, arrays and pushes.
//!
//! The `redis` crate's parser is not used for lock commands, for two reasons. It returns an owned
//! `Value`, which allocates for strings and errors, but a reply must cost no allocation. It does
//! not say where the value ends, but one buffer may hold many replies.

use std::{borrow::Cow, io};

use crate::core::protocol::Reply;

/// Reads the reply to a lock command.
pub(crate) fn reply(frame: &[u8]) -> Reply<'_> {
    let Some((kind, line)) = frame
        .strip_suffix(b"\r\n")
        .and_then(|line| line.split_first())
    else {
        return Reply::Other;
    };
    match (kind, line) {
        (b'+', b"OK") => Reply::Ok,
        (b'_', b"") | (b'$' | b'*', b"-1") => Reply::Nil,
        (b':', digits) => integer(digits).map_or(Reply::Other, Reply::Int),
        (b'-', text) => Reply::Error(error(text)),
        (b'!', text) => blob(text).map_or(Reply::Other, |text| Reply::Error(error(text))),
        (b'$', text) => blob(text).map_or(Reply::Other, |text| Reply::Text(readable(text))),
        _ => Reply::Other,
    }
}

/// Returns the first sentence of an error reply. Errors are shown and logged for each master, so
/// they must be short. Further sentences give advice, or name the line of a script.
///
/// Leaves out the arguments of the command. A server repeats them if it does not know the command,
/// and an argument may be a password or a token.
fn error(text: &[u8]) -> Cow<'_, str> {
    /// At most this many bytes of an error are kept.
    const MOST: usize = 512;
    let is_end = |rest: &[u8]| rest.starts_with(b", with args") || rest.starts_with(b". ");
    // If an error of the crate's own scripts is about a key, the error is one sentence. The key in
    // it may contain any text, so no end is searched for.
    let is_of_key = text.starts_with(b"ERR the key ");
    let end = (0..text.len()).find(|at| !is_of_key && is_end(&text[*at..]));
    let text = &text[..end.unwrap_or(text.len()).min(MOST)];
    readable(text.strip_suffix(b".").unwrap_or(text))
}

/// Returns `text`, which may come from another program. Bytes that are not UTF-8 are escaped, as in
/// `\xff`.
fn readable(text: &[u8]) -> Cow<'_, str> {
    let escaped = |_| {
        let chunks = text.utf8_chunks();
        let chunks =
            chunks.map(|chunk| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii()));
        chunks.collect::<String>().into()
    };
    std::str::from_utf8(text).map_or_else(escaped, Cow::Borrowed)
}

/// Returns whether a frame is a push, such as a published message, and not a reply.
pub(crate) fn is_push(frame: &[u8]) -> bool {
    frame.first() == Some(&b'>')
}

/// Returns the length of the reply at the start of `bytes`, or `None` if it is incomplete.
#[cfg(test)]
fn frame_length(bytes: &[u8]) -> io::Result<Option<usize>> {
    FrameScan::default().length(bytes)
}

/// The progress of the search for the end of a reply. The search continues where it stopped. A
/// reply in pieces therefore costs no more than a whole reply.
#[derive(Default)]
pub(crate) struct FrameScan {
    /// The position at which the next value starts. Its bytes may not have come yet.
    at: usize,
    /// The number of values in the reply that were not scanned yet. This number is used only after
    /// the first value was scanned.
    values: usize,
    /// The position up to which the bytes were searched for the end of the next value's line.
    searched: usize,
}

impl FrameScan {
    /// Returns the length of the reply at the start of `bytes`, or `None` if it is incomplete. The
    /// next call gets the same bytes, followed by the bytes that came since.
    pub(crate) fn length(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        while self.at == 0 || self.values > 0 {
            let Some((kind, line, next)) = self.take_line(bytes) else {
                return Ok(None);
            };
            // A length in a reply may be nonsense. The sums must not overflow.
            let (mut blob, mut more) = (0, 0);
            match kind {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
                // A length of -1 means nil in RESP2, and nothing follows.
                b'$' | b'!' | b'=' => blob = length(line)?.map_or(0, |length| length + 2),
                b'*' | b'~' | b'>' => more = length(line)?.unwrap_or(0),
                b'%' => more = 2 * length(line)?.unwrap_or(0),
                // An attribute is followed by the value that it describes.
                b'|' => more = 1 + 2 * length(line)?.unwrap_or(0),
                _ => return Err(other_answer(kind, line)),
            }
            self.at = next + blob;
            self.searched = self.at;
            self.values = self.values.saturating_sub(1).saturating_add(more);
        }
        Ok((self.at <= bytes.len()).then_some(self.at))
    }

    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> Option<(u8, &'a [u8], usize)> {
        let (kind, rest) = bytes.get(self.at..)?.split_first()?;
        let from = self.searched.saturating_sub(self.at + 1);
        let Some(end) = rest[from..].windows(2).position(|pair| pair == b"\r\n") else {
            // The last byte may be the first byte of an incomplete CRLF.
            self.searched = bytes.len() - 1;
            return None;
        };
        let end = from + end;
        Some((*kind, &rest[..end], self.at + 1 + end + 2))
    }
}

fn length(digits: &[u8]) -> io::Result<Option<usize>> {
    match integer(digits) {
        Some(-1) => Ok(None),
        Some(length @ 0..=0xff_ffff) => Ok(Some(length as usize)),
        _ => Err(no_resp("a reply announces an invalid length")),
    }
}

/// Returns the error of an answer that is not RESP. `kind` is the first byte of its first line, and
/// `line` is the rest. A proxy that speaks HTTP has a status from 500 to 599 while its server is not
/// ready.
fn other_answer(kind: u8, line: &[u8]) -> io::Error {
    let status = line.strip_prefix(b"TTP/").and_then(|line| {
        let (_, status) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        status.get(..3)
    });
    match status {
        Some(status) if kind == b'H' && status.starts_with('5') => io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("a proxy answered with the status {status} of HTTP: is its server up?"),
        ),
        _ => no_resp("the answer is not RESP: is this a Redis server?"),
    }
}

/// Returns the error of an answer that cannot be read. The kind of the error tells callers that
/// there was an answer.
pub(super) fn no_resp(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn integer(digits: &[u8]) -> Option<i64> {
    // Nearly all replies to scripts have one digit.
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn blob(text: &[u8]) -> Option<&[u8]> {
    let end = text.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&text[end + 2..])
}

/// Returns the length of each reply in a stream that comes in `pieces`, and the error if the stream
/// is not RESP.
#[cfg(feature = "__internals")]
pub fn reply_lengths(pieces: &[&[u8]]) -> (Vec<usize>, Option<String>) {
    let (mut lengths, mut scan, mut stream) = (Vec::new(), FrameScan::default(), Vec::new());
    for piece in pieces {
        stream.extend_from_slice(piece);
        loop {
            match scan.length(&stream) {
                Ok(Some(length)) => lengths.push(length),
                Ok(None) => break,
                Err(error) => return (lengths, Some(error.to_string())),
            }
            stream.drain(..lengths[lengths.len() - 1]);
            scan = FrameScan::default();
        }
    }
    (lengths, None)
}

/// Reads one whole reply to a lock command, and returns its meaning as text.
#[cfg(feature = "__internals")]
pub fn read_reply(frame: &[u8]) -> String {
    format!("{:?}", reply(frame))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_of_reply_is_read() {
        for (frame, expected) in [
            ("+OK\r\n", Reply::Ok),
            ("+QUEUED\r\n", Reply::Other),
            ("$-1\r\n", Reply::Nil),
            ("*-1\r\n", Reply::Nil),
            ("_\r\n", Reply::Nil),
            (":1\r\n", Reply::Int(1)),
            (":-9223372036854775808\r\n", Reply::Int(i64::MIN)),
            (":x\r\n", Reply::Other),
            ("-OOM no room\r\n", Reply::Error("OOM no room".into())),
            ("!7\r\nERR bad\r\n", Reply::Error("ERR bad".into())),
            (
                "-ERR unknown command 'HELLO', with args beginning with: 'hunter2'\r\n",
                Reply::Error("ERR unknown command 'HELLO'".into()),
            ),
            (
                "-OOM when used memory > 'maxmemory'. script: 9f, on @user_script:1.\r\n",
                Reply::Error("OOM when used memory > 'maxmemory'".into()),
            ),
            (
                "-NOREPLICAS Not enough.\r\n",
                Reply::Error("NOREPLICAS Not enough".into()),
            ),
            (
                "-ERR the key a. b is not a counter: delete it\r\n",
                Reply::Error("ERR the key a. b is not a counter: delete it".into()),
            ),
            ("$2\r\nhi\r\n", Reply::Text("hi".into())),
            ("$4\r\nh\r\ni\r\n", Reply::Text("h\r\ni".into())),
            ("", Reply::Other),
        ] {
            assert_eq!(reply(frame.as_bytes()), expected, "{frame:?}");
        }
    }

    #[test]
    fn a_long_error_is_cut() {
        let frame = format!("-ERR {}\r\n", "é".repeat(100_000));
        let Reply::Error(error) = reply(frame.as_bytes()) else {
            panic!("an error");
        };
        assert!((500..600).contains(&error.len()), "{error}");
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_escaped() {
        for (frame, expected) in [
            (
                &b"$7\r\nid \xffb\xc3\xa9\r\n"[..],
                Reply::Text("id \\xffbé".into()),
            ),
            (b"-NOPERM User \xc3 has", Reply::Other), // not a whole frame
            (
                b"-NOPERM User \xc3 has\r\n",
                Reply::Error("NOPERM User \\xc3 has".into()),
            ),
            (b"!3\r\nE \x80\r\n", Reply::Error("E \\x80".into())),
        ] {
            assert_eq!(reply(frame), expected);
        }
    }

    #[test]
    fn the_end_of_each_kind_of_value_is_found() {
        for (bytes, expected) in [
            ("+OK\r\n:1\r\n", Ok(Some(5))),
            ("$5\r\nhello\r\n", Ok(Some(11))),
            ("$5\r\nhello\r", Ok(None)),
            ("$-1\r\n+OK\r\n", Ok(Some(5))),
            ("*2\r\n:1\r\n*1\r\n:2\r\n", Ok(Some(16))),
            ("%1\r\n+a\r\n:1\r\n", Ok(Some(12))),
            ("|1\r\n+a\r\n:1\r\n:2\r\n", Ok(Some(16))),
            (">2\r\n+a\r\n$-1\r\n", Ok(Some(13))),
            ("", Ok(None)),
            ("+", Ok(None)),
            ("HTTP/1.1 400 Bad Call\r\n", Err(())),
            ("$-2\r\n", Err(())),
            ("*99999999999999999999\r\n", Err(())),
        ] {
            let length = frame_length(bytes.as_bytes()).map_err(|_| ());
            assert_eq!(length, expected, "{bytes:?}");
        }
    }

    proptest! {
        /// Wherever a reply is cut, the first part counts as incomplete, and causes no panic.
        #[test]
        fn a_part_of_a_reply_is_incomplete(cut in 0..64usize) {
            let whole = b"%2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n+proto\r\n*2\r\n:3\r\n$-1\r\n";
            let cut = cut.min(whole.len());
            let length = frame_length(&whole[..cut]).unwrap();
            prop_assert_eq!(length, (cut == whole.len()).then_some(cut));
        }

        /// A stream in pieces of any length gives the same replies as the whole stream.
        #[test]
        fn replies_in_pieces_end_where_whole_ones_do(
            pieces in prop::collection::vec(1..9usize, 0..40),
        ) {
            let stream = b"+OK\r\n$6\r\na\r\nb\r\n\r\n*2\r\n:1\r\n%1\r\n+a\r\n$-1\r\n-ERR no\r\n";
            let (mut whole, mut rest) = (Vec::new(), &stream[..]);
            while let Some(length) = frame_length(rest).unwrap() {
                whole.push(length);
                rest = &rest[length..];
            }
            let (mut lengths, mut scan, mut start, mut end) = (Vec::new(), FrameScan::default(), 0, 0);
            for piece in pieces.into_iter().chain([stream.len()]) {
                end = (end + piece).min(stream.len());
                while let Some(length) = scan.length(&stream[start..end]).unwrap() {
                    lengths.push(length);
                    start += length;
                    scan = FrameScan::default();
                }
            }
            prop_assert_eq!(lengths, whole);
        }

        #[test]
        fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some(length)) = frame_length(&bytes) {
                prop_assert!(length <= bytes.len());
                let _ = reply(&bytes[..length]);
            }
        }
    }
}

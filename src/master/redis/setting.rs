//! The reply to `CONFIG GET`: a map, where all other replies are single values.

use super::resp::{frame_length, reply};
use crate::core::command::Reply;

/// Reads a single value, or the value in a map with one entry, which is how a server returns a
/// setting.
pub(in crate::master) fn answer(frame: &[u8]) -> Reply<'_> {
    if frame == b"%0\r\n" {
        return Reply::Nil;
    }
    let Some(entry) = frame.strip_prefix(b"%1\r\n") else {
        return reply(frame);
    };
    let name = frame_length(entry).ok().flatten();
    let value = name.and_then(|name| entry.get(name..));
    value.map_or(Reply::Other, reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_table() {
        for (frame, expected) in [
            ("%0\r\n", Reply::Nil),
            (
                "%1\r\n$4\r\nsave\r\n$5\r\n60 \r\n\r\n",
                Reply::Text("60 \r\n".into()),
            ),
            ("%1\r\n$4\r\nsave\r\n$0\r\n\r\n", Reply::Text("".into())),
            ("%1\r\n+a\r\n*1\r\n:1\r\n", Reply::Other),
            ("%2\r\n+a\r\n+b\r\n+c\r\n+d\r\n", Reply::Other),
            ("%1\r\n", Reply::Other),
            ("%1\r\n+a\r\n", Reply::Other),
            ("+OK\r\n", Reply::Ok),
            ("-NOPERM no\r\n", Reply::Error("NOPERM no")),
        ] {
            assert_eq!(answer(frame.as_bytes()), expected, "{frame:?}");
        }
    }
}

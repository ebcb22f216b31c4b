//! A plain client of both kinds of master, which knows nothing of the crate.

use quorlock_memory::heart::Reply;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

/// A master, as another client sees it.
pub(super) enum Plain {
    Memory(MemoryMaster),
    Server(Server),
}

impl Plain {
    /// Returns the reply to a command as text. The elements of a list are on separate lines.
    pub(super) fn command(&self, words: &[&str]) -> String {
        match self {
            Self::Memory(master) => text(&master.command(words)),
            Self::Server(server) => server.command(words),
        }
    }

    /// Returns the master's clock in milliseconds.
    pub(super) fn clock(&self) -> u64 {
        let reply = self.command(&["TIME"]);
        let (seconds, micros) = reply.split_once('\n').unwrap();
        let number = |text: &str| text.parse::<u64>().unwrap();
        number(seconds) * 1_000 + number(micros) / 1_000
    }
}

/// Writes a reply as [`Server::command`] does.
pub(super) fn text(reply: &Reply) -> String {
    let lines = |replies: &mut dyn Iterator<Item = &Reply>| {
        let lines: Vec<_> = replies.map(text).collect();
        lines.join("\n")
    };
    match reply {
        Reply::Array(all) | Reply::Push(all) => lines(&mut all.iter()),
        Reply::Bulk(text) => String::from_utf8(text.clone()).unwrap(),
        Reply::Double(number) => number.to_string(),
        Reply::Error(text) | Reply::Status(text) | Reply::Verbatim(text) => text.clone(),
        Reply::Int(number) => number.to_string(),
        Reply::Map(all) | Reply::Pairs(all) => {
            lines(&mut all.iter().flat_map(|(name, value)| [name, value]))
        }
        Reply::Nil => "(nil)".to_owned(),
        other => panic!("{other:?}"),
    }
}

/// A subscribed connection that receives messages.
pub(super) enum Messages {
    Memory(DuplexStream),
    Server(Listener),
}

impl Messages {
    /// Subscribes to these channels of a memory master. A listener at a server hears all channels.
    pub(super) async fn subscribe(&mut self, channels: &[&str]) {
        if let Self::Memory(stream) = self {
            ask(stream, &["HELLO", "3"]).await;
            ask(stream, &[&["SUBSCRIBE"], channels].concat()).await;
        }
    }

    /// Returns the channels and texts of the messages since the last call.
    pub(super) async fn heard(&mut self) -> Vec<(String, String)> {
        let stream = match self {
            Self::Memory(stream) => stream,
            Self::Server(listener) => return listener.heard().unwrap(),
        };
        let bytes = String::from_utf8(ask(stream, &["PING"]).await).unwrap();
        let lines: Vec<_> = bytes.split("\r\n").collect();
        let pushes = lines.windows(5).filter(|lines| lines[0] == "message");
        let messages = pushes.map(|lines| (lines[2].to_owned(), lines[4].to_owned()));
        messages.collect()
    }
}

/// Sends a command, and then PING. Returns what came before the reply to PING.
async fn ask(stream: &mut DuplexStream, words: &[&str]) -> Vec<u8> {
    const END: &[u8] = b"+PONG\r\n";
    let words: Vec<_> = words
        .iter()
        .map(|word| Reply::Bulk((*word).into()))
        .collect();
    let mut command = Vec::new();
    Reply::Array(words).write(false, &mut command);
    command.extend(b"PING\r\n");
    stream.write_all(&command).await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(END) {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
    }
    bytes.truncate(bytes.len() - END.len());
    bytes
}

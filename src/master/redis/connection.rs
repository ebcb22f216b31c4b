//! An open connection to a server. It sends commands, and receives replies and messages.

use std::{
    cell::Cell,
    ops::ControlFlow,
    ptr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

#[cfg(feature = "sentinel")]
use std::pin::Pin;

use ::redis::{PushKind, Value};

use super::{
    encode::{ScriptAs, encode, encode_command, encoded},
    resp::{is_push, reply},
    wire::Wire,
};
use crate::{
    clock,
    core::{
        kind::Script,
        protocol::{NativeRelease, Reply, Ticket},
        time::Tick,
        vote::ServerError,
    },
    machine::{
        Now,
        out::{Encoded, Request},
        session::{Cx, Session, Subscription, Transmit, link::Link},
        waiters::Topic,
    },
    master::{
        restart::{LastHeard, hear},
        shared::{self, Shared, Turn},
    },
};

/// An open connection to a server that has accepted the login.
pub(crate) struct RedisConnection {
    pub(super) wire: Wire,
    /// The time that the server took to answer the greeting.
    pub(crate) round_trip: Duration,
    pub(crate) reports_changes: bool,
    /// This is set to the current time when bytes come from the server.
    pub(crate) last_heard: Option<LastHeard>,
    /// The server's own command for the release of a mutex, if the server has such a command.
    pub(super) native: Option<NativeRelease>,
    /// Set once the server has refused the command `native`. The user may lack the right to run it,
    /// or a proxy may have passed the connection on to another server.
    is_native_refused: bool,
    /// The time of the last read, if the last poll has read something.
    read_at: Option<Tick>,
    /// The scripts whose texts were sent. A text is sent when its script is first used, because
    /// each script that a server keeps slows down all others a little.
    scripts: Vec<&'static Script>,
    /// Resolves once the server is no longer the master, and returns the reason.
    #[cfg(feature = "sentinel")]
    pub(super) moved: Option<Pin<Box<dyn Future<Output = Arc<str>> + Send>>>,
}

/// The largest number of replies for which the machine stays locked.
const MOST_IN_TURN: usize = 512;

impl RedisConnection {
    /// Returns the connection of a `wire`, before the greeting.
    pub(super) fn new(wire: Wire) -> Self {
        Self {
            wire,
            round_trip: Duration::ZERO,
            reports_changes: false,
            last_heard: None,
            native: None,
            is_native_refused: false,
            read_at: None,
            scripts: Vec::new(),
            #[cfg(feature = "sentinel")]
            moved: None,
        }
    }

    /// Drops the bytes that were not sent. The server then never receives them. Called before a
    /// connection to a silent server is closed.
    pub(crate) fn give_up(&self) {
        self.wire.stream.forget_unsent();
    }

    /// Writes and reads as much as possible, and hands each reply to the session of `master` in
    /// `machine`. Resolves with the reason when the connection breaks.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        machine: &Shared,
        master: usize,
    ) -> Poll<Arc<str>> {
        #[cfg(feature = "sentinel")]
        if let Some(Poll::Ready(why)) = self.moved.as_mut().map(|moved| moved.as_mut().poll(cx)) {
            // The old master may still run. It must not get the commands that are in the kernel's
            // buffers.
            self.wire.stream.forget_unsent();
            self.moved = None;
            return Poll::Ready(why);
        }
        let read_at = Cell::new(None);
        // The machine stays locked until many replies are handed over.
        let on_read = || {
            let (mut turn, now) = (machine.turn(), shared::now());
            read_at.set(Some(now.monotonic));
            turn.sessions[master].health.last_heard = Some(now.monotonic);
            (self.last_heard.iter()).for_each(|last| hear(last, now.monotonic));
            (now, turn)
        };
        let mut count = 0_usize;
        let on_frame = |frame: &[u8], (now, turn): &mut (Now, Turn<'_>), out: &mut Vec<u8>| {
            count += 1;
            if count.is_multiple_of(MOST_IN_TURN) {
                turn.settle();
                *now = shared::now();
            }
            let (at, machine) = (now.monotonic, &mut **turn);
            let mut reply = reply(frame);
            // The usual replies have the same meaning for a native release and for a script.
            let is_usual = matches!(reply, Reply::Int(0 | 1) | Reply::Ok);
            let native = (self.native, &mut self.is_native_refused);
            let sessions = &mut machine.sessions;
            let handled = if !is_usual && is_push(frame) {
                machine.serve(master, *now, |session, cx| on_push(frame, session, cx))
            } else if !is_usual && send_again(&mut reply, &mut sessions[master], native, at, out) {
                Ok(())
            } else {
                machine.reply(master, &reply, *now, &clock::random_u64)
            };
            handled.map_or_else(ControlFlow::Break, ControlFlow::Continue)
        };
        let polled = self.wire.poll(cx, on_read, on_frame);
        self.read_at = read_at.get();
        polled.map(|end| end.unwrap_or_else(|error| error.to_string().into()))
    }

    /// Notes in `link` what the last poll has read.
    pub(crate) fn note_read(&mut self, link: &mut Link) {
        if let Some(at) = self.read_at.take() {
            link.liveness.on_bytes(at);
        }
        link.liveness.has_unread = self.wire.has_unread;
    }
}

impl Transmit for RedisConnection {
    #[inline]
    fn send(&mut self, request: &Request) {
        let (command, out) = (&request.command, &mut self.wire.out);
        let native = self.native.filter(|_| !self.is_native_refused);
        let native = native.filter(|_| command.plain_release().is_some());
        let first = request
            .encoded
            .get_or_init(|| encoded(command, native, out));
        // Masters of other products have other commands, or none.
        let own = (first.native != native).then(|| encoded(command, native, out));
        let Encoded { script, bytes, .. } = own.as_ref().unwrap_or(first);
        match *script {
            Some(script) if !self.scripts.iter().any(|sent| ptr::eq(*sent, script)) => {
                self.scripts.push(script);
                encode_command(command, ScriptAs::Text, out);
            }
            _ => out.extend_from_slice(bytes),
        }
    }

    fn send_change(&mut self, change: &Subscription) {
        let &Subscription {
            ref channel,
            begins,
        } = change;
        let verb: &[u8] = if begins { b"SUBSCRIBE" } else { b"UNSUBSCRIBE" };
        encode(&mut self.wire.out, &[verb, channel.as_bytes()]);
    }

    fn send_caching(&mut self) {
        self.wire.out.extend_from_slice(CACHING);
    }

    fn has_input(&self) -> bool {
        self.wire.stream.has_input()
    }
}

/// The command that makes the server report the next change of each key that the next command
/// reads.
pub(super) const CACHING: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nCACHING\r\n$3\r\nYES\r\n";

/// Sends the oldest command again if its `reply` says that the server does not know the script, or
/// refuses the `native` release that was sent instead. Returns whether it was sent. A reply that a
/// native release does not have becomes [`Reply::Other`].
fn send_again(
    reply: &mut Reply<'_>,
    session: &mut Session,
    (native, is_native_refused): (Option<NativeRelease>, &mut bool),
    now: Tick,
    out: &mut Vec<u8>,
) -> bool {
    /// While this many bytes wait to be written, no command is sent again, because the text of its
    /// script is long.
    const MOST: usize = 1024 * 1024;
    let plain = |oldest: &Request| oldest.command.plain_release().is_some();
    let native = native.filter(|_| session.oldest().is_some_and(plain));
    // The server refuses to run the command at all, so the release needs the script.
    let is_denial = |error: &str| ServerError::of(error).is_denial();
    let must_use_script =
        native.is_some() && matches!(reply, Reply::Error(error) if is_denial(error));
    *is_native_refused |= must_use_script;
    if native.is_some_and(|native| !*is_native_refused && !native.has(reply)) {
        *reply = Reply::Other;
    }
    // A server may lack a script whose text was sent: it has restarted behind a proxy, someone has
    // run SCRIPT FLUSH, or the server has refused the command that brought the text. The command is
    // sent again with the text, and the server then knows the script.
    let is_unknown = matches!(reply, Reply::Error(error) if error.starts_with("NOSCRIPT"));
    if (is_unknown || must_use_script)
        && out.len() < MOST
        && let Some(request) = session.resend(now)
    {
        if session.watches(&request) {
            out.extend_from_slice(CACHING);
        }
        encode_command(&request.command, ScriptAs::Text, out);
        return true;
    }
    false
}

/// Passes on a published message, the confirmation of a subscription, or a report of changes.
fn on_push(frame: &[u8], session: &mut Session, cx: &mut Cx<'_>) -> Result<(), Arc<str>> {
    let Ok(Value::Push { kind, data }) = ::redis::parse_redis_value(frame) else {
        return Err("a push message could not be read".into());
    };
    let text = |at: usize| {
        data.get(at)
            .and_then(|text| ::redis::from_redis_value_ref::<String>(text).ok())
    };
    match (kind, text(0)) {
        // The message is the ticket of the waiter whose turn it is.
        (PushKind::Message, _) => {
            cx.hear(&Topic::Turn(Ticket::of(&text(1).unwrap_or_default())));
        }
        (PushKind::Invalidate, _) => match data.first() {
            Some(Value::Array(keys)) => {
                let keys = keys.iter().map(::redis::from_redis_value_ref::<String>);
                keys.flatten()
                    .for_each(|key| cx.hear(&Topic::Key(key.into())));
            }
            _ => return session.on_flushed(cx),
        },
        (PushKind::Subscribe | PushKind::Unsubscribe, Some(channel)) => {
            return session.on_confirmation(&channel, cx.now.monotonic);
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::empty;

    use super::*;
    use crate::{
        core::{kind::LockKind, protocol::command::fixture::command, vote::Verb},
        machine::VotesTo,
    };

    /// The request keeps the bytes for the first master, and for others like it.
    #[test]
    fn masters_with_different_native_releases_share_a_request() {
        let release = || command(LockKind::Mutex, Verb::Release, 0);
        let shared = || Request::new(release(), Tick::some(), VotesTo::default());
        let sent = |native, request: &Request| {
            let wire = Wire::of_given(empty());
            let mut connection = RedisConnection::new(wire);
            connection.native = native;
            connection.scripts.extend(release().words().script); // otherwise the text is sent
            connection.send(request);
            String::from_utf8(connection.wire.out.clone()).unwrap()
        };
        let [delex, delifeq] = NativeRelease::ALL.map(Some);
        let natives = [None, delex, delifeq];
        let alone = natives.map(|native| sent(native, &shared()));
        for (bytes, name) in alone.iter().zip(["EVALSHA", "DELEX", "DELIFEQ"]) {
            assert_eq!(bytes.split("\r\n").nth(2), Some(name));
        }
        for first in 0..natives.len() {
            let request = shared();
            for at in [first, 0, 1, 2, 1, 0] {
                assert_eq!(sent(natives[at], &request), alone[at], "{first} {at}");
            }
        }
    }
}

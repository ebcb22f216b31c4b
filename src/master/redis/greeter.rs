//! Connects to a server and logs in.

use std::{io, ops::ControlFlow, time::Duration};

use ::redis::Value;

#[cfg(feature = "sentinel")]
use super::sentinel::Inquiry;
use super::{
    address::Address,
    connection::{CACHING, RedisConnection},
    connector::Connector,
    encode::encode,
    endpoint::Endpoint,
    resp::reply,
};
use crate::{
    clock,
    core::{
        protocol::{command::Reply, native::NativeRelease},
        vote::server_error::{Meaning, ServerError},
    },
    master::connect_error::{ConnectError, Progress, in_time},
};

/// Opens connections to one server, and logs in.
pub(crate) struct Greeter {
    address: Address,
    /// What to send on a new connection.
    greeting: Vec<u8>,
    steps: Vec<Step>,
    connector: Connector,
    progress: Progress,
}

impl Greeter {
    /// `name` is the name of each connection. `limit` is the time in which a dial must be over.
    pub(crate) fn new(endpoint: Endpoint, name: &str, limit: Duration) -> Self {
        let (greeting, steps) = greeting(&endpoint, name);
        Self {
            greeting,
            steps,
            address: endpoint.address,
            connector: Connector {
                limit,
                #[cfg(feature = "tls")]
                tls: endpoint.tls,
            },
            progress: Progress::default(),
        }
    }

    /// Runs `dial`, which logs in. Drops `dial` when the time is over.
    pub(crate) async fn in_time<T, E: From<ConnectError>>(
        &self,
        dial: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        in_time(self.connector.limit, &self.progress, dial).await
    }

    /// Connects to the server and sends the greeting. If the master has Sentinels, first asks them
    /// for the address of the master.
    pub(crate) async fn log_in(&self) -> Result<RedisConnection, ConnectError> {
        *self.progress.lock() = None;
        #[cfg(feature = "sentinel")]
        if let Address::Sentinels(sentinels) = &self.address {
            let mut inquiry = Inquiry::new(sentinels, &self.connector);
            let address = inquiry.locate().await?;
            let connection = self.log_in_at(&address).await;
            let mut connection = connection.map_err(|error| error.at(&address.text()))?;
            connection.moved = Some(Box::pin(inquiry.moved(address.text())));
            return Ok(connection);
        }
        self.log_in_at(&self.address).await
    }

    async fn log_in_at(&self, address: &Address) -> Result<RedisConnection, ConnectError> {
        let mut wire = self.connector.connect(address, &self.progress).await?;
        wire.out().extend_from_slice(&self.greeting);
        let mut steps = self.steps.iter();
        let (mut has_answered, mut reports_changes, mut native) = (false, true, None);
        let asked = clock::monotonic();
        let on_frame = |frame: &[u8]| {
            has_answered = true;
            let step = steps.next();
            reports_changes &= step.is_none_or(|step| !step.is_refused_tracking(frame));
            native = native.or_else(|| step.and_then(|step| step.found_native(frame)));
            match step.map_or(Ok(()), |step| step.check(frame)) {
                Ok(()) if steps.len() > 0 => ControlFlow::Continue(()),
                result => ControlFlow::Break(result),
            }
        };
        let answered = wire.answers(on_frame).await;
        answered.map_err(|error| no_greeting(address, error, has_answered))??;
        let round_trip = clock::monotonic().since(asked);
        Ok(RedisConnection::new(
            wire,
            round_trip,
            reports_changes,
            native,
        ))
    }
}

/// Returns the error of a greeting that failed.
fn no_greeting(address: &Address, error: io::Error, has_answered: bool) -> ConnectError {
    match error.into() {
        ConnectError::Wire(error) if !has_answered => no_answer(address, error),
        error => error,
    }
}

/// Returns the error of a stream without a reply of a Redis server. A server that expects TLS
/// closes a plain connection, or answers with an alert.
fn no_answer(address: &Address, error: io::Error) -> ConnectError {
    if error.kind() == io::ErrorKind::ResourceBusy {
        return ConnectError::Busy(error.to_string());
    }
    let is_no_redis = error.kind() == io::ErrorKind::InvalidData; // something else has answered
    let error = match address {
        Address::Tcp(..) => ConnectError::NoGreeting(error),
        // The server's alert gives the reason, but the alert may be lost.
        #[cfg(feature = "tls")]
        Address::Tls(..) if !is_no_redis => ConnectError::NoGreetingOverTls(error),
        _ => ConnectError::Wire(error),
    };
    match is_no_redis {
        true => ConnectError::NotRedis(error.to_string()),
        false => error,
    }
}

/// Returns the commands that prepare a new connection, such as the login: their bytes, and one step
/// for each command. `name` is the name of the connection.
pub(super) fn greeting(endpoint: &Endpoint, name: &str) -> (Vec<u8>, Vec<Step>) {
    let settings = &endpoint.settings;
    let mut hello = vec!["HELLO", "3"];
    let mut advice = "give the password in the URL, or with password_file, QUORLOCK_PASSWORD or \
                      MasterSpec::login";
    if let Some(password) = settings.password() {
        advice = endpoint.login_advice;
        hello.extend(["AUTH", settings.username().unwrap_or("default"), password]);
    }
    let hello: Vec<_> = hello.into_iter().map(str::as_bytes).collect();
    let (mut bytes, mut steps) = (Vec::new(), vec![Step::Hello(advice)]);
    encode(&mut bytes, &hello);
    if settings.db() != 0 {
        encode(
            &mut bytes,
            &[b"SELECT", settings.db().to_string().as_bytes()],
        );
        steps.push(Step::Select(settings.db()));
    }
    encode(&mut bytes, &[b"CLIENT", b"TRACKING", b"ON", b"OPTIN"]);
    bytes.extend_from_slice(CACHING); // it has no effect on a command that reads no key
    steps.extend([Step::Track, Step::Track]);
    for native in NativeRelease::ALL {
        encode(&mut bytes, &[native.name()]);
        steps.push(Step::FindNative(native));
    }
    encode(&mut bytes, &[b"CLIENT", b"SETNAME", name.as_bytes()]);
    steps.push(Step::Name);
    (bytes, steps)
}

/// The kind of one command in a greeting. It decides how the reply is checked.
#[derive(Clone, Copy)]
pub(super) enum Step {
    FindNative(NativeRelease),
    /// The text says what to do if the login is refused.
    Hello(&'static str),
    Name,
    /// The number of the database.
    Select(i64),
    Track,
}

impl Step {
    /// Returns whether the reply to this step says that the server does not report changes of keys.
    fn is_refused_tracking(self, frame: &[u8]) -> bool {
        matches!(self, Self::Track) && matches!(reply(frame), Reply::Error(_))
    }

    /// Fails if the reply to this step says that the server cannot be used.
    fn check(self, frame: &[u8]) -> Result<(), ConnectError> {
        let Reply::Error(error) = reply(frame) else {
            return match self {
                Self::Hello(_) => check_role(frame),
                Self::FindNative(_) | Self::Name | Self::Select(_) | Self::Track => Ok(()),
            };
        };
        let kind = ServerError::of(&error);
        let text = error.into_owned();
        match (self, kind.meaning()) {
            (_, _) if matches!(kind, ServerError::Loading | ServerError::MaxClients) => {
                Err(ConnectError::Busy(text))
            }
            (Self::Hello(_) | Self::Select(_), Meaning::Temporary) => Err(ConnectError::Busy(text)),
            // A server of another kind, or a proxy, does not know the command.
            (Self::Hello(_), Meaning::WrongServer) => Err(ConnectError::NotRedis6(text)),
            (Self::Hello(_), _) if kind == ServerError::UnknownCommand => {
                Err(ConnectError::NotRedis6(text))
            }
            // The server's own text is long, but does not say that no password was given.
            (Self::Hello(advice), _) if text.starts_with("NOAUTH") => Err(ConnectError::Login(
                format!("NOAUTH, no password was given; {advice}"),
            )),
            // A password of this program does not help.
            (Self::Hello(_), _) if text.starts_with("DENIED") => {
                Err(ConnectError::Login(PROTECTED.to_owned()))
            }
            (Self::Hello(advice), _) => Err(ConnectError::Login(format!("{text}; {advice}"))),
            (Self::Select(number), _) => Err(ConnectError::Database(format!("{number}: {text}"))),
            // Without the right to track keys, waiters poll. Without the right to set a name, the
            // connection has no name. The reply to the bare name of a native command is always an
            // error.
            (Self::FindNative(_) | Self::Name | Self::Track, _) => Ok(()),
        }
    }

    /// Returns the native command of this step, if the reply shows that the server has it.
    fn found_native(self, frame: &[u8]) -> Option<NativeRelease> {
        match self {
            Self::FindNative(native) => is_known(frame).then_some(native),
            Self::Hello(_) | Self::Name | Self::Select(_) | Self::Track => None,
        }
    }
}

const PROTECTED: &str = "DENIED, it is in protected mode, which takes no connections from other \
    machines: give the server a password (requirepass), or set protected-mode no behind a firewall";

/// Returns whether the reply to a command without arguments shows that the server has the command.
///
/// A server first looks for the command, then counts its arguments, and then checks the user's
/// rights. So the question needs no right and touches no key.
fn is_known(frame: &[u8]) -> bool {
    let reply = reply(frame);
    matches!(reply, Reply::Error(error) if error.starts_with("ERR wrong number of arguments"))
}

/// Refuses a replica. A replica only repeats the data of its master, so it must have no vote of its
/// own.
fn check_role(hello: &[u8]) -> Result<(), ConnectError> {
    if !hello.starts_with(b"%") {
        let why = "its answer is not a map".to_owned();
        return Err(ConnectError::NotRedis6(why));
    }
    if entry(hello, "mode").as_deref() == Some("sentinel") {
        return Err(ConnectError::IsSentinel);
    }
    match entry(hello, "role") {
        Some(role) if role != "master" => Err(ConnectError::NotAMaster { role }),
        _ => Ok(()),
    }
}

/// Returns the value of the entry `name` in a map, or the first 512 characters of a longer value.
fn entry(map: &[u8], name: &str) -> Option<String> {
    let Ok(Value::Map(entries)) = ::redis::parse_redis_value(map) else {
        return None;
    };
    let text = |value: &Value| ::redis::from_redis_value_ref::<String>(value).ok();
    let is_it = |(key, _): &&(Value, Value)| text(key).as_deref() == Some(name);
    let value = text(&entries.iter().find(is_it)?.1)?;
    Some(value.chars().take(512).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "tls")]
    #[test]
    fn only_a_server_that_closed_is_said_to_want_a_certificate() {
        use super::super::resp::FrameScan;
        let address = Address::Tls("web.example".into(), 443);
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"*x\r\n"] {
            let error = FrameScan::default().length(answer).unwrap_err();
            let error = no_greeting(&address, error, false);
            assert!(matches!(error, ConnectError::NotRedis(_)), "{error}");
        }
        let closed = io::ErrorKind::UnexpectedEof.into();
        let error = no_greeting(&address, closed, false);
        assert!(
            matches!(error, ConnectError::NoGreetingOverTls(_)),
            "{error}"
        );
    }

    #[test]
    fn the_reply_to_each_step_is_checked() {
        let errors = |step: Step, reply: &str| match step.check(reply.as_bytes()) {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        let too_old = "it does not know HELLO 3, which Redis has since version 6: ";
        for (step, reply, expected) in [
            (
                Step::Hello("look"),
                "%1\r\n+role\r\n+master\r\n",
                "fine".to_owned(),
            ),
            (
                Step::Hello("look"),
                "%1\r\n+role\r\n+replica\r\n",
                "it is a replica, not a master".into(),
            ),
            (
                Step::Hello("look"),
                "%1\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n",
                "it is a Sentinel, not a master: use redis+sentinel://host:port/service".into(),
            ),
            (
                Step::Hello("look"),
                "+OK\r\n",
                format!("{too_old}its answer is not a map"),
            ),
            (
                Step::Hello("look"),
                "-ERR unknown command `HELLO`, with args beginning with: `3`\r\n",
                format!("{too_old}ERR unknown command `HELLO`"),
            ),
            (
                Step::Hello("look"),
                "-NOPROTO unsupported protocol version\r\n",
                format!("{too_old}NOPROTO unsupported protocol version"),
            ),
            (
                Step::Hello("look"),
                "-DENIED Redis is running in protected mode\r\n",
                "refused the login: DENIED, it is in protected mode, which takes no connections from \
                 other machines: give the server a password (requirepass), \
                 or set protected-mode no behind a firewall"
                    .into(),
            ),
            (
                Step::Hello("look"),
                "-NOAUTH HELLO must be called with the client already authenticated\r\n",
                "refused the login: NOAUTH, no password was given; look".into(),
            ),
            (
                Step::Hello("look"),
                "-ERR max number of clients reached\r\n",
                "ERR max number of clients reached".into(),
            ),
            (
                Step::Hello("look"),
                "-upstream failure\r\n",
                "upstream failure".into(),
            ),
            (
                Step::Select(3),
                "-ERR Connection timed out\r\n",
                "ERR Connection timed out".into(),
            ),
            (
                Step::Select(3),
                "-ERR SELECT is not allowed in cluster mode\r\n",
                "refused the database 3: ERR SELECT is not allowed in cluster mode".into(),
            ),
            (
                Step::Select(99),
                "-ERR DB index is out of range\r\n",
                "refused the database 99: ERR DB index is out of range".into(),
            ),
            (
                Step::Track,
                "-LOADING Redis is loading\r\n",
                "LOADING Redis is loading".into(),
            ),
            (
                Step::Name,
                "-NOPERM User u has no permissions to run the 'client|setname' command\r\n",
                "fine".into(),
            ),
            (
                Step::FindNative(NativeRelease::Delex),
                "-ERR unknown command 'DELEX', with args beginning with: \r\n",
                "fine".into(),
            ),
        ] {
            assert_eq!(errors(step, reply), expected);
        }
    }

    #[test]
    fn a_native_command_is_found_by_the_error_about_its_arguments() {
        for native in NativeRelease::ALL {
            let name = String::from_utf8_lossy(native.name()).to_lowercase();
            for (reply, is_found) in [
                (
                    format!("-ERR wrong number of arguments for '{name}' command\r\n"),
                    true,
                ),
                (format!("-ERR unknown command '{name}'\r\n"), false),
                ("-NOPERM this user has no permissions\r\n".to_owned(), false),
                ("+OK\r\n".to_owned(), false),
            ] {
                let found = Step::FindNative(native).found_native(reply.as_bytes());
                assert_eq!(found, is_found.then_some(native), "{reply}");
                assert_eq!(Step::Hello("").found_native(reply.as_bytes()), None);
            }
        }
    }
}

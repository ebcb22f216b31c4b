//! Dials a server: connects, logs in, and asks whether the server restarted.

use std::{convert::Infallible, future::pending, io, time::Duration};

use ::redis::Value;
use tokio::time::sleep;

#[cfg(feature = "sentinel")]
use super::sentinel::Inquiry;
use super::{
    address::Address,
    connection::{CACHING, RedisConnection},
    encode::encode,
    endpoint::Endpoint,
    resp::reply,
};
use crate::{
    clock,
    core::{
        kind::script::{LOOK, ORIGIN},
        protocol::{NativeRelease, Reply, connection_name::ConnectionName},
        restart::{DataLoss, Incarnation, ORIGIN_KEY, Quarantine, origin_arguments},
        time::Backoff,
        view::DialRefusal,
        vote::ServerError,
    },
    machine::out::MasterEvent,
    master::{
        connect_error::{ConnectError, ORIGIN_RIGHTS, Progress, in_time},
        observer::MasterObserver,
        restart::RunIds,
        shared::Shared,
    },
};

pub(crate) struct Dialer {
    endpoint: Endpoint,
    name: String,
    /// The time in which a dial must be over.
    limit: Duration,
    progress: Progress,
    run_ids: RunIds,
}

impl Dialer {
    pub(crate) fn new(endpoint: Endpoint, name: String, limit: Duration) -> Self {
        Self {
            run_ids: RunIds::of(&endpoint.origin_name()),
            endpoint,
            name,
            limit,
            progress: Progress::default(),
        }
    }

    /// Opens a connection, within the connect timeout. Returns the connection, and the loss of data
    /// if the server may have lost locks.
    pub(crate) async fn dial(
        &self,
        machine: &Shared,
        master: usize,
    ) -> Result<(RedisConnection, Option<DataLoss>), ConnectError> {
        let dial = async {
            let mut connection = self.log_in().await?;
            let loss = self.loss(&mut connection, machine, master).await?;
            Ok((connection, loss))
        };
        in_time(self.limit, &self.progress, dial).await
    }

    /// Opens a connection, within the connect timeout. Asks nothing after the login.
    pub(crate) async fn connect(&self) -> Result<RedisConnection, ConnectError> {
        in_time(self.limit, &self.progress, self.log_in()).await
    }

    /// Asks whether the server may have lost locks. Must be called after the login, while no
    /// command is unanswered.
    async fn loss(
        &self,
        connection: &mut RedisConnection,
        machine: &Shared,
        master: usize,
    ) -> Result<Option<DataLoss>, ConnectError> {
        let (quarantine, observers) = (machine.config.quarantine, &machine.observers);
        if quarantine == Quarantine::Off {
            return Ok(None);
        }
        let asked = clock::monotonic();
        let known = self.run_ids.known(asked);
        let wire = &mut connection.wire;
        let name = match machine.config.only_looks {
            true => "",
            false => &self.name,
        };
        ask(name, &known, quarantine, &mut wire.out);
        let observer = &observers[master];
        let answer = |frame: &[u8]| read(&reply(frame), quarantine, observer);
        let answer = wire.answer(answer).await;
        let Some(found) = answer?? else {
            return Ok(None);
        };
        // This check comes first, so a dial that met the server of another master does not change
        // the known run ids. They show a restart once the right server is met again.
        let met = machine.lock(|machine| machine.meet(master, &found.run_id));
        met.map_err(|other| {
            let other = &machine.roster.masters[other];
            let why = format!(
                "it is the same server as {other}: every master must be a server of its own"
            );
            ConnectError::Origin(why, None)
        })?;
        let last_heard = self
            .run_ids
            .meet(&found.run_id, asked, clock::monotonic())?;
        connection.last_heard = Some(last_heard);
        self.tell_apart(&found.others, machine, master);
        Ok(found.loss)
    }

    /// Notes once a minute that this program is connected, and looks for programs with other lists,
    /// unless its dial has not noted the program either. Never ends. An error is ignored: it says
    /// nothing about the connection that carries votes.
    pub(crate) async fn look_each_minute(
        &self,
        machine: &Shared,
        master: usize,
        is_noted: bool,
    ) -> Infallible {
        /// Programs that were dialled together do not look together.
        const PAUSE: Backoff = Backoff::between(Duration::from_secs(30), Duration::from_secs(60));
        if !is_noted {
            return pending().await;
        }
        loop {
            sleep(PAUSE.delay(0, clock::random_u64())).await;
            let look = self.look(machine, master);
            let _ = in_time(self.limit, &self.progress, look).await;
        }
    }

    async fn look(&self, machine: &Shared, master: usize) -> Result<(), ConnectError> {
        let wire = &mut self.log_in().await?.wire;
        let words = ["EVAL", LOOK.text(), "1", ORIGIN_KEY, &self.name];
        encode(&mut wire.out, &words.map(str::as_bytes));
        let answer = |frame: &[u8]| match reply(frame) {
            Reply::Text(names) => names.split(' ').filter_map(ConnectionName::parse).collect(),
            _ => Vec::new(),
        };
        let others = wire.answer(answer).await?;
        self.tell_apart(&others, machine, master);
        Ok(())
    }

    /// Warns of those of the `others` that may hold a lock of this program at the same time.
    fn tell_apart(&self, others: &[ConnectionName], machine: &Shared, master: usize) {
        let Some(ours) = ConnectionName::parse(&self.name) else {
            return;
        };
        let apart = others.iter().filter(|other| ours.is_apart_from(other));
        if let Some(clients) = machine.note_apart(apart) {
            let ours = machine.roster.masters.join(", ");
            machine.observers[master].on(&MasterEvent::OtherLists { clients, ours });
        }
    }

    /// Connects to the server and sends the greeting. If the master has Sentinels, first asks them
    /// for the address of the master.
    async fn log_in(&self) -> Result<RedisConnection, ConnectError> {
        *self.progress.lock() = None;
        #[cfg(feature = "sentinel")]
        if let Address::Sentinels(sentinels) = &self.endpoint.address {
            let mut inquiry = Inquiry::new(sentinels, self.limit);
            let address = inquiry.locate().await?;
            let connection = self.log_in_at(&address).await;
            let mut connection = connection.map_err(|error| error.at(&address.text()))?;
            connection.moved = Some(Box::pin(inquiry.moved(address.text())));
            return Ok(connection);
        }
        self.log_in_at(&self.endpoint.address).await
    }

    async fn log_in_at(&self, address: &Address) -> Result<RedisConnection, ConnectError> {
        let mut connection = RedisConnection::new(address.connect(&self.progress).await?);
        let wire = &mut connection.wire;
        greet(&self.endpoint, &self.name, &mut wire.out);
        let asked = clock::monotonic();
        let hello = wire.answer(|frame| check_hello(frame, &self.endpoint));
        hello.await.map_err(|error| no_greeting(address, error))??;
        let database = self.endpoint.settings.db();
        if database != 0 {
            wire.answer(|frame| check_select(frame, database)).await??;
        }
        // Without the right to track keys, waiters poll. Without the right to set a name, the
        // connection has no name.
        let is_refused = |frame: &[u8]| matches!(reply(frame), Reply::Error(_));
        let tracks = !wire.answer(is_refused).await?;
        connection.reports_changes = !wire.answer(is_refused).await? && tracks;
        for one in NativeRelease::ALL {
            let is_known = wire.answer(is_known).await?;
            connection.native = connection.native.or_else(|| is_known.then_some(one));
        }
        wire.answer(|_| ()).await?;
        connection.round_trip = clock::monotonic().since(asked);
        Ok(connection)
    }
}

/// Appends to `out` the question whether the server restarted. The script `lua/shared/origin.lua`
/// answers the question.
fn ask(name: &str, known: &[(String, u64)], quarantine: Quarantine, out: &mut Vec<u8>) {
    let arguments = origin_arguments(name, known, quarantine);
    let mut words = vec!["EVAL", ORIGIN.text(), "1", ORIGIN_KEY];
    words.extend(arguments.iter().map(String::as_str));
    let words: Vec<_> = words.into_iter().map(str::as_bytes).collect();
    encode(out, &words);
}

/// Reads the answer to [`ask`]. Returns `None` if the server denies the question and `quarantine`
/// is not strict.
fn read(
    reply: &Reply<'_>,
    quarantine: Quarantine,
    observer: &MasterObserver,
) -> Result<Option<Incarnation>, ConnectError> {
    const NONSENSE: &str = "its answer makes no sense";
    let why = match reply {
        Reply::Text(text) => match Incarnation::parse(text) {
            Some(found) => return Ok(Some(found)),
            None => NONSENSE,
        },
        Reply::Error(error) => error,
        Reply::Int(_) | Reply::Nil | Reply::Ok | Reply::Other => NONSENSE,
    };
    let kind = ServerError::of(why);
    if kind.is_denial() && quarantine != Quarantine::Strict {
        let why = why.into();
        observer.on(&MasterEvent::OriginDenied { why });
        return Ok(None);
    }
    let unknown = format!("it cannot be asked whether it restarted: {why}");
    Err(match kind {
        ServerError::Loading => ConnectError::Busy(why.to_owned()),
        ServerError::Moved => ConnectError::IsShard(why.to_owned()),
        kind if kind.is_denial() => {
            let advice = format!(
                "{unknown}; give its user the rights {ORIGIN_RIGHTS}, \
                 or use a server that allows these in scripts, or quarantine that is not strict"
            );
            ConnectError::Origin(advice, Some(DialRefusal::RestartQuestion))
        }
        _ => ConnectError::Origin(unknown, None),
    })
}

/// Returns the error of a greeting without a reply of a Redis server. A server that expects TLS
/// closes a plain connection, or answers with an alert.
fn no_greeting(address: &Address, error: io::Error) -> ConnectError {
    let error = match error.into() {
        ConnectError::Wire(error) => error,
        error => return error,
    };
    if error.kind() == io::ErrorKind::ResourceBusy {
        return ConnectError::Busy(error.to_string());
    }
    let is_no_redis = error.kind() == io::ErrorKind::InvalidData; // something else has answered
    let error = match address {
        Address::Tcp(_, _, None) => ConnectError::NoGreeting(error),
        // The server's alert gives the reason, but the alert may be lost.
        Address::Tcp(..) if !is_no_redis => ConnectError::NoGreetingOverTls(error),
        _ => ConnectError::Wire(error),
    };
    match is_no_redis {
        true => ConnectError::NotRedis(error.to_string()),
        false => error,
    }
}

/// Appends the commands that prepare a new connection, such as the login. `name` is the name of the
/// connection.
pub(super) fn greet(endpoint: &Endpoint, name: &str, out: &mut Vec<u8>) {
    let settings = &endpoint.settings;
    let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
    if let Some(password) = settings.password() {
        let user = settings.username().unwrap_or("default");
        hello.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
    }
    encode(out, &hello);
    if settings.db() != 0 {
        encode(out, &[b"SELECT", settings.db().to_string().as_bytes()]);
    }
    encode(out, &[b"CLIENT", b"TRACKING", b"ON", b"OPTIN"]);
    out.extend_from_slice(CACHING); // it has no effect on a command that reads no key
    for native in NativeRelease::ALL {
        encode(out, &[native.name()]);
    }
    encode(out, &[b"CLIENT", b"SETNAME", name.as_bytes()]);
}

/// Fails if the reply to the login says that the server cannot be used.
fn check_hello(frame: &[u8], endpoint: &Endpoint) -> Result<(), ConnectError> {
    let Reply::Error(error) = reply(frame) else {
        return check_role(frame);
    };
    let advice = match endpoint.has_password() {
        true => endpoint.login_advice,
        false => {
            "give the password in the URL, or with password_file, QUORLOCK_PASSWORD or \
             MasterSpec::login"
        }
    };
    let kind = ServerError::of(&error);
    let text = error.into_owned();
    Err(match kind {
        _ if kind.is_temporary() => ConnectError::Busy(text),
        // A server of another kind, or a proxy, does not know the command.
        ServerError::Moved
        | ServerError::NoDatabase
        | ServerError::NoProtocol
        | ServerError::UnknownCommand => ConnectError::NotRedis6(text),
        // The server's own text is long, but does not say that no password was given.
        _ if text.starts_with("NOAUTH") => {
            ConnectError::Login(format!("NOAUTH, no password was given; {advice}"))
        }
        // A password of this program does not help.
        _ if text.starts_with("DENIED") => ConnectError::Login(PROTECTED.to_owned()),
        _ => ConnectError::Login(format!("{text}; {advice}")),
    })
}

const PROTECTED: &str = "DENIED, it is in protected mode, which takes no connections from other \
    machines: give the server a password (requirepass), or set protected-mode no behind a firewall";

/// Fails if the reply to SELECT says that the server does not have the database with this `number`.
fn check_select(frame: &[u8], number: i64) -> Result<(), ConnectError> {
    match reply(frame) {
        Reply::Error(error) if ServerError::of(&error).is_temporary() => {
            Err(ConnectError::Busy(error.into_owned()))
        }
        Reply::Error(error) => Err(ConnectError::Database(format!("{number}: {error}"))),
        _ => Ok(()),
    }
}

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
    use crate::core::vote::quorum::Membership;

    /// The error texts are those of Redis 6 and 7, and of Valkey.
    #[test]
    fn a_denied_question_fails_the_dial_only_under_strict() {
        let denied = [
            "NOPERM this user has no permissions to run the 'eval' command",
            "ERR The user executing the script can't run this command or subcommand script: 9f, on @user_script:1.",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
            "ERR ACL failure in script: User lock has no permissions to run the 'info' command script: 9f",
            "ERR unknown command 'EVAL'",
            "ERR Unknown Redis command called from script script: 9f",
            "ERR This Redis command is not allowed from script",
            "ERR its INFO has no run_id",
        ];
        let passing = [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script.",
            "MISCONF Errors writing to the AOF file: No space left on device script: 9f",
            "OOM command not allowed when used memory > 'maxmemory'. script: 9f, on @user_script:1.",
            "READONLY You can't write against a read only replica. script: 9f",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "ERR the origin key is of another type and cannot be deleted",
        ];
        let denied = denied.map(|error| (error, true));
        for (error, is_denied) in denied
            .into_iter()
            .chain(passing.map(|error| (error, false)))
        {
            let answer = |quarantine| {
                let reply = Reply::Error(error.into());
                let observer = MasterObserver::new(None, "m".into(), Membership::Stays);
                read(&reply, quarantine, &observer)
            };
            assert_eq!(answer(Quarantine::Observed).is_ok(), is_denied, "{error}");
            let refused = answer(Quarantine::Strict).unwrap_err();
            let refusal = is_denied.then_some(DialRefusal::RestartQuestion);
            assert_eq!(refused.refusal(), refusal, "{refused:?}");
            let text = refused.to_string();
            assert!(text.contains(error), "{text}");
            assert_eq!(text.contains("+hset"), is_denied, "{text}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn only_a_server_that_closed_is_said_to_want_a_certificate() {
        use super::super::resp::FrameScan;
        let address = Address::Tcp("web.example".into(), 443, Some(None));
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"*x\r\n"] {
            let error = FrameScan::default().length(answer).unwrap_err();
            let error = no_greeting(&address, error);
            assert!(matches!(error, ConnectError::NotRedis(_)), "{error}");
        }
        let closed = io::ErrorKind::UnexpectedEof.into();
        let error = no_greeting(&address, closed);
        assert!(
            matches!(error, ConnectError::NoGreetingOverTls(_)),
            "{error}"
        );
    }

    #[test]
    fn the_replies_to_the_login_and_to_select_are_checked() {
        let endpoint = Endpoint::from_url("redis://:p@a").unwrap();
        let too_old = "it does not know HELLO 3, which Redis has since version 6: ";
        let login = |text| format!("refused the login: {text}");
        for (reply, expected) in [
            ("%1\r\n+role\r\n+master\r\n", "fine".to_owned()),
            (
                "%1\r\n+role\r\n+replica\r\n",
                "it is a replica, not a master".into(),
            ),
            (
                "%1\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n",
                "it is a Sentinel, not a master: use redis+sentinel://host:port/service".into(),
            ),
            ("+OK\r\n", format!("{too_old}its answer is not a map")),
            (
                "-ERR unknown command `HELLO`, with args beginning with: `3`\r\n",
                format!("{too_old}ERR unknown command `HELLO`"),
            ),
            (
                "-NOPROTO unsupported protocol version\r\n",
                format!("{too_old}NOPROTO unsupported protocol version"),
            ),
            (
                "-DENIED Redis is running in protected mode\r\n",
                login(PROTECTED),
            ),
            (
                "-NOAUTH HELLO must be called with the client already authenticated\r\n",
                login(
                    "NOAUTH, no password was given; look at the user and the password in the URL",
                ),
            ),
            (
                "-ERR max number of clients reached\r\n",
                "ERR max number of clients reached".into(),
            ),
            ("-upstream failure\r\n", "upstream failure".into()),
        ] {
            let checked = check_hello(reply.as_bytes(), &endpoint);
            let said = checked.map_or_else(|error| error.to_string(), |()| "fine".to_owned());
            assert_eq!(said, expected);
        }
        for (reply, expected) in [
            ("-ERR Connection timed out\r\n", "ERR Connection timed out"),
            (
                "-ERR SELECT is not allowed in cluster mode\r\n",
                "refused the database 3: ERR SELECT is not allowed in cluster mode",
            ),
            (
                "-ERR DB index is out of range\r\n",
                "refused the database 3: ERR DB index is out of range",
            ),
        ] {
            let refused = check_select(reply.as_bytes(), 3).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
    }

    #[test]
    fn a_native_command_is_found_by_the_error_about_its_arguments() {
        for (reply, is_found) in [
            (
                "-ERR wrong number of arguments for 'delex' command\r\n",
                true,
            ),
            ("-ERR unknown command 'delex'\r\n", false),
            ("-NOPERM this user has no permissions\r\n", false),
            ("+OK\r\n", false),
        ] {
            assert_eq!(is_known(reply.as_bytes()), is_found, "{reply}");
        }
    }
}

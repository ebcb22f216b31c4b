//! Real masters. This module alone names the `redis` crate, which reads URLs and everything that a
//! server says but votes.

mod connection;
pub(super) mod encode;
pub(super) mod resp;
mod setting;
#[cfg(feature = "tls")]
mod tls;
pub(super) mod wire;

use std::{future::poll_fn, ops::ControlFlow, path::PathBuf, sync::Arc, time::Instant};

pub(super) use ::redis::Client;
use ::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Value};

use super::{
    config::MasterConfig,
    connection::{Dial, Dialled},
    restart::{Durability, RestartTracker},
};
use crate::core::{
    command::Reply,
    restart::{Incarnation, RestartGuard},
    script::Script,
};

#[cfg(feature = "__internals")]
pub(crate) use self::connection::encode_command;
use self::{
    connection::RedisConnection,
    resp::reply,
    wire::{Wire, connect_tcp},
};

/// Where a server is and how to log in.
#[derive(Clone)]
pub(super) struct Endpoint {
    place: Address,
    database: i64,
    /// What makes a connection ours, ready to be sent: login, database, scripts.
    greeting: Greeting,
}

#[derive(Clone)]
enum Address {
    Tcp(String, u16),
    #[cfg(feature = "tls")]
    Tls(String, u16),
    Unix(PathBuf),
}

#[derive(Clone)]
struct Greeting {
    bytes: Vec<u8>,
    steps: Vec<Step>,
}

/// What a reply to a part of the greeting is checked for.
#[derive(Clone, Copy)]
enum Step {
    Hello,
    LoadScript,
    Select,
}

impl Endpoint {
    /// Errors name no URL, as it may hold a password.
    pub(super) fn from_url(url: &str) -> Result<Self, String> {
        // Nor what the redis crate says of it, which may repeat a part.
        match url.into_connection_info() {
            Ok(info) => Self::from_info(&info),
            Err(_) if url.starts_with("rediss:") && !cfg!(feature = "tls") => {
                Err("rediss:// needs the crate's feature `tls`".to_owned())
            }
            Err(_) => Err("its URL cannot be used: it should look like \
                           redis://[user][:password@]host[:port][/db] or unix:///path"
                .to_owned()),
        }
    }

    pub(super) fn from_info(info: &ConnectionInfo) -> Result<Self, String> {
        let place = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Address::Tcp(host.clone(), *port),
            ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            } => Address::Tls(host.clone(), *port),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(
                    "a TLS connection that verifies nothing (#insecure) is not supported: \
                     trust the server's certificate with Builder::tls"
                        .to_owned(),
                );
            }
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { .. } => {
                return Err(
                    "the certificates of a ready redis::Client cannot be read back: \
                     give the URL, and the certificates with Builder::tls"
                        .to_owned(),
                );
            }
            _ => return Err("its kind of address is not supported".to_owned()),
        };
        Ok(Self {
            place,
            database: info.redis_settings().db(),
            greeting: Greeting::new(info.redis_settings()),
        })
    }

    /// Where the server is: host and port or path, and nothing else. Users and databases do not make two
    /// servers of one.
    pub(super) fn address(&self) -> Arc<str> {
        match &self.place {
            Address::Tcp(host, port) => tcp_address(host, *port),
            #[cfg(feature = "tls")]
            Address::Tls(host, port) => tcp_address(host, *port),
            Address::Unix(path) => format!("unix:{}", path.display()).into(),
        }
    }

    pub(super) fn dialer(self, master: usize, config: &MasterConfig) -> Dialer {
        let place = format!("{}/{}", self.address(), self.database);
        Dialer {
            endpoint: self,
            master,
            guarding: config.restart_tracker.at(&place),
            now: config.now,
            #[cfg(feature = "tls")]
            tls: config.tls.clone(),
        }
    }
}

fn tcp_address(host: &str, port: u16) -> Arc<str> {
    if host.contains(':') {
        format!("[{host}]:{port}").into()
    } else {
        format!("{}:{port}", host.to_ascii_lowercase()).into()
    }
}

impl Greeting {
    fn new(settings: &::redis::RedisConnectionInfo) -> Self {
        let mut hello = ::redis::cmd("HELLO");
        hello.arg(3);
        if let Some(password) = settings.password() {
            hello
                .arg("AUTH")
                .arg(settings.username().unwrap_or("default"))
                .arg(password);
        }
        let mut bytes = hello.get_packed_command();
        let mut steps = vec![Step::Hello];
        if settings.db() != 0 {
            ::redis::cmd("SELECT")
                .arg(settings.db())
                .write_packed_command(&mut bytes);
            steps.push(Step::Select);
        }
        for script in Script::ALL {
            ::redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(script.text())
                .write_packed_command(&mut bytes);
            steps.push(Step::LoadScript);
        }
        Self { bytes, steps }
    }
}

impl Step {
    fn check(self, frame: &[u8]) -> Result<(), String> {
        match (self, reply(frame)) {
            (Self::Hello, Reply::Error(error)) => Err(format!("refused the login: {error}")),
            (Self::Hello, _) => check_role(frame),
            (Self::Select, Reply::Error(error)) => Err(format!("refused the database: {error}")),
            (Self::LoadScript, Reply::Error(error)) if error.starts_with("LOADING") => {
                Err(error.to_owned())
            }
            // Without the right to load scripts they are sent whole, once each.
            (Self::Select | Self::LoadScript, _) => Ok(()),
        }
    }
}

/// A replica forgets what its master forgets, and repeats what it says: it has no vote of its own.
fn check_role(hello: &[u8]) -> Result<(), String> {
    if !hello.starts_with(b"%") {
        return Err("its answer to HELLO 3 makes no sense: is this Redis 6 or later?".to_owned());
    }
    match entry(hello, "role").as_deref() {
        Some("master") | None => Ok(()),
        Some(role) => Err(format!("it is a {role}, not a master")),
    }
}

/// What the answer to [`Durability::ask`] says.
fn durability(settings: &[u8]) -> Durability {
    if let Reply::Error(error) = reply(settings) {
        return Durability::Unknown(error.to_owned());
    }
    Durability::of(|setting| entry(settings, setting))
}

/// What a map says under `name`.
fn entry(map: &[u8], name: &str) -> Option<String> {
    let Ok(Value::Map(entries)) = ::redis::parse_redis_value(map) else {
        return None;
    };
    let text = |value: &Value| ::redis::from_redis_value_ref::<String>(value).ok();
    let is_it = |(key, _): &&(Value, Value)| text(key).as_deref() == Some(name);
    text(&entries.iter().find(is_it)?.1)
}

pub(super) struct Dialer {
    endpoint: Endpoint,
    master: usize,
    guarding: RestartTracker,
    now: fn() -> Instant,
    #[cfg(feature = "tls")]
    tls: Option<Arc<tokio_rustls::rustls::ClientConfig>>,
}

impl Dial for Dialer {
    type Connection = RedisConnection;

    async fn dial(&mut self) -> Result<Dialled<RedisConnection>, Arc<str>> {
        let mut wire = self.connect().await.map_err(Arc::<str>::from)?;
        let Greeting { bytes, steps } = &self.endpoint.greeting;
        wire.out().extend_from_slice(bytes);
        let mut steps = steps.iter();
        let asked = (self.now)();
        let greeted = poll_fn(|cx| {
            wire.poll(
                cx,
                || (),
                |frame, (), _| match steps.next().map_or(Ok(()), |step| step.check(frame)) {
                    Ok(()) if steps.len() > 0 => ControlFlow::Continue(()),
                    result => ControlFlow::Break(result),
                },
            )
        })
        .await?;
        greeted.map_err(Arc::<str>::from)?;
        let round_trip = (self.now)().saturating_duration_since(asked);
        let found = self.incarnation(&mut wire).await?;
        Ok(Dialled {
            connection: RedisConnection::new(wire),
            round_trip,
            age: found.and_then(|found| found.age),
        })
    }
}

impl Dialer {
    /// Behind the login, and ahead of everything else.
    async fn incarnation(&self, wire: &mut Wire) -> Result<Option<Incarnation>, Arc<str>> {
        if self.guarding.guard == RestartGuard::Off {
            return Ok(None);
        }
        let (guarding, address) = (&self.guarding, self.endpoint.address());
        let mut said = Durability::Unasked;
        if guarding.expects_durable {
            // No script may ask for it.
            Durability::ask(wire.out());
            said = wire.answer(durability).await?;
        }
        let question = guarding.question(self.master);
        guarding.ask(&question, &said, wire.out());
        let answer = |frame: &[u8]| guarding.answered((&question, &address), &said, &reply(frame));
        wire.answer(answer).await?.map_err(Arc::from)
    }

    async fn connect(&self) -> Result<Wire, String> {
        match &self.endpoint.place {
            Address::Tcp(host, port) => connect_tcp(host, *port).await.map(Wire::new),
            #[cfg(feature = "tls")]
            Address::Tls(host, port) => tls::connect(self.tls.clone(), host, *port).await,
            #[cfg(unix)]
            Address::Unix(path) => tokio::net::UnixStream::connect(path)
                .await
                .map(Wire::new)
                .map_err(|error| error.to_string()),
            #[cfg(not(unix))]
            Address::Unix(_) => Err("this system has no unix sockets".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MasterSpec;

    #[test]
    fn addresses_tell_servers_apart_and_show_no_secrets() {
        for (url, address) in [
            ("redis://127.0.0.1", "127.0.0.1:6379"),
            ("redis://user:hunter2@Host:7001/3", "host:7001"),
            ("redis://[::1]:7001", "[::1]:7001"),
            ("valkey://a:1", "a:1"),
            ("unix:///run/r.sock?db=2&pass=hunter2", "unix:/run/r.sock"),
        ] {
            let endpoint = Endpoint::from_url(url).unwrap();
            assert_eq!(&*endpoint.address(), address);
            assert!(!format!("{:?}", MasterSpec::from(url)).contains("hunter2"));
        }
    }

    #[test]
    fn bad_urls_show_no_secrets() {
        for url in [
            "",
            "127.0.0.1:6379",
            "http://:hunter2@a",
            "redis://:hunter2@a:99999",
            "redis://:hunter2@a/x",
            "redis://:hunter2@",
        ] {
            let error = Endpoint::from_url(url).err().unwrap();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_settings_come_to() {
        let said = |values: [&str; 3]| {
            let [log, fsync, pause] = values;
            let map = format!(
                "%3\r\n$10\r\nappendonly\r\n+{log}\r\n$11\r\nappendfsync\r\n+{fsync}\r\n\
                 $25\r\nno-appendfsync-on-rewrite\r\n+{pause}\r\n"
            );
            durability(map.as_bytes())
        };
        let volatile = |why: &str| Durability::Volatile(why.to_owned());
        for (values, expected) in [
            (["yes", "always", "no"], Durability::Durable),
            (
                ["no", "always", "no"],
                volatile("appendonly is no, not yes"),
            ),
            (
                ["yes", "everysec", "no"],
                volatile("appendfsync is everysec, not always"),
            ),
            (
                ["yes", "always", "yes"],
                volatile("no-appendfsync-on-rewrite is yes, not no"),
            ),
        ] {
            assert_eq!(said(values), expected);
        }
        for (answer, why) in [
            ("-NOPERM no\r\n", "NOPERM no"),
            ("%0\r\n", "it does not say what appendonly is"),
            ("+OK\r\n", "it does not say what appendonly is"),
            (
                "%1\r\n+appendonly\r\n+yes\r\n",
                "it does not say what appendfsync is",
            ),
        ] {
            let expected = Durability::Unknown(why.to_owned());
            assert_eq!(durability(answer.as_bytes()), expected);
        }
    }

    #[test]
    fn a_replica_has_no_vote() {
        let hello = |role: &str| format!("%1\r\n+role\r\n+{role}\r\n");
        assert_eq!(check_role(hello("master").as_bytes()), Ok(()));
        let error = check_role(hello("replica").as_bytes()).unwrap_err();
        assert!(error.contains("it is a replica"));
        assert!(check_role(b"+OK\r\n").is_err());
    }
}

//! Masters behind Sentinel: asks the Sentinels where the master is.
//!
//! A majority of the listed Sentinels must name the same address. A failover also needs a majority
//! of the Sentinels. So a Sentinel that has missed a failover cannot lead a client back to the old
//! master.

use std::{future::Future, mem::take, ops::ControlFlow, sync::Arc, time::Duration};

use ::redis::{FromRedisValue, Value};
use futures::{
    future::join,
    stream::{FuturesUnordered, StreamExt as _},
};
use tokio::time::{sleep, timeout};

use super::{
    address::{Address, Tls, check_tcp, tcp_address},
    encode::encode,
    resp::reply,
    wire::Wire,
};
use crate::{
    core::{
        protocol::Reply,
        vote::{ServerError, quorum::majority, server_error::without_user},
    },
    master::connect_error::{ConnectError, Progress, in_time},
};

/// The Sentinels that know one master.
#[derive(Clone)]
pub(in crate::master) struct Sentinels {
    /// The name of the master, as the Sentinels know it.
    pub(super) service: Arc<str>,
    /// The host and the port of each Sentinel. They are sorted by address, so that two lists with
    /// the same Sentinels are equal.
    pub(super) hosts: Vec<(String, u16)>,
    /// The encoded login for the Sentinels. It is empty if there is none.
    pub(super) auth: Arc<[u8]>,
    /// Set if the Sentinels and the masters expect TLS.
    pub(super) tls: Option<Tls>,
}

/// Asks Sentinels. The connections to the Sentinels stay open between questions.
pub(super) struct Inquiry {
    of: Sentinels,
    /// The time limit of a dial.
    limit: Duration,
    /// One connection for each Sentinel. `None` if there is no usable connection.
    wires: Vec<Option<Wire>>,
}

impl Inquiry {
    pub(super) fn new(of: &Sentinels, limit: Duration) -> Self {
        Self {
            of: of.clone(),
            limit,
            wires: of.hosts.iter().map(|_| None).collect(),
        }
    }

    /// Returns the address that a majority of the Sentinels name. All Sentinels are asked at once,
    /// so none delays the answers of the others.
    pub(super) async fn locate(&mut self) -> Answer {
        let (of, mut asked) = self.ask();
        of.located(&mut asked).await
    }

    /// Waits until a majority of the Sentinels name an address other than `from`. Returns the
    /// reason to end the connection to `from`.
    ///
    /// The server at `from` may go on as a master for a while, because it learns of the failover
    /// later than the Sentinels.
    pub(super) async fn moved(mut self, from: Arc<str>) -> Arc<str> {
        const PAUSE: Duration = Duration::from_secs(1);
        sleep(PAUSE).await;
        loop {
            let (of, mut asked) = self.ask();
            // While no majority of the Sentinels answers, the connection to the master stays.
            if let Ok(address) = of.located(&mut asked).await
                && let to = address.text()
                && to != from
            {
                return format!("the Sentinels now name {to}, no longer {from}").into();
            }
            // Slow Sentinels may still answer during the pause. If their questions were dropped at
            // once, their connections would be lost each time.
            let others = timeout(PAUSE, asked.collect::<Vec<_>>());
            let _ = join(sleep(PAUSE), others).await;
        }
    }

    /// Prepares a question to each Sentinel. An answer comes with the index of its Sentinel.
    fn ask(
        &mut self,
    ) -> (
        &Sentinels,
        FuturesUnordered<impl Future<Output = (usize, Answer)>>,
    ) {
        // This limit is a little shorter than the limit of the dial. So the error of the dial says
        // what each Sentinel answered.
        let (of, limit) = (&self.of, self.limit / 16 * 15);
        let asked = of.hosts.iter().zip(&mut self.wires).enumerate();
        let asked = asked.map(move |(index, ((host, port), wire))| async move {
            let (address, progress) = (of.address_of(host.clone(), *port), Progress::default());
            let ask = of.ask(&address, wire, &progress);
            (index, in_time(limit, &progress, ask).await)
        });
        (of, asked.collect())
    }
}

type Answer = Result<Address, ConnectError>;

/// Returns the address that a majority names. An answer is `None` if it has not come yet.
fn agreed(answers: &[Option<Answer>]) -> Option<&Address> {
    let addresses = || answers.iter().flatten().flatten();
    let is_agreed = |address: &&Address| {
        let same = addresses().filter(|other| other.text() == address.text());
        same.count() >= majority(answers.len())
    };
    addresses().find(is_agreed)
}

impl Sentinels {
    /// Returns the name that people see for the master. The name stays the same after a failover.
    pub(super) fn text(&self) -> Arc<str> {
        let first = self.hosts.first();
        let first = first.map(|(host, port)| tcp_address(host, *port));
        format!("sentinel:{}@{}", self.service, first.unwrap_or_default()).into()
    }

    fn address_of(&self, host: String, port: u16) -> Address {
        Address::Tcp(host, port, self.tls.clone())
    }

    /// Returns the address that a majority names, as soon as there is one.
    async fn located(
        &self,
        asked: &mut FuturesUnordered<impl Future<Output = (usize, Answer)>>,
    ) -> Answer {
        let mut answers: Vec<_> = self.hosts.iter().map(|_| None).collect();
        while let Some((index, answer)) = asked.next().await {
            answers[index] = Some(answer);
            if let Some(address) = agreed(&answers) {
                return Ok(address.clone());
            }
        }
        Err(self.disagree(&answers))
    }

    async fn ask(
        &self,
        sentinel: &Address,
        kept: &mut Option<Wire>,
        progress: &Progress,
    ) -> Answer {
        let is_new = kept.is_none();
        let mut wire = match kept.take() {
            Some(wire) => wire,
            None => sentinel.connect(progress).await?,
        };
        let mut expects_login = is_new && !self.auth.is_empty();
        if expects_login {
            wire.out.extend_from_slice(&self.auth);
        }
        let service = self.service.as_bytes();
        encode(
            &mut wire.out,
            &[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service],
        );
        let on_frame = |frame: &[u8]| match take(&mut expects_login).then(|| check_login(frame)) {
            Some(Ok(())) => ControlFlow::Continue(()),
            Some(Err(error)) => ControlFlow::Break(Err(error)),
            None => ControlFlow::Break(self.read(frame)),
        };
        let address = wire.answers(on_frame).await??;
        *kept = Some(wire);
        Ok(address)
    }

    fn read(&self, frame: &[u8]) -> Answer {
        Err(match reply(frame) {
            Reply::Nil => ConnectError::Service(format!("knows no master \"{}\"", self.service)),
            Reply::Error(error) if ServerError::of(&error) == ServerError::UnknownCommand => {
                ConnectError::Service(format!("is not a Sentinel: {}", without_user(&error)))
            }
            Reply::Error(error) => refused(&error, without_user(&error)),
            Reply::Int(_) | Reply::Ok | Reply::Other | Reply::Text(_) => match place(frame) {
                Some((host, port)) => return Ok(self.address_of(host, port)),
                None => ConnectError::Sentinel("its answer makes no sense".to_owned()),
            },
        })
    }

    fn disagree(&self, answers: &[Option<Answer>]) -> ConnectError {
        let said = answers.iter().flatten().zip(&self.hosts);
        let said = said.map(
            |(answer, (host, port))| match (tcp_address(host, *port), answer) {
                (name, Ok(address)) => format!("{name} names {}", address.text()),
                (name, Err(error)) => format!("{name}: {error}"),
            },
        );
        let said: Vec<_> = said.collect();
        let (need, count) = (majority(answers.len()), answers.len());
        let text = format!(
            "{need} of {count} Sentinels must name the address of the master \"{}\": {}",
            self.service,
            said.join(", ")
        );
        let refuses = |answer: &&Answer| matches!(answer, Err(error) if error.refusal().is_some());
        match count - answers.iter().flatten().filter(refuses).count() < need {
            true => ConnectError::Service(text),
            false => ConnectError::Sentinel(text),
        }
    }
}

fn refused(error: &str, text: String) -> ConnectError {
    match ServerError::of(error).is_temporary() {
        true => ConnectError::Sentinel(text),
        false => ConnectError::Service(text),
    }
}

fn check_login(frame: &[u8]) -> Result<(), ConnectError> {
    match reply(frame) {
        Reply::Ok => Ok(()),
        Reply::Error(error) => {
            let text = format!(
                "refused the login: {}; look at sentinel_user and sentinel_password in the URL",
                without_user(&error)
            );
            Err(refused(&error, text))
        }
        _ => Err(ConnectError::Sentinel(
            "its answer makes no sense".to_owned(),
        )),
    }
}

/// Reads the host and the port of a master.
fn place(frame: &[u8]) -> Option<(String, u16)> {
    let answer @ Value::Array(_) = ::redis::parse_redis_value(frame).ok()? else {
        return None;
    };
    let [host, port]: [String; 2] = Vec::from_redis_value(answer).ok()?.try_into().ok()?;
    let port = port.parse().ok()?;
    check_tcp(&host, port).ok()?;
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_place_or_a_reason() {
        let sentinels = Sentinels {
            service: "svc".into(),
            hosts: Vec::new(),
            auth: [].into(),
            tls: None,
        };
        for (frame, expected) in [
            ("*2\r\n$2\r\n::\r\n$4\r\n6379\r\n", "[::]:6379"),
            ("*2\r\n$1\r\nh\r\n$1\r\n1\r\n", "h:1"),
            ("*-1\r\n", "knows no master \"svc\""),
            ("_\r\n", "knows no master \"svc\""),
            (
                "-NOAUTH Authentication required.\r\n",
                "NOAUTH Authentication required",
            ),
            (
                "-ERR unknown command 'SENTINEL', with args beginning with: 'x'\r\n",
                "is not a Sentinel: ERR unknown command 'SENTINEL'",
            ),
            ("*0\r\n", "its answer makes no sense"),
            ("*1\r\n$1\r\nh\r\n", "its answer makes no sense"),
            ("*2\r\n$1\r\nh\r\n$1\r\n0\r\n", "its answer makes no sense"),
            (
                "*2\r\n$1\r\nh\r\n$5\r\n99999\r\n",
                "its answer makes no sense",
            ),
            ("*2\r\n$0\r\n\r\n$1\r\n1\r\n", "its answer makes no sense"),
            (
                "*2\r\n$2\r\na\n\r\n$1\r\n1\r\n",
                "its answer makes no sense",
            ),
            ("*3\r\n+a\r\n+1\r\n+2\r\n", "its answer makes no sense"),
            ("+OK\r\n", "its answer makes no sense"),
            (":1\r\n", "its answer makes no sense"),
        ] {
            let said = match sentinels.read(frame.as_bytes()) {
                Ok(address) => address.text().to_string(),
                Err(error) => error.to_string(),
            };
            assert_eq!(said, expected, "{frame:?}");
        }
        for (length, is_named) in [(253, true), (254, false)] {
            let host = "h".repeat(length);
            let frame = format!("*2\r\n${length}\r\n{host}\r\n$1\r\n1\r\n");
            assert_eq!(sentinels.read(frame.as_bytes()).is_ok(), is_named);
        }
    }

    #[test]
    fn a_majority_of_all_sentinels_must_name_the_same_address() {
        let named = |host: &str| Some(Ok(Address::Tcp(host.to_owned(), 1, None)));
        let silent = || Some(Err(ConnectError::Sentinel("down".to_owned())));
        for (answers, expected) in [
            (vec![named("a")], Some("a:1")),
            (vec![named("a"), named("b"), named("a")], Some("a:1")),
            (vec![silent(), named("b"), named("b")], Some("b:1")),
            (vec![silent(), silent(), named("b")], None),
            (vec![named("a"), named("b"), silent()], None),
            (vec![named("a"), silent()], None),
        ] {
            let address = agreed(&answers).map(Address::text);
            assert_eq!(address.as_deref(), expected);
        }
    }
}

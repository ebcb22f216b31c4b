//! Runs the web service, and lets masters and clients fail.

use std::{
    io::Write,
    net::TcpStream,
    ops::RangeInclusive,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use testkit::server::{Server, masters};

use crate::{Service, program, request};

/// What the service works with, and its address.
struct Bank {
    masters: Vec<Server>,
    address: String,
}

impl Bank {
    fn open() -> (Service, Self) {
        let masters = masters(3);
        let mut command = program(env!("CARGO_BIN_EXE_service"), &masters);
        command.env("LISTEN", "127.0.0.1:0");
        command.env("DATABASE", masters[0].directory().join("bank.sqlite"));
        let mut service = Service::start(command);
        let address = service.line().replace("listens on ", "");
        let bank = Self { masters, address };
        bank.until("/ready", "200 OK");
        (service, bank)
    }

    /// Deposits 5.
    fn deposit(&self, account: u32) -> JoinHandle<String> {
        let (address, path) = (self.address.clone(), path(account));
        thread::spawn(move || request(&address, "POST", &path))
    }

    /// Deposits 5, and hangs up in the middle of it.
    fn deposit_and_hang_up(&self, account: u32) {
        let mut client = TcpStream::connect(&self.address).unwrap();
        let head = format!("POST {} HTTP/1.1\r\nHost: x\r\n\r\n", path(account));
        client.write_all(head.as_bytes()).unwrap();
        until(|| (self.balance(account) == Some(0)).then_some(()));
    }

    fn balance(&self, account: u32) -> Option<i64> {
        let sql = "SELECT balance FROM account WHERE id = ?1";
        self.db().query_row(sql, [account], |row| row.get(0)).ok()
    }

    fn db(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.masters[0].directory().join("bank.sqlite")).unwrap()
    }

    /// Asks until the answer contains `part`. Returns the answer.
    fn until(&self, path: &str, part: &str) -> String {
        until(|| Some(request(&self.address, "GET", path)).filter(|answer| answer.contains(part)))
    }
}

fn path(account: u32) -> String {
    format!("/accounts/{account}/deposit/5")
}

#[track_caller]
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(since.elapsed() < Duration::from_secs(30), "waited in vain");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Checks that `answer` refuses, and says when to try again.
#[track_caller]
fn assert_refused(answer: &str, status: &str, seconds: RangeInclusive<u64>) {
    let found = answer.strip_prefix("HTTP/1.1 ");
    assert!(found.unwrap().starts_with(status), "{answer}");
    let wait = retry_after(answer).unwrap();
    assert!(seconds.contains(&wait), "{answer}");
}

fn retry_after(answer: &str) -> Option<u64> {
    let mut lines = answer.lines();
    lines.find_map(|line| line.strip_prefix("retry-after: ")?.parse().ok())
}

#[test]
fn one_of_two_deposits_is_told_when_to_come_again() {
    let (service, bank) = Bank::open();
    let answers = [7, 7, 8].map(|account| bank.deposit(account));
    let [mut one, mut other, eight] = answers.map(|answer| answer.join().unwrap());
    if other.starts_with("HTTP/1.1 200") {
        (one, other) = (other, one);
    }
    for done in [one, eight] {
        assert!(done.starts_with("HTTP/1.1 200 OK"), "{done}");
        assert!(done.ends_with("\r\n5\n"), "{done}");
    }
    assert_refused(&other, "409", 2..=10); // the rest of the TTL of 10 s
    let again = bank.deposit(7).join().unwrap();
    assert!(again.ends_with("\r\n10\n"), "{again}");
    service.terminate();
    assert_eq!(service.ended(), "stopped\n");
}

#[test]
fn prometheus_can_read_the_metrics() {
    let (service, bank) = Bank::open();
    bank.deposit(7).join().unwrap();
    let holds = r#"quorlock_hold_seconds_count{kind="mutex",end="released"}"#;
    let metrics = bank.until("/metrics", &format!("\n{holds} 1\n"));
    let value = |series: &str| {
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix(series))?;
        value.trim().parse::<f64>().ok()
    };
    for master in &bank.masters {
        let port = master.port();
        let labels = format!("master=\"127.0.0.1:{port}\",membership=\"stays\"");
        let series = format!("quorlock_master_can_vote{{{labels}}}");
        assert_eq!(value(&series), Some(1.0), "{metrics}");
    }
    let losses = r#"quorlock_losses_total{kind="mutex",reason="expired"}"#;
    assert_eq!(value(losses), Some(0.0), "{metrics}");
    for bucket in ["0.0005", "60", "+Inf"] {
        let bucket = format!("le=\"{bucket}\"}}");
        assert!(metrics.contains(&bucket), "{metrics}");
    }
    service.terminate();
    assert_eq!(service.ended(), "stopped\n");
}

#[test]
fn a_majority_that_is_down_or_has_forgotten_its_locks_is_no_conflict() {
    let (service, mut bank) = Bank::open();
    bank.masters[1..].iter_mut().for_each(Server::kill);
    let answer = bank.until("/ready", "503 Service Unavailable");
    assert!(answer.contains("only 1 of 3 masters can vote"), "{answer}");
    let refused = bank.deposit(7).join().unwrap();
    assert_refused(&refused, "503", 1..=1);

    bank.masters[1..].iter_mut().for_each(Server::restart);
    let refused = until(|| {
        let answer = bank.deposit(7).join().unwrap();
        retry_after(&answer).filter(|wait| *wait > 1)?;
        Some(answer)
    });
    assert_refused(&refused, "503", 20..=70); // the quarantine is a little longer than `max_ttl`
    let answer = request(&bank.address, "GET", "/ready");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(bank.balance(7), None);
    service.terminate();
    assert_eq!(service.ended(), "stopped\n");
}

#[test]
fn a_deposit_that_is_late_is_not_made() {
    let (service, bank) = Bank::open();
    let late = bank.deposit(7);
    until(|| bank.balance(7));
    let later_holder = "UPDATE account SET fence = fence + 1, balance = 100 WHERE id = 7";
    assert_eq!(bank.db().execute(later_holder, []), Ok(1));
    assert_refused(&late.join().unwrap(), "409", 1..=1);
    assert_eq!(bank.balance(7), Some(100));
    service.terminate();
    assert_eq!(service.ended(), "stopped\n");
}

#[test]
fn a_deposit_is_made_although_its_client_hangs_up() {
    let (service, bank) = Bank::open();
    bank.deposit_and_hang_up(7);
    until(|| (bank.balance(7) == Some(5)).then_some(()));
    let next = bank.deposit(7).join().unwrap();
    assert!(next.ends_with("\r\n10\n"), "{next}");
    service.terminate();
    assert_eq!(service.ended(), "stopped\n");
}

#[test]
fn a_service_that_stops_finishes_its_deposits_and_leaves_no_lock() {
    let (service, bank) = Bank::open();
    let answer = bank.deposit(7);
    until(|| bank.balance(7));
    thread::sleep(Duration::from_millis(500)); // the server ends before the second deposit does
    bank.deposit_and_hang_up(8);
    service.terminate();
    until(|| TcpStream::connect(&bank.address).is_err().then_some(()));
    let answer = answer.join().unwrap();
    assert!(answer.ends_with("\r\n5\n"), "{answer}");
    assert_eq!(service.ended(), "stopped\n");
    assert_eq!(bank.balance(8), Some(5));
    for master in &bank.masters {
        assert_eq!(master.command(&["EXISTS", "accounts/7", "accounts/8"]), "0");
    }
}

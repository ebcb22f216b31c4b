//! Runs the programs against real masters.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStdout, Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use testkit::server::{Server, masters};

mod service;

fn program(path: &str, masters: &[Server]) -> Command {
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    let mut command = Command::new(path);
    command
        .env("QUORLOCK_MASTERS", urls.join(","))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[track_caller]
fn stdout_of(output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// A program that runs until SIGTERM.
struct Service {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Service {
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn terminate(&self) {
        let kill = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        assert!(kill.unwrap().success());
    }

    /// Returns the rest of the output.
    fn ended(mut self) -> String {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps both cores busy until it is dropped.
struct Load(Vec<thread::JoinHandle<()>>);

static IS_BUSY: AtomicBool = AtomicBool::new(true);

impl Load {
    fn start() -> Self {
        let spin = || {
            while IS_BUSY.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        Self((0..4).map(|_| thread::spawn(spin)).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        IS_BUSY.store(false, Ordering::Relaxed);
        for thread in self.0.drain(..) {
            thread.join().unwrap();
        }
    }
}

#[test]
fn one_of_five_hosts_runs_the_job_and_a_late_one_does_not() {
    let masters = masters(5);
    let start = || program(env!("CARGO_BIN_EXE_one_host"), &masters);
    let load = Load::start();
    for _ in 0..5 {
        let hosts: Vec<_> = (0..5).map(|_| start().spawn().unwrap()).collect();
        let said: Vec<_> = hosts
            .into_iter()
            .map(|host| stdout_of(host.wait_with_output().unwrap()))
            .collect();
        let count = |line: &str| said.iter().filter(|said| said.trim_end() == line).count();
        assert_eq!(count("the job runs here"), 1, "{said:?}");
        assert_eq!(
            count("the job runs on another host, or has run"),
            4,
            "{said:?}"
        );
        let late = stdout_of(start().output().unwrap());
        assert_eq!(late, "the job runs on another host, or has run\n");
        for master in &masters {
            master.command(&["DEL", "nightly report"]); // the next night
        }
    }
    drop(load);
}

/// The process that acquired the lock is killed, and so is the first worker.
#[test]
fn a_worker_releases_the_lock_of_the_process_that_enqueued_the_job() {
    let masters = masters(3);
    let start = |role: &str| {
        let mut command = program(env!("CARGO_BIN_EXE_queue"), &masters);
        command.arg(role).stdin(Stdio::piped());
        command.env("QUORLOCK_CLIENT_NAME", "shop-3");
        command.env("QUORLOCK_MAX_TTL", "10m");
        command
    };
    let short = start("enqueue").env("QUORLOCK_MAX_TTL", "1m").output();
    let refused = String::from_utf8(short.unwrap().stderr).unwrap();
    assert!(refused.contains("(QUORLOCK_MAX_TTL)"), "{refused}");
    let mut first = Service::start(start("enqueue"));
    let message = first.line();
    let tokens = masters
        .iter()
        .map(|master| master.command(&["GET", "video/42"]));
    let named = tokens.filter(|token| token.ends_with("@shop-3"));
    assert!(named.count() >= 2);
    first.child.kill().unwrap(); // by SIGKILL
    assert!(message.starts_with("quorlock:1:600000:"), "{message}");
    let busy = start("enqueue").output().unwrap();
    assert!(!busy.status.success(), "{busy:?}");

    let work = || {
        let mut worker = Service::start(start("work"));
        let mut queue = worker.child.stdin.take().unwrap();
        writeln!(queue, "{message}").unwrap();
        worker
    };
    let mut killed = work();
    assert_eq!(killed.line(), "works");
    killed.child.kill().unwrap();
    let said = work().ended();
    let done = "the lock has ended: see in your data whether the job is done\n";
    assert!(["works\n", done].contains(&&*said), "{said}"); // perhaps the first one was faster
    assert_eq!(work().ended(), done);
    stdout_of(start("enqueue").output().unwrap());
}

#[test]
fn a_job_that_fails_is_not_repeated() {
    let masters = masters(3);
    let start = || program(env!("CARGO_BIN_EXE_one_host"), &masters);
    let failed = start().env("FAILURE", "out of paper").output().unwrap();
    assert!(!failed.status.success());
    assert!(String::from_utf8_lossy(&failed.stderr).contains("out of paper"));
    for master in &masters {
        let left: u64 = master.command(&["PTTL", "nightly report"]).parse().unwrap();
        assert!(left > 500_000, "{left} ms");
    }
    let late = stdout_of(start().output().unwrap());
    assert_eq!(late, "the job runs on another host, or has run\n");
}

#[test]
fn a_leader_hands_over_when_it_stops_or_loses_the_lock() {
    let masters = masters(3);
    let start = || Service::start(program(env!("CARGO_BIN_EXE_leader"), &masters));
    let mut first = start();
    assert_eq!(first.line(), "leads");
    let mut second = start();
    let since = Instant::now();
    first.terminate();
    assert_eq!(second.line(), "leads");
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "it waited for the TTL"
    );
    assert_eq!(first.ended(), "stopped\n");
    for master in &masters {
        master.command(&["DEL", "leader"]);
    }
    assert!(second.line().starts_with("steps down: lost \"leader\""));
    assert_eq!(second.line(), "leads"); // it gets the lock again
    second.terminate();
    assert_eq!(second.ended(), "stopped\n");
}

#[test]
fn a_worker_leaves_no_key_behind() {
    let masters = masters(3);
    let mut worker = Service::start(program(env!("CARGO_BIN_EXE_worker"), &masters));
    assert_eq!(worker.line(), "works");
    let is_at_work = || masters[0].command(&["KEYS", "jobs/*"]).contains("jobs/");
    let since = Instant::now();
    while !is_at_work() {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "it does not work"
        );
    }
    worker.terminate();
    assert_eq!(worker.ended(), "stopped\n");
    assert!(!is_at_work());
}

/// Sends one HTTP request, and returns the whole answer.
fn request(address: &str, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn writers_to_a_database_lose_no_increment() {
    let masters = masters(3);
    let database = masters[0].directory().join("accounts.sqlite");
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let mut writer = program(env!("CARGO_BIN_EXE_fenced_sql"), &masters);
            writer.env("DATABASE", &database).spawn().unwrap()
        })
        .collect();
    for writer in writers {
        stdout_of(writer.wait_with_output().unwrap());
    }
    let db = rusqlite::Connection::open(&database).unwrap();
    let balance = db.query_row("SELECT balance FROM account", [], |row| row.get(0));
    assert_eq!(balance, Ok(80));
    drop(db);
    fs::remove_file(database).unwrap();
}

#[test]
fn transfers_in_all_directions_lose_no_money() {
    let masters = masters(3);
    let database = masters[0].directory().join("accounts.sqlite");
    let transfers = [["1", "2"], ["2", "1"], ["2", "3"], ["3", "1"]].map(|accounts| {
        let mut transfer = program(env!("CARGO_BIN_EXE_transfer"), &masters);
        transfer.args(accounts).env("DATABASE", &database);
        transfer.spawn().unwrap()
    });
    for transfer in transfers {
        stdout_of(transfer.wait_with_output().unwrap());
    }
    let db = rusqlite::Connection::open(&database).unwrap();
    let balance = |id| {
        db.query_row("SELECT balance FROM account WHERE id = ?", [id], |row| {
            row.get(0)
        })
    };
    assert_eq!([1, 2, 3].map(balance), [Ok(120), Ok(80), Ok(100)]);
    for master in &masters {
        assert_eq!(master.command(&["KEYS", "account/*"]), "");
    }
}

#[test]
fn visitors_pass_in_the_order_in_which_they_came() {
    let masters = masters(3);
    let output = program(env!("CARGO_BIN_EXE_turnstile"), &masters).output();
    let said = stdout_of(output.unwrap());
    let expected: String = (0..10).map(|n| format!("visitor {n} passes\n")).collect();
    assert_eq!(said, expected);
}

#[test]
fn readers_never_see_half_of_what_a_writer_writes() {
    let masters = masters(3);
    let mut run = program(env!("CARGO_BIN_EXE_read_write"), &masters);
    let said = stdout_of(run.arg(masters[0].directory()).output().unwrap());
    let (written, read): (Vec<_>, Vec<_>) =
        said.lines().partition(|line| line.starts_with("wrote "));
    assert_eq!((written.len(), read.len()), (5, 16), "{said}");
    for line in read {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(words[1], words[2], "{said}");
    }
    for master in &masters {
        assert_eq!(master.command(&["EXISTS", "configuration"]), "0");
    }
}

#[test]
fn at_most_five_jobs_of_two_programs_run_at_once() {
    let masters = masters(3);
    let programs = [(); 2].map(|()| {
        let mut run = program(env!("CARGO_BIN_EXE_semaphore"), &masters);
        run.arg(masters[0].directory()).spawn().unwrap()
    });
    // A job fails if another one has its slot.
    let said = programs.map(|program| stdout_of(program.wait_with_output().unwrap()));
    let slots: Vec<_> = said
        .iter()
        .flat_map(|said| said.lines())
        .map(|line| line.rsplit_once(" in ").unwrap().1)
        .collect();
    assert_eq!(slots.len(), 40);
    let slots = BTreeSet::from_iter(slots);
    assert_eq!(slots, BTreeSet::from(["0", "1", "2", "3", "4"]));
    for master in &masters {
        assert_eq!(master.command(&["EXISTS", "reports"]), "0");
    }
}

#[test]
fn a_program_without_async_leaves_no_key_behind() {
    let masters = masters(3);
    for _ in 0..20 {
        let run = program(env!("CARGO_BIN_EXE_without_async"), &masters).output();
        let said = stdout_of(run.unwrap());
        assert_eq!(said, "imports orders\nimports customers\nimports prices\n");
        for master in &masters {
            assert_eq!(master.command(&["EXISTS", "import"]), "0");
        }
    }
}

#[test]
fn masters_come_from_a_toml_file() {
    let masters = masters(3);
    let path = masters[0].directory().join("settings.toml");
    let read = |urls: &[String], more: &str| {
        let text = format!("[locks]\nmasters = {urls:?}\nttl = \"20s\"\n{more}\n");
        fs::write(&path, text).unwrap();
        let mut command = program(env!("CARGO_BIN_EXE_from_toml"), &masters);
        command.arg(&path).output().unwrap()
    };
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    let said = stdout_of(read(&urls, "quarantine = \"observed\""));
    assert_eq!(said.matches("can vote").count(), 3, "{said}");

    let wrong = [urls[0].clone(), "redis://:hunter2@b:x".to_owned()];
    let no_file = path.with_file_name("none").display().to_string();
    for (urls, more, expected) in [
        (&wrong[..], "", "the port in its URL is not a number"),
        (&urls, "password_file = \"none\"", &*no_file),
        (&urls, "password = 1", "unknown field `password`"),
        (
            &urls,
            "max_ttl = \"1x\"",
            "is not a time, expected one such",
        ),
    ] {
        let error = String::from_utf8(read(urls, more).stderr).unwrap();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

/// An operator changes the masters, and what else all programs share, without new code.
#[test]
fn all_shared_settings_come_from_the_environment() {
    let (new, old) = (masters(3), masters(3));
    let urls: Vec<_> = old.iter().map(Server::url).collect();
    let mut job = program(env!("CARGO_BIN_EXE_one_host"), &new);
    job.env("QUORLOCK_OLD_MASTERS", urls.join(","))
        .env("QUORLOCK_KEY_TEMPLATE", "app:{name}")
        .env("QUORLOCK_MAX_TTL", "30s");
    assert_eq!(stdout_of(job.output().unwrap()), "the job runs here\n");
    for master in new.iter().chain(&old) {
        assert_eq!(master.command(&["EXISTS", "app:nightly report"]), "1");
    }
    let refused = job.env("QUORLOCK_MAX_TTL", "5s").output().unwrap();
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(error.contains("(QUORLOCK_MAX_TTL)"), "{error}"); // the TTL of 10 s is longer
}

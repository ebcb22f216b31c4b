//! Connections over streams: clocks, faults, and clients of several runtimes.

#![allow(clippy::unwrap_used, reason = "a failed test ends")]

use std::{
    io::ErrorKind,
    thread,
    time::{Duration, SystemTime},
};

use quorlock_memory::{
    Fault, MemoryMaster,
    heart::{Reply, Script, Server},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    runtime,
    task::yield_now,
    time::{Instant, advance, sleep, timeout},
};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A client that sends lines of words.
struct Client(DuplexStream);

impl Client {
    fn new(master: &MemoryMaster) -> Self {
        Self(master.connect().unwrap())
    }

    async fn send(&mut self, lines: &str) {
        self.0.write_all(lines.as_bytes()).await.unwrap();
        self.0.write_all(b"\r\n").await.unwrap();
    }

    /// Returns what comes next. An empty text is the end of the connection.
    async fn next(&mut self) -> String {
        let mut bytes = [0; 4096];
        let count = self.0.read(&mut bytes).await.unwrap();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    async fn ask(&mut self, line: &str) -> String {
        self.send(line).await;
        self.next().await
    }

    /// Returns what comes within an hour, which paused time makes short.
    async fn heard(&mut self) -> Option<String> {
        timeout(3_600 * SECOND, self.next()).await.ok()
    }
}

#[tokio::test(start_paused = true)]
async fn a_tracked_key_is_pushed_when_it_expires() {
    let master = MemoryMaster::new();
    let mut client = Client::new(&master);
    client.ask("HELLO 3").await;
    let lines = "SET a 1 PX 600000\r\nCLIENT TRACKING ON OPTIN\r\nCLIENT CACHING YES\r\nGET a";
    client.ask(lines).await;
    let start = Instant::now();
    let push = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n";
    assert_eq!(client.next().await, push);
    // The key lives until the end of its last millisecond.
    let passed = start.elapsed();
    assert!(
        (600_001..=600_002).contains(&passed.as_millis()),
        "{passed:?}"
    );
    assert_eq!(client.ask("GET a").await, "_\r\n");
    assert_eq!(client.heard().await, None, "one push for one read");
}

#[tokio::test(start_paused = true)]
async fn the_last_millisecond_of_a_key() {
    // A paused clock is exact: this does not depend on the time of day.
    let master = MemoryMaster::new();
    advance(Duration::from_micros(1_700)).await;
    master.set("a", "1", Some(60 * MILLISECOND));
    assert_eq!(master.pttl("a"), Some(60 * MILLISECOND));
    advance(Duration::from_micros(60_200)).await;
    assert_eq!(master.get("a").as_deref(), Some("1"));
    advance(Duration::from_micros(200)).await;
    assert_eq!(master.get("a"), None);
    assert_eq!(master.keys(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_key_may_live_for_as_long_as_numbers_go() {
    let master = MemoryMaster::new();
    let mut client = Client::new(&master);
    client.ask("HELLO 3").await;
    client.ask("CLIENT TRACKING ON").await;
    master.set("a", "1", Some(Duration::MAX));
    assert_eq!(client.ask("GET a").await, "$1\r\n1\r\n");
    assert!(client.ask("TTL a").await.starts_with(":9"));
    master.set_clock(-3_000_000_000_000_000, 0); // before 1970
    master.command(&["PEXPIRE", "a", &i64::MAX.to_string()]);
    let largest = (i64::MAX / 1_000).to_string();
    assert!(
        matches!(master.command(&["TTL", "a"]), Reply::Int(left) if left.to_string() == largest)
    );
    assert_eq!(master.keys(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn time_is_the_time_of_day_by_tokios_clock() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let seconds = |master: &MemoryMaster| {
        let Reply::Array(parts) = master.command(&["TIME"]) else {
            panic!("TIME has two parts");
        };
        let Reply::Bulk(seconds) = &parts[0] else {
            panic!("they are texts");
        };
        str::from_utf8(seconds).unwrap().parse::<u64>().unwrap()
    };
    let wall = || {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap().as_secs()
    };
    let early = MemoryMaster::new();
    assert!(seconds(&early).abs_diff(wall()) < 60);
    advance(HOUR).await;
    let late = MemoryMaster::new();
    for master in [&early, &late] {
        assert!(seconds(master).abs_diff(wall() + 3_600) < 60);
    }
    // A clock that is wrong, and one that stands still.
    late.set_clock(-3_600_000_000, 0);
    assert!(seconds(&late).abs_diff(wall()) < 60);
    early.set("a", "1", Some(HOUR));
    early.set_clock(0, -1_000_000);
    advance(2 * HOUR).await;
    assert_eq!(early.pttl("a"), Some(HOUR));
    // Trackers hear at once of keys that end because the clock is set forward.
    let mut client = Client::new(&early);
    client.ask("HELLO 3").await;
    client.ask("CLIENT TRACKING ON").await;
    client.ask("GET a").await;
    early.set_clock(3 * 3_600_000_000, 0);
    assert!(client.next().await.contains("invalidate"));
    assert_eq!(early.get("a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_that_of_the_network() {
    let master = MemoryMaster::new();
    let mut client = Client::new(&master);
    master.inject(Fault::Delay(SECOND));
    let start = Instant::now();
    client.send("INCR a\r\nINCR a").await;
    sleep(SECOND / 2).await;
    client.send("INCR a").await;
    let mut replies = String::new();
    let mut times = Vec::new();
    while replies.len() < 12 {
        replies += &client.next().await;
        times.push(start.elapsed().as_millis());
    }
    assert_eq!(replies, ":1\r\n:2\r\n:3\r\n");
    assert_eq!(times, [1_000, 1_500]);
    master.inject(Fault::Delay(Duration::MAX));
    client.send("INCR a").await;
    assert_eq!(client.heard().await, None);
    master.inject(Fault::None);
    assert_eq!(client.heard().await.as_deref(), Some(":4\r\n"));
}

#[tokio::test(start_paused = true)]
async fn a_master_that_is_down_breaks_connections_and_refuses_them() {
    let master = MemoryMaster::new();
    let mut client = Client::new(&master);
    client.ask("SET a 1").await;
    master.inject(Fault::Down);
    assert_eq!(client.next().await, "");
    let refused = master.connect().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    master.inject(Fault::None);
    let mut client = Client::new(&master);
    assert_eq!(client.ask("GET a").await, "$1\r\n1\r\n");
    // However short the fault is.
    master.inject(Fault::Down);
    master.inject(Fault::None);
    assert_eq!(client.heard().await.as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn an_error_answers_all_but_the_commands_about_the_connection() {
    let master = MemoryMaster::new();
    let mut client = Client::new(&master);
    master.inject(Fault::ErrorReply("OOM no room".to_owned()));
    for (line, expected) in [
        ("CLIENT SETNAME a", "+OK\r\n"),
        ("SET a 1", "-OOM no room\r\n"),
        ("EVAL 1 0", "-OOM no room\r\n"),
        ("SELECT 1", "+OK\r\n"),
    ] {
        assert_eq!(client.ask(line).await, expected, "{line}");
    }
    assert_eq!(master.commands(), 2);
    assert_eq!(master.command(&["EXISTS", "a"]), Reply::Int(0));
    master.inject(Fault::None);
    assert_eq!(client.ask("SET a 1").await, "+OK\r\n");
}

#[tokio::test(start_paused = true)]
async fn a_master_that_hangs_executes_later_what_was_sent() {
    let master = MemoryMaster::new();
    let (mut patient, mut hasty) = (Client::new(&master), Client::new(&master));
    master.inject(Fault::Hang);
    patient.send("INCR a").await;
    hasty.send("INCR a").await;
    drop(hasty); // its command is in the server's buffer
    let mut late = Client::new(&master);
    late.send("INCR a").await;
    assert_eq!(patient.heard().await, None);
    assert_eq!(master.get("a"), None);
    master.inject(Fault::None);
    assert_eq!(patient.heard().await.unwrap().len(), 4);
    assert_eq!(late.heard().await.unwrap().len(), 4);
    assert_eq!(master.get("a").as_deref(), Some("3"));
}

#[tokio::test(start_paused = true)]
async fn a_mute_master_executes_and_breaks_connections_when_it_speaks_again() {
    let master = MemoryMaster::new();
    let (mut client, mut silent) = (Client::new(&master), Client::new(&master));
    silent.ask("PING").await;
    master.inject(Fault::Mute);
    client.send("SET a 1").await;
    assert_eq!(client.heard().await, None);
    assert_eq!(master.get("a").as_deref(), Some("1"));
    master.inject(Fault::None);
    assert_eq!(client.next().await, "");
    assert_eq!(silent.ask("PING").await, "+PONG\r\n");
    // A push is lost, however short the fault is.
    silent.ask("SUBSCRIBE c").await;
    master.inject(Fault::Mute);
    master.command(&["PUBLISH", "c", "m"]);
    master.inject(Fault::None);
    assert_eq!(silent.heard().await.as_deref(), Some(""));
}

#[tokio::test(start_paused = true)]
async fn a_restart_loses_everything_but_the_fault() {
    let field = |master: &MemoryMaster, name: &str| {
        let Reply::Verbatim(info) = master.command(&["INFO"]) else {
            panic!("INFO is a text");
        };
        let mut lines = info.lines().map(|line| line.split_once(':'));
        let found = lines.find_map(|line| line.filter(|(field, _)| *field == name));
        found.unwrap().1.to_owned()
    };
    let (master, other) = (MemoryMaster::new(), MemoryMaster::new());
    let ids = |master: &MemoryMaster| [field(master, "run_id"), field(master, "master_replid")];
    let [run, replication] = ids(&master);
    assert!(
        ids(&other)
            .iter()
            .all(|id| *id != run && *id != replication)
    );
    let mut client = Client::new(&master);
    let evalsha = format!("EVALSHA {} 0", Script::new("return(1)").hash());
    client.ask("EVAL return(1) 0").await;
    assert_eq!(client.ask(&evalsha).await, ":1\r\n");
    client.ask("SET a 1").await;
    master.restart();
    assert_eq!(client.next().await, "");
    let unknown = Client::new(&master).ask(&evalsha).await;
    assert!(unknown.starts_with("-NOSCRIPT"), "{unknown}");
    assert_eq!(master.keys(), [""; 0]);
    assert_ne!(ids(&master)[0], run);
    assert_eq!(ids(&master)[1], replication);

    other.set("theirs", "1", None);
    let mut client = Client::new(&master);
    client.ask("HELLO 3").await;
    client.ask("CLIENT TRACKING ON").await;
    master.resync(&other);
    assert_eq!(client.next().await, ">2\r\n$10\r\ninvalidate\r\n_\r\n");
    assert_eq!(master.keys(), ["theirs"]);
    assert_ne!(ids(&master)[1], replication);
    assert_eq!(field(&master, "master_replid2"), replication);
    master.forget();
    assert_eq!(client.next().await, ">2\r\n$10\r\ninvalidate\r\n_\r\n");
    assert_eq!(master.keys(), [""; 0]);
    assert_eq!(other.keys(), ["theirs"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_test_writes_is_told_to_trackers() {
    let master = MemoryMaster::new();
    let mut client = Client::new(&master);
    client.ask("HELLO 3").await;
    client.ask("CLIENT TRACKING ON").await;
    for change in [
        (|master: &MemoryMaster| master.set("a", "1", None)) as fn(&MemoryMaster),
        |master| master.set_hash("a", [("field", "1")], None),
        |master| master.delete("a"),
    ] {
        client.ask("EXISTS a").await;
        change(&master);
        assert!(client.next().await.contains("invalidate"));
    }
    master.set_hash("hash", [("field", "1")], Some(SECOND));
    let fields = master.hash("hash").unwrap();
    assert_eq!(fields["field"], "1");
    assert_eq!(master.get("hash"), None);
    master.command(&["ZADD", "queue", "2", "b", "1", "c", "2", "a"]);
    assert_eq!(master.queue("queue"), ["c", "a", "b"]);
    master.hide("hash");
    assert_eq!(master.keys(), ["queue"]);
}

#[test]
fn clients_of_several_runtimes_share_a_master() {
    let master = MemoryMaster::new();
    let threads = (0..4).map(|_| {
        let master = master.clone();
        thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut client = Client::new(&master);
                for _ in 0..100 {
                    client.ask("INCR a").await;
                }
            });
        })
    });
    let threads: Vec<_> = threads.collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(master.get("a").as_deref(), Some("400"));
    let (mine, theirs) = (master.clone(), master.for_another_process());
    assert_eq!((mine.process(), mine.address()), (0, master.address()));
    assert_ne!(theirs.process(), 0);
    assert_ne!(theirs.process(), master.for_another_process().process());
    assert_eq!(theirs.address(), master.address());
    assert_eq!(theirs.get("a").as_deref(), Some("400"));
}

#[tokio::test]
async fn a_connection_ends_with_its_client() {
    let master = MemoryMaster::new();
    let mut client = Client::new(&master);
    client.ask("SUBSCRIBE c").await;
    assert_eq!(master.with(|server, _| server.subscriptions()), 1);
    client.send("SET a 1").await;
    drop(client);
    while master.with(|server, _| server.subscriptions()) > 0 {
        yield_now().await;
    }
    assert_eq!(master.get("a").as_deref(), Some("1"), "it was sent");
}

#[tokio::test]
async fn a_server_closes_connections() {
    let master = MemoryMaster::new();
    let mut client = Client::new(&master);
    assert_eq!(client.ask("QUIT").await, "+OK\r\n");
    assert_eq!(client.next().await, "");
    let mut client = Client::new(&master);
    let error = "-ERR Protocol error: invalid multibulk length\r\n";
    assert_eq!(client.ask("*x").await, error);
    assert_eq!(client.next().await, "");
    let (mut killer, mut victim) = (Client::new(&master), Client::new(&master));
    victim.ask("PING").await;
    assert_eq!(killer.ask("CLIENT KILL ID 4").await, ":1\r\n");
    assert_eq!(victim.next().await, "");
}

#[tokio::test]
async fn a_connection_that_ends_gets_all_replies() {
    let master = MemoryMaster::new();
    master.set("a", "x".repeat(1 << 20), None); // more than is on the way at once
    for (lines, replies) in [
        ("GET a\r\nQUIT", "\r\n+OK\r\n"),
        ("GET a\r\n*x", "invalid multibulk length\r\n"),
        ("GET a\r\nPING", "\r\n+PONG\r\n"), // the client ends it
        ("PING", "+PONG\r\n"),
    ] {
        let mut client = Client::new(&master);
        client.send(lines).await;
        client.0.shutdown().await.unwrap();
        let mut got = String::new();
        client.0.read_to_string(&mut got).await.unwrap();
        assert!(got.ends_with(replies), "{lines}: {} bytes", got.len());
        let is_whole = got.len() > 1 << 20;
        assert_eq!(is_whole, lines.starts_with("GET"), "{lines}");
    }
}

#[tokio::test]
async fn a_server_demands_a_login_and_rights() {
    let master = MemoryMaster::new();
    master.with(|server: &mut Server, _| server.require_login("me", "secret"));
    let shown = master.with(|server, _| format!("{server:?}"));
    assert!(!shown.contains("secret"), "{shown}");
    let mut client = Client::new(&master);
    for (line, expected) in [
        ("GET a", "-NOAUTH Authentication required.\r\n"),
        (
            "HELLO 3",
            "-NOAUTH HELLO must be called with the client already authenticated",
        ),
        (
            "AUTH me wrong",
            "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        ),
        (
            "HELLO 3 AUTH me secret SETNAME a",
            "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n",
        ),
        ("CLIENT GETNAME", "$1\r\na\r\n"),
        (
            "CLIENT LIST",
            "=89\r\ntxt:id=1 addr=memory:1 name=a age=0 idle=0 flags=N db=0 sub=0 psub=0 user=default resp=3\n\r\n",
        ),
    ] {
        let answer = client.ask(line).await;
        assert!(answer.starts_with(expected), "{line}: {answer}");
    }
    master.with(|server, _| {
        server.deny("PUBLISH");
        server.deny("CLIENT|TRACKING");
    });
    for (line, expected) in [
        (
            "PUBLISH c m",
            "-NOPERM User default has no permissions to run the 'publish' command\r\n",
        ),
        (
            "CLIENT TRACKING ON",
            "-NOPERM User default has no permissions to run the 'client|tracking' command\r\n",
        ),
        ("CLIENT ID", ":1\r\n"),
        (
            "EVAL return(redis.call('PUBLISH','c','m')) 0",
            "-ERR ACL failure in script: User default has no permissions to run the 'publish' command\r\n",
        ),
        (
            "EVAL return(redis.acl_check_cmd('PUBLISH','c','m')) 0",
            "_\r\n",
        ),
    ] {
        assert_eq!(client.ask(line).await, expected, "{line}");
    }
}

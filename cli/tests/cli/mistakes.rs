//! Servers that refuse the login: what ends by itself is waited for, and what does not is 78.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use testkit::server::{Server, masters};

use crate::support::{Ended, Running, ended, with};

/// Starts a server that sends `answer` to each connection, and then nothing more. Returns its port.
fn fake(answer: impl Into<Vec<u8>>) -> u16 {
    let answer = answer.into();
    behind(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(&answer);
        // Reads to the end, because a close with unread bytes would reset the connection.
        let _ = io::copy(&mut stream, &mut io::sink());
    })
}

fn behind(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (port, serve) = (listener.local_addr().unwrap().port(), Arc::new(serve));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    port
}

fn at(urls: &str, words: &str) -> Command {
    let mut command = with(&[], words);
    command
        .env("QUORLOCK_MASTERS", urls)
        .env("QUORLOCK_CONNECT_TIMEOUT", "10s");
    command
}

/// Runs all commands at once, each to its end. Returns what each gave, and how long it took.
fn all_ended<T: Send>(cases: Vec<(T, Command)>) -> Vec<(T, Ended, Duration)> {
    thread::scope(|scope| {
        let run = |(case, mut command): (T, Command)| {
            scope.spawn(move || {
                let since = Instant::now();
                let ended = ended(&mut command);
                (case, ended, since.elapsed())
            })
        };
        let running: Vec<_> = cases.into_iter().map(run).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// `each_error_means_that_one_thing_must_change` has the errors of servers and of proxies. Here are
/// one with a code, and one without.
#[test]
fn an_error_that_ends_by_itself_is_69_and_waited_for() {
    let cases = [
        "upstream failure",
        "LOADING Redis is loading the dataset in memory",
    ];
    let cases = cases.into_iter().flat_map(|error| {
        let words = [
            "run -n a -- echo ran",
            "run --wait 1s a -- echo ran",
            "run -n --ready 1s a -- echo ran",
            "status a",
        ];
        words.map(|words| {
            let url = format!("redis://127.0.0.1:{}", fake(format!("-{error}\r\n")));
            ((error, words), at(&url, words))
        })
    });
    for ((error, words), ended, took) in all_ended(cases.collect()) {
        let ended = ended.is(69).hides("ran\n").omits("password");
        let is_told = ended.err.contains(error) || ended.out.contains(error);
        assert!(is_told, "{error}: {ended}");
        let is_long = took >= Duration::from_secs(1);
        assert!(is_long || !words.contains("1s"), "{took:?}: {ended}");
    }
}

/// What a proxy answers before its server is ready.
const NOT_READY: [&str; 2] = [
    "HTTP/1.1 503 Service Unavailable\r\n\r\n",
    "-upstream failure\r\n",
];

/// Starts a proxy that gives the answer with the number in `step`, and that has a server from then
/// on. Returns its port.
fn proxy(to: u16, step: &Arc<AtomicUsize>) -> u16 {
    let step = step.clone();
    behind(move |mut stream| {
        if let Some(answer) = NOT_READY.get(step.load(Relaxed)) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let _ = io::copy(&mut stream, &mut io::sink());
            return;
        }
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
        let (mut from, mut back) = (server.try_clone().unwrap(), stream.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from, &mut back));
        let _ = io::copy(&mut stream, &mut server);
    })
}

#[test]
fn a_lock_is_got_when_the_proxy_has_its_server() {
    let (masters, step) = (masters(1), Arc::default());
    let url = format!("redis://127.0.0.1:{}", proxy(masters[0].port(), &step));
    let start = |words| {
        let mut running = Running::start(&mut at(&url, words));
        running.errors_until(&["waiting for \"a\": ", "the status 503 of HTTP"]);
        running
    };
    let mut running = start("run -v a -- echo ran");
    let limited = start("run -v --wait 5s a -- echo ran");
    step.store(1, Relaxed);
    limited.ended().is(69).says("upstream failure");
    step.store(2, Relaxed);
    assert_eq!(running.line(), "ran");
    running.ended().is(0);
}

/// `health_says_which_servers_can_never_be_masters` has the answers of such servers. Here is one for
/// each text.
#[test]
fn a_server_that_will_never_be_a_master_is_78_at_once() {
    let web = "HTTP/1.1 400 Bad Request\r\n\r\n";
    let once = [
        (
            "-WRONGPASS invalid username-password pair\r\n",
            "refused the login: WRONGPASS",
        ),
        (
            "-NOPERM User x has no permissions to run the 'hello' command\r\n",
            "refused the login: NOPERM",
        ),
        (
            "-DENIED Redis is running in protected mode\r\n",
            "protected mode",
        ),
        ("-ERR unknown command `HELLO`\r\n", "HELLO"),
        ("+OK\r\n", "its answer is not a map"),
        ("%1\r\n+mode\r\n+sentinel\r\n", "it is a Sentinel"),
        (web, "the answer is not RESP"),
    ];
    let once = once.map(|case| (case, "run -n a -- echo ran"));
    let long = [
        "run --wait 15s a -- echo ran",
        "run --ready 15s a -- echo ran",
        "hold --wait 15s a",
        "status a",
    ];
    let long = long.map(|words| ((web, "the answer is not RESP"), words));
    let cases = once.into_iter().chain(long).map(|((answer, part), words)| {
        let url = format!("redis://127.0.0.1:{}", fake(answer));
        (part, at(&url, words))
    });
    for (part, ended, took) in all_ended(cases.collect()) {
        let ended = ended.is(78).hides("ran\n");
        let is_told = ended.err.contains(part) || ended.out.contains(part);
        assert!(is_told, "{part}: {ended}");
        assert!(took < Duration::from_secs(14), "{took:?}: {ended}");
    }
}

/// A majority of the others may still come.
#[test]
fn a_minority_of_mistakes_is_no_mistake() {
    let (masters, down) = (masters(2), Server::reserve());
    let web = format!(
        "redis://127.0.0.1:{}",
        fake(*b"HTTP/1.1 400 Bad Request\r\n\r\n")
    );
    let urls = |servers: [&Server; 2]| format!("{web},{},{}", servers[0].url(), servers[1].url());
    for (servers, expected) in [([&masters[0], &masters[1]], 0), ([&masters[0], &down], 69)] {
        ended(&mut at(&urls(servers), "run -n a -- true")).is(expected);
    }
}

/// The server of the second case knows TLS 1.1 only, and the third one knows no TLS.
#[cfg(feature = "tls")]
#[test]
fn tls_that_can_never_work_is_78_at_once() {
    let nothing = std::path::PathBuf::from("/nonexistent");
    let authority = testkit::certificates::Authority::new();
    let trusted = authority.file();
    for (answer, trusted, expected) in [
        (&[][..], &nothing, "the system has no trusted certificates"),
        (&[21, 3, 1, 0, 2, 2, 70], &trusted, "ProtocolVersion"),
        (
            b"-ERR unknown command\r\n",
            &trusted,
            "the answer is not TLS",
        ),
    ] {
        let url = format!("rediss://127.0.0.1:{}", fake(answer));
        for words in [
            "run -n a -- echo ran",
            "run --wait 15s a -- echo ran",
            "status a",
        ] {
            let mut command = at(&url, words);
            command
                .env("SSL_CERT_FILE", trusted)
                .env("SSL_CERT_DIR", &nothing);
            let ended = ended(&mut command).is(78).hides("ran\n");
            assert!(ended.to_string().contains(expected), "{ended}");
        }
    }
}

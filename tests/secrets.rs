//! Checks that no text of the crate shows passwords or tokens, in `Debug`, `Display` or events.

#![allow(
    clippy::disallowed_methods,
    reason = "tests with real servers run in real time, and stall threads on purpose"
)]
#![allow(
    clippy::unwrap_used,
    reason = "test helpers fail like tests, but clippy recognizes only tests themselves"
)]

use std::{
    error::Error,
    fmt::{Debug, Write as _},
    sync::{Mutex, Once, PoisonError},
    thread,
    time::{Duration, Instant},
};

use quorlock::{
    Builder, ConfigError, Coordinator, ExtendError, Guard, MasterSpec, Quarantine, Reason, Renewal,
};
use quorlock_check::{CheckSettings, check};
use testkit::{
    proxy::Proxy,
    server::{self, Server},
};
use tokio::time::{sleep, sleep_until, timeout};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

const PASSWORD: &str = "hunter2-of-all";
const OF_ALICE: &str = "hunter2-of-alice";
const WRONG: &str = "hunter2-mistyped";

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn no_text_and_no_event_shows_a_secret() {
    with_a_runtime(async {
        let mut masters = Masters::start();
        let mut texts = Texts::default();
        texts.add(&masters.builder());
        for url in masters.urls() {
            texts.add(&MasterSpec::from(url));
        }
        let locks = masters.builder().build().unwrap();
        texts.add(&locks);
        let lock = locks.mutex("r");
        texts.add(&lock);

        let specs = masters.urls().map(MasterSpec::from);
        let specs: Vec<_> = specs.into_iter().collect();
        let report = check(&specs, &[], &CheckSettings::default()).await.unwrap();
        texts.add(&report);
        texts.add(&report.to_string());

        let guard = masters.acquire(&locks).await;
        texts.hide(masters.plain.command(&["GET", "r"]));
        texts.add(&guard);
        let votes = guard.all_votes().await;
        assert_eq!(
            (votes.granted_count(), votes.failed_count()),
            (3, 1),
            "{votes}"
        );
        texts.add(&votes);
        texts.add(&votes.to_string());
        votes.iter().for_each(|row| texts.add(&row));

        let contended = lock.try_acquire().await.unwrap_err();
        assert!(contended.is_busy());
        texts.add_error(&contended);
        let late = lock.acquire_within(Duration::ZERO).await.unwrap_err();
        assert!(late.to_string().starts_with("gave up"));
        texts.add_error(&late);
        guard.release().await.unwrap();

        let quick = masters
            .builder()
            .response_timeout(Duration::from_millis(400))
            // With a large drift, keys outlive the validity, so masters can confirm too late.
            .drift_ppm(300_000)
            .build()
            .unwrap();
        drop(masters.acquire(&quick).await);
        let slow = quick
            .mutex("slow")
            .ttl(Duration::from_secs(1))
            .renewal(Renewal::Off);
        let (slow, ()) = tokio::join!(slow.try_acquire(), async {
            // The votes are counted meanwhile, and this task reads them too late.
            thread::sleep(Duration::from_millis(800));
        });
        let slow = slow.unwrap_err();
        assert!(matches!(slow.reason(), Reason::TooSlow { .. }));
        texts.add_error(&slow);

        collect_failed_extensions(&masters, &quick, &mut texts).await;
        quick.close().await;

        let guard = masters.acquire(&locks).await;
        texts.hide(masters.plain.command(&["GET", "r"]));
        masters.alice.kill();
        until("no quorum", async || {
            let refused = locks.mutex("other").try_acquire().await.err()?;
            texts.add_error(&refused);
            (*refused.reason() == Reason::NoQuorum).then_some(())
        })
        .await;
        let unconfirmed = guard.extend(Duration::from_secs(60)).await.unwrap_err();
        assert!(matches!(unconfirmed, ExtendError::NoQuorum(_)));
        texts.add_error(&unconfirmed);
        let unconfirmed = guard.release().await.unwrap_err();
        texts.add_error(&unconfirmed);

        masters.alice.restart(); // otherwise the last release would stay pending for a while
        locks.close().await;
        let closed = lock.try_acquire().await.unwrap_err();
        assert!(*closed.reason() == Reason::Closed);
        texts.add_error(&closed);

        texts
            .add_events(&["connected", "master down", "refused the login"])
            .await;
        texts.check();
    });
}

async fn collect_failed_extensions(masters: &Masters, locks: &Coordinator, texts: &mut Texts) {
    let guard = masters.acquire(locks).await;
    texts.hide(masters.plain.command(&["GET", "r"]));
    let config = guard.extend(Duration::ZERO).await.unwrap_err();
    texts.add_error(&config);
    for master in [&masters.plain, &masters.alice, &masters.all] {
        assert_eq!(master.command(&["DEL", "r"]), "1");
    }
    let lost = guard.extend(Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(lost, ExtendError::Lost(_)));
    texts.add_error(&lost);
    drop(guard);

    // The extension is too slow if it is requested in time and confirmed too late. It has expired
    // if it is requested too late.
    until("a slow extension", async || {
        let lock = locks
            .mutex("brief")
            .ttl(Duration::from_secs(1))
            .renewal(Renewal::Off);
        let guard = lock.acquire_within(TEST_TIMEOUT).await.ok()?;
        let at = guard.valid_until() - Duration::from_millis(100);
        sleep_until(at.into()).await;
        for master in [&masters.plain, &masters.alice, &masters.all] {
            master.command(&["CLIENT", "PAUSE", "200", "WRITE"]);
        }
        let slow = guard.extend(Duration::from_secs(60)).await.unwrap_err();
        texts.add_error(&slow);
        matches!(slow, ExtendError::Lost(_)).then_some(())
    })
    .await;
    let lock = locks
        .mutex("briefer")
        .ttl(Duration::from_secs(1))
        .renewal(Renewal::Off);
    let guard = lock.acquire_within(TEST_TIMEOUT).await.unwrap();
    sleep_until(guard.valid_until().into()).await;
    let expired = guard.extend(Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(expired, ExtendError::Lost(_)));
    texts.add_error(&expired);
}

#[test]
fn an_unusable_url_is_not_shown() {
    with_a_runtime(async {
        let mut texts = Texts::default();
        for url in [
            "hunter2-of-all",
            "redis://:hunter2-of-all@127.0.0.1:99999",
            "redis://:hunter2-of-all@127.0.0.1/x",
            "redis://alice:hunter2-of-alice@",
            "rediss://alice:hunter2-of-alice@127.0.0.1/#insecure",
            "http://alice:hunter2-of-alice@127.0.0.1",
            "redis+sentinel://:hunter2-of-all@127.0.0.1:1/svc?sentinel_password=hunter2-of-all",
            "redis+sentinel://:hunter2/of-all@127.0.0.1/svc",
            "redis+sentinel://127.0.0.1/hunter2-of-all/svc",
            "redis+sentinel://127.0.0.1/svc?hunter2-of-all=1",
            "redis+sentinel://127.0.0.1/svc?sentinel_user=hunter2-of-all",
            "unix://?pass=hunter2-of-all",
            "redis://:hunter2/of-all@127.0.0.1",
            "redis://:hunter2#of-all@127.0.0.1",
            "redis://:hunter2?of-all@127.0.0.1",
            "redis://alice:hunter2/of-alice@127.0.0.1:6379/0",
            "redis://127.0.0.1/hunter2-of-all",
            "redis://hunter2-of-all\n@127.0.0.1:1",
        ] {
            texts.add(&MasterSpec::from(url));
            texts.add(&Coordinator::builder().master(url));
            match Coordinator::new([url]) {
                Ok(locks) => texts.add(&locks),
                Err(error) => {
                    assert!(matches!(error, ConfigError::BadMaster { master: 1, .. }));
                    texts.add_error(&error);
                }
            }
        }
        let twice = "redis://:hunter2-of-all@127.0.0.1:1";
        texts.add_error(&Coordinator::new([twice, twice]).unwrap_err());
        texts.check();
    });
}

/// A server repeats a command that it does not know. Without HELLO, it repeats the login. Without
/// SET or EVALSHA, it repeats the token.
#[test]
fn errors_that_repeat_the_sent_command_are_cut() {
    with_a_runtime(async {
        let mut texts = Texts::default();
        let without = |command: &str| Server::start_with(&["--rename-command", command, ""]);
        let [hello, set, evalsha] = ["HELLO", "SET", "EVALSHA"].map(without);

        let url = format!("redis://alice:{OF_ALICE}@127.0.0.1:{}", hello.port());
        let locks = patient().master(url).build().unwrap();
        let no_login = locks.mutex("r").try_acquire().await.unwrap_err();
        assert!(
            no_login.to_string().contains("unknown command"),
            "{no_login}"
        );
        texts.add_error(&no_login);

        let (locks, _way) = led_to(&set).await;
        let no_set = loop {
            match locks.mutex("r").try_acquire().await {
                Err(error) if error.to_string().contains("unknown command") => break error,
                _ => sleep(Duration::from_millis(5)).await, // not yet connected to that server
            }
        };
        texts.add_error(&no_set);

        let (locks, _way) = led_to(&evalsha).await;
        // The first call of a script over a connection is an EVAL.
        let first = loop {
            match locks.mutex("first").try_acquire().await {
                Ok(guard) => break guard,
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        };
        first.extend(Duration::from_secs(60)).await.unwrap();
        first.release().await.unwrap();
        let guard = locks.mutex("r").try_acquire().await.unwrap();
        texts.hide(evalsha.command(&["GET", "r"]));
        let no_script = guard.extend(Duration::from_secs(60)).await.unwrap_err();
        assert!(
            no_script.to_string().contains("unknown command"),
            "{no_script}"
        );
        texts.add_error(&no_script);
        texts.add(&guard);
        // A server with a release of its own needs no script for it.
        if let Err(unconfirmed) = guard.release().await {
            texts.add_error(&unconfirmed);
        }

        texts.add_events(&["unknown command"]).await;
        texts.check();
    });
}

/// Returns a coordinator that is led to `server`. It has tried the rights of a mutex on another
/// server before, so it does not try them again.
async fn led_to(server: &Server) -> (Coordinator, Proxy) {
    let mut first = Server::start();
    let way = Proxy::delay(first.port(), Duration::ZERO);
    let locks = patient().quarantine(Quarantine::Off).master(way.url());
    let locks = locks.build().unwrap();
    let guard = locks.mutex("first").try_acquire().await.unwrap();
    guard.release().await.unwrap();
    way.lead_to(server.port());
    first.kill();
    (locks, way)
}

/// Three masters with different logins that work, and one with a login that does not.
struct Masters {
    plain: Server,
    all: Server,
    alice: Server,
    refuses: Server,
}

impl Masters {
    fn start() -> Self {
        let alice = format!("user alice on >{OF_ALICE} ~* &* +@all");
        let alice: Vec<_> = alice.split(' ').collect();
        let alice = [&["--user"], &alice[1..]].concat();
        Self {
            plain: Server::start(),
            all: Server::start_with(&["--requirepass", PASSWORD]),
            alice: Server::start_with(&alice),
            refuses: Server::start_with(&["--requirepass", PASSWORD]),
        }
    }

    fn urls(&self) -> [String; 4] {
        [
            self.plain.url(),
            format!("redis://:{PASSWORD}@127.0.0.1:{}", self.all.port()),
            format!("redis://alice:{OF_ALICE}@127.0.0.1:{}", self.alice.port()),
            format!("redis://:{WRONG}@127.0.0.1:{}", self.refuses.port()),
        ]
    }

    fn builder(&self) -> Builder {
        patient().masters(self.urls())
    }

    async fn acquire(&self, locks: &Coordinator) -> Guard {
        until("three grants", async || {
            let guard = locks.mutex("r").try_acquire().await.ok()?;
            (guard.all_votes().await.granted_count() == 3).then_some(guard)
        })
        .await
    }
}

fn patient() -> Builder {
    Coordinator::builder()
        .response_timeout(Duration::from_secs(2))
        .ttl(Duration::from_secs(30))
}

/// The texts that the crate produced, and the secrets that they must not contain.
#[derive(Default)]
struct Texts {
    said: Vec<String>,
    tokens: Vec<String>,
}

impl Texts {
    fn add(&mut self, value: &impl Debug) {
        self.said.push(format!("{value:?} {value:#?}"));
    }

    fn add_error(&mut self, error: &dyn Error) {
        let mut next = Some(error);
        while let Some(error) = next {
            self.said.push(format!("{error} {error:?} {error:#?}"));
            next = error.source();
        }
    }

    /// Waits until every one of `parts` is in an event, and adds all events of this process.
    /// Without these events, the test would show nothing.
    async fn add_events(&mut self, parts: &[&str]) {
        let events = until("the events", async || {
            let events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
            let is_there = |part: &&str| events.contains(part);
            parts.iter().all(is_there).then(|| events.clone())
        })
        .await;
        self.said.push(events);
    }

    fn hide(&mut self, token: String) {
        assert!(is_token(&token), "{token}");
        self.tokens.push(token);
    }

    #[track_caller]
    fn check(&self) {
        for said in &self.said {
            assert!(!said.contains("hunter2"), "a password: {said}");
            assert_eq!(
                said.split(is_no_hex).find(|word| is_token(word)),
                None,
                "{said}"
            );
        }
        for token in &self.tokens {
            assert!(!self.said.iter().any(|said| said.contains(token)));
        }
    }
}

fn is_no_hex(letter: char) -> bool {
    !letter.is_ascii_hexdigit()
}

/// Returns whether `word` looks like a token: 40 hexadecimal digits.
fn is_token(word: &str) -> bool {
    word.len() == 40 && !word.contains(is_no_hex)
}

static EVENTS: Mutex<String> = Mutex::new(String::new());

/// Records every event and every span with all fields.
struct Recorder;

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        record(|line| span.record(line));
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        record(|line| values.record(line));
    }

    fn event(&self, event: &Event<'_>) {
        record(|line| event.record(line));
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

fn record(fields: impl FnOnce(&mut Line)) {
    let mut line = Line(String::new());
    fields(&mut line);
    let mut events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    events.push_str(&line.0);
    events.push('\n');
}

fn with_a_runtime(test: impl Future<Output = ()>) {
    static RECORDER: Once = Once::new();
    RECORDER.call_once(|| tracing::subscriber::set_global_default(Recorder).unwrap());
    if server::only_urls() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        if timeout(TEST_TIMEOUT, test).await.is_err() {
            panic!("the test has not ended within {TEST_TIMEOUT:?}");
        }
    });
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < TEST_TIMEOUT / 2, "never: {what}");
        tokio::task::yield_now().await;
    }
}

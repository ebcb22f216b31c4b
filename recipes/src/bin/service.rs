//! A web service that works under locks. It says when to try again, finishes its work even if the
//! client hangs up, and stops on SIGTERM.

use std::{env, error::Error, fmt::Display, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderName, StatusCode, header::RETRY_AFTER},
    response::AppendHeaders,
    routing::{get, post},
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use quorlock::{AcquireError, Builder, Coordinator, FencedGuard, FencingToken, Reason};
use rusqlite::{Connection, OptionalExtension};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::Mutex,
    task::block_in_place,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let metrics = record_metrics()?; // before the coordinator: it reports nothing to a later recorder
    let locks = Builder::from_env()?.build()?;
    let bank = Arc::new(Bank::new(locks.clone(), &env::var("DATABASE")?)?);
    let service = Router::new()
        .route("/accounts/{id}/deposit/{amount}", post(deposit))
        .with_state(bank.clone())
        .route("/ready", get(ready).with_state(locks.clone()))
        .route("/metrics", get(async move || metrics.render()));
    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or("127.0.0.1:8080".into())).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    println!("listens on {}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let server = axum::serve(listener, service);
    let server = server.with_graceful_shutdown(stop.clone().cancelled_owned());
    bank.work.spawn(server.into_future());
    terminate.recv().await;

    stop.cancel(); // the server accepts nothing more, and ends when it has answered
    bank.work.close();
    let finished = timeout(Duration::from_secs(20), bank.work.wait());
    if finished.await.is_err() {
        eprintln!("some work takes too long, and will be dropped");
    }
    // If masters are down, `close` waits for up to the TTL.
    locks.close_within(Duration::from_secs(2)).await;
    println!("stopped");
    Ok(())
}

/// Tells the load balancer whether locks can be acquired.
async fn ready(State(locks): State<Coordinator>) -> Result<String, (StatusCode, String)> {
    let ready = locks.ready_within(Duration::from_millis(500)).await;
    let votes = ready.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    Ok(format!("{votes}\n"))
}

/// Adds the amount to the balance, and answers with the new balance. A client that hung up does not
/// know whether it was added. If clients may send a deposit again, give each deposit an ID.
async fn deposit(
    State(bank): State<Arc<Bank>>,
    Path((id, amount)): Path<(u32, u32)>,
) -> Result<String, Refused> {
    let lock = bank.locks.mutex(format!("accounts/{id}")).fenced();
    let acquired = lock.acquire_within(Duration::from_millis(200)).await;
    let guard = acquired.map_err(refused)?;
    // axum drops this future if the client hangs up. A task goes on, and keeps the guard.
    let work = bank.clone().deposit(id, amount, guard);
    let balance = bank.work.spawn(work).await.map_err(broken)??;
    Ok(format!("{balance}\n"))
}

struct Bank {
    locks: Coordinator,
    db: Mutex<Connection>,
    /// The server and the deposits, so that a deposit is waited for although its client is gone.
    work: TaskTracker,
}

impl Bank {
    fn new(locks: Coordinator, database: &str) -> rusqlite::Result<Self> {
        let db = Connection::open(database)?;
        db.busy_timeout(Duration::from_secs(10))?;
        db.execute_batch(
            "CREATE TABLE IF NOT EXISTS account
                 (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL)",
        )?;
        let (db, work) = (Mutex::new(db), TaskTracker::new());
        Ok(Self { locks, db, work })
    }

    async fn deposit(
        self: Arc<Self>,
        id: u32,
        amount: u32,
        guard: FencedGuard,
    ) -> Result<i64, Refused> {
        let late = || later(StatusCode::CONFLICT, Duration::ZERO);
        let token = guard.token();
        let claimed = self.claim(id, token).await.map_err(broken)?;
        let balance = claimed.ok_or_else(late)? + i64::from(amount);
        let call = sleep(Duration::from_secs(2)); // such as a call of another service
        guard.run(call).await.map_err(|_| late())?;
        let is_written = self.write(id, token, balance).await.map_err(broken)?;
        is_written.then_some(balance).ok_or_else(late)
    }

    /// Returns the balance, or `None` if the caller is late. From here on, earlier holders are
    /// late.
    async fn claim(&self, id: u32, token: FencingToken) -> rusqlite::Result<Option<i64>> {
        let sql = "INSERT INTO account (id, balance, fence) VALUES (?1, 0, ?2)
                   ON CONFLICT DO UPDATE SET fence = ?2 WHERE fence <= ?2 RETURNING balance";
        let (db, fence) = (self.db.lock().await, i64::from(token));
        block_in_place(|| db.query_row(sql, (id, fence), |row| row.get(0)).optional())
    }

    /// Returns whether the balance was written. The statement itself compares the tokens: after any
    /// check before it, this process may be paused until another has the lock.
    async fn write(&self, id: u32, token: FencingToken, balance: i64) -> rusqlite::Result<bool> {
        let sql = "UPDATE account SET fence = ?2, balance = ?3 WHERE id = ?1 AND fence <= ?2";
        let (db, fence) = (self.db.lock().await, i64::from(token));
        block_in_place(|| Ok(db.execute(sql, (id, fence, balance))? == 1))
    }
}

/// The status of a refused request, and when to try again.
type Refused = (StatusCode, AppendHeaders<Option<(HeaderName, u64)>>);

fn refused(error: AcquireError) -> Refused {
    match error.reason() {
        // The rest of the TTL. The holder may renew the lock, or be done much earlier.
        Reason::Held { remaining, .. } => {
            later(StatusCode::CONFLICT, remaining.unwrap_or_default())
        }
        Reason::Quarantined { remaining, .. } => later(StatusCode::SERVICE_UNAVAILABLE, *remaining),
        _ if error.is_busy() => later(StatusCode::CONFLICT, Duration::ZERO),
        _ if error.is_unavailable() => later(StatusCode::SERVICE_UNAVAILABLE, Duration::ZERO),
        _ => broken(error), // a mistake
    }
}

fn later(status: StatusCode, wait: Duration) -> Refused {
    let seconds = wait.as_secs_f64().ceil().max(1.0);
    (status, AppendHeaders(Some((RETRY_AFTER, seconds as u64))))
}

/// Puts the text into the log. It is not for the client, because it says how this service works.
fn broken(error: impl Display) -> Refused {
    eprintln!("{error}");
    (StatusCode::INTERNAL_SERVER_ERROR, AppendHeaders(None))
}

fn record_metrics() -> Result<PrometheusHandle, BuildError> {
    // From a round on a fast network to a minute.
    let buckets = [
        0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0,
        60.0,
    ];
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &buckets)?
        .install_recorder()?;
    let recorded = metrics.clone();
    tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(5)).await;
            recorded.run_upkeep(); // otherwise the values of histograms pile up between requests
        }
    });
    Ok(metrics)
}

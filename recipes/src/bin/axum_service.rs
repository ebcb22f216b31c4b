//! A web service that locks in its handlers, and stops on SIGTERM.

use std::{env, error::Error, time::Duration};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use quorlock::{AcquireError, Coordinator, MasterSpec};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let masters = env::var("QUORLOCK_MASTERS")?;
    let locks = Coordinator::new(MasterSpec::list(&masters))?;
    let service = Router::new()
        .route("/ready", get(ready))
        .route("/orders/{id}", post(order))
        .with_state(locks.clone());
    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or("127.0.0.1:8080".into())).await?;
    println!("listens on {}", listener.local_addr()?);
    let mut terminate = signal(SignalKind::terminate())?;
    axum::serve(listener, service)
        .with_graceful_shutdown(async move {
            terminate.recv().await;
        })
        .await?; // all handlers have ended after this
    let _ = tokio::time::timeout(Duration::from_secs(2), locks.close()).await;
    println!("stopped");
    Ok(())
}

/// Tells the load balancer whether locks can be acquired.
async fn ready(State(locks): State<Coordinator>) -> Result<String, (StatusCode, String)> {
    let ready = locks.ready(Duration::from_millis(500)).await;
    let votes = ready.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    Ok(format!("{votes}\n"))
}

async fn order(
    State(locks): State<Coordinator>,
    Path(id): Path<u64>,
) -> Result<String, (StatusCode, String)> {
    let lock = locks.mutex(format!("orders/{id}"));
    let guard = lock
        .acquire_within(Duration::from_secs(1))
        .await
        .map_err(refused)?;
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(50)) => {} // the work
        lost = guard.lost() => return Err((StatusCode::CONFLICT, lost.to_string())),
    }
    let released = guard.release().await;
    released.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(format!("order {id} is done\n"))
}

fn refused(error: AcquireError) -> (StatusCode, String) {
    let status = match error.last_attempt() {
        AcquireError::Contended { .. } => StatusCode::CONFLICT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, error.to_string())
}

//! A worker that reports its locks to Prometheus, and stops on SIGTERM.

use std::{env, error::Error, net::SocketAddr, time::Duration};

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use quorlock::{Coordinator, MasterSpec};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = env::var("LISTEN").unwrap_or("127.0.0.1:9464".into());
    let masters = env::var("QUORLOCK_MASTERS")?;

    report_metrics(address.parse()?)?; // before the coordinator: it reports nothing to a later recorder
    let locks = Coordinator::new(MasterSpec::list(&masters))?;

    let mut terminate = signal(SignalKind::terminate())?;
    println!("works");
    tokio::select! {
        failed = work(&locks) => failed?,
        _ = terminate.recv() => {}
    }
    // If masters are down, `close` waits for up to the TTL.
    let _ = timeout(Duration::from_secs(2), locks.close()).await;
    println!("stopped");
    Ok(())
}

/// Serves the metrics of this process at `http://<address>/metrics`.
fn report_metrics(address: SocketAddr) -> Result<(), BuildError> {
    // From a round on a fast network to a minute.
    let buckets = [
        0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0,
        60.0,
    ];
    PrometheusBuilder::new()
        .with_http_listener(address)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &buckets)?
        .install()
}

/// Works under a lock, again and again.
async fn work(locks: &Coordinator) -> Result<(), Box<dyn Error>> {
    let lock = locks.mutex("report");
    loop {
        let worked = lock.run(async |_guard| {
            sleep(Duration::from_millis(50)).await; // the work
            Ok::<_, std::io::Error>(())
        });
        if let Err(error) = worked.await {
            println!("{error}");
        }
        sleep(Duration::from_millis(50)).await; // so that other processes get the lock, too
    }
}

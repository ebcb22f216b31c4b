//! A mutex with metrics, recorded for Prometheus.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use quorlock::{Lock, Quarantine::Off};
use tokio::task::JoinHandle;

use super::quorlock::Quorlock;
use crate::load::{Contestant, Result};

pub struct Metered {
    locks: Quorlock,
    upkeep: JoinHandle<()>,
}

impl Contestant for Metered {
    type Task = Lock;

    async fn connect(urls: &[String]) -> Result<Self> {
        let recorder = PrometheusBuilder::new()
            .set_buckets(&[0.0001, 0.001, 0.01, 0.1, 1.0, 10.0])?
            .build_recorder();
        let handle = recorder.handle();
        // The other contestants of the process have no recorder.
        let locks = metrics::with_local_recorder(&recorder, || Quorlock::build(urls, Off))?;
        locks.wait_for_grants(urls.len()).await?;
        // Exporters do this every few seconds. A run is shorter than that.
        let upkeep = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                handle.run_upkeep();
            }
        });
        Ok(Self { locks, upkeep })
    }

    fn task(&self, key: String) -> Lock {
        self.locks.task(key)
    }

    async fn cycle(lock: &mut Lock) -> Result<()> {
        Quorlock::cycle(lock).await
    }

    async fn close(self) -> Result<()> {
        self.upkeep.abort();
        self.locks.close().await
    }
}

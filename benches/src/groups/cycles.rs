//! Cycles of acquire + release over many names, and what they cost.

use futures::future::try_join_all;
use quorlock::Groups;
use tokio::time::{Instant, sleep};

use super::LAST_ANSWERS;
use crate::load::Result;
use crate::servers::{self, Server};
use crate::stats::{thread_cpu_us, thread_wakeups};

/// The cycles of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Cycles {
    /// The number of the first name. Each cycle has a name of its own.
    pub first: usize,
    pub count: usize,
    pub load: Load,
}

#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// One task, which waits for the answers of all masters to each acquisition. So each command
    /// travels alone, as it does if there is little to do.
    LockStep,
    /// As many cycles as possible by a number of tasks. Commands of several tasks travel together.
    Busy(usize),
}

/// The costs of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The processor time of all servers together per cycle.
    pub servers_us: f64,
    /// The processor time of this thread per cycle.
    pub client_us: f64,
    /// How often this thread slept until something came, per cycle.
    pub wakeups: f64,
    /// The whole time per cycle, in which servers also work without a command.
    pub span_us: f64,
    pub per_second: f64,
}

impl Cycles {
    /// Runs the cycles on these servers.
    pub async fn measure(self, locks: &Groups, servers: &[Server]) -> Result<Costs> {
        let cpu = || servers.iter().map(servers::cpu_us).sum::<f64>();
        let (before, began) = (cpu(), Instant::now());
        let (client, wakeups) = (thread_cpu_us(), thread_wakeups());
        self.run(locks).await?;
        let took = began.elapsed().as_secs_f64();
        sleep(LAST_ANSWERS).await;
        let (client, wakeups) = (thread_cpu_us() - client, thread_wakeups() - wakeups);
        let each = self.count as f64;
        Ok(Costs {
            servers_us: (cpu() - before) / each,
            client_us: client / each,
            wakeups: wakeups / each,
            span_us: began.elapsed().as_secs_f64() * 1e6 / each,
            per_second: each / took,
        })
    }

    /// Runs the cycles. Returns when a majority has answered to the last of them.
    pub async fn run(self, locks: &Groups) -> Result<()> {
        let tasks = self.load.tasks();
        let tasks = (0..tasks).map(|first| tokio::spawn(self.task(locks.clone(), first)));
        let ended = try_join_all(tasks).await?;
        ended.into_iter().collect()
    }

    async fn task(self, locks: Groups, first: usize) -> Result<()> {
        for number in (first..self.count).step_by(self.load.tasks()) {
            let name = name(self.first + number);
            let guard = locks.mutex(&name).try_acquire().await?;
            if let Load::LockStep = self.load {
                guard.settled().await;
            }
            guard.release().await?;
        }
        Ok(())
    }
}

impl Load {
    fn tasks(self) -> usize {
        match self {
            Self::LockStep => 1,
            Self::Busy(tasks) => tasks,
        }
    }
}

/// The name of a lock. The names have 20 bytes.
pub fn name(number: usize) -> String {
    format!("bench/orders/{number:07}")
}

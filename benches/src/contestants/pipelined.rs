//! `pipelined`: one queue and one task per master over a multiplexed connection of `redis`. The
//! task drains its queue into one `redis::Pipeline` per turn. A round is decided when a majority
//! has granted or refused.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use futures::task::AtomicWaker;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Script, Value};

use super::{RELEASE, Rng, client, token};
use crate::load::{Contestant, Result, TTL_MS};

/// The largest number of pipelines in flight on one connection. Meanwhile, new commands wait in the
/// queue.
const IN_FLIGHT: usize = 4;

pub struct Pipelined {
    masters: Arc<[Arc<Queue>]>,
    sha: Arc<str>,
    ledger: Arc<Ledger>,
}

/// The counts that `close` checks: the replies that are still expected, and the replies that were
/// not a grant.
#[derive(Default)]
struct Ledger {
    expected: AtomicUsize,
    wrong: AtomicUsize,
}

pub struct Task {
    masters: Arc<[Arc<Queue>]>,
    sha: Arc<str>,
    key: Arc<str>,
    ledger: Arc<Ledger>,
    rng: Rng,
}

#[derive(Default)]
struct Queue {
    asks: Mutex<Vec<Arc<Round>>>,
    waker: AtomicWaker,
}

enum Verb {
    Acquire,
    Release { sha: Arc<str> },
}

/// One request to all masters, which counts the replies and wakes the task.
struct Round {
    verb: Verb,
    key: Arc<str>,
    token: [u8; 40],
    majority: usize,
    granted: AtomicUsize,
    refused: AtomicUsize,
    waker: AtomicWaker,
}

impl Round {
    fn encode(&self, pipeline: &mut Pipeline) {
        match &self.verb {
            Verb::Acquire => pipeline
                .cmd("SET")
                .arg(&*self.key)
                .arg(&self.token)
                .arg("NX")
                .arg("PX")
                .arg(TTL_MS),
            Verb::Release { sha } => pipeline
                .cmd("EVALSHA")
                .arg(&**sha)
                .arg(1)
                .arg(&*self.key)
                .arg(&self.token)
                .arg(""),
        };
    }

    fn vote(&self, answer: Option<&Value>) -> bool {
        let granted = match (&self.verb, answer) {
            (Verb::Acquire, Some(answer)) => *answer == Value::Okay,
            (Verb::Release { .. }, Some(answer)) => *answer == Value::Int(1),
            (_, None) => false,
        };
        let side = if granted {
            &self.granted
        } else {
            &self.refused
        };
        if side.fetch_add(1, Ordering::AcqRel) + 1 == self.majority {
            self.waker.wake();
        }
        granted
    }

    fn poll_decided(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.waker.register(cx.waker());
        if self.granted.load(Ordering::Acquire) >= self.majority {
            Poll::Ready(Ok(()))
        } else if self.refused.load(Ordering::Acquire) >= self.majority {
            Poll::Ready(Err("pipelined: a majority did not grant".into()))
        } else {
            Poll::Pending
        }
    }
}

impl Task {
    async fn run_round(&self, verb: Verb, token: [u8; 40]) -> Result<()> {
        let masters = self.masters.len();
        self.ledger.expected.fetch_add(masters, Ordering::Relaxed);
        let round = Arc::new(Round {
            verb,
            key: Arc::clone(&self.key),
            token,
            majority: masters / 2 + 1,
            granted: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            waker: AtomicWaker::new(),
        });
        for master in &*self.masters {
            master.push(Arc::clone(&round));
        }
        poll_fn(|cx| round.poll_decided(cx)).await
    }
}

impl Queue {
    fn push(&self, round: Arc<Round>) {
        let mut asks = self.asks.lock().unwrap();
        asks.push(round);
        let first = asks.len() == 1;
        drop(asks);
        if first {
            self.waker.wake();
        }
    }

    fn take(&self) -> Vec<Arc<Round>> {
        std::mem::take(&mut *self.asks.lock().unwrap())
    }
}

/// Serves one master for ever. Commands keep their order: `FuturesUnordered` first polls the
/// pipelines in the order in which they were pushed, and the connection sends them in that order.
async fn serve(connection: MultiplexedConnection, queue: Arc<Queue>, ledger: Arc<Ledger>) {
    let mut flying = FuturesUnordered::new();
    poll_fn(|cx| {
        queue.waker.register(cx.waker());
        loop {
            while flying.len() < IN_FLIGHT {
                let batch = queue.take();
                if batch.is_empty() {
                    break;
                }
                flying.push(send(connection.clone(), batch, &ledger));
            }
            match flying.poll_next_unpin(cx) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) | Poll::Pending => return Poll::<()>::Pending,
            }
        }
    })
    .await;
}

async fn send(mut connection: MultiplexedConnection, batch: Vec<Arc<Round>>, ledger: &Ledger) {
    let mut pipeline = Pipeline::with_capacity(batch.len());
    for round in &batch {
        round.encode(&mut pipeline);
    }
    let answers = connection
        .send_packed_commands(&pipeline, 0, batch.len())
        .await
        .unwrap_or_default();
    for (i, round) in batch.iter().enumerate() {
        if !round.vote(answers.get(i)) {
            ledger.wrong.fetch_add(1, Ordering::Relaxed);
        }
    }
    ledger.expected.fetch_sub(batch.len(), Ordering::Relaxed);
}

impl Contestant for Pipelined {
    type Task = Task;

    async fn connect(urls: &[String]) -> Result<Self> {
        let release = Script::new(RELEASE);
        let ledger = Arc::new(Ledger::default());
        let mut masters = Vec::new();
        for url in urls {
            let mut connection = client(url)?.get_multiplexed_async_connection().await?;
            release.prepare_invoke().load_async(&mut connection).await?;
            let queue = Arc::new(Queue::default());
            tokio::spawn(serve(connection, Arc::clone(&queue), Arc::clone(&ledger)));
            masters.push(queue);
        }
        Ok(Self {
            masters: masters.into(),
            sha: release.get_hash().into(),
            ledger,
        })
    }

    fn task(&self, key: String) -> Task {
        Task {
            masters: Arc::clone(&self.masters),
            sha: Arc::clone(&self.sha),
            key: key.into(),
            ledger: Arc::clone(&self.ledger),
            rng: Rng::new(),
        }
    }

    async fn cycle(task: &mut Task) -> Result<()> {
        let token = token(&mut task.rng);
        task.run_round(Verb::Acquire, token).await?;
        let sha = Arc::clone(&task.sha);
        task.run_round(Verb::Release { sha }, token).await
    }

    async fn close(self) -> Result<()> {
        while self.ledger.expected.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        match self.ledger.wrong.load(Ordering::Relaxed) {
            0 => Ok(()),
            n => Err(format!("pipelined: {n} answers were not a grant").into()),
        }
    }
}

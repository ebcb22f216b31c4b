//! The picture of a hand-over: a holder releases the lock, and a waiter hears of it.

mod drawing;

use std::error::Error;
use std::time::{Duration, Instant};

use quorlock::{AcquireError, Coordinator, Guard, Lock};
use testkit::server::{Server, masters};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Result;
use crate::runs::typical;
use crate::tap::{Part, Tap, Way};
use crate::times::ms;

const DELAY: Duration = Duration::from_millis(4);
/// The most milliseconds that the hand-over may take. Its six messages in a row need 24.
const MOST: f64 = 36.0;
const LIMIT: Duration = Duration::from_secs(5);
/// The number of programs. Each is a coordinator with connections of its own. The first one only
/// makes the others wait before the hand-over.
const PROGRAMS: usize = 4;

/// The recorded hand-over. All times are in milliseconds after the holder's release.
#[derive(Debug)]
struct HandOver {
    messages: Vec<Message>,
    /// The master that both waiters asked first.
    agreed: usize,
    /// The program that released the lock.
    holder: usize,
    /// The waiter that got the lock.
    winner: usize,
    acquired: f64,
}

#[derive(Debug)]
struct Message {
    content: Content,
    client: usize,
    master: usize,
    sent: f64,
    arrived: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Grant,
    News,
    Refusal,
    Release,
    Request,
}

pub async fn picture() -> Result<String> {
    let run = typical(record, HandOver::is_typical).await?;
    Ok(run.draw())
}

async fn record() -> Result<HandOver> {
    let servers = masters(3);
    let tap = |server: &Server| Tap::new(server.port(), DELAY);
    let taps: Vec<_> = servers.iter().map(tap).collect();
    let mut locks = Vec::new();
    for _ in 0..PROGRAMS {
        let program = Coordinator::new(taps.iter().map(Tap::url))?;
        program.all_ready(LIMIT).await?;
        locks.push(program.mutex("orders/42"));
    }
    compete(locks.clone()).await?;

    let guard = locks[0].acquire_within(LIMIT).await?;
    let mut acquired = wait(locks.split_off(1));
    until_quiet(&taps).await?;
    drop(guard);
    let (holder, _, guard) = acquired.recv().await.ok_or("no waiter got the lock")?;
    let guard = guard?;
    until_quiet(&taps).await?;

    let start = Instant::now();
    drop(guard);
    let (winner, acquired, guard) = acquired.recv().await.ok_or("no waiter got the lock")?;
    guard?.settled().await;
    sleep(DELAY).await; // a tap notes a message right after it has passed it on
    let acquired = ms(start, acquired);
    HandOver::read(&taps, holder, winner, start, acquired)
}

type Acquired = (usize, Instant, std::result::Result<Guard, AcquireError>);

/// Makes all programs but the first wait for the lock. Returns them in the order in which they get
/// it.
fn wait(locks: Vec<Lock>) -> mpsc::Receiver<Acquired> {
    let (sender, acquired) = mpsc::channel(PROGRAMS);
    for (number, lock) in locks.into_iter().enumerate() {
        let sender = sender.clone();
        tokio::spawn(async move {
            let guard = lock.acquire_within(LIMIT).await;
            let _ = sender.send((number + 1, Instant::now(), guard)).await;
        });
    }
    acquired
}

/// Lets all programs take the lock a few times at once. Each of them then knows that it has rivals.
async fn compete(locks: Vec<Lock>) -> Result<()> {
    let mut rivals = JoinSet::new();
    for lock in locks {
        rivals.spawn(async move {
            for _ in 0..5 {
                lock.acquire_within(LIMIT).await?.release().await?;
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(())
        });
    }
    while let Some(result) = rivals.join_next().await {
        result??;
    }
    Ok(())
}

/// Waits until the programs have sent nothing for some time.
async fn until_quiet(taps: &[Tap]) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        sleep(10 * DELAY).await;
        let recent = Instant::now() - 10 * DELAY;
        if taps.iter().all(|tap| tap.since(recent).is_empty()) {
            return Ok(());
        }
    }
    Err("the programs never stop sending".into())
}

impl Message {
    fn read(part: &Part, holder: usize, master: usize, start: Instant) -> Option<Self> {
        let content = match part.way {
            Way::ToMaster if part.client == holder => Content::Release,
            Way::ToMaster => Content::Request,
            Way::ToClient if part.client == holder => return None,
            Way::ToClient if part.says("invalidate") => Content::News,
            // A refusal says for how long the lock is still held.
            Way::ToClient if part.says(":-") => Content::Refusal,
            Way::ToClient => Content::Grant,
        };
        Some(Self {
            content,
            client: part.client,
            master,
            sent: ms(start, part.sent),
            arrived: ms(start, part.arrived),
        })
    }
}

impl HandOver {
    /// Reads what has passed the taps since `start`.
    fn read(
        taps: &[Tap],
        holder: usize,
        winner: usize,
        start: Instant,
        acquired: f64,
    ) -> Result<Self> {
        let mut messages = Vec::new();
        for (master, tap) in taps.iter().enumerate() {
            let parts = tap.since(start).into_iter();
            messages.extend(parts.filter_map(|part| Message::read(&part, holder, master, start)));
        }
        // Later messages belong to the next hand-over.
        messages.retain(|message| message.sent < acquired);
        let news = messages
            .iter()
            .find(|message| message.content == Content::News);
        let agreed = news.ok_or("no master reported the release")?.master;
        Ok(Self {
            messages,
            agreed,
            holder,
            winner,
            acquired,
        })
    }

    /// Returns whether each message came once and in time, and both waiters asked the same master
    /// first.
    fn is_typical(&self) -> bool {
        let count = |content| self.all(content).count();
        let counts = [
            Content::Release,
            Content::News,
            Content::Request,
            Content::Grant,
            Content::Refusal,
        ];
        let first = self
            .all(Content::Request)
            .filter(|request| request.master == self.agreed);
        counts.map(count) == [3, 2, 4, 3, 1] && first.count() == 2 && self.acquired < MOST
    }

    fn all(&self, content: Content) -> impl Iterator<Item = &Message> {
        self.messages
            .iter()
            .filter(move |message| message.content == content)
    }

    /// Returns the time at which a message about a master arrived.
    fn time(&self, content: Content, client: usize, master: usize) -> f64 {
        let is_it = |message: &&Message| (message.client, message.master) == (client, master);
        self.all(content)
            .find(is_it)
            .map_or(0.0, |message| message.arrived)
    }
}

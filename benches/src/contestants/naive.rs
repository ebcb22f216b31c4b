//! `naive`: the usual handwritten client, with `join_all` over one multiplexed connection per
//! master.

use futures::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script};

use testkit::random::Random;

use super::{PLAIN_RELEASE, client, hex};
use crate::load::{Contestant, Result, TTL_MS};

pub struct Naive {
    connections: Vec<MultiplexedConnection>,
    release: Script,
}

pub struct Task {
    connections: Vec<MultiplexedConnection>,
    release: Script,
    key: String,
    random: Random,
}

impl Contestant for Naive {
    type Task = Task;

    async fn connect(urls: &[String]) -> Result<Self> {
        let mut connections = Vec::new();
        for url in urls {
            connections.push(client(url)?.get_multiplexed_async_connection().await?);
        }
        Ok(Self {
            connections,
            release: Script::new(PLAIN_RELEASE),
        })
    }

    fn task(&self, key: String) -> Task {
        Task {
            connections: self.connections.clone(),
            release: self.release.clone(),
            key,
            random: Random::new(Random::fresh_seed()),
        }
    }

    async fn cycle(task: &mut Task) -> Result<()> {
        let mut token = [0; 40];
        hex(&mut task.random, &mut token);
        let Task {
            connections,
            release,
            key,
            ..
        } = task;

        let granted = join_all(connections.iter_mut().map(|connection| {
            let (key, token) = (key.as_str(), &token[..]);
            async move { acquire(connection, key, token).await }
        }))
        .await;
        majority(granted)?;

        let released = join_all(connections.iter_mut().map(|connection| {
            let (release, key, token) = (&*release, key.as_str(), &token[..]);
            async move { release_one(connection, release, key, token).await }
        }))
        .await;
        majority(released)
    }

    async fn close(self) -> Result<()> {
        Ok(())
    }
}

async fn acquire(
    connection: &mut MultiplexedConnection,
    key: &str,
    token: &[u8],
) -> RedisResult<bool> {
    redis::cmd("SET")
        .arg(key)
        .arg(token)
        .arg("NX")
        .arg("PX")
        .arg(TTL_MS)
        .query_async(connection)
        .await
}

async fn release_one(
    connection: &mut MultiplexedConnection,
    release: &Script,
    key: &str,
    token: &[u8],
) -> RedisResult<bool> {
    release.key(key).arg(token).invoke_async(connection).await
}

fn majority(votes: Vec<RedisResult<bool>>) -> Result<()> {
    let all = votes.len();
    let yes = votes
        .into_iter()
        .filter(|vote| matches!(vote, Ok(true)))
        .count();
    if yes * 2 > all {
        Ok(())
    } else {
        Err(format!("naive: {yes} of {all} votes").into())
    }
}

//! Tests a rate limit of three calls an hour, by the `redis` crate's client, in no time.

#![allow(clippy::unwrap_used, reason = "a failed example ends")]

use std::time::Duration;

use quorlock_memory::{Fault, MemoryMaster};
use redis::{
    AsyncConnectionConfig, RedisConnectionInfo, RedisResult, Script, aio::MultiplexedConnection,
};

/// The code under test.
async fn may_call(redis: &mut MultiplexedConnection, user: &str) -> RedisResult<bool> {
    let script = Script::new(
        "local count = redis.call('INCR', KEYS[1])
         if count == 1 then
           redis.call('PEXPIRE', KEYS[1], ARGV[1])
         end
         return count <= tonumber(ARGV[2])",
    );
    let mut call = script.key(format!("calls:{user}"));
    call.arg(3_600_000).arg(3).invoke_async(redis).await
}

async fn connect(master: &MemoryMaster) -> RedisResult<MultiplexedConnection> {
    let settings = RedisConnectionInfo::default();
    let (stream, config) = (master.connect()?, AsyncConnectionConfig::new());
    let (connection, driver) =
        MultiplexedConnection::new_with_config(&settings, stream, config).await?;
    tokio::spawn(driver);
    Ok(connection)
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let master = MemoryMaster::new();
    let mut redis = connect(&master).await.unwrap();
    for expected in [true, true, true, false] {
        assert_eq!(may_call(&mut redis, "ada").await.unwrap(), expected);
    }
    assert_eq!(master.keys(), ["calls:ada"]);
    tokio::time::sleep(Duration::from_secs(3_601)).await; // takes no real time
    assert!(may_call(&mut redis, "ada").await.unwrap());

    master.inject(Fault::ErrorReply("OOM command not allowed".to_owned()));
    let error = may_call(&mut redis, "ada").await.unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    println!("the limit holds, and comes to an end");
}

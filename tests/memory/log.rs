//! The events logged through `tracing`, and their number.

use quorlock::Fault;
use tokio::time::sleep;
use tracing::Level;

use crate::{
    captured_log::CapturedLog,
    world::{NAME, World, seconds},
};

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_as_one_warning() {
    let (said, _listening) = CapturedLog::listen();
    let world = World::new(1).await;
    let master = &world.addresses()[0];
    for _outage in 0..2 {
        said.take();
        world.inject([Fault::Down]);
        let _ = world.lock().try_acquire().await; // notices the loss of the connection
        sleep(seconds(30)).await;
        let lines = said.take();
        let down = |level, message: &str| {
            let is_it = |line: &&(Level, String)| {
                line.0 == level && line.1.contains(message) && line.1.contains(master)
            };
            lines.iter().filter(is_it).count()
        };
        assert_eq!(down(Level::WARN, "master down"), 1, "{lines:?}");
        assert!(down(Level::DEBUG, "master still down") > 10, "{lines:?}");
        world.clear_faults();
        sleep(seconds(2)).await;
    }
}

/// A lock is acquired and renewed, is in doubt for a while, and is released. Another attempt is
/// refused meanwhile.
#[tokio::test(start_paused = true)]
async fn the_life_of_a_lock_is_logged() {
    let (said, _listening) = CapturedLog::listen();
    let world = World::new(3).await;
    let lock = world.locks.mutex(NAME);
    said.take();
    let guard = lock.try_acquire().await.unwrap();
    lock.try_acquire().await.unwrap_err();
    sleep(seconds(4)).await; // one renewal
    world.inject([Fault::Down, Fault::Down]);
    sleep(seconds(5)).await;
    world.clear_faults();
    sleep(seconds(2)).await;
    guard.release().await.unwrap();
    let lines = said.take();
    let mut events: Vec<_> = lines
        .iter()
        .filter_map(|(level, text)| {
            let text = text.strip_prefix(" message=")?;
            let message = text.split(" name=").next()?;
            message.starts_with("lock ").then_some((*level, message))
        })
        .collect();
    events.dedup();
    assert_eq!(
        events,
        [
            (Level::DEBUG, "lock acquired"),
            (Level::DEBUG, "lock not acquired"),
            (Level::DEBUG, "lock renewed"),
            (Level::WARN, "lock in doubt: it could not be renewed"),
            (Level::INFO, "lock no longer in doubt"),
            (Level::DEBUG, "lock released"),
        ],
        "{lines:#?}"
    );
}

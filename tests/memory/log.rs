//! The events logged through `tracing`, and their number.

use quorlock::Fault;
use tokio::time::sleep;
use tracing::Level;

use crate::{
    captured_log::CapturedLog,
    world::{World, seconds},
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

//! The order in which the log tells of the changes of one lock, if several threads find them.

use std::{
    mem,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use quorlock::{Guard, Renewal};
use testkit::on_event::OnEvent;
use tokio::{runtime::Runtime, time::timeout};
use tracing::dispatcher::{Dispatch, set_default};

use crate::world::{NAME, World, delay, error, millis, seconds};

#[test]
fn a_doubt_is_logged_before_its_end() {
    let slow = SlowLog::at("in doubt: it could not be renewed");
    let _listening = set_default(&slow.dispatch);
    let (world, guard) = slow.runtime.block_on(held());
    world.inject([error(), error()]);
    let extend = || slow.runtime.block_on(guard.extend(seconds(10)));
    extend().unwrap_err();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _listening = set_default(&slow.dispatch);
            extend()
        });
        slow.until_reached();
        world.clear_faults();
        extend().unwrap();
        slow.go_on();
    });
    let expected = ["in doubt: it could not be renewed", "no longer in doubt"];
    assert_eq!(slow.said("doubt"), expected);
}

#[test]
fn a_release_is_logged_after_all_else() {
    let slow = SlowLog::at("renewed");
    let _listening = set_default(&slow.dispatch);
    let (world, guard) = slow.runtime.block_on(held());
    world.inject_all(&delay(10));
    let extending = async { timeout(millis(1), guard.extend(seconds(10))).await };
    slow.runtime.block_on(extending).unwrap_err();
    slow.until_reached();
    drop(guard);
    slow.go_on();
    slow.runtime.block_on(world.close());
    assert_eq!(slow.said("re"), ["acquired", "renewed", "released"]);
}

async fn held() -> (World, Guard) {
    let world = World::new(3).await;
    let lock = world.locks.mutex(NAME).renewal(Renewal::Off);
    let guard = lock.acquire().await.unwrap();
    (world, guard)
}

/// A log that takes long over one line, until the test lets it go on.
struct SlowLog {
    /// Its threads write to this log, too.
    runtime: Runtime,
    dispatch: Dispatch,
    said: Arc<Mutex<Vec<String>>>,
    reached: mpsc::Receiver<()>,
    goes_on: mpsc::Sender<()>,
}

impl SlowLog {
    fn at(slow: &str) -> Self {
        let said = Arc::<Mutex<Vec<_>>>::default();
        let (reaches, reached) = mpsc::channel();
        let (goes_on, may_go_on) = mpsc::channel();
        let (lines, slow, may_go_on) = (said.clone(), slow.to_owned(), Mutex::new(may_go_on));
        let dispatch = Dispatch::new(OnEvent(move |_, line: String| {
            let Some(line) = line.strip_prefix(" message=lock ") else {
                return;
            };
            let message = line.split(" name=").next().unwrap_or(line).to_owned();
            if message == slow {
                let _ = reaches.send(());
                let _ = may_go_on.lock().unwrap().recv_timeout(seconds(30));
            }
            lines.lock().unwrap().push(message);
        }));
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let listens = dispatch.clone();
        let listen = move || mem::forget(set_default(&listens));
        let runtime = runtime.worker_threads(2).enable_all();
        Self {
            runtime: runtime.on_thread_start(listen).build().unwrap(),
            dispatch,
            said,
            reached,
            goes_on,
        }
    }

    fn until_reached(&self) {
        self.reached.recv_timeout(seconds(30)).unwrap();
    }

    fn go_on(&self) {
        self.goes_on.send(()).unwrap();
    }

    /// Returns the lines about the lock that contain `part`.
    fn said(&self, part: &str) -> Vec<String> {
        let said = self.said.lock().unwrap();
        said.iter()
            .filter(|line| line.contains(part))
            .cloned()
            .collect()
    }
}

//! The end of connections that do not answer, and new dials.

use std::{
    collections::BTreeSet,
    future::ready,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::join;
use quorlock::{Coordinator, Fault, MasterSpec, Quarantine, Reason};
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::yield_now,
    time::{Instant, sleep, timeout},
};

use crate::world::*;

#[tokio::test(start_paused = true)]
async fn a_master_gets_no_requests_after_three_silent_node_timeouts() {
    let world = World::new(3).await;
    world.masters[0].inject(Fault::Hang);
    let ask = async |name: &str| {
        let guard = world.locks.mutex(name).try_acquire().await.unwrap();
        let (took, votes) = timed(guard.all_votes()).await;
        (took, said(&votes)[0].clone())
    };
    let silence = (millis(50), "no answer in 50ms".to_owned());
    assert_eq!(ask("at 0").await, silence);
    assert_eq!(ask("at 50").await, silence);
    // The master counts as silent when the response timeout of this third request ends.
    assert_eq!(ask("at 100").await.0, millis(50));

    // From now on, requests to this master fail at once.
    let silent = "unreachable: it has left earlier commands unanswered for too long".to_owned();
    assert_eq!(ask("at 150").await, (millis(0), silent));
    sleep(millis(900)).await;
    let gone = "unreachable: no reply for too long, connection given up".to_owned();
    assert_eq!(ask("after a second").await, (millis(0), gone));
    sleep(seconds(10)).await;
    let no_dial =
        "unreachable: no connection in 1s: waiting for it to answer the first commands".to_owned();
    assert_eq!(ask("later").await, (millis(0), no_dial));

    world.clear_faults();
    sleep(REDIAL).await;
    assert_eq!(ask("recovered").await, (millis(0), "granted".to_owned()));
}

/// A proxy may end every connection after a short time. The master works, so the pauses between
/// dials stay short.
#[tokio::test(start_paused = true)]
async fn a_master_whose_connections_live_shortly_is_dialled_again_soon() {
    let world = World::new(1).await;
    for _ in 0..20 {
        world.guard().await.release().await.unwrap();
        sleep(millis(150)).await;
        break_connections(&world).await;
        sleep(millis(50)).await;
    }
}

/// The master answers a command, but it breaks the connection at once.
#[tokio::test(start_paused = true)]
async fn a_master_that_breaks_after_one_answer_is_dialled_less_and_less_often() {
    let world = World::new(1).await;
    let (start, mut connections) = (Instant::now(), 0);
    while start.elapsed() < seconds(60) {
        if let Ok(guard) = world.lock().try_acquire().await {
            drop(guard);
            connections += 1;
            break_connections(&world).await;
        }
        sleep(millis(1)).await;
    }
    assert!((60..200).contains(&connections), "{connections}");
}

/// The connections break while nobody uses them, and the masters answer the next dials at once,
/// late, or not at all.
#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_first_dial_after_a_connection_that_worked() {
    for (fault, took, text) in [
        (Fault::None, 0, "granted"),
        (delay(20), 40, "granted"),
        (
            delay(60),
            50,
            "unreachable: its connection ended, and no new one was there in 50ms",
        ),
        (
            Fault::Hang,
            50,
            "unreachable: its connection ended, and no new one was there in 50ms",
        ),
        (
            Fault::Down,
            0,
            "unreachable: connecting to it: connection refused",
        ),
    ] {
        let world = World::new(1).await;
        sleep(seconds(2)).await;
        world.inject([fault.clone()]);
        world.masters[0].restart();
        yield_now().await;
        let attempt = world.locks.mutex(NAME);
        let (spent, attempt) = timed(attempt.try_acquire()).await;
        let votes = match attempt {
            Ok(guard) => guard.votes(),
            Err(error) if *error.reason() == Reason::NoQuorum => error.votes().unwrap().clone(),
            Err(error) => panic!("{error}"),
        };
        // An attempt that fails waits for the answers to its release, too.
        let releases = if text == "granted" { 1 } else { 2 };
        assert_eq!(
            (spent, &*said(&votes)[0]),
            (millis(took) * releases, text),
            "{fault:?}"
        );
    }
}

/// A master that stood still must not get the dials of all its clients at the same moment. The next
/// call waits for the dial.
#[tokio::test(start_paused = true)]
async fn a_connection_that_was_given_up_is_dialled_again_after_a_random_pause() {
    let mut ends = BTreeSet::new();
    for _ in 0..10 {
        let world = World::new(1).await;
        world.guard().await.release().await.unwrap();
        sleep(seconds(2)).await;
        world.inject([Fault::Mute]);
        let (lock, start) = (world.lock(), Instant::now());
        let calls = async {
            lock.try_acquire().await.unwrap_err();
            let _guard = lock.try_acquire().await.unwrap();
            start.elapsed()
        };
        let answers_again = async {
            sleep(millis(51)).await;
            world.clear_faults();
        };
        let (end, ()) = join(calls, answers_again).await;
        assert!((millis(70)..=millis(92)).contains(&end), "{end:?}");
        ends.insert(end);
    }
    assert!(ends.len() > 1, "{ends:?}");
}

/// Breaks all connections. The next dials succeed.
async fn break_connections(world: &World) {
    world.inject_all(&Fault::Down);
    world.lock().try_acquire().await.unwrap_err();
    world.clear_faults();
}

/// A master that was never connected counts as slow, not as down.
#[tokio::test(start_paused = true)]
async fn a_first_attempt_waits_for_the_first_dials() {
    let world = World::new(5).await;
    // A dial takes two delays, and the answer takes another one.
    world.inject([delay(120), delay(130), delay(140), Fault::Hang, Fault::Down]);
    let locks = Coordinator::new(&world.masters).unwrap();
    let (took, guard) = timed(locks.mutex("late").try_acquire()).await;
    assert_eq!(took, millis(420));
    let (took, votes) = timed(guard.unwrap().all_votes()).await;
    assert_eq!(took, millis(580));
    let no_dial = "unreachable: no connection in 1s: waiting for it to answer the first commands";
    let refused = "unreachable: connecting to it: connection refused";
    assert_eq!(
        said(&votes),
        ["granted", "granted", "granted", no_dial, refused]
    );
}

/// No client wins while several of them wait for first connections with the grants of a minority.
#[tokio::test(start_paused = true)]
async fn a_contested_first_attempt_gives_back_its_grants_after_a_node_timeout() {
    for kind in KINDS {
        for (size, silent) in [(3, 1), (5, 2)] {
            let world = World::new(size).await;
            world.inject(vec![Fault::Hang; silent]);
            world.occupy([size - 1], seconds(60));
            let locks = Coordinator::new(&world.masters).unwrap();
            let lock = own(kind, &locks);
            let (took, refused) = timed(lock.try_acquire()).await;
            let refused = refused.unwrap_err();
            assert!(refused.is_busy(), "{refused}");
            assert_eq!(took, millis(50), "{kind:?}");
            assert_eq!(world.holders().concat(), "another", "{kind:?}");
            world.clear_faults();
            sleep(seconds(1)).await;
            assert_eq!(world.holders().concat(), "another", "{kind:?}");
        }
    }
}

/// The caller will try again, so it waits less. It waits as long if masters tell it of changes as
/// if it polls.
#[tokio::test(start_paused = true)]
async fn a_contested_waiter_gives_back_its_grants_before_a_node_timeout() {
    for polls in [false, true] {
        let world = World::new(3).await;
        world.inject([Fault::Hang]);
        world.occupy([2], seconds(60));
        let locks = Coordinator::builder().masters(&world.masters);
        let locks = locks.poll_only(polls).build().unwrap();
        let lock = locks.mutex(NAME);
        let mut waiting = pin!(lock.acquire());
        let (mut attempts, mut kept) = (0, 0);
        for _ in 0..500 {
            assert!(timeout(millis(1), waiting.as_mut()).await.is_err());
            let is_kept = world.holders().contains(&"mine");
            kept = if is_kept { kept + 1 } else { 0 };
            attempts += u32::from(kept == 1);
            assert!(kept <= 6, "polls: {polls}, attempt {attempts}: {kept} ms");
        }
        assert_eq!(attempts > 1, polls, "a waiter that polls tries again soon");
    }
}

/// Fewer than a majority have answered, or no master has refused.
#[tokio::test(start_paused = true)]
async fn an_uncontested_first_attempt_waits_for_first_connections() {
    for (faults, occupied) in [
        (vec![delay(200), delay(200), delay(200)], vec![4]),
        (vec![delay(200), delay(200), delay(200)], vec![]),
        (vec![delay(200), delay(200)], vec![]),
        (vec![delay(200), delay(200), Fault::Down], vec![]),
    ] {
        let world = World::new(5).await;
        world.inject(faults);
        world.occupy(occupied, seconds(60));
        let locks = Coordinator::new(&world.masters).unwrap();
        drop(locks.mutex(NAME).try_acquire().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_ends_when_the_outcome_is_certain() {
    let world = World::new(3).await;
    for (faults, took, error) in [
        // After the outcome is certain, the third master has one response timeout to add its vote.
        (vec![Fault::Down, Fault::Down, Fault::Hang], 50, "refused"),
        (vec![Fault::Hang, Fault::Hang], 1_000, "no connection in 1s"),
    ] {
        world.inject(faults);
        let locks = Coordinator::new(&world.masters).unwrap();
        let lock = locks.mutex("late");
        let (first, attempt) = tokio::join!(timed(lock.is_held()), timed(lock.try_acquire()));
        assert_eq!(attempt.0, millis(took));
        let text = attempt.1.unwrap_err().to_string();
        assert!(text.contains(error), "{text}");
        assert!(first.0 <= millis(1_000) && first.1.is_err());
        world.clear_faults();
    }
}

/// The default response timeout follows the round trip time: three round trips after the dial, and
/// half a round trip less after the next equal one. An explicit one does not.
#[tokio::test(start_paused = true)]
async fn far_masters_have_more_time_to_answer() {
    let world = World::new(3).await;
    for (delays, timeout) in [(0, 50), (16, 50), (120, 300), (300, 750), (450, 1_000)] {
        world.inject_all(&delay(delays));
        let locks = Coordinator::new(&world.masters).unwrap();
        drop(locks.mutex("first").try_acquire().await.unwrap());
        world.inject_all(&Fault::Hang);
        let (took, error) = timed(locks.mutex("second").try_acquire()).await;
        // The release after the lost round takes one more response timeout.
        assert_eq!(took, millis(2 * timeout), "{delays}");
        error.unwrap_err();
        world.clear_faults();
    }
    world.inject_all(&delay(60));
    let locks = Coordinator::builder().response_timeout(millis(50));
    let locks = locks.masters(&world.masters).build().unwrap();
    locks.mutex("first").try_acquire().await.unwrap_err();
}

/// A master is dialled for the first time, and the other masters go down.
#[tokio::test(start_paused = true)]
async fn a_failed_extension_or_release_waits_for_no_first_connection() {
    let world = World::new(3).await;
    world.inject([Fault::Hang]);
    let locks = Coordinator::new(&world.masters).unwrap();
    let guard = locks.mutex(NAME).try_acquire().await.unwrap();
    world.inject([Fault::Hang, Fault::Down, Fault::Down]);
    let (took, extended) = timed(guard.extend(seconds(20))).await;
    extended.unwrap_err();
    assert!(took <= millis(51), "{took:?}");
    let (took, released) = timed(guard.release()).await;
    released.unwrap_err();
    assert!(took <= millis(51), "{took:?}");
}

/// The push of a server that is flushed, to each connection that tracks keys.
const FLUSHED: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";
const GREETING: [&str; 6] = [
    "%1\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
    "+OK\r\n",
    "+OK\r\n",
    "-ERR unknown command\r\n",
    "-ERR unknown command\r\n",
    "+OK\r\n",
];

/// Returns a stream to a server that writes the next one of these texts after each read, and then
/// only reads.
fn scripted(replies: impl IntoIterator<Item = String, IntoIter: Send> + 'static) -> DuplexStream {
    let (client, mut server) = duplex(4_096);
    let replies = replies.into_iter();
    tokio::spawn(async move {
        for reply in replies {
            let read = server.read(&mut [0; 4_096]).await.unwrap();
            assert!(read > 0);
            server.write_all(reply.as_bytes()).await.unwrap();
        }
        io::copy(&mut server, &mut io::sink()).await
    });
    client
}

/// A push may also come between the replies of the greeting. If that counted as a reply, each
/// command would get the reply to the one before.
#[tokio::test(start_paused = true)]
async fn a_push_between_the_replies_of_a_greeting_is_no_reply() {
    const TRACKS: usize = 2;
    for before in TRACKS..GREETING.len() {
        let spec = MasterSpec::with_connector("redis://flushed", move || {
            let mut greeting = GREETING.map(str::to_owned);
            greeting[before].insert_str(0, FLUSHED);
            // `SET .. NX` finds a key, and the release says for how long it lives.
            let replies = [&greeting.concat(), "_\r\n", ":-9000\r\n"];
            ready(Ok(scripted(replies.map(str::to_owned))))
        });
        let locks = Coordinator::builder().quarantine(Quarantine::Off);
        let locks = locks.master(spec).build().unwrap();
        let refused = locks.mutex("r").try_acquire().await.unwrap_err();
        let is_held = refused.is_busy();
        assert!(is_held, "a push before reply {before}: {refused}");
    }
}

/// The push comes with the last answer of the dial, and nothing comes after it.
#[tokio::test(start_paused = true)]
async fn a_flush_just_after_a_dial_is_noticed_at_once() {
    let dials = Arc::<AtomicUsize>::default();
    let count = dials.clone();
    let spec = MasterSpec::with_connector("redis://flushed-after-dial", move || {
        let push = match count.fetch_add(1, Ordering::Relaxed) {
            0 => FLUSHED,
            _ => "",
        };
        let origin = format!("$13\r\n0 5 a earlier\r\n{push}");
        ready(Ok(scripted([GREETING.concat(), origin])))
    });
    let _locks = Coordinator::builder().master(spec).build().unwrap();
    sleep(seconds(1)).await;
    assert_eq!(dials.load(Ordering::Relaxed), 2);
}

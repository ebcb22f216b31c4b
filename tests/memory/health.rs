//! Readiness, and the states of the masters.

use std::{pin::pin, time::Duration};

use futures::{Stream, StreamExt};
use quorlock::{
    AskError, Builder, Coordinator, Fault, Quarantine,
    health::{MasterHealth, MasterState},
    tools::DialRefusal,
    votes::{Failure, Vote},
};
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;

use crate::world::*;

/// Returns the states that `events` tell of now: the master's number, the state, and whether
/// the master can vote.
async fn news(
    world: &World,
    events: &mut (impl Stream<Item = MasterHealth> + Unpin),
) -> Vec<(usize, &'static str, bool)> {
    let addresses = world.addresses();
    let mut told = Vec::new();
    while let Ok(Some(health)) = timeout(millis(1), events.next()).await {
        let master = addresses.iter().position(|known| **known == *health.master);
        told.push((master.unwrap(), state_of(&health), health.can_vote()));
    }
    told
}

fn quarantining(builder: Builder) -> Builder {
    builder
        .quarantine(Quarantine::Observed)
        .max_ttl(seconds(10))
}

fn state_of(health: &MasterHealth) -> &'static str {
    match health.state {
        MasterState::Closed => "closed",
        MasterState::Connected => "connected",
        MasterState::Connecting => "connecting",
        MasterState::Down(_) => "down",
        _ => "unknown",
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_coordinator_is_ready_as_soon_as_a_majority_is_connected() {
    for down in 0..=5 {
        let masters = masters(5);
        for master in &masters {
            master.inject(delay(40));
        }
        for master in &masters[..down] {
            master.inject(Fault::Down);
        }
        let locks = Coordinator::new(&masters).unwrap();
        let start = Instant::now();
        let ready = locks.ready_within(seconds(2)).await;
        let took = start.elapsed();
        match ready {
            Ok(votes) => {
                assert!(down < 3 && took < millis(200), "{down} down: {took:?}");
                assert!(votes.granted_count() >= 3, "{votes}");
            }
            Err(error) => {
                assert!(
                    down >= 3 && (seconds(2)..millis(2_050)).contains(&took),
                    "{down} down: {took:?}"
                );
                assert!(matches!(error, AskError::NoQuorum(_)));
                let text = error.to_string();
                let can = 5 - down;
                let start = format!("only {can} of 5 masters can vote (need 3) after 2.0s: ");
                assert!(text.starts_with(&start), "{text}");
                assert!(text.contains(": connection refused"), "{text}");
                assert_eq!(text.matches("can vote").count(), can + 1, "{text}");
            }
        }
        assert_eq!(locks.all_ready_within(seconds(1)).await.is_ok(), down == 0);
    }
}

#[tokio::test(start_paused = true)]
async fn ready_resolves_when_enough_masters_come_back() {
    let world = World::new(3).await;
    world.inject([Fault::Down, Fault::Down]);
    let mut ready = pin!(world.locks.ready_within(seconds(3_600)));
    assert!(timeout(seconds(60), ready.as_mut()).await.is_err());
    let before = world.commands()[2];
    assert!(timeout(seconds(60), ready.as_mut()).await.is_err());
    let asked = world.commands()[2] - before;
    assert!(asked < 60 * 15, "{asked} questions in a minute");
    world.clear_faults();
    let votes = timeout(millis(1_100), ready).await.unwrap().unwrap();
    assert!(votes.granted_count() >= 2, "{votes}");
}

/// A coordinator does not notice that a connected master is silent until it asks.
#[tokio::test(start_paused = true)]
async fn masters_that_hang_or_answer_errors_are_not_ready() {
    for (fault, text) in [
        (Fault::Hang, "no answer in 50ms"),
        (Fault::ErrorReply("LOADING".into()), "answered LOADING"),
    ] {
        let world = World::new(3).await;
        world.locks.all_ready_within(seconds(1)).await.unwrap();
        world.inject([fault.clone(), fault]);
        let error = world.locks.ready_within(millis(70)).await.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        world.clear_faults();
        world.locks.all_ready_within(seconds(5)).await.unwrap();
    }
}

/// A master that answers a command with an error has no vote until it grants a lock.
#[tokio::test(start_paused = true)]
async fn a_master_that_answers_errors_cannot_vote_until_it_grants_a_lock() {
    for error in [
        "OOM command not allowed when used memory > 'maxmemory'",
        "MISCONF Errors writing to the AOF file: No space left on device",
        "NOREPLICAS Not enough good replicas to write",
        "NOPERM this user has no permissions to run the 'set' command",
    ] {
        let world = World::new(3).await;
        world.locks.all_ready_within(seconds(1)).await.unwrap();
        let mut events = world.locks.health_events();
        news(&world, &mut events).await;
        let held = world.guard().await;
        held.all_votes().await;
        world.inject([Fault::ErrorReply(error.into())]);
        let another = world.locks.mutex("another");
        drop(another.try_acquire().await.unwrap());
        assert_eq!(news(&world, &mut events).await, [(0, "connected", false)]);
        let health = &world.locks.health()[0];
        assert_eq!(health.error.as_deref(), Some(error));
        let refused = world
            .locks
            .all_ready_within(Duration::ZERO)
            .await
            .unwrap_err();
        let text = refused.to_string();
        let is_not_all = matches!(refused, AskError::NotAll { .. });
        assert!(is_not_all && text.contains(error), "{text}");

        // An extension and a release are no proof, and neither is a new connection.
        world.masters[0].inject(Fault::Down);
        sleep(millis(10)).await;
        world.clear_faults();
        sleep(REDIAL).await;
        held.extend(seconds(5)).await.unwrap();
        drop(held);
        sleep(millis(10)).await;
        assert!(!world.locks.health()[0].can_vote(), "{error}");
        news(&world, &mut events).await;

        drop(another.try_acquire().await.unwrap());
        sleep(millis(10)).await;
        assert_eq!(news(&world, &mut events).await, [(0, "connected", true)]);
        world.locks.all_ready_within(Duration::ZERO).await.unwrap();
    }
}

/// A dial to a replica fails, so the next connection shows that the master is none any more.
#[tokio::test(start_paused = true)]
async fn a_replica_is_down_until_the_next_connection() {
    let (log, _listening) = testkit::captured_log::CapturedLog::listen();
    for error in [
        "READONLY You can't write against a read only replica.",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    ] {
        let world = World::new(3).await;
        world.inject([Fault::ErrorReply(error.into())]);
        log.take();
        drop(world.guard().await);
        let health = &world.locks.health()[0];
        let why = "it has become a replica";
        assert_eq!(health.state, MasterState::Down(why.into()), "{health}");
        assert_eq!(health.error, None);
        world.clear_faults();
        sleep(REDIAL).await;
        let health = &world.locks.health()[0];
        assert!(health.can_vote(), "{health}");
        drop(world.guard().await);
        sleep(millis(10)).await;
        let lines: Vec<_> = log.take().into_iter().map(|(_, line)| line).collect();
        let said = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(said("message=master down"), 1, "{lines:#?}");
        assert_eq!(said(&format!("reason={why}")), 1, "{lines:#?}");
        assert_eq!(said("locks"), 0, "{lines:#?}");
    }
}

/// A dial to a master that loads its data fails.
#[tokio::test(start_paused = true)]
async fn a_new_connection_shows_that_a_master_has_loaded_its_data() {
    let (log, _listening) = testkit::captured_log::CapturedLog::listen();
    let world = World::new(3).await;
    world.inject([Fault::ErrorReply("LOADING Redis is loading".into())]);
    drop(world.guard().await);
    assert!(world.locks.health()[0].error.is_some());
    world.masters[0].inject(Fault::Down);
    sleep(millis(10)).await;
    world.clear_faults();
    sleep(REDIAL).await;
    let health = &world.locks.health()[0];
    assert!(health.can_vote(), "{health}");
    for (level, said) in [
        (Level::WARN, "master takes no locks"),
        (Level::INFO, "master takes locks again"),
    ] {
        assert_eq!(log.count(level, said), 1, "{log:#?}");
    }
}

/// An idle program sends nothing, so only `ready` finds out that a master is fit again.
#[tokio::test(start_paused = true)]
async fn readiness_finds_what_an_idle_program_does_not() {
    let world = World::new(3).await;
    world.locks.all_ready_within(seconds(1)).await.unwrap();
    world.inject_all(&error());
    let before = world.commands();
    sleep(seconds(3_600)).await;
    assert_eq!(world.commands(), before);
    let health = &world.locks.health()[0];
    assert!(
        health.can_vote() && health.last_heard > Some(seconds(3_599)),
        "{health}"
    );
    let refused = world.locks.ready_within(Duration::ZERO).await.unwrap_err();
    assert!(
        refused.to_string().contains("answered OOM no room"),
        "{refused}"
    );
    let health = &world.locks.health()[0];
    assert!(
        !health.can_vote() && health.last_heard < Some(seconds(1)),
        "{health}"
    );
    world.clear_faults();
    world.locks.ready_within(Duration::ZERO).await.unwrap();
    sleep(millis(10)).await;
    assert!(world.locks.health().iter().all(MasterHealth::can_vote));
}

#[tokio::test(start_paused = true)]
async fn the_votes_of_a_ready_majority_do_not_read_like_trouble() {
    let world = World::new(3).await;
    world.masters[2].inject(delay(40));
    let votes = world.locks.ready_within(seconds(1)).await.unwrap();
    assert!(votes.to_string().ends_with(" not waited for"), "{votes}");
}

#[tokio::test(start_paused = true)]
async fn a_master_in_quarantine_is_not_ready_and_is_reported_when_it_votes_again() {
    let (log, _listening) = testkit::captured_log::CapturedLog::listen();
    let world = World::with(3, quarantining).await;
    let mut events = world.locks.health_events();
    let at_first = [0, 1, 2].map(|master| (master, "connected", true));
    assert_eq!(news(&world, &mut events).await, at_first);
    world.masters[0].restart();
    let error = world.locks.all_ready_within(seconds(1)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("only 2 of 3 masters can vote: "), "{text}");
    let AskError::NotAll { votes, .. } = error else {
        panic!("{error}");
    };
    let vote = votes.iter().next().unwrap();
    let Some(Vote::Fail(Failure::Quarantined { remaining })) = vote.vote else {
        panic!("{votes}");
    };
    assert!(*remaining > seconds(8), "{remaining:?}");
    assert_eq!(news(&world, &mut events).await, [(0, "connected", false)]);
    let health = &world.locks.health()[0];
    assert!(health.quarantine.unwrap() > seconds(8));
    let why = "its origin key is missing: it restarted without its data";
    assert!(health.to_string().contains(why), "{health}");
    let warning = format!("reason={}", health.quarantine_reason.unwrap());
    assert_eq!(health.failures, 1);
    let votes = world.locks.all_ready_within(seconds(11)).await.unwrap();
    assert_eq!(votes.granted_count(), 3);
    assert_eq!(news(&world, &mut events).await, [(0, "connected", true)]);
    let address = &world.addresses()[0];
    let again = format!("master votes again master={address}");
    let texts: Vec<_> = log.take().into_iter().map(|(_, text)| text).collect();
    for said in [again, warning] {
        assert!(texts.iter().any(|text| text.contains(&said)), "{texts:#?}");
    }
}

/// Only the first dial after the loss finds it. Later ones find its record.
#[tokio::test(start_paused = true)]
async fn a_quarantine_keeps_its_reason_and_is_told_once() {
    let (log, _listening) = testkit::captured_log::CapturedLog::listen();
    let world = World::with(3, quarantining).await;
    world.masters[0].restart();
    sleep(REDIAL).await;
    let why = world.locks.health()[0].quarantine_reason.unwrap();
    assert!(why.starts_with("its origin key is missing"), "{why}");
    world.inject([Fault::Down]);
    sleep(seconds(2)).await;
    world.clear_faults();
    sleep(REDIAL).await;
    let health = &world.locks.health()[0];
    assert_eq!(health.quarantine_reason, Some(why), "{health}");
    // A program that comes later has only the record.
    let later = Coordinator::builder()
        .max_ttl(seconds(10))
        .masters(&world.masters)
        .build()
        .unwrap();
    sleep(REDIAL).await;
    let reason = later.health()[0].quarantine_reason.unwrap();
    assert!(reason.starts_with("as an earlier connection"), "{reason}");
    let told = log.count(Level::WARN, "may have forgotten locks");
    assert_eq!(told, 2, "{log:#?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_two_events_however_many_dials_fail() {
    let world = World::new(2).await;
    let mut events = world.locks.health_events();
    assert_eq!(news(&world, &mut events).await.len(), 2);
    world.masters[1].inject(Fault::Down);
    sleep(seconds(60)).await;
    assert_eq!(news(&world, &mut events).await, [(1, "down", false)]);
    let health = &world.locks.health()[1];
    assert!(health.failures > 30, "{health:?}");
    assert!(
        (seconds(59)..seconds(61)).contains(&health.age),
        "{health:?}"
    );
    world.clear_faults();
    sleep(seconds(2)).await;
    assert_eq!(news(&world, &mut events).await, [(1, "connected", true)]);
    assert!(world.locks.health()[1].age < seconds(3)); // it may have been dialled at once
    drop(world.locks);
    let mut last = Vec::new();
    while let Some(health) = events.next().await {
        last.push(state_of(&health));
    }
    assert_eq!(last, ["closed", "closed"]);
    assert_eq!(events.next().await, None);
}

/// A program that reacts to a refusal must hear of one that begins in an outage.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_event_even_if_the_master_was_down_before() {
    let world = World::new(2).await;
    let mut events = world.locks.health_events();
    assert_eq!(news(&world, &mut events).await.len(), 2);
    let master = &world.masters[1];
    master.inject(Fault::Down);
    sleep(seconds(5)).await;
    assert_eq!(news(&world, &mut events).await, [(1, "down", false)]);
    master.with(|server, _| server.require_login("locks", "new"));
    master.inject(Fault::None);
    sleep(seconds(5)).await;
    let health = timeout(millis(1), events.next()).await.unwrap().unwrap();
    assert_eq!(health.refusal, Some(DialRefusal::Login), "{health}");
    assert!(health.needs_repair());
    sleep(seconds(60)).await;
    assert_eq!(news(&world, &mut events).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_readiness_ends_when_the_coordinator_is_closed() {
    let world = World::new(3).await;
    world.inject([Fault::Down, Fault::Down]);
    let mut ready = pin!(world.locks.ready_within(Duration::MAX));
    assert!(timeout(seconds(5), ready.as_mut()).await.is_err());
    world.locks.close().await;
    let ended = timeout(seconds(1), ready).await.unwrap();
    assert!(matches!(ended, Err(AskError::Closed)), "{ended:?}");
}

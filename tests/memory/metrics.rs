//! The metrics that a recorder for Prometheus gets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use metrics::Recorder;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use quorlock::{Coordinator, Fault, Guard, LockState, LostReason, MemoryMaster};
use tokio::{
    runtime,
    time::{sleep, timeout},
};

use crate::{
    recorder::Caller,
    world::{NAME, World, delay, millis, seconds, valid},
};

/// Runs `test` with a recorder of its own, and with a paused clock.
fn recorded(test: impl AsyncFnOnce(&PrometheusHandle)) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    recorded_by(&recorder, async || test(&handle).await);
}

fn recorded_by(recorder: &dyn Recorder, test: impl AsyncFnOnce()) {
    let mut runtime = runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    metrics::with_local_recorder(recorder, || runtime.block_on(test()));
}

/// The value of each series, such as `quorlock_guards{kind="mutex"}`.
#[derive(Debug)]
struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    fn of(handle: &PrometheusHandle) -> Self {
        let text = handle.render();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| line.rsplit_once(' '));
        Self(
            series
                .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
                .collect(),
        )
    }

    /// Returns the value of a series, or 0 if there is no such series.
    fn get(&self, series: &str) -> f64 {
        self.0.get(series).copied().unwrap_or(0.0)
    }

    /// Checks the values of series of this crate, as in `guards{kind="mutex"}`.
    fn assert(&self, expected: &[(&str, f64)]) {
        for (series, value) in expected {
            let found = self.get(&format!("quorlock_{series}"));
            assert!(
                (found - value).abs() < 1e-6,
                "{series} is {found}: {self:#?}"
            );
        }
    }

    /// Returns the sum of the series of `metric` that have these labels.
    fn sum(&self, metric: &str, labels: &str) -> f64 {
        let series = self.0.iter();
        let series = series.filter(|(name, _)| name.starts_with(metric) && name.contains(labels));
        series.map(|(_, value)| value).sum()
    }
}

/// Returns the rows of the table of metrics in the documentation, without those of `doctor`.
fn rows() -> impl Iterator<Item = &'static str> {
    let page = include_str!("../../docs/operations.md");
    let rows = page.lines().filter(|line| line.starts_with("| `quorlock_"));
    rows.filter(|row| !row.contains("`source`"))
}

/// Reads the table of metrics in the documentation: the name, the labels and the type of each.
fn documented() -> BTreeMap<String, (BTreeSet<String>, String)> {
    let words = |cell: &str| {
        let words = cell.split('`').skip(1).step_by(2);
        words.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    rows()
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let labels = words(cells[3]);
            let name = words(cells[1]).pop_first().unwrap();
            (name, (labels, cells[2].to_owned()))
        })
        .collect()
}

/// Reads the text for Prometheus: the labels and the type of each metric.
fn emitted(handle: &PrometheusHandle) -> BTreeMap<String, (BTreeSet<String>, String)> {
    let text = handle.render();
    let mut metrics = BTreeMap::<String, (BTreeSet<String>, String)>::new();
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            metrics.entry(name.to_owned()).or_default().1 = kind.to_owned();
        }
        let Some((series, labels)) = line.split_once('{') else {
            continue;
        };
        let labels = labels.split('"').step_by(2);
        let labels = labels.filter_map(|label| label.trim_start_matches(',').strip_suffix('='));
        let name = ["_sum", "_count", "_bucket"]
            .iter()
            .fold(series, |name, end| name.strip_suffix(end).unwrap_or(name));
        let labels = labels.filter(|label| *label != "le").map(str::to_owned);
        metrics.entry(name.to_owned()).or_default().0.extend(labels);
    }
    metrics
}

/// Reads the values of the last label of each metric from the documentation.
fn documented_values() -> BTreeSet<(String, String)> {
    let values = rows().filter_map(|row| {
        let name = row.split('`').nth(1)?;
        let (_, list) = row.rsplit_once("`: `")?;
        let values = list.split('`').step_by(2);
        Some(
            values
                .map(|value| (name.to_owned(), value.to_owned()))
                .collect::<Vec<_>>(),
        )
    });
    values.flatten().collect()
}

#[test]
fn the_documentation_lists_the_values_of_labels() {
    recorded(async |handle| {
        let _locks = Coordinator::new([MemoryMaster::new()]).unwrap();
        let text = handle.render();
        let series = text.lines().filter_map(|line| line.split_once('{'));
        let values = series.filter_map(|(name, labels)| {
            let name = name.trim_end_matches("_sum").trim_end_matches("_count");
            let mut labels = labels.split("\",");
            let is_listed = |label: &&str| {
                ["outcome", "end", "reason"]
                    .iter()
                    .any(|known| label.starts_with(known))
                    || name == "quorlock_round_seconds" && label.starts_with("round")
            };
            let value = labels.find(is_listed)?.split('"').nth(1)?;
            Some((name.to_owned(), value.to_owned()))
        });
        assert_eq!(values.collect::<BTreeSet<_>>(), documented_values());
    });
}

#[test]
fn the_documentation_lists_every_metric_with_its_labels() {
    let recorder = PrometheusBuilder::new().set_buckets(&[1.0]).unwrap();
    let recorder = recorder.build_recorder();
    let handle = recorder.handle();
    recorded_by(&recorder, async || {
        let builder = Coordinator::builder().master(MemoryMaster::new());
        let locks = builder.coordinator_name("a").build().unwrap();
        drop(locks.mutex(NAME).acquire().await.unwrap());
    });
    assert_eq!(emitted(&handle), documented());
    let help = "# HELP quorlock_guards Guards that exist";
    assert!(handle.render().contains(help));
}

/// Alerts on increases would miss the first one if the series began with it.
#[test]
fn counters_and_gauges_begin_at_zero() {
    recorded(async |handle| {
        let _locks = Coordinator::new([MemoryMaster::new()]).unwrap();
        let scrape = Scrape::of(handle);
        for (name, (_, kind)) in documented() {
            let mut series = scrape
                .0
                .iter()
                .filter(|(series, _)| series.starts_with(&name));
            if kind != "histogram" {
                assert!(series.clone().count() > 0, "{name}: {scrape:#?}");
            }
            assert!(
                series.all(|(_, value)| *value == 0.0),
                "{name}: {scrape:#?}"
            );
        }
    });
}

#[test]
fn the_life_of_a_lock_is_counted() {
    recorded(async |handle| {
        let world = World::new(3).await;
        let lock = world.locks.mutex(NAME);
        let guard = lock.try_acquire().await.unwrap();
        lock.try_acquire().await.unwrap_err();
        sleep(seconds(4)).await; // one renewal
        Scrape::of(handle).assert(&[
            (r#"guards{kind="mutex"}"#, 1.0),
            (r#"renewals_total{outcome="confirmed"}"#, 1.0),
            (r#"rounds_total{round="acquire",outcome="won"}"#, 1.0),
            (
                r#"rounds_total{round="acquire",outcome="no_majority"}"#,
                1.0,
            ),
            (r#"rounds_total{round="extend",outcome="won"}"#, 1.0),
        ]);
        guard.release().await.unwrap();
        let scrape = Scrape::of(handle);
        scrape.assert(&[
            (r#"guards{kind="mutex"}"#, 0.0),
            (r#"hold_seconds_sum{kind="mutex",end="released"}"#, 4.0),
            (r#"hold_seconds_count{kind="mutex",end="released"}"#, 1.0),
            (
                r#"wait_seconds_count{kind="mutex",outcome="acquired"}"#,
                1.0,
            ),
            (r#"wait_seconds_count{kind="mutex",outcome="busy"}"#, 1.0),
            // The refused attempt took itself back.
            (r#"rounds_total{round="release",outcome="won"}"#, 2.0),
            (r#"round_seconds_count{round="release"}"#, 2.0),
        ]);
        assert_eq!(scrape.sum("quorlock_losses_total", ""), 0.0);
        // Three masters voted on two acquisitions, one renewal and two releases.
        assert_eq!(scrape.sum("quorlock_votes_total", ""), 15.0);
        assert_eq!(scrape.sum("quorlock_votes_total", "granted"), 9.0);
        assert_eq!(scrape.sum("quorlock_votes_total", "refused"), 6.0);
        let of_two = world
            .locks
            .multi_mutex([NAME, "another"])
            .plain()
            .try_acquire()
            .await;
        Scrape::of(handle).assert(&[(r#"guards{kind="mutex"}"#, 1.0)]);
        drop(of_two.unwrap());
    });
}

/// The answers to the only renewal come after the response timeout.
#[test]
fn a_renewal_that_late_answers_confirm_is_counted_as_failed_before() {
    recorded(async |handle| {
        let world = World::new(3).await;
        let guard = world.locks.mutex(NAME).try_acquire().await.unwrap();
        world.inject_all(&delay(70));
        sleep(valid(seconds(10)) / 3 + millis(60)).await;
        let of = |outcome| format!("renewals_total{{outcome=\"{outcome}\"}}");
        let [failed, late, confirmed] = ["failed", "confirmed_late", "confirmed"].map(of);
        Scrape::of(handle).assert(&[(&failed, 1.0), (&late, 0.0)]);
        sleep(millis(20)).await;
        Scrape::of(handle).assert(&[(&failed, 1.0), (&late, 1.0), (&confirmed, 0.0)]);
        assert!(guard.remaining() > seconds(9));
    });
}

#[test]
fn each_loss_is_counted_once_with_its_reason() {
    recorded(async |handle| {
        let world = World::new(3).await;
        let deleted = world.locks.mutex(NAME).try_acquire().await.unwrap();
        for master in &world.masters {
            master.delete(NAME);
        }
        assert_eq!(deleted.lost().await.reason, LostReason::TakenAway);
        let expired = world.locks.mutex("expired").try_acquire().await.unwrap();
        world.inject_all(&Fault::Down);
        sleep(seconds(20)).await;
        drop((deleted, expired));
        sleep(seconds(20)).await;
        let scrape = Scrape::of(handle);
        scrape.assert(&[
            (r#"losses_total{kind="mutex",reason="taken_away"}"#, 1.0),
            (r#"losses_total{kind="mutex",reason="expired"}"#, 1.0),
            (r#"hold_seconds_count{kind="mutex",end="lost"}"#, 2.0),
            (r#"guards{kind="mutex"}"#, 0.0),
        ]);
        assert_eq!(scrape.sum("quorlock_hold_seconds_count", "released"), 0.0);
        assert!(scrape.get("quorlock_renewals_total{outcome=\"failed\"}") >= 2.0);
    });
}

/// No renewal finds out that this lock has expired.
#[test]
fn a_loss_that_no_one_noticed_is_counted_at_the_release() {
    recorded(async |handle| {
        let world = World::new(3).await;
        let guard = world.guard().await;
        sleep(seconds(30)).await;
        guard.release().await.unwrap();
        Scrape::of(handle).assert(&[
            (r#"losses_total{kind="mutex",reason="expired"}"#, 1.0),
            (r#"hold_seconds_sum{kind="mutex",end="lost"}"#, 30.0),
        ]);
    });
}

#[test]
fn waiters_are_counted_until_they_have_the_lock_or_are_dropped() {
    recorded(async |handle| {
        let world = World::new(3).await;
        let owners = [world.locks.new_owner(), world.locks.new_owner()];
        let [first, second] = owners
            .each_ref()
            .map(|owner| world.locks.fair(NAME).owner(owner));
        let guard = first.acquire().await.unwrap();
        timeout(seconds(5), second.acquire()).await.unwrap_err();
        let waiting = async {
            sleep(seconds(1)).await;
            let waiters = Scrape::of(handle).get("quorlock_waiters{kind=\"fair\"}");
            guard.release().await.unwrap();
            waiters
        };
        let (second, waiters) = tokio::join!(second.acquire(), waiting);
        assert_eq!(waiters, 1.0);
        drop(second.unwrap());
        Scrape::of(handle).assert(&[
            (r#"waiters{kind="fair"}"#, 0.0),
            (r#"wait_seconds_count{kind="fair",outcome="acquired"}"#, 2.0),
            (r#"wait_seconds_sum{kind="fair",outcome="dropped"}"#, 5.0),
        ]);
    });
}

#[test]
fn a_master_that_fails_is_seen() {
    recorded(async |handle| {
        let masters = [(); 3].map(|()| MemoryMaster::new());
        let locks = Coordinator::new(&masters).unwrap();
        locks.all_ready_within(seconds(5)).await.unwrap();
        let address = locks.health()[0].master.clone();
        let of = |metric: &str, label: &str| {
            Scrape::of(handle).sum(metric, &format!("master=\"{address}\"{label}"))
        };
        assert_eq!(of("quorlock_master_can_vote", ""), 1.0);
        masters[0].inject(Fault::Down);
        for _ in 0..3 {
            drop(locks.mutex(NAME).try_acquire().await.unwrap());
            sleep(seconds(1)).await;
        }
        assert_eq!(of("quorlock_master_can_vote", ""), 0.0);
        assert!(of("quorlock_votes_total", ",outcome=\"unreachable\"") >= 2.0);
        assert_eq!(of("quorlock_reconnects_total", ""), 0.0);
        masters[0].restart();
        masters[0].inject(Fault::None);
        sleep(seconds(2)).await;
        drop(locks.mutex(NAME).try_acquire().await.unwrap());
        assert_eq!(of("quorlock_reconnects_total", ""), 1.0);
        assert_eq!(of("quorlock_quarantines_total", ""), 1.0);
        assert_eq!(of("quorlock_master_can_vote", ""), 0.0);
        assert!(of("quorlock_votes_total", ",outcome=\"quarantined\"") >= 1.0);
        sleep(seconds(61)).await;
        assert_eq!(of("quorlock_master_can_vote", ""), 1.0);
        masters[0].inject(Fault::ErrorReply("OOM".into()));
        drop(locks.mutex(NAME).try_acquire().await.unwrap());
        assert_eq!(of("quorlock_master_can_vote", ""), 0.0);
        masters[0].inject(Fault::None);
        drop(locks.mutex(NAME).try_acquire().await.unwrap());
        assert_eq!(of("quorlock_master_can_vote", ""), 1.0);
        locks.close().await;
        drop(locks);
        sleep(seconds(1)).await;
        assert_eq!(of("quorlock_master_can_vote", ""), 0.0);
    });
}

#[test]
fn a_recorder_that_panics_in_a_task_harms_no_call() {
    let is_armed = Arc::<AtomicBool>::default();
    let bomb = Caller::new({
        let is_armed = is_armed.clone();
        move || assert!(!is_armed.swap(false, Ordering::Relaxed), "a recorder")
    });
    recorded_by(&bomb, async || {
        let world = World::new(3).await;
        let guard: Guard = world.locks.mutex(NAME).try_acquire().await.unwrap();
        is_armed.store(true, Ordering::Relaxed);
        sleep(seconds(30)).await; // the votes on a renewal
        assert!(!is_armed.swap(true, Ordering::Relaxed));
        world.inject([Fault::Down]);
        sleep(millis(10)).await;
        assert!(!is_armed.load(Ordering::Relaxed));
        drop(world.locks.mutex("other").acquire().await.unwrap());
        guard.extend(seconds(20)).await.unwrap();
        assert_eq!(guard.state(), LockState::Held);
        drop(guard);
        world.close().await;
    });
}

#[test]
fn the_masters_of_a_coordinator_have_its_label() {
    recorded(async |handle| {
        let masters = [(); 2].map(|()| MemoryMaster::new());
        let [good, bad] = ["a", "b"].map(|label| {
            let master = &masters[usize::from(label == "b")];
            let builder = Coordinator::builder().master(master);
            builder.coordinator_name(label).build().unwrap()
        });
        masters[1].inject(Fault::Down);
        drop(good.mutex(NAME).try_acquire().await.unwrap());
        bad.mutex(NAME).try_acquire().await.unwrap_err();
        let [up, down] = [good, bad].map(|locks| locks.health().remove(0));
        assert_eq!(up.coordinator.as_deref(), Some("a"));
        assert!(down.to_string().contains(" (b) down for "), "{down}");
        let can_vote = |label: &str, master: &str| {
            format!(
                "master_can_vote{{master=\"{master}\",membership=\"stays\",coordinator=\"{label}\"}}"
            )
        };
        let votes = format!(
            "votes_total{{master=\"{}\",outcome=\"unreachable\",coordinator=\"b\"}}",
            down.master
        );
        Scrape::of(handle).assert(&[
            (&can_vote("a", &up.master), 1.0),
            (&can_vote("b", &down.master), 0.0),
            (&votes, 2.0), // the attempt and its release
        ]);
    });
}

//! Masters that become slow and stay so, or that have a share of a processor. They answer every
//! command within a third of the connect timeout, so no lock may be lost, and no attempt of ten
//! seconds may fail.

use std::{sync::Arc, time::Duration};

use testkit::random::Random;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    checker::{Manner, Rule},
    client::{self, Task},
    plan::{Fault, LockPlan, Plan, Planned},
    setup::Setup,
};
use crate::{Guard, Quarantine, Renewal};

/// The locks, one for each task, so that nobody waits for anybody.
const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
/// The time that an attempt gets, and the longest TTL.
const TIME: Duration = Duration::from_secs(10);

impl Plan {
    /// Makes the masters of some runs slow, and removes all other faults. Uses random numbers of
    /// its own, so that no other run changes. Returns whether the masters are slow.
    pub(super) fn draw_slow(&mut self) -> bool {
        let random = &mut Random::new(self.seed ^ 0x736c_6f77);
        self.is_slow = self.is_within() && random.is_one_in(10);
        if !self.is_slow {
            return false;
        }
        self.remove_faults();
        self.old = Setup::list((0..self.masters).collect());
        (self.has_sets, self.has_visitor) = (false, false);
        self.quarantine = random.pick(&[Quarantine::Off, Quarantine::Observed]);
        (self.response_timeout, self.connect_timeout) =
            (Duration::from_secs(1), Duration::from_secs(1));
        self.max_ttl = TIME;
        self.ttls = [Duration::from_secs(2), TIME];
        self.tasks = self.tasks.max(2);
        let names = NAMES[..self.places * self.tasks].iter();
        self.locks = names.map(|name| LockPlan::draw(name, random)).collect();
        self.draw_distances(random);
        true
    }

    /// Moves all masters or some of them twice, and gives some of them a share of a processor.
    fn draw_distances(&mut self, random: &mut Random) {
        let millis = Duration::from_millis;
        let has_shares = random.is_one_in(3);
        // An answer takes up to 90 ms more with a share.
        let distances: &[u64] = if has_shares {
            &[0, 5, 30, 75, 115]
        } else {
            &[0, 5, 30, 75, 150]
        };
        let mut at = 0;
        // Each distance but the first one stays for longer than a TTL and an attempt.
        for lasts in [2_000, 13_000, 13_000] {
            let distance = random.pick(distances);
            let moves_all = random.is_one_in(2);
            for master in 0..self.masters {
                if moves_all || random.is_one_in(2) {
                    self.add(millis(at), Duration::ZERO, Fault::Far(master, distance));
                }
            }
            at += lasts + random.below(2_000);
        }
        self.faults_end = millis(at);
        let are_in_phase = random.is_one_in(2);
        for master in (0..self.masters).filter(|_| has_shares) {
            let phase = if are_in_phase { 0 } else { random.below(100) };
            let at = millis(1_000 + phase);
            self.add(at, self.faults_end - at, Fault::Share(master));
        }
    }

    fn add(&mut self, at: Duration, lasts: Duration, fault: Fault) {
        self.faults.push(Planned { at, lasts, fault });
    }
}

impl Task {
    /// Uses a lock of its own until the end of the faults. One task of each process holds it all
    /// the time.
    pub(super) async fn endure(mut self) {
        let end = self.shared.end;
        let pause = self.random.pick(&[100, 400, 2_500]);
        while Instant::now() < end {
            let until = match self.number {
                0 => end,
                _ => Instant::now() + Duration::from_millis(self.random.below(20)),
            };
            self.hold_until(until).await;
            sleep(Duration::from_millis(self.random.below(pause))).await;
        }
    }

    /// Acquires the lock of this task, holds it until `end`, and releases it.
    async fn hold_until(&mut self, end: Instant) {
        let shared = self.shared.clone();
        let (plan, place) = (&shared.plan, self.process.number);
        let number = place * plan.tasks + self.number;
        let violate = |text| shared.violate(Rule::Availability, text);
        let owner = &self.owners[0];
        let holder = plan.locks[number].has_owner().then_some(self.first_owner);
        let lock = client::lock(&self.locks, &plan.locks[number], owner);
        let lock = lock
            .ttl(self.random.pick(&plan.ttls))
            .renewal(Renewal::Unlimited);
        let attempt = shared
            .checker
            .lock()
            .begin(&self.process, number, holder, Manner::default());
        let guard = match lock.acquire_within(TIME).await {
            Ok(guard) => Arc::new(guard),
            Err(error) => {
                shared.checker.lock().leave(attempt);
                return violate(format!("place {place}: {error}"));
            }
        };
        let tenure = shared
            .checker
            .lock()
            .granted(attempt, &self.process, holder, guard.clone());
        if let Ok(lost) = timeout_at(end, guard.lost()).await {
            violate(format!("place {place}: {lost}"));
        }
        shared.checker.lock().end(number, tenure);
        shared.report();
        let released = Arc::into_inner(guard).map(Guard::release);
        if let Some(released) = released {
            let _ = released.await;
        }
    }
}

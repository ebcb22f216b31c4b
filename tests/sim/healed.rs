//! Locks that are kept after the faults. A renewal puts their keys back where they are missing.

use std::{mem, time::Duration};

use testkit::random::Random;
use tokio::time::sleep;

use super::{
    checker::Rule,
    client::Task,
    plan::{Fault, Plan},
};
use crate::Guard;

/// The time between two looks at a lock that is kept. A renewal comes at most every 100 ms.
const LOOK: Duration = Duration::from_millis(50);
/// How long before the end of the faults tasks begin to keep locks.
const EARLIEST: Duration = Duration::from_millis(1_000);

impl Plan {
    /// Lets tasks of some runs go on after the faults, and keep locks. Sets the wall clocks of some
    /// processes to almost the largest difference that a candidate for a token may have. Uses
    /// random numbers of its own, so that the faults of a seed stay the same.
    pub(super) fn draw_keepers(&mut self) {
        let random = &mut Random::new(self.seed ^ 0x6b65_6570);
        if !self.is_within() {
            return;
        }
        self.has_keepers = random.is_one_in(10);
        let is_right = self.wall_offsets.iter().all(|offset| *offset == 0);
        if is_right && !self.keeps_order() && random.is_one_in(4) {
            let offsets = self.wall_offsets.iter_mut();
            offsets.for_each(|offset| *offset = random.pick(&[-900, 0, 900]));
        }
    }

    /// Returns the time at which tasks begin nothing new.
    pub(super) fn tasks_end(&self) -> Duration {
        if self.has_keepers {
            self.settled_at() + Duration::from_secs(3)
        } else {
            self.faults_end
        }
    }

    /// Returns the time from which on renewals put keys back on all masters that are not sick for
    /// ever. The last late packets have arrived, connections are back, quarantines are over, and
    /// what crashed programs have left has ended.
    fn settled_at(&self) -> Duration {
        if self.is_calm() {
            return self.quarantine() + self.connect_timeout;
        }
        let ends = self.faults.iter().map(|planned| planned.at + planned.lasts);
        let last = ends.max().unwrap_or_default().max(self.faults_end);
        let steps = self.faults.iter().map(|planned| match planned.fault {
            Fault::StepClock(_, millis) => Duration::from_millis(millis.unsigned_abs()),
            _ => Duration::ZERO,
        });
        let back = Self::LONGEST_PAUSE + self.connect_timeout;
        let ttl = self.max_ttl + self.max_ttl / 100;
        last + self.latency.longest() + back + self.quarantine().max(ttl) + steps.sum::<Duration>()
    }

    /// Returns whether a process never gets a vote of a master in time after the faults.
    fn is_sick(&self, process: usize, master: usize) -> bool {
        self.lasting.iter().any(|fault| match *fault {
            Fault::Partition(cut, from, _) => (cut, from) == (process, master),
            fault => fault.master() == Some(master),
        })
    }
}

impl Task {
    /// Keeps a lock until some time after the faults, if it is late enough. Looks at its keys after
    /// renewals.
    pub(super) async fn keep(&mut self, wanted: &[usize], guard: &Guard) {
        if !self.keeps() {
            return;
        }
        let plan = self.shared.plan.clone();
        let end = self.now().max(plan.settled_at());
        let end = end + Duration::from_millis(self.random.below(2_500));
        let mut until = guard.valid_until();
        // The times of the last renewals.
        let mut renewed = Vec::new();
        while self.now() < end && guard.is_valid() {
            sleep(LOOK).await;
            let before = mem::replace(&mut until, guard.valid_until());
            if until == before || self.now() < plan.settled_at() {
                continue;
            }
            renewed.push(self.now());
            // The locks of a set are renewed one after the other.
            if let Some(since) = renewed.iter().rev().nth(2 * wanted.len()) {
                wanted
                    .iter()
                    .for_each(|lock| self.check_healed(*lock, guard, *since - LOOK));
            }
        }
    }

    /// Checks that all masters that are not sick have the lock. There were two renewals after
    /// `since`. Each master must have confirmed one of them, or have the key back. Only a rival may
    /// be in the way: it has the key on a minority until its attempt ends.
    fn check_healed(&self, number: usize, guard: &Guard, since: Duration) {
        let (plan, place) = (&self.shared.plan, self.process.number);
        let lock = &plan.locks[number];
        let (name, slot) = (lock.name, guard.slot());
        let since = since.as_micros() as u64;
        let world = self.shared.world.lock();
        let lacks = |master: &&usize| {
            let server = &world.servers[**master];
            !plan.is_sick(place, **master)
                && !server.has_granted(place, name, slot, since)
                && !server.had_rival(place, name, slot, since)
        };
        let mut masters = plan.lists_of(self.lists, lock).into_iter().flatten();
        let lacking = masters.find(lacks);
        drop(world);
        if let Some(master) = lacking {
            let text = format!("{name} is not back on master {master} after two renewals");
            self.shared.violate(Rule::Healed, text);
        }
    }

    /// Returns whether it is late enough to keep locks.
    pub(super) fn keeps(&self) -> bool {
        let plan = &self.shared.plan;
        plan.has_keepers && self.now() + EARLIEST > plan.faults_end
    }

    fn now(&self) -> Duration {
        Duration::from_micros(self.shared.world.lock().now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::plan::Model;

    #[test]
    fn fenced_locks_are_kept_and_clocks_of_rivals_are_almost_a_second_off() {
        let (mut kept, mut off) = (0, 0);
        for plan in (0..3_000).map(|seed| Plan::draw(seed, Model::Within)) {
            let has_fence = plan.locks.iter().any(|lock| lock.is_fenced);
            kept += u32::from(plan.has_keepers && has_fence);
            let is_off = plan.wall_offsets.iter().any(|offset| offset.abs() == 900);
            off += u32::from(is_off && has_fence);
        }
        assert!(kept > 150 && off > 270, "{kept} {off}");
    }
}

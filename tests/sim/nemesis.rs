//! Makes the faults of a plan happen.

use std::collections::BTreeSet;

use tokio::time::{Instant, sleep_until};

use super::{
    change::Lists,
    client::{Client, Shared},
    plan::{Breach, Fault, Model},
};

/// The running programs, with the number of programs that ran in each place.
pub(super) struct Clients {
    pub(super) shared: Shared,
    pub(super) running: Vec<Client>,
    lives: u64,
    /// The masters that a program gets when it starts in each place.
    pub(super) lists: Vec<Lists>,
    /// The places whose programs are replaced now.
    replaced: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(Fault),
    End(Fault),
}

impl Clients {
    pub(super) fn start(shared: &Shared) -> Self {
        let places = 0..shared.plan.places;
        Self {
            shared: shared.clone(),
            running: places
                .map(|place| Client::start(shared, place, 0, Lists::Old))
                .collect(),
            lives: 0,
            lists: vec![Lists::Old; shared.plan.places],
            replaced: BTreeSet::new(),
        }
    }

    /// Runs all faults of the plan, until the last one has ended.
    pub(super) async fn disturb(&mut self) {
        let start = Instant::now();
        let mut steps: Vec<_> = self
            .shared
            .plan
            .faults
            .iter()
            .flat_map(|planned| {
                let (at, end) = (planned.at, planned.at + planned.lasts);
                [
                    (at, Step::Begin(planned.fault)),
                    (end, Step::End(planned.fault)),
                ]
            })
            .collect();
        steps.sort_by_key(|(at, _)| *at);
        for (at, step) in steps {
            sleep_until(start + at).await;
            self.shared.world.lock().log(|| format!("{step:?}"));
            match step {
                Step::Begin(fault) => self.begin(fault),
                Step::End(fault) => self.end(fault),
            }
        }
        sleep_until(start + self.shared.plan.faults_end).await;
    }

    pub(super) fn begin(&mut self, fault: Fault) {
        let mut world = self.shared.world.lock();
        match fault {
            Fault::Close(process) => {
                drop(world);
                self.running[process].close();
            }
            Fault::Crash(process) => {
                drop(world);
                self.running[process].process.crash();
                self.shared.checker.lock().forget_crashed();
            }
            Fault::Cut(process, master) => world.reset(process, master, "connection reset"),
            Fault::Demote(master) => world.demote_server(master),
            Fault::Dribble(master) => world.servers[master].dribbles = true,
            Fault::ErrorReply(master) => {
                world.servers[master].refuse_with(Some("OOM command not allowed"));
            }
            Fault::Evict(master) => {
                let names: Vec<_> = self
                    .shared
                    .plan
                    .locks
                    .iter()
                    .map(|lock| lock.name)
                    .collect();
                world.evict(master, &names);
            }
            Fault::Far(master, millis) | Fault::Slow(master, millis) => {
                world.servers[master].slow = millis * 1_000;
            }
            Fault::Flood(master) => world.begin_flood(master),
            Fault::Forget(master) => world.flush_server(master),
            Fault::Partition(process, master, [up, down]) => world.cut(process, master, up, down),
            Fault::Pause(process) => self.running[process].process.pause(),
            Fault::Replace(process, lists) => {
                drop(world);
                self.running[process].process.crash();
                self.shared.checker.lock().forget_crashed();
                self.lists[process] = lists;
                self.replaced.insert(process);
            }
            Fault::Restart(master, _) => world.kill_server(master),
            Fault::Share(master) => world.begin_share(master),
            Fault::Silence(master) => world.stop_server(master),
            Fault::Snapshot(master) => world.servers[master].take_snapshot(),
            Fault::StepClock(master, millis) => {
                let now = world.now();
                world.servers[master].step_clock(now, millis * 1_000);
            }
            Fault::StepWall(process, millis) => self.running[process]
                .process
                .step_wall_clock(millis * 1_000),
            Fault::Suspend(process) => self.running[process].process.suspend(),
        }
    }

    pub(super) fn end(&mut self, fault: Fault) {
        let mut world = self.shared.world.lock();
        match fault {
            Fault::Crash(process) => {
                drop(world);
                self.restart(process);
            }
            Fault::Demote(master) => world.promote_server(master),
            Fault::Dribble(master) => world.servers[master].dribbles = false,
            Fault::ErrorReply(master) => world.servers[master].refuse_with(None),
            Fault::Flood(master) => world.servers[master].floods = false,
            Fault::Partition(process, master, _) => world.cut(process, master, false, false),
            Fault::Pause(process) => {
                self.running[process].process.resume();
                world.continue_process(process);
            }
            Fault::Replace(process, _) => {
                drop(world);
                self.replaced.remove(&process);
                self.restart(process);
            }
            Fault::Restart(master, data) => world.start_server(master, data),
            Fault::Share(master) => world.servers[master].has_share = false,
            Fault::Silence(master) => world.continue_server(master),
            Fault::Slow(master, _) => world.servers[master].slow = 0,
            Fault::Suspend(process) => {
                world.continue_process(process);
                let process = &self.running[process].process;
                let slept = process.resume();
                if self.shared.plan.model == Model::Outside(Breach::HiddenSuspension) {
                    process.step_wall_clock(-(slept.as_micros() as i64));
                }
            }
            Fault::Close(_)
            | Fault::Cut(..)
            | Fault::Evict(_)
            | Fault::Far(..)
            | Fault::Forget(_)
            | Fault::Snapshot(_)
            | Fault::StepClock(..)
            | Fault::StepWall(..) => {}
        }
    }

    /// Starts a program where one has crashed.
    fn restart(&mut self, place: usize) {
        let has_crashed = self.running[place].process.has_crashed();
        if has_crashed && !self.replaced.contains(&place) {
            self.lives += 1;
            let lists = self.lists[place];
            self.running[place] = Client::start(&self.shared, place, self.lives, lists);
        }
    }
}

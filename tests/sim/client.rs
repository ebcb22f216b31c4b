//! A simulated program: its coordinator, and tasks that use locks in every way.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use testkit::{polled::polled, random::Random};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::{
    change::Lists,
    checker::{Attempt, Checker, Manner, Rule},
    plan::{Breach, LockPlan, Model, Plan},
    process::Process,
    setup::{self, Setup},
    stream,
    world::World,
};
use crate::{
    AcquireError, Coordinator, Groups, Guard, Lock, LockKind, Owner, Quarantine, Reason, Renewal,
};

/// What all programs of a run share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) plan: Arc<Plan>,
    pub(super) world: Arc<Mutex<World>>,
    pub(super) checker: Arc<Mutex<Checker>>,
    /// The time at which tasks begin nothing new.
    pub(super) end: Instant,
    /// The locks that were detached, and that no task has attached yet.
    pub(super) detached: Arc<Mutex<Vec<Passed>>>,
}

/// A lock that a task has detached, for any other task to attach.
pub(super) struct Passed {
    wanted: Vec<usize>,
    holders: Vec<u64>,
    /// Its `Detached`, which the process that attaches it reads.
    text: String,
}

impl Shared {
    /// Hands what the checker found to the world, which keeps it with the time.
    pub(super) fn report(&self) {
        let found = self.checker.lock().take_found();
        let mut world = self.world.lock();
        for (rule, text) in found {
            world.violate(rule, || text);
        }
    }

    pub(super) fn violate(&self, rule: Rule, text: String) {
        self.world.lock().violate(rule, || text);
    }

    pub(super) fn log(&self, line: impl FnOnce() -> String) {
        self.world.lock().log(line);
    }
}

/// A running program.
pub(super) struct Client {
    pub(super) process: Arc<Process>,
    pub(super) locks: Groups,
    pub(super) tasks: Vec<JoinHandle<()>>,
}

impl Client {
    /// Starts a program in a place. `life` counts the programs that ran there before.
    pub(super) fn start(shared: &Shared, place: usize, life: u64, lists: Lists) -> Self {
        let plan = &shared.plan;
        let seed = plan.seed ^ ((place as u64 + 1) << 40) ^ (life << 48);
        let process = shared
            .world
            .lock()
            .start_process(place, seed, plan.process_ppm[place]);
        process.step_wall_clock(plan.wall_offsets[place] * 1_000);
        let locks = process.enter(|| groups(shared, place, plan.quarantine, lists));
        let mut random = Random::new(seed ^ 0x7461_736b);
        let owners: Vec<_> = (0..2).map(|_| locks.new_owner()).collect();
        let tasks = (0..plan.tasks).map(|number| {
            let task = Task {
                shared: shared.clone(),
                process: process.clone(),
                locks: locks.clone(),
                lists,
                owners: owners.clone(),
                first_owner: (place as u64) << 16 | life << 8,
                random: Random::new(random.number()),
                number,
            };
            tokio::spawn(process.task(task.run()))
        });
        let tasks = tasks.collect();
        Self {
            process,
            locks,
            tasks,
        }
    }
}

impl Client {
    /// Closes the coordinator, while its tasks still run.
    pub(super) fn close(&self) {
        let locks = self.locks.clone();
        let closing = self.process.task(async move { locks.close().await });
        tokio::spawn(closing);
    }
}

/// Starts a program that looks at the masters and never locks. Each look is that of a new program.
pub(super) fn visit(shared: &Shared) -> JoinHandle<()> {
    let place = shared.plan.places;
    let seed = shared.plan.seed ^ 0x7669_7369_7400;
    let process = shared.world.lock().start_process(place, seed, 0);
    let (shared, mut random) = (shared.clone(), Random::new(seed));
    let visitor = process.clone();
    tokio::spawn(process.task(async move {
        while Instant::now() < shared.end {
            visitor.forget_run_ids();
            let locks = groups(&shared, place, Quarantine::Observed, Lists::Both);
            let name = shared.plan.locks[0].name;
            let _ = locks.mutex(name).inspect().await;
            drop(locks);
            sleep(Duration::from_millis(random.below(400))).await;
        }
    }))
}

fn groups(shared: &Shared, place: usize, quarantine: Quarantine, lists: Lists) -> Groups {
    let plan = &shared.plan;
    let endpoint = |master| stream::spec(&shared.world, place, master);
    // Every program lists one master only, so programs with different masters do not exclude each
    // other.
    let own = Setup::list(vec![place % plan.masters]);
    let setups = match plan.model {
        Model::Outside(Breach::MasterLists) => vec![&own],
        _ => plan.setups(lists),
    };
    let max_ttl = match plan.model {
        Model::Outside(Breach::Settings) if place == 0 => plan.max_ttl * 10,
        _ => plan.max_ttl,
    };
    let settings = Coordinator::builder()
        .connect_timeout(plan.connect_timeout)
        .drift_ppm(plan.drift_ppm)
        .quarantine(quarantine)
        .ttl(plan.ttls[0])
        .max_ttl(max_ttl);
    let settings = match plan.is_slow {
        true => settings, // the response timeout is measured
        false => settings.response_timeout(plan.response_timeout),
    };
    setup::open(settings, &setups, place, endpoint)
}

/// The way to acquire a lock in which the future may be left alone for long.
const UNPOLLED: u64 = 4;

/// A task of a program.
pub(super) struct Task {
    pub(super) shared: Shared,
    pub(super) process: Arc<Process>,
    pub(super) locks: Groups,
    pub(super) lists: Lists,
    pub(super) owners: Vec<Owner>,
    pub(super) first_owner: u64,
    pub(super) random: Random,
    pub(super) number: usize,
}

impl Task {
    async fn run(mut self) {
        if self.shared.plan.is_slow {
            return self.endure().await;
        }
        while Instant::now() < self.shared.end {
            let passed = self.shared.detached.lock().pop();
            if let Some(passed) = passed {
                self.take_over(passed).await;
            }
            let wanted = self.shared.plan.draw_wanted(&mut self.random);
            self.use_locks(&wanted).await;
            let mut pause = self.random.pick(&[0, 1, 20, 200]);
            if self.keeps() {
                pause = 400; // others keep the locks
            }
            sleep(Duration::from_millis(self.random.below(pause + 1))).await;
        }
    }

    /// Uses a lock, or several mutexes as one.
    async fn use_locks(&mut self, wanted: &[usize]) {
        let number = wanted[0];
        let which = self.random.index(self.owners.len());
        let reads =
            self.shared.plan.locks[number].kind == LockKind::ReadWrite && self.random.is_one_in(2);
        // An owner cannot acquire again what it has detached.
        let may_pass = self.shared.plan.passes_locks() && self.random.is_one_in(4);
        let mut lock = self.lock(wanted, which, reads);
        let kind = self.shared.plan.locks[number].kind;
        let has_owner = self.shared.plan.locks[number].has_owner();
        if may_pass && has_owner {
            lock = lock.owner(&self.locks.new_owner());
        }
        let owner = (has_owner && !may_pass).then_some(self.first_owner | which as u64);
        let way = self.random.below(10);
        let manner = Manner {
            reads,
            // A waiter for several locks may have the first ones long before its guard.
            is_queued: way > 6 && wanted.len() == 1,
            is_unpolled: way == UNPOLLED,
        };
        let attempts = wanted.iter().map(|number| {
            let mut checker = self.shared.checker.lock();
            checker.begin(&self.process, *number, owner, manner)
        });
        let attempts: Vec<_> = attempts.collect();
        let since = self.shared.world.lock().now();
        let Some(Ok(guard)) = self.acquire(&lock, way).await else {
            for attempt in attempts {
                self.shared.checker.lock().leave(attempt);
            }
            return;
        };
        if guard.depth() == 1 {
            for number in wanted {
                self.check_certificate(*number, &guard, since);
            }
        }
        let guard = Arc::new(guard);
        let tenures =
            self.shared
                .checker
                .lock()
                .granted_all(&attempts, &self.process, owner, &guard);
        self.shared.log(|| {
            format!(
                "place {} task {} gets locks {wanted:?}, tenures {tenures:?}, token {:?}",
                self.process.number,
                self.number,
                guard.fencing_tokens().next()
            )
        });
        self.shared.report();
        let is_writer = !guard.shares();
        let is_exclusive = is_writer || self.shared.plan.locks[number].has_one_holder();
        let held = wanted.iter().copied().zip(tenures.iter().copied());
        let reads = held.clone().filter_map(|(number, tenure)| {
            let token = self.token(&guard, number);
            let read =
                is_exclusive.then(|| self.shared.checker.lock().read(number, tenure, token))?;
            Some((number, tenure, token, read?))
        });
        let reads: Vec<_> = reads.collect();
        self.hold(attempts[0], &guard, &lock).await;
        self.keep(wanted, &guard).await;
        for (number, tenure, token, read) in reads {
            // Nothing comes between the check and the write.
            let is_held = guard.is_valid() && self.process.knows_the_time();
            let may_write = token.is_some() || is_held;
            let read = may_write.then_some(read);
            self.shared
                .checker
                .lock()
                .write(number, tenure, read, token);
        }
        if kind == LockKind::ReadWrite && is_writer && self.random.is_one_in(2) {
            guard.downgrade();
            assert!(guard.shares());
            self.hold(attempts[0], &guard, &lock).await;
        }
        let mut holders = Vec::new();
        for (number, tenure) in held {
            self.shared
                .log(|| format!("tenure {tenure} of lock {number} ends"));
            let ended = self.shared.checker.lock().end(number, tenure);
            holders.extend(ended);
        }
        self.shared.report();
        let Some(guard) = Arc::into_inner(guard) else {
            return;
        };
        if may_pass && self.random.is_one_in(2) {
            return self.pass_on(wanted, holders, guard).await;
        }
        self.release(guard).await;
    }

    /// Detaches a lock.
    async fn pass_on(&mut self, wanted: &[usize], holders: Vec<u64>, guard: Guard) {
        let bound = self.shared.plan.round_bound();
        let ttl = self.random.pick(&self.shared.plan.ttls);
        match self.timed("detach", bound, guard.detach(ttl)).await {
            Ok(detached) => {
                self.shared.log(|| format!("locks {wanted:?} are detached"));
                self.shared.detached.lock().push(Passed {
                    wanted: wanted.to_vec(),
                    holders,
                    text: detached.to_string(),
                });
            }
            Err(failed) => self.release(failed.guard).await,
        }
    }

    /// Attaches a lock that a task of any process has detached, and uses it. Nothing is released
    /// if that fails.
    async fn take_over(&mut self, passed: Passed) {
        let bound = self.shared.plan.attempt_bound();
        let since = self.shared.world.lock().now();
        let Ok(detached) = passed.text.parse() else {
            return self.shared.violate(Rule::Panic, passed.text);
        };
        let attaching = self.locks.attach(&detached);
        let guard = match self.timed("attach", bound, attaching).await {
            Ok(guard) => guard,
            Err(error) => {
                if *error.reason() != Reason::Gone {
                    self.shared.detached.lock().push(passed);
                }
                return;
            }
        };
        for number in &passed.wanted {
            self.check_certificate(*number, &guard, since);
        }
        let guard = Arc::new(guard);
        let numbers = passed.wanted.iter().zip(&passed.holders);
        let tenures = numbers.map(|(number, holder)| {
            let mut checker = self.shared.checker.lock();
            (
                *number,
                checker.attached(*number, &self.process, *holder, guard.clone()),
            )
        });
        let tenures: Vec<_> = tenures.collect();
        self.shared.log(|| {
            let place = self.process.number;
            format!(
                "place {place} task {} attaches, tenures {tenures:?}",
                self.number
            )
        });
        self.shared.report();
        let reads = tenures
            .iter()
            .filter(|_| !guard.shares())
            .map(|(number, tenure)| {
                let token = self.token(&guard, *number);
                let read = self.shared.checker.lock().read(*number, *tenure, token);
                (*number, *tenure, token, read)
            });
        let reads: Vec<_> = reads.collect();
        let time = self.random.pick(&[2, 30, 300, 2_500]);
        sleep(Duration::from_millis(self.random.below(time))).await;
        let ttl = self.random.pick(&self.shared.plan.ttls);
        self.extend(passed.wanted[0], &guard, ttl).await;
        for (number, tenure, token, read) in reads {
            let is_held = guard.is_valid() && self.process.knows_the_time();
            let read = read.filter(|_| token.is_some() || is_held);
            self.shared
                .checker
                .lock()
                .write(number, tenure, read, token);
        }
        for (number, tenure) in tenures {
            self.shared.checker.lock().end(number, tenure);
        }
        self.shared.report();
        let Some(guard) = Arc::into_inner(guard) else {
            return;
        };
        if self.random.is_one_in(3) {
            drop(guard.abandon_on_drop());
            return self.shared.detached.lock().push(passed);
        }
        self.release(guard).await;
    }

    async fn release(&mut self, guard: Guard) {
        match self.random.below(4) {
            0 => drop(guard),
            1 => drop(polled(1, guard.release()).await),
            _ => {
                let bound = self.shared.plan.round_bound();
                let _ = self.timed("release", bound, guard.release()).await;
            }
        }
    }

    /// Returns the token that the resource of this lock checks.
    fn token(&self, guard: &Guard, number: usize) -> Option<u64> {
        let plan = &self.shared.plan.locks[number];
        let mut tokens = guard.fencing_tokens().filter(|_| plan.is_fenced);
        let (_, token) = tokens.find(|(name, _)| *name == plan.name)?;
        Some(token.into())
    }

    fn lock(&mut self, wanted: &[usize], owner: usize, reads: bool) -> Lock {
        let plan = &self.shared.plan.locks[wanted[0]];
        let owner = &self.owners[owner];
        let lock = if wanted.len() > 1 {
            set(&self.locks, &self.shared.plan, wanted)
        } else if reads {
            self.locks.read_write(plan.name).owner(owner).read().plain()
        } else {
            let mut plan = *plan;
            if !self.shared.plan.is_calm() {
                // Programs may know different numbers of permits.
                plan.most_holders = 1 + self.random.index(plan.most_holders);
            }
            lock(&self.locks, &plan, owner)
        };
        let mut ttl = self.random.pick(&self.shared.plan.ttls);
        if self.has_long_ttl() {
            ttl = self.shared.plan.max_ttl * 10;
        }
        let renewal = match self.random.below(3) {
            0 => Renewal::Off,
            1 => Renewal::UpTo(Duration::from_millis(self.random.below(3_000))),
            _ => Renewal::Unlimited,
        };
        lock.ttl(ttl).renewal(renewal)
    }

    /// Returns whether this program asks for a longer TTL than the others allow for.
    fn has_long_ttl(&self) -> bool {
        self.shared.plan.model == Model::Outside(Breach::Settings) && self.process.number == 0
    }

    async fn acquire(&mut self, lock: &Lock, way: u64) -> Option<Result<Guard, AcquireError>> {
        let bound = self.shared.plan.attempt_bound();
        let limit = Duration::from_millis(self.random.pick(&[10, 100, 1_000, 4_000]));
        let limit = Duration::from_millis(self.random.below(limit.as_millis() as u64));
        let polls = 1 + self.random.index(20);
        match way {
            0 => polled(polls, lock.acquire()).await,
            1 => polled(polls, lock.try_acquire()).await,
            2 => polled(polls, lock.acquire_within(limit)).await,
            3 => timeout(limit, lock.acquire()).await.ok(),
            UNPOLLED => self.unpolled(lock, polls, limit).await,
            5 | 6 => Some(self.timed("try_acquire", bound, lock.try_acquire()).await),
            _ => Some(
                self.timed("acquire_within", limit + bound, lock.acquire_within(limit))
                    .await,
            ),
        }
    }

    /// Polls a future a few times, leaves it alone for a while, and then goes on or drops it.
    async fn unpolled(
        &mut self,
        lock: &Lock,
        polls: usize,
        time: Duration,
    ) -> Option<Result<Guard, AcquireError>> {
        let limit = Duration::from_millis(300);
        let mut future = pin!(lock.acquire_within(limit));
        if let Some(done) = polled(polls, future.as_mut()).await {
            return Some(done);
        }
        sleep(time).await;
        if self.random.is_one_in(2) {
            return None;
        }
        Some(
            self.timed(
                "acquire_within",
                limit + self.shared.plan.attempt_bound(),
                future,
            )
            .await,
        )
    }

    async fn hold(&mut self, attempt: Attempt, guard: &Arc<Guard>, lock: &Lock) {
        if self.has_long_ttl() {
            sleep(Duration::from_secs(6)).await;
        }
        for _ in 0..self.random.below(4) {
            let ttl = self.random.pick(&self.shared.plan.ttls);
            match self.random.below(8) {
                0 | 1 => self.extend(attempt.lock, guard, ttl).await,
                2 => drop(polled(1, guard.extend(ttl)).await),
                3 => self.reenter(attempt, guard, lock).await,
                4 => drop(lock.inspect().await),
                5 => {
                    let _ = timeout(
                        Duration::from_millis(self.random.below(2_000)),
                        guard.lost(),
                    )
                    .await;
                }
                _ => {
                    let time = self.random.pick(&[2, 30, 300, 2_500]);
                    sleep(Duration::from_millis(self.random.below(time))).await;
                }
            }
        }
    }

    async fn extend(&self, lock: usize, guard: &Arc<Guard>, ttl: Duration) {
        let bound = self.shared.plan.round_bound();
        let since = self.shared.world.lock().now();
        let (before, slept) = (guard.valid_until(), self.process.suspensions.total());
        let extended = self.timed("extend", bound, guard.extend(ttl)).await;
        let is_shorter = guard.valid_until() < before && slept == self.process.suspensions.total();
        if extended.is_err() && is_shorter && guard.is_valid() {
            self.shared.violate(
                Rule::Extension,
                format!("{extended:?} shortened a validity"),
            );
        }
        if extended.is_ok() {
            self.check_certificate(lock, guard, since);
        }
        self.check_overlaps();
    }

    async fn reenter(&mut self, attempt: Attempt, guard: &Arc<Guard>, lock: &Lock) {
        let Some(holder) = attempt.owner else {
            return;
        };
        let bound = self.shared.plan.attempt_bound();
        let plan = self.shared.plan.locks[attempt.lock];
        let other = (plan.kind == LockKind::ReadWrite).then(|| {
            let owner = &self.owners[(holder - self.first_owner) as usize];
            let lock = self.locks.read_write(plan.name).owner(owner);
            if self.random.is_one_in(2) {
                lock.read().plain()
            } else {
                lock.write().plain()
            }
        });
        let lock = other.as_ref().unwrap_or(lock);
        let inner = self.timed("try_acquire", bound, lock.try_acquire()).await;
        if let Ok(inner) = inner {
            if !inner.shares() {
                self.shared
                    .checker
                    .lock()
                    .check_alone(attempt.lock, holder, &inner);
            }
            if guard.is_valid() && inner.depth() < 2 {
                self.shared
                    .violate(Rule::Extension, "a re-entry did not go deeper".to_owned());
            }
            self.check_overlaps();
            sleep(Duration::from_millis(self.random.below(50))).await;
        }
    }

    fn check_overlaps(&self) {
        for lock in 0..self.shared.plan.locks.len() {
            self.shared.checker.lock().check_overlap(lock);
        }
        self.shared.report();
    }

    /// Checks that a majority of each list of masters granted the lock, or the slot of the guard,
    /// to this process, or confirmed it, since the call began.
    fn check_certificate(&self, lock: usize, guard: &Guard, since: u64) {
        let plan = &self.shared.plan;
        if plan.model != Model::Within {
            return;
        }
        let world = self.shared.world.lock();
        let lock = &plan.locks[lock];
        let (name, slot) = (lock.name, guard.slot());
        let has_granted = |master: &usize| {
            world.servers[*master].has_granted(self.process.number, name, slot, since)
        };
        let lists = plan.lists_of(self.lists, lock).into_iter();
        let counts = lists.map(|list| {
            (
                list.iter().filter(|master| has_granted(master)).count(),
                list,
            )
        });
        let mut missed = counts.filter(|(granted, list)| *granted < list.len() / 2 + 1);
        let missed = missed.next();
        drop(world);
        if let Some((granted, list)) = missed {
            let text = format!("{granted} of the masters {list:?} granted {name}");
            self.shared.violate(Rule::Certificate, text);
        }
    }

    /// Runs a call. It must not take longer than `bound` while its process runs.
    async fn timed<T>(&self, call: &str, bound: Duration, future: impl Future<Output = T>) -> T {
        let running = self.process.running_time();
        let output = future.await;
        let took = self.process.running_time() - running;
        // Timers are a millisecond late, and clocks run at different rates.
        let bound = bound + bound / 50 + Duration::from_millis(5);
        if took > bound {
            self.shared.violate(
                Rule::CallTime,
                format!("{call} took {took:?}, and not at most {bound:?}"),
            );
        }
        output
    }
}

/// Returns the lock with the number in `wanted`, or the mutexes with these numbers as one lock.
pub(super) fn wanted(locks: &Groups, plan: &Plan, wanted: &[usize], owner: &Owner) -> Lock {
    match wanted {
        [number] => lock(locks, &plan.locks[*number], owner),
        several => set(locks, plan, several),
    }
}

/// Returns several mutexes as one lock. It has tokens if one of them has.
fn set(locks: &Groups, plan: &Plan, wanted: &[usize]) -> Lock {
    let plans = wanted.iter().map(|number| &plan.locks[*number]);
    let lock = locks
        .multi_mutex(plans.clone().map(|plan| plan.name))
        .plain();
    if plans.clone().any(|plan| plan.is_fenced) {
        lock.fenced().plain()
    } else {
        lock
    }
}

pub(super) fn lock(locks: &Groups, plan: &LockPlan, owner: &Owner) -> Lock {
    let lock = match plan.kind {
        LockKind::Semaphore => locks.semaphore(plan.name, plan.most_holders).plain(),
        kind => locks.of(plan.name).of_kind(kind, plan.name, owner),
    };
    if plan.is_fenced {
        lock.fenced().plain()
    } else {
        lock
    }
}

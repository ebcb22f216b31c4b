//! The simulator: the whole driver on masters, a network and clocks that one seed decides.
//!
//! A run has several processes, each with clocks of its own. Their tasks use locks of all kinds in
//! every way, while processes, masters and the network fail. [`checker`] says which rules hold.
//!
//! `./dev sim [N]` runs N seeds, and the runs outside the model. With `SIM_SEED=n`, it runs one
//! seed and prints everything that happened. `SIM_BREACH` names the broken assumption of that run.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a simulation owns its clocks and its tasks, and a failed test ends"
)]

use std::{
    cell::Cell,
    panic,
    sync::{Arc, Once},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use self::{
    checker::{Attempt, Checker, Manner, Rule, Violations},
    client::Shared,
    nemesis::Clients,
    plan::{Data, Fault, Model, Plan},
    world::World,
};
use crate::{Groups, Guard};

mod change;
mod checker;
mod client;
mod commands;
mod groups;
mod healed;
mod hurry;
mod machines;
mod nemesis;
mod network;
mod plan;
mod process;
mod server;
mod setup;
mod slow;
mod stream;
mod tests;
mod world;

pub(crate) use process::Process;

/// What a run showed.
struct Outcome {
    violations: Violations,
    acquired: u64,
    sets: u64,
    /// The number of locks that were attached.
    passed: u64,
    busiest_second: u32,
    log: Vec<String>,
}

/// Runs one seed.
fn run(seed: u64, model: Model, is_recorded: bool) -> Outcome {
    run_plan(Plan::draw(seed, model), is_recorded)
}

fn run_plan(plan: Plan, is_recorded: bool) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let (mut outcome, panics) = count_panics(|| runtime.block_on(simulate(plan, is_recorded)));
    if panics > 0 {
        let text = format!("{panics} panics in tasks");
        outcome.violations.push(Rule::Panic, 0, text);
    }
    outcome
}

/// Runs `f`, and counts the panics in this thread. Tokio and the crate catch the panics of tasks,
/// so these do not end a run.
fn count_panics<T>(f: impl FnOnce() -> T) -> (T, u32) {
    thread_local! {
        static PANICS: Cell<u32> = const { Cell::new(0) };
    }
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            print(info);
        }));
    });
    PANICS.set(0);
    (f(), PANICS.get())
}

async fn simulate(plan: Plan, is_recorded: bool) -> Outcome {
    let plan = Arc::new(plan);
    let world = Arc::new(Mutex::new(World::new(&plan, is_recorded)));
    let shared = Shared {
        checker: Arc::new(Mutex::new(Checker::new(&plan))),
        end: Instant::now() + plan.tasks_end(),
        detached: Arc::default(),
        world: world.clone(),
        plan: plan.clone(),
    };
    world.lock().log(|| format!("{plan:#?}"));
    let network = tokio::spawn(world::run(world.clone()));
    let mut clients = Clients::start(&shared);
    let visitor = plan.has_visitor.then(|| client::visit(&shared));
    clients.disturb().await;
    world.lock().latency.calm_down();
    for fault in &plan.lasting {
        clients.begin(*fault);
    }
    join_tasks(&mut clients).await;
    if let Some(visitor) = visitor {
        visitor.await.unwrap();
    }
    shared.checker.lock().check_resources();
    shared.report();
    if plan.model == Model::Within {
        check_progress(&clients).await;
        check_owed_releases(&clients).await;
        contend(&clients).await;
        check_end(clients).await;
    }
    network.abort();
    let mut world = world.lock();
    let (sent, dialled) = (world.sent.highest, world.dialled.highest);
    if plan.model == Model::Within && (sent > MOST_SENT || dialled > most_dialled(&plan)) {
        world.violate(Rule::Rate, || {
            format!("{sent} commands and {dialled} dials in a second")
        });
    }
    let checker = shared.checker.lock();
    Outcome {
        violations: world.violations.clone(),
        acquired: checker.acquired,
        sets: checker.sets,
        passed: checker.passed,
        busiest_second: sent,
        log: world.take_log(),
    }
}

/// The most commands that a process of three tasks sends to one master in a second.
const MOST_SENT: u32 = 800;

/// Returns the most connections that a process opens to one master in a second. A visitor is a new
/// process each time. While groups are changed, each pair of groups has connections of its own, and
/// a master is in five pairs at most: those of its old group, and those of its new one.
fn most_dialled(plan: &Plan) -> u32 {
    let is_change_of_groups = plan.has_groups() && plan.new.is_some();
    60 * if is_change_of_groups { 5 } else { 1 }
}

/// Waits for all tasks. Each of their calls has a limit, so they end soon.
async fn join_tasks(clients: &mut Clients) {
    let end = Instant::now() + Duration::from_secs(60);
    for client in &mut clients.running {
        for task in client.tasks.drain(..) {
            match tokio::time::timeout_at(end, task).await {
                Ok(ended) => ended.unwrap(),
                Err(_) => clients
                    .shared
                    .violate(Rule::CallTime, "a task did not end".to_owned()),
            }
        }
    }
}

/// Checks that all processes that reach a majority get every lock soon, also while a process that
/// does not reach a majority waits.
async fn check_progress(clients: &Clients) {
    let shared = &clients.shared;
    let plan = &shared.plan;
    let is_hopeless = |place: usize| {
        let cut = |fault: &Fault| matches!(fault, Fault::Partition(cut, ..) if *cut == place);
        plan.lasting.iter().any(cut)
    };
    let all = plan.locks.len();
    let mut rows: Vec<Vec<_>> = (0..all)
        .map(|number| vec![vec![number]; plan.places])
        .collect();
    if plan.has_sets {
        // Each place begins with another lock, so calls that wait out of order form a circle.
        let in_turn = |place: usize| (0..all).map(|at| (place + at) % all).collect();
        rows.push((0..plan.places).map(in_turn).collect());
    }
    for row in rows {
        let waiting = clients.running.iter().enumerate().zip(row);
        let waiting = waiting.map(|((place, client), wanted)| {
            let ending = Ending {
                shared: shared.clone(),
                process: client.process.clone(),
                wanted,
                is_hopeless: is_hopeless(place),
            };
            tokio::spawn(client.process.task(ending.get(client.locks.clone())))
        });
        for task in waiting.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    }
}

/// A wait after the end of all faults but the lasting ones.
struct Ending {
    shared: Shared,
    process: Arc<Process>,
    wanted: Vec<usize>,
    /// Whether the process does not reach a majority.
    is_hopeless: bool,
}

impl Ending {
    async fn get(self, locks: Groups) {
        if !self.is_hopeless {
            sleep(Duration::from_millis(100)).await; // the hopeless one comes first
        }
        let (began, owner) = (Instant::now(), locks.new_owner());
        let (plan, place, wanted) = (&self.shared.plan, self.process.number, &self.wanted);
        let bound = plan.progress_bound();
        let has_owner = plan.locks[wanted[0]].has_owner();
        let holder = has_owner.then_some(1 << 40 | place as u64);
        let attempts = wanted.iter().map(|number| {
            let mut checker = self.shared.checker.lock();
            checker.begin(&self.process, *number, holder, Manner::default())
        });
        let attempts: Vec<_> = attempts.collect();
        let lock = client::wanted(&locks, plan, wanted, &owner);
        let got = timeout(bound * 2, lock.acquire()).await;
        let took = began.elapsed();
        let violate = |text| self.shared.violate(Rule::Progress, text);
        match got {
            Ok(Ok(guard)) => {
                self.end(&attempts, holder, guard, took).await;
            }
            _ if self.is_hopeless => {}
            Ok(Err(error)) => violate(format!("place {place}: {error}")),
            Err(_) => violate(format!(
                "place {place} did not get locks {wanted:?} in {took:?}"
            )),
        }
        if took > bound && !self.is_hopeless {
            violate(format!(
                "place {place} got locks {wanted:?} only after {took:?}"
            ));
        }
    }

    /// Ends the tenure of `guard`, which was acquired after the time `took`.
    async fn end(&self, attempts: &[Attempt], holder: Option<u64>, guard: Guard, took: Duration) {
        let (guard, checker) = (Arc::new(guard), &self.shared.checker);
        let tenures = checker
            .lock()
            .granted_all(attempts, &self.process, holder, &guard);
        for (number, tenure) in self.wanted.iter().zip(tenures) {
            checker.lock().end(*number, tenure);
        }
        self.shared.report();
        let Some(guard) = Arc::into_inner(guard) else {
            return;
        };
        let (place, wanted) = (self.process.number, &self.wanted);
        self.shared
            .log(|| format!("place {place} got {wanted:?} in the end, after {took:?}"));
        let _ = guard.release().await;
    }
}

/// Checks that a master gets a release that it missed as soon as it is back.
async fn check_owed_releases(clients: &Clients) {
    let (shared, client) = (&clients.shared, &clients.running[0]);
    let plan = &shared.plan.locks[0];
    let lists = shared.plan.lists_of(clients.lists[0], plan);
    if !is_all_released(shared) || lists.iter().any(|list| list.len() < 3) {
        return;
    }
    let master = lists[0][0];
    let locks = &client.locks;
    let lock = client
        .process
        .enter(|| client::lock(locks, plan, &locks.new_owner()));
    let lock = lock.ttl(shared.plan.max_ttl);
    let (world, bound) = (shared.world.clone(), shared.plan.progress_bound());
    world.lock().is_healthy = false;
    let released = client.process.task(async move {
        let Ok(Ok(guard)) = timeout(bound, lock.acquire()).await else {
            return;
        };
        guard.all_votes().await;
        world.lock().kill_server(master);
        sleep(Duration::from_millis(20)).await;
        drop(guard);
        sleep(Duration::from_millis(20)).await;
        world.lock().start_server(master, Data::Kept);
        sleep(Plan::LONGEST_PAUSE).await;
    });
    tokio::spawn(released).await.unwrap();
    check_keys(shared);
}

/// Lets all programs make attempts at the same locks at the same time, so that attempts fail just
/// before the programs end.
async fn contend(clients: &Clients) {
    let mut attempts = Vec::new();
    for client in &clients.running {
        let plan = &clients.shared.plan;
        let mut all: Vec<_> = (0..plan.locks.len()).map(|number| vec![number]).collect();
        if plan.has_sets {
            all.push((0..plan.locks.len()).rev().collect());
        }
        for wanted in all {
            let (locks, process) = (&client.locks, &client.process);
            let lock = process.enter(|| client::wanted(locks, plan, &wanted, &locks.new_owner()));
            let attempt = process.task(async move { drop(lock.try_acquire().await) });
            attempts.push(tokio::spawn(attempt));
        }
    }
    for attempt in attempts {
        attempt.await.unwrap();
    }
    if is_all_released(&clients.shared) {
        sleep(Duration::from_millis(100)).await; // the releases arrive
        check_keys(&clients.shared);
    }
}

/// Closes all programs, and checks that nothing is left of them.
async fn check_end(clients: Clients) {
    let Clients {
        shared, running, ..
    } = clients;
    let plan = &shared.plan;
    {
        let mut world = shared.world.lock();
        world.is_healthy = false;
        for server in &mut world.servers {
            server.floods = false;
        }
    }
    let mut processes = Vec::new();
    for client in running {
        let locks = client.locks.coordinators();
        let timeouts = locks.map(|locks| locks.context().silent_waiter_timeout());
        let silent_waiter_timeout = timeouts.max().unwrap_or_default();
        let bound = plan.max_ttl.max(silent_waiter_timeout * 2) + Duration::from_millis(100);
        let began = Instant::now();
        let closing = client.process.task({
            let (locks, shared) = (client.locks.clone(), shared.clone());
            async move {
                if timeout(bound * 2, locks.close()).await.is_err() || began.elapsed() > bound {
                    shared.violate(Rule::CloseTime, format!("close took {:?}", began.elapsed()));
                }
            }
        });
        tokio::spawn(closing).await.unwrap();
        let client::Client { process, locks, .. } = client;
        process.enter(|| drop(locks));
        processes.push(process);
    }
    if is_all_released(&shared) {
        check_keys(&shared);
    }
    sleep(Duration::from_secs(30)).await;
    for process in processes {
        let left = process.task_count();
        if left > 0 {
            shared.violate(
                Rule::Left,
                format!("{left} tasks of place {} are left", process.number),
            );
        }
    }
    let open = shared.world.lock().open_links();
    if open > 0 {
        shared.violate(Rule::Left, format!("{open} connections are left"));
    }
    check_keys(&shared);
}

/// Returns whether the releases that are under way leave nothing on the masters. A lock that was
/// detached and not attached stays until its TTL has passed.
fn is_all_released(shared: &Shared) -> bool {
    shared.plan.delivers_all() && shared.detached.lock().is_empty()
}

/// Checks that no lock is left on a master. Counters stay.
fn check_keys(shared: &Shared) {
    let mut world = shared.world.lock();
    let now = world.now();
    for master in 0..shared.plan.masters {
        let keys = world.servers[master].key_names(now);
        if let Some(key) = keys.iter().find(|key| !key.starts_with("quorlock:fence:")) {
            world.violate(Rule::Left, || format!("master {master} has {key}"));
        }
    }
}

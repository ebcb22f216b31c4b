//! The rules that no run may break. The checker sees all processes at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    plan::{LockPlan, Model, Plan},
    process::Process,
};
use crate::{Guard, LockKind};

/// A rule that a run broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    /// A held lock was lost, or nobody got a lock, although all masters answered in time.
    Availability,
    /// A call took longer than it may.
    CallTime,
    /// A guard was handed out without a majority of grants, or after its validity.
    Certificate,
    /// `close` took longer than the longest TTL.
    CloseTime,
    /// More holders were valid at the same time than the lock has room for.
    Exclusion,
    /// A failed extension changed the validity.
    Extension,
    /// A fenced resource lost an update, or accepted tokens out of order.
    Fence,
    /// A command changed a key that belonged to another holder.
    ForeignKey,
    /// A process gave up a connection although its master answered.
    GivenUp,
    /// A waiter got a lock long after its release, although nothing failed.
    HandOver,
    /// A held lock was not put back on a master that lacked it.
    Healed,
    /// Something is left after all locks have ended.
    Left,
    /// A resource lost an update, although its writers checked their validity.
    LostUpdate,
    /// Waiters of a fair lock were served out of order.
    Order,
    /// The run panicked.
    Panic,
    /// A claim made more than ten rounds without a pause.
    Pause,
    /// Nobody got the lock in time, although a majority of masters was healthy.
    Progress,
    /// A master was asked for a vote in its quarantine.
    Quarantine,
    /// A process sent too many commands.
    Rate,
    /// A free lock took more rounds than it should.
    Rounds,
    /// Fencing tokens were not unique, or did not grow.
    Token,
}

#[derive(Clone, Default)]
pub(super) struct Violations(Vec<(Rule, u64, String)>);

impl Violations {
    /// Notes a violation, unless the same rule was broken many times before. Each rule is counted
    /// on its own: outside the model, exclusion breaks so often that there would be no room for a
    /// broken fence.
    pub(super) fn push(&mut self, rule: Rule, at: u64, text: String) {
        const MOST: usize = 20;
        if self.0.iter().filter(|(broken, ..)| *broken == rule).count() < MOST {
            self.0.push((rule, at, text));
        }
    }

    pub(super) fn broke(&self, rule: Rule) -> bool {
        self.0.iter().any(|(broken, ..)| *broken == rule)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(Rule) -> bool) {
        self.0.retain(|(rule, ..)| keep(*rule));
    }

    /// Returns the rule that was broken first.
    pub(super) fn first(&self) -> Option<Rule> {
        self.0.first().map(|(rule, ..)| *rule)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rule, at, text) in &self.0 {
            write!(f, "\n  at {:.6} s: {rule:?}: {text}", *at as f64 / 1e6)?;
        }
        Ok(())
    }
}

/// A guard in the hands of a task.
pub(super) struct Tenure {
    pub(super) process: Arc<Process>,
    /// Two tenures with the same holder may overlap.
    holder: u64,
    guard: Arc<Guard>,
}

/// How a task wants a lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// It wants to read. It does not wait for other readers.
    pub(super) reads: bool,
    /// It waits in the queues of a fair lock from the start. Cleared if another task of its owner
    /// wants the lock meanwhile.
    pub(super) is_queued: bool,
    /// It may leave its future alone for longer than a lease.
    pub(super) is_unpolled: bool,
}

/// A task that tries to acquire a lock.
struct Contender {
    process: Arc<Process>,
    lock: usize,
    owner: Option<u64>,
    began: Instant,
    manner: Manner,
    /// Whether no one else has wanted the lock since shortly before the start, and the task polls.
    is_alone: bool,
}

/// An acquisition that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) lock: usize,
    pub(super) owner: Option<u64>,
    number: u64,
    began: Instant,
}

/// All locks of a run, their holders, and the resources that they protect.
pub(super) struct Checker {
    start: Instant,
    model: Model,
    locks: Vec<Watched>,
    tenures: BTreeMap<u64, Tenure>,
    contenders: BTreeMap<u64, Contender>,
    /// Whether nothing fails in this run.
    is_calm: bool,
    /// Whether waiters of fair locks are served in order.
    keeps_order: bool,
    /// Two waiters that begin within this time count as simultaneous: the clocks of processes drift
    /// apart, and tickets need time to arrive.
    same_time: Duration,
    count: u64,
    pub(super) acquired: u64,
    /// The number of locks that were attached.
    pub(super) passed: u64,
    /// The number of acquisitions of several locks at once.
    pub(super) sets: u64,
    found: Vec<(Rule, String)>,
}

struct Watched {
    plan: LockPlan,
    tenures: Vec<u64>,
    /// The last time at which a task had the lock or wanted it.
    busy_at: Instant,
    /// The holder of the tenure that ended last.
    last_holder: u64,
    /// The holders of tenures that have ended, with the time of the last end.
    left: BTreeMap<u64, Instant>,
    /// The time of the last release. `None` if someone who may keep others from the lock for a
    /// while wanted it then or since then.
    released_at: Option<Instant>,
    /// The tokens, each with the time at which its holder got it and the holder.
    tokens: Vec<(Instant, u64, u64)>,
    resource: Resource,
}

/// A resource that the lock protects. Every holder reads the value, and writes the next one later.
#[derive(Debug, Default)]
struct Resource {
    value: u64,
    acknowledged: u64,
    /// The largest token that the resource has seen.
    token: u64,
    /// The holders that have read the value and will write the next one. Tasks of one owner do not
    /// exclude each other, so one of them writes at a time.
    writers: BTreeSet<u64>,
}

impl Checker {
    pub(super) fn new(plan: &Plan) -> Self {
        let watched = |lock: &LockPlan| Watched {
            plan: *lock,
            tenures: Vec::new(),
            busy_at: Instant::now(),
            last_holder: 0,
            left: BTreeMap::new(),
            released_at: None,
            tokens: Vec::new(),
            resource: Resource::default(),
        };
        Self {
            start: Instant::now(),
            model: plan.model,
            locks: plan.locks.iter().map(watched).collect(),
            tenures: BTreeMap::new(),
            contenders: BTreeMap::new(),
            is_calm: plan.is_calm(),
            keeps_order: plan.keeps_order(),
            // A run with a change takes several times as long as others.
            same_time: Duration::from_millis(if plan.new.is_some() { 250 } else { 100 }),
            count: 0,
            acquired: 0,
            passed: 0,
            sets: 0,
            found: Vec::new(),
        }
    }

    /// Notes that a task wants the lock.
    pub(super) fn begin(
        &mut self,
        process: &Arc<Process>,
        lock: usize,
        owner: Option<u64>,
        mut manner: Manner,
    ) -> Attempt {
        /// The time in which a release arrives in a calm run.
        const SETTLED: Duration = Duration::from_millis(50);
        self.count += 1;
        let (number, began) = (self.count, Instant::now());
        let mut others = 0;
        let contenders = self.contenders.values_mut();
        for other in contenders.filter(|other| other.lock == lock) {
            others += 1;
            other.is_alone = false;
            // The tasks of an owner take turns. One that waits for its turn is in no queue.
            if owner.is_some() && other.owner == owner {
                (manner.is_queued, other.manner.is_queued) = (false, false);
            }
        }
        let watched = &mut self.locks[lock];
        if !manner.is_queued {
            watched.released_at = None;
        }
        let is_free = watched.tenures.is_empty() && watched.busy_at + SETTLED < began;
        let is_alone = others == 0 && is_free && !manner.is_unpolled;
        let contender = Contender {
            process: process.clone(),
            lock,
            owner,
            began,
            manner,
            is_alone,
        };
        self.contenders.insert(number, contender);
        Attempt {
            lock,
            owner,
            number,
            began,
        }
    }

    /// Notes that the task of `attempt` no longer wants the lock.
    pub(super) fn leave(&mut self, attempt: Attempt) {
        self.locks[attempt.lock].busy_at = Instant::now();
        self.contenders.remove(&attempt.number);
    }

    /// Returns the rules that were broken since the last call.
    pub(super) fn take_found(&mut self) -> Vec<(Rule, String)> {
        std::mem::take(&mut self.found)
    }

    /// Notes that `attempts`, of one call, ended in `guard`. Returns the numbers of the tenures.
    pub(super) fn granted_all(
        &mut self,
        attempts: &[Attempt],
        process: &Arc<Process>,
        owner: Option<u64>,
        guard: &Arc<Guard>,
    ) -> Vec<u64> {
        let numbers = attempts.iter().map(|attempt| attempt.number);
        let mut contenders = numbers.clone().filter_map(|one| self.contenders.get(&one));
        let is_alone = contenders.all(|one| one.is_alone);
        for number in numbers {
            let contender = self.contenders.get_mut(&number);
            contender
                .into_iter()
                .for_each(|one| one.is_alone = is_alone);
        }
        self.sets += u64::from(attempts.len() > 1);
        let attempts = attempts.iter();
        attempts
            .map(|attempt| self.granted(*attempt, process, owner, guard.clone()))
            .collect()
    }

    /// Notes that `attempt` ended in `guard`. Returns the number of the tenure.
    pub(super) fn granted(
        &mut self,
        attempt: Attempt,
        process: &Arc<Process>,
        owner: Option<u64>,
        guard: Arc<Guard>,
    ) -> u64 {
        self.count += 1;
        self.acquired += 1;
        let tenure = self.count;
        if !guard.is_valid() {
            let text = format!("the guard is not valid: {:?}", guard.state());
            self.found.push((Rule::Certificate, text));
        }
        let contender = self.contenders.remove(&attempt.number);
        self.leave(attempt);
        let holder = owner.unwrap_or((1 << 32) + tenure);
        // The tasks of an owner share a lock that one of them got, also if that one has left since
        // the attempt began, and also if its validity has ended and the keys have not expired yet.
        let watched = &self.locks[attempt.lock];
        let mut tenures = watched
            .tenures
            .iter()
            .filter_map(|one| self.tenures.get(one));
        let has_left = watched.left.get(&holder);
        let is_shared = watched.last_holder == holder
            || has_left.is_some_and(|at| *at >= attempt.began)
            || tenures.any(|tenure| tenure.holder == holder);
        if let Some(winner) = contender.filter(|_| guard.depth() == 1 && !is_shared) {
            if self.keeps_order {
                self.check_order(&winner);
            }
            if self.is_calm {
                self.check_hand_over(&winner);
                self.check_rounds(&winner, &guard);
            }
        }
        self.locks[attempt.lock].released_at = None;
        let name = self.locks[attempt.lock].plan.name;
        let tokens = guard.fencing_tokens().filter(|(of, _)| *of == name);
        for (_, token) in tokens {
            self.check_token(attempt, holder, token.into());
        }
        self.tenures.insert(
            tenure,
            Tenure {
                process: process.clone(),
                holder,
                guard,
            },
        );
        self.locks[attempt.lock].tenures.push(tenure);
        self.check_overlap(attempt.lock);
        tenure
    }

    /// Notes that a lock that `holder` had was attached. Returns the number of the tenure.
    pub(super) fn attached(
        &mut self,
        lock: usize,
        process: &Arc<Process>,
        holder: u64,
        guard: Arc<Guard>,
    ) -> u64 {
        self.count += 1;
        self.passed += 1;
        let tenure = self.count;
        self.locks[lock].released_at = None;
        let process = process.clone();
        let held = Tenure {
            process,
            holder,
            guard,
        };
        self.tenures.insert(tenure, held);
        self.locks[lock].tenures.push(tenure);
        self.check_overlap(lock);
        tenure
    }

    /// Checks that no more holders are valid now than the lock has room for. Called when a validity
    /// begins or is extended, because only then can two of them begin to overlap.
    pub(super) fn check_overlap(&mut self, lock: usize) {
        let LockPlan {
            name,
            kind,
            most_holders,
            ..
        } = self.locks[lock].plan;
        let tenures = self.locks[lock].tenures.iter();
        let valid = tenures.filter_map(|tenure| Some((self.valid_holder(*tenure)?, *tenure)));
        let mut valid: BTreeMap<_, Vec<_>> =
            valid.fold(BTreeMap::new(), |mut all, (holder, one)| {
                all.entry(holder).or_insert_with(Vec::new).push(one);
                all
            });
        let guard = |tenure: &u64| self.tenures.get(tenure).map(|tenure| &tenure.guard);
        let is_reader = |tenure| guard(tenure).is_some_and(|guard| guard.shares());
        if kind == LockKind::ReadWrite && valid.values().flatten().all(is_reader) {
            valid.clear();
        }
        let slots = valid
            .values()
            .flatten()
            .filter_map(|one| guard(one)?.slot());
        let slots: Vec<_> = slots.collect();
        let distinct: BTreeSet<_> = slots.iter().collect();
        if valid.len() > most_holders || distinct.len() < slots.len() {
            let tenures: Vec<_> = valid.values().collect();
            let text = format!("tenures {tenures:?} of lock {name} are valid");
            self.found.push((Rule::Exclusion, text));
        }
    }

    /// Checks that no one else is valid now beside `guard`, which excludes all but `holder`.
    pub(super) fn check_alone(&mut self, lock: usize, holder: u64, guard: &Guard) {
        let mut tenures = self.locks[lock].tenures.iter();
        let is_other = |tenure: &&u64| self.valid_holder(**tenure).is_some_and(|of| of != holder);
        if let Some(other) = tenures.find(is_other)
            && guard.is_valid()
        {
            let text = format!("tenure {other} is valid beside a guard that excludes it");
            self.found.push((Rule::Exclusion, text));
        }
    }

    /// Returns the holder of this tenure, if the tenure is valid by the clock of its process.
    fn valid_holder(&self, tenure: u64) -> Option<u64> {
        let Tenure {
            process,
            holder,
            guard,
        } = self.tenures.get(&tenure)?;
        let is_valid = process.knows_the_time() && process.enter(|| guard.is_valid());
        is_valid.then_some(*holder)
    }

    /// Takes the guard out of the hands of its task. Returns its holder.
    pub(super) fn end(&mut self, lock: usize, tenure: u64) -> Option<u64> {
        let is_valid = self.valid_holder(tenure).is_some();
        self.locks[lock].tenures.retain(|other| *other != tenure);
        self.locks[lock].busy_at = Instant::now();
        // A release after the validity changes nothing: the lock is free already, or has another
        // holder.
        if is_valid {
            let mut others = self.locks[lock].tenures.iter();
            let is_free = !others.any(|other| self.valid_holder(*other).is_some());
            let waits_well = |other: &Contender| other.lock != lock || other.manner.is_queued;
            let is_released = is_free && self.contenders.values().all(waits_well);
            self.locks[lock].released_at = is_released.then(Instant::now);
        }
        let Tenure {
            process,
            holder,
            guard,
        } = self.tenures.remove(&tenure)?;
        self.locks[lock].last_holder = holder;
        self.locks[lock].left.insert(holder, Instant::now());
        process.enter(|| drop(guard));
        Some(holder)
    }

    /// Forgets the tenures of processes that have crashed.
    pub(super) fn forget_crashed(&mut self) {
        self.contenders
            .retain(|_, contender| !contender.process.has_crashed());
        let crashed = self
            .tenures
            .extract_if(.., |_, tenure| tenure.process.has_crashed());
        for (_, Tenure { process, guard, .. }) in crashed.collect::<Vec<_>>() {
            process.enter(|| drop(guard));
        }
    }

    /// Reads the resource in order to write the next value. Returns `None` if the resource refuses
    /// the token, or if another task of the owner is about to write.
    pub(super) fn read(&mut self, lock: usize, tenure: u64, token: Option<u64>) -> Option<u64> {
        let holder = self.tenures.get(&tenure)?.holder;
        let resource = &mut self.locks[lock].resource;
        let may_write = resource.admits(token) && resource.writers.insert(holder);
        may_write.then_some(resource.value)
    }

    /// Writes the value after `read`, unless the resource refuses the token. Without a `read`, only
    /// lets another task of the owner write.
    pub(super) fn write(
        &mut self,
        lock: usize,
        tenure: u64,
        read: Option<u64>,
        token: Option<u64>,
    ) {
        let Some(Tenure { holder, .. }) = self.tenures.get(&tenure) else {
            return;
        };
        let resource = &mut self.locks[lock].resource;
        resource.writers.remove(holder);
        if let Some(read) = read
            && resource.admits(token)
        {
            resource.value = read + 1;
            resource.acknowledged += 1;
        }
    }

    /// Checks the resources at the end of the run.
    pub(super) fn check_resources(&mut self) {
        for lock in &self.locks {
            let resource = &lock.resource;
            if resource.value == resource.acknowledged {
                continue;
            }
            let rule = if lock.plan.is_fenced {
                Rule::Fence
            } else {
                Rule::LostUpdate
            };
            let text = format!("lock {}: {resource:?}", lock.plan.name);
            self.found.push((rule, text));
        }
    }

    /// Checks that fewer waiters than the lock has room for came before the one that got the lock.
    /// Called only if nothing but programs fails. While the masters are changed, two programs that
    /// live at the same time share a list of masters, so they have the same order.
    fn check_order(&mut self, winner: &Contender) {
        let plan = self.locks[winner.lock].plan;
        if !plan.kind.has_queue() {
            return;
        }
        let comes_first = |other: &&Contender| {
            other.lock == winner.lock
                && other.manner.is_queued
                && (other.owner.is_none() || other.owner != winner.owner)
                && !(other.manner.reads && winner.manner.reads)
                && other.began + self.same_time < winner.began
        };
        let mut earlier = self.contenders.values().filter(comes_first);
        if let Some(other) = earlier.nth(plan.most_holders - 1) {
            let earlier = winner.began - other.began;
            self.found.push((
                Rule::Order,
                format!("a waiter that came {earlier:?} earlier was overtaken"),
            ));
        }
    }

    /// Checks that a waiter got the lock soon after its release. Called in calm runs only. A waiter
    /// rests for 500 ms if reports have led it to many attempts.
    fn check_hand_over(&mut self, winner: &Contender) {
        const MOST: Duration = Duration::from_millis(550);
        let released = self.locks[winner.lock].released_at;
        let Some(released) = released.filter(|at| winner.manner.is_queued && winner.began < *at)
        else {
            return;
        };
        let took = released.elapsed();
        if took > MOST {
            let text = format!("a waiter got the lock {took:?} after the release");
            self.found.push((Rule::HandOver, text));
        }
    }

    /// Checks that a free lock takes one round, or two with a fencing token. Called in calm runs
    /// only.
    fn check_rounds(&mut self, winner: &Contender, guard: &Guard) {
        let most = 1 + u32::from(guard.fencing_tokens().next().is_some());
        if winner.is_alone && guard.rounds() > most {
            let text = format!("a free lock took {} rounds", guard.rounds());
            self.found.push((Rule::Rounds, text));
        }
    }

    /// Checks that the token differs from those of all other holders, and that it is larger than
    /// all tokens that were handed out before the attempt began.
    fn check_token(&mut self, attempt: Attempt, holder: u64, token: u64) {
        /// The time after which tokens grow even if counters were lost without a quarantine.
        const APART: Duration = Duration::from_millis(3_500);
        let apart = match self.model {
            Model::Outside(breach) if breach.loses_counters() => APART,
            _ => Duration::ZERO,
        };
        let watched = &mut self.locks[attempt.lock];
        let others = watched.tokens.iter().filter(|(_, _, of)| *of != holder);
        for (at, other, _) in others {
            let must_grow = *at + apart <= attempt.began && other >= &token;
            let must_differ = apart.is_zero() && *other == token;
            if must_grow || must_differ {
                let after = *at - self.start;
                let text = format!(
                    "lock {}: {token} after {other}, which came at {after:?}",
                    watched.plan.name
                );
                self.found.push((Rule::Token, text));
                break;
            }
        }
        watched.tokens.push((Instant::now(), token, holder));
    }
}

impl Resource {
    fn admits(&mut self, token: Option<u64>) -> bool {
        let Some(token) = token else {
            return true;
        };
        let is_admitted = token >= self.token;
        self.token = self.token.max(token);
        is_admitted
    }
}

/// Each test plants a violation.
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Coordinator, Lock, MemoryMaster};

    /// A process, and two locks of its coordinator. The checker takes them for one lock.
    struct Planted {
        checker: Checker,
        process: Arc<Process>,
        locks: Vec<Lock>,
    }

    impl Planted {
        fn new(is_fenced: bool) -> Self {
            let mut plan = Plan::of_clocks(LockKind::Mutex, &[0; 3], &[0]);
            plan.locks[0].is_fenced = is_fenced;
            let locks = Coordinator::new((0..3).map(|_| MemoryMaster::new())).unwrap();
            let locks = ["a", "b"].map(|name| match is_fenced {
                true => locks.mutex(name).fenced().plain(),
                false => locks.mutex(name),
            });
            Self {
                checker: Checker::new(&plan),
                process: Process::new(0, 0, 0, Instant::now()),
                locks: locks.into(),
            }
        }

        async fn acquire(&mut self, lock: usize) -> (u64, Arc<Guard>) {
            // A process that has just started does not know the time.
            tokio::time::sleep(Duration::from_secs(2)).await;
            let attempt = self
                .checker
                .begin(&self.process, 0, None, Manner::default());
            let guard = Arc::new(self.locks[lock].acquire().await.unwrap());
            let process = self.process.clone();
            let tenure = self.checker.granted(attempt, &process, None, guard.clone());
            (tenure, guard)
        }

        fn found(&mut self) -> Vec<Rule> {
            let found = self.checker.take_found().into_iter();
            found.map(|(rule, _)| rule).collect()
        }
    }

    #[test]
    fn many_violations_of_one_rule_hide_no_other_rule() {
        let mut violations = Violations::default();
        for _ in 0..1_000 {
            violations.push(Rule::Exclusion, 0, String::new());
        }
        violations.push(Rule::Fence, 0, String::new());
        assert!(violations.broke(Rule::Fence));
        assert!(violations.0.len() < 100);
    }

    #[tokio::test(start_paused = true)]
    async fn two_holders_and_a_lost_update_are_found() {
        let mut planted = Planted::new(false);
        let (one, _guard) = planted.acquire(0).await;
        assert_eq!(planted.found(), []);
        let (other, _other) = planted.acquire(1).await;
        assert_eq!(planted.found(), [Rule::Exclusion]);
        for tenure in [one, other] {
            assert_eq!(planted.checker.read(0, tenure, None), Some(0));
        }
        planted.checker.write(0, one, Some(0), None);
        planted.checker.check_resources();
        assert_eq!(planted.found(), []);
        planted.checker.write(0, other, Some(0), None);
        planted.checker.check_resources();
        assert_eq!(planted.found(), [Rule::LostUpdate]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_update_that_the_fence_lets_through_is_found() {
        for (tokens, found) in [([7, 7], vec![Rule::Fence]), ([7, 8], vec![])] {
            let mut planted = Planted::new(true);
            let (one, _guard) = planted.acquire(0).await;
            let (other, _other) = planted.acquire(1).await;
            assert_eq!(planted.found(), [Rule::Exclusion]);
            for (tenure, token) in [one, other].into_iter().zip(tokens) {
                assert_eq!(planted.checker.read(0, tenure, Some(token)), Some(0));
            }
            for (tenure, token) in [one, other].into_iter().zip(tokens) {
                planted.checker.write(0, tenure, Some(0), Some(token));
            }
            planted.checker.check_resources();
            assert_eq!(planted.found(), found);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_that_do_not_grow_are_found() {
        let mut planted = Planted::new(true);
        let (tenure, guard) = planted.acquire(0).await;
        planted.checker.end(0, tenure);
        let token = u64::from(guard.fencing_tokens().next().unwrap().1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        let attempt = planted
            .checker
            .begin(&planted.process, 0, None, Manner::default());
        for (next, found) in [(token - 1, 1), (token, 1), (token + 1, 0)] {
            planted.checker.check_token(attempt, 1, next);
            planted.checker.locks[0].tokens.pop();
            assert_eq!(planted.found().len(), found, "{next} after {token}");
        }
    }
}

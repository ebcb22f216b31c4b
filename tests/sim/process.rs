//! A simulated process: its clocks, its random numbers, and whether it runs.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use testkit::random::Random;

use crate::{clock::Suspensions, master::restart::RunIds};

thread_local! {
    static CURRENT: RefCell<Option<Arc<Process>>> = const { RefCell::new(None) };
}

/// One process of a simulation. All its tasks are polled inside [`enter`](Self::enter), so the
/// driver reads the clocks of this process and draws its random numbers.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) number: usize,
    pub(crate) suspensions: Suspensions,
    state: Mutex<State>,
    /// The run ids that the process knows, by master. They outlive a coordinator.
    run_ids: Mutex<BTreeMap<String, RunIds>>,
}

#[derive(Debug)]
struct State {
    random: Random,
    started: tokio::time::Instant,
    /// How much faster than true time the clocks of this process run, in millionths.
    ppm: i64,
    run: Run,
    /// The true time for which the monotonic clock has stood still, not counting a suspension that
    /// is under way.
    slept: Duration,
    /// The time that is added to the wall clock, in microseconds.
    wall_offset: i64,
    /// The true time for which no task could run, not counting a stop that is under way.
    stopped: Duration,
    /// The start of the stop that is under way. If there is none, the end of the last suspension.
    since: tokio::time::Instant,
    /// The wakers of all tasks of this process.
    tasks: Vec<Option<Waker>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Crashed,
    /// No task runs, but the clocks do.
    Paused,
    Running,
    /// No task runs, and the monotonic clock stands still.
    Suspended,
}

impl Process {
    /// The time of day at the start of each simulation.
    pub(super) const EPOCH: Duration = Duration::from_secs(1_700_000_000);

    pub(super) fn new(
        number: usize,
        seed: u64,
        ppm: i64,
        started: tokio::time::Instant,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            suspensions: Suspensions::new(),
            state: Mutex::new(State {
                random: Random::new(seed),
                started,
                ppm,
                run: Run::Running,
                slept: Duration::ZERO,
                wall_offset: 0,
                stopped: Duration::ZERO,
                since: started - Duration::from_secs(1),
                tasks: Vec::new(),
            }),
            run_ids: Mutex::default(),
        })
    }

    /// Passes the process that runs now to `f`. Returns `None` outside of simulations.
    pub(crate) fn current<T>(f: impl FnOnce(&Arc<Self>) -> T) -> Option<T> {
        CURRENT.with_borrow(|current| current.as_ref().map(f))
    }

    /// Makes `task` a task of the process that runs now.
    pub(crate) fn adopt<F>(task: F) -> Task<F> {
        Task::new(Self::current(Arc::clone), task)
    }

    /// Runs `f` as code of this process.
    pub(super) fn enter<T>(self: &Arc<Self>, f: impl FnOnce() -> T) -> T {
        struct Leave(Option<Arc<Process>>);
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _leave = Leave(CURRENT.replace(Some(self.clone())));
        f()
    }

    /// Makes `future` a task of this process.
    pub(super) fn task<F>(self: &Arc<Self>, future: F) -> Task<F> {
        Task::new(Some(self.clone()), future)
    }

    pub(crate) fn monotonic(&self) -> Instant {
        let state = self.state.lock();
        let awake = state.elapsed() - state.slept();
        state.started.into_std() + state.in_local_time(awake)
    }

    pub(crate) fn wall(&self) -> SystemTime {
        let state = self.state.lock();
        let since = Self::EPOCH + state.in_local_time(state.elapsed());
        let micros = (since.as_micros() as u64).saturating_add_signed(state.wall_offset);
        SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
    }

    pub(crate) fn random(&self, bytes: &mut [u8]) {
        let random = &mut self.state.lock().random;
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&random.number().to_le_bytes()[..chunk.len()]);
        }
    }

    pub(crate) fn run_ids(&self, address: &str) -> RunIds {
        let mut known = self.run_ids.lock();
        known.entry(address.to_owned()).or_default().clone()
    }

    /// Forgets all masters, so that the process is like a new one.
    pub(super) fn forget_run_ids(&self) {
        self.run_ids.lock().clear();
    }

    pub(super) fn step_wall_clock(&self, micros: i64) {
        self.state.lock().wall_offset += micros;
    }

    pub(super) fn pause(&self) {
        self.stop(Run::Paused);
    }

    pub(super) fn suspend(&self) {
        self.stop(Run::Suspended);
    }

    /// Ends the process. Its tasks are dropped at their next poll, and its connections do nothing
    /// more.
    pub(super) fn crash(&self) {
        let mut state = self.state.lock();
        state.run = Run::Crashed;
        state.wake();
    }

    /// Ends a pause or a suspension. Returns how long it was.
    pub(super) fn resume(&self) -> Duration {
        let mut state = self.state.lock();
        let now = tokio::time::Instant::now();
        match state.run {
            Run::Crashed | Run::Running => return Duration::ZERO,
            Run::Paused => {}
            Run::Suspended => state.slept = state.slept(),
        }
        let stopped = now - state.since;
        state.stopped += stopped;
        if state.run == Run::Suspended {
            state.since = now;
        }
        state.run = Run::Running;
        state.wake();
        stopped
    }

    /// Returns the true time for which this process has been able to run.
    pub(super) fn running_time(&self) -> Duration {
        let state = self.state.lock();
        state.elapsed() - state.stopped
    }

    /// Returns whether this process can tell that a lock has ended. A suspension is noticed within
    /// a millisecond after it ends.
    pub(super) fn knows_the_time(&self) -> bool {
        let state = self.state.lock();
        match state.run {
            Run::Crashed | Run::Suspended => false,
            Run::Paused => true,
            Run::Running => state.since.elapsed() > Duration::from_millis(2),
        }
    }

    pub(super) fn has_crashed(&self) -> bool {
        self.state.lock().run == Run::Crashed
    }

    /// Returns the number of tasks that have not ended.
    pub(super) fn task_count(&self) -> usize {
        self.state.lock().tasks.iter().flatten().count()
    }

    fn stop(&self, run: Run) {
        let mut state = self.state.lock();
        if state.run == Run::Running {
            state.run = run;
            state.since = tokio::time::Instant::now();
        }
    }
}

impl State {
    fn elapsed(&self) -> Duration {
        tokio::time::Instant::now() - self.started
    }

    fn slept(&self) -> Duration {
        match self.run {
            Run::Suspended => self.slept + self.since.elapsed(),
            Run::Crashed | Run::Paused | Run::Running => self.slept,
        }
    }

    fn in_local_time(&self, time: Duration) -> Duration {
        let nanos = time.as_nanos() as i64;
        Duration::from_nanos((nanos + nanos / 1_000 * self.ppm / 1_000) as u64)
    }

    fn wake(&self) {
        for waker in self.tasks.iter().flatten() {
            waker.wake_by_ref();
        }
    }
}

/// A task of a process. It ends when the process crashes. Without a process, it is the future
/// itself.
pub(crate) struct Task<F> {
    /// The process, and the place of the task's waker there.
    process: Option<(Arc<Process>, usize)>,
    future: Option<Pin<Box<F>>>,
}

impl<F> Task<F> {
    fn new(process: Option<Arc<Process>>, future: F) -> Self {
        Self {
            process: process.map(|process| {
                let mut state = process.state.lock();
                let place = state.tasks.len();
                state.tasks.push(Some(Waker::noop().clone()));
                drop(state);
                (process, place)
            }),
            future: Some(Box::pin(future)),
        }
    }

    fn end(&mut self) {
        let Some(future) = self.future.take() else {
            return;
        };
        match &self.process {
            Some((process, place)) => {
                process.enter(|| drop(future));
                process.state.lock().tasks[*place] = None;
            }
            None => drop(future),
        }
    }
}

impl<F: Future<Output = ()>> Future for Task<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(future) = &mut this.future else {
            return Poll::Ready(());
        };
        let Some((process, place)) = &this.process else {
            return future.as_mut().poll(cx);
        };
        let run = {
            let mut state = process.state.lock();
            state.tasks[*place] = Some(cx.waker().clone());
            state.run
        };
        let polled = match run {
            Run::Crashed => Poll::Ready(()),
            Run::Paused | Run::Suspended => Poll::Pending,
            Run::Running => process.enter(|| future.as_mut().poll(cx)),
        };
        if polled.is_ready() {
            this.end();
        }
        polled
    }
}

impl<F> Drop for Task<F> {
    fn drop(&mut self) {
        self.end();
    }
}

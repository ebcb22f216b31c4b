//! Measurements of this process: its memory, a thread's processor time, its log and its panics.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tracing::Level;

use crate::on_event::OnEvent;

/// Returns the memory of this process in megabytes, or 0 where there is no `/proc`.
pub fn rss_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}

/// Returns the processor time of the calling thread, or `None` where the system does not report it.
pub fn thread_cpu() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = stat.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Counts the log events of all threads in this process.
#[derive(Clone, Copy, Debug)]
pub struct Log;

static WARNINGS: AtomicUsize = AtomicUsize::new(0);
static DOWNS: AtomicUsize = AtomicUsize::new(0);
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Log {
    /// Starts counting. The counting never stops.
    pub fn listen() -> Self {
        // A second call, in a process that runs several scenarios, changes nothing.
        let _ = tracing::subscriber::set_global_default(OnEvent(count));
        Self
    }

    /// Resets all counts.
    pub fn clear(self) {
        WARNINGS.store(0, Ordering::Relaxed);
        DOWNS.store(0, Ordering::Relaxed);
        LINES.lock().unwrap().clear();
    }

    /// The number of events with level WARN or ERROR.
    pub fn warnings(self) -> usize {
        WARNINGS.load(Ordering::Relaxed)
    }

    /// The number of warnings that name the master at `url`.
    pub fn warnings_about(self, url: &str) -> usize {
        let address = format!("master={}", url.trim_start_matches("redis://"));
        let lines = LINES.lock().unwrap();
        lines.iter().filter(|line| line.contains(&address)).count()
    }

    /// The number of connections that were lost or given up.
    pub fn downs(self) -> usize {
        DOWNS.load(Ordering::Relaxed)
    }

    /// The first warnings, as text.
    pub fn lines(self) -> String {
        let lines = LINES.lock().unwrap();
        lines[..lines.len().min(20)].join("\n")
    }
}

fn count(level: Level, text: String) {
    if text.contains("master down") || text.contains("master still down") {
        DOWNS.fetch_add(1, Ordering::Relaxed);
    }
    if level <= Level::WARN {
        WARNINGS.fetch_add(1, Ordering::Relaxed);
        let mut lines = LINES.lock().unwrap();
        if lines.len() < 1_000 {
            lines.push(text);
        }
    }
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics outside the tests from now on, including panics that tokio catches.
pub fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_test = panic.location().is_some_and(|at| {
            let file = at.file();
            file.contains("tests/") || file.contains("benches/")
        });
        if !is_test {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        before(panic);
    }));
}

pub fn panics() -> usize {
    PANICS.load(Ordering::Relaxed)
}

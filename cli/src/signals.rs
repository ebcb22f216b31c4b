//! Signals that end the wait for a lock, and that a command gets.

use std::{fs, future::poll_fn, io, task::Poll};

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{self, SignalKind};

use crate::failure::Failure;

/// The signals that end a program by default, and that people and service managers send.
pub(crate) const ENDING: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The signals that have arrived. While it lives, these signals do not end the process.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Catches `signals`, except for those that were ignored when the process started: `nohup` and
    /// shells that start a background job rely on that.
    pub(crate) fn catch(signals: &[Signal]) -> Result<Self, Failure> {
        let ignored = ignored();
        let wanted = signals.iter().filter(|&&signal| ignored & bit(signal) == 0);
        let streams = wanted.map(|&signal| {
            let stream = unix::signal(SignalKind::from_raw(signal as i32))?;
            Ok((signal, stream))
        });
        let streams = streams.collect::<io::Result<_>>();
        let caught = streams.map_err(|error| Failure::system("cannot catch signals", error));
        Ok(Self(caught?))
    }

    /// Waits for the next signal. Dropping the future loses no signal.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let mut streams = self.0.iter_mut();
            let arrived = streams.find_map(|(signal, stream)| {
                (stream.poll_recv(cx) == Poll::Ready(Some(()))).then_some(*signal)
            });
            arrived.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The signals that were blocked when this process started. The command has them blocked, too.
pub(crate) struct OriginalMask(SigSet);

impl OriginalMask {
    /// Unblocks all signals but SIGTTOU in this thread. It is the thread that waits for signals,
    /// and that takes back the terminal.
    pub(crate) fn replace() -> Result<Self, Failure> {
        let replaced = SigSet::thread_get_mask().and_then(|original| {
            own_mask().thread_set_mask()?;
            Ok(Self(original))
        });
        replaced.map_err(|error| Failure::system("cannot block signals", error))
    }

    /// Starts a process with the original mask.
    pub(crate) fn during<T>(&self, start: impl FnOnce() -> T) -> T {
        let _ = self.0.thread_set_mask(); // fails for no mask that the system has returned
        let started = start();
        let _ = own_mask().thread_set_mask();
        started
    }
}

fn own_mask() -> SigSet {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGTTOU);
    mask
}

/// Returns the set of ignored signals, one bit for each. It is empty on systems without `/proc`.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as i32 - 1)
}

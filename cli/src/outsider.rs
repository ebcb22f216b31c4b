//! A command that may have left its process group.

#[cfg(target_os = "linux")]
pub(crate) use linux::Outsider;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::OwnedFd;

    use nix::{
        sys::signal::{Signal, killpg},
        unistd::{getpgid, getpgrp},
    };
    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        process::{Pid, PidfdFlags, Signal as PidSignal, pidfd_open, pidfd_send_signal},
    };

    /// A command that the keeper must kill. The number of a process may be used again, but a file
    /// descriptor of a process always means the same process.
    pub(crate) struct Outsider {
        pid: Pid,
        process: OwnedFd,
    }

    impl Outsider {
        pub(crate) fn new(pid: i32) -> Option<Self> {
            let pid = Pid::from_raw(pid)?;
            let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
            Some(Self { pid, process })
        }

        /// Kills the command, with the group that it leads if that is another one than this
        /// process's.
        pub(crate) fn kill(&self) {
            let pid = nix::unistd::Pid::from_raw(self.pid.as_raw_pid());
            let group = getpgid(Some(pid));
            if group == Ok(pid) && group != Ok(getpgrp()) && self.is_alive() {
                let _ = killpg(pid, Signal::SIGKILL);
            }
            let _ = pidfd_send_signal(&self.process, PidSignal::KILL);
        }

        fn is_alive(&self) -> bool {
            let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
            poll(&mut ended, Some(&Timespec::default())).is_ok_and(|count| count == 0)
        }
    }
}

/// Nothing: here the keeper kills only the group.
#[cfg(not(target_os = "linux"))]
pub(crate) struct Outsider;

#[cfg(not(target_os = "linux"))]
impl Outsider {
    pub(crate) fn new(_pid: i32) -> Option<Self> {
        None
    }

    pub(crate) fn kill(&self) {}
}

//! The processes that started this one.

use std::{fs, iter};

use nix::unistd::{Pid, getppid};

use crate::client_name::client_name_of;

/// Returns the client names of the parent, of its parent, and so on, as far as they can be seen.
pub(crate) fn ancestors() -> Vec<String> {
    let all = iter::successors(Some(getppid()), |pid| parent(*pid));
    let seen = all.take_while(|pid| pid.as_raw() > 0).take(MOST);
    seen.filter_map(|pid| client_name_of(pid.as_raw().cast_unsigned()))
        .collect()
}

/// Returns the parent of a process. `None` if it has ended, or on systems without `/proc`.
fn parent(pid: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent?.trim().parse().ok().map(Pid::from_raw)
}

/// More than there are. Numbers may be used again while this process reads, even in a circle.
const MOST: usize = 1_000;

//! Watching the lock and the command.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg, raise},
    unistd::getpgrp,
};
use quorlock::LockState;
use tokio::time::{sleep_until, timeout};

use super::{
    LOOK_EVERY, deadline,
    group::{Change, Group},
    killed_by_keeper,
};
use crate::{
    ask::Held, exit::Exit, failure::Failure, loss, news::tell, output::complain, signals::Signals,
};

/// Watches a lock and the command that runs under it.
pub(crate) struct Watch<'a> {
    held: &'a Held,
    group: Group,
    /// Signals to pass on.
    signals: Signals,
    /// TSTP and CONT, which stop and resume both the command and this process.
    job_control: Signals,
    kill_after: Duration,
    /// The time by which the command must be dead, as far as it is known. After a loss the guard no
    /// longer says it.
    deadline: Instant,
    /// `true` if somebody has asked this process to stop with the command.
    stops_too: bool,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        held: &'a Held,
        group: Group,
        signals: Signals,
        kill_after: Duration,
    ) -> Result<Self, Failure> {
        Ok(Self {
            held,
            signals,
            job_control: Signals::catch(&[Signal::SIGTSTP, Signal::SIGCONT])?,
            kill_after,
            deadline: deadline(&held.guard),
            stops_too: false,
            group,
        })
    }

    /// Waits until the command has ended. If the lock is lost or about to end, ends the command.
    pub(crate) async fn watch(mut self) -> Result<Exit, Failure> {
        let mut news = pin!(tell(self.held));
        let exit = loop {
            let now = Instant::now();
            if self.is_over(now) {
                return self.end_command(now).await;
            }
            self.deadline = deadline(&self.held.guard);
            self.group.keeper.kill_at(self.deadline);
            let next_look = self.next_look(now);
            tokio::select! {
                biased;
                // First, because a stop that is over must not count.
                signal = self.job_control.next() => self.control(signal),
                change = self.group.changed() => match change {
                    Change::Ended(exit) => break exit,
                    Change::Stopped(signal) => self.stop(signal).await,
                    // At the deadline, the keeper ends with the group.
                    Change::Unguarded if Instant::now() + LOOK_EVERY >= self.deadline => {}
                    Change::Unguarded => complain(
                        "the keeper of the command was killed; if this process is killed or \
                         stopped, too, nobody ends the processes that the command has started",
                    ),
                },
                signal = self.signals.next() => {
                    self.group.signal(signal);
                    if !matches!(signal, Signal::SIGUSR1 | Signal::SIGUSR2) {
                        self.group.signal(Signal::SIGCONT); // for a command that is stopped
                    }
                }
                _ = self.held.guard.lost() => {}
                () = sleep_until(next_look.into()) => {}
                never = &mut news => match never {},
            }
        };
        let is_lost = matches!(self.held.guard.state(), LockState::Lost(_));
        if is_lost {
            self.group.kill().await;
        }
        // The keeper may have killed the command before this process noticed.
        if self.group.end().await && exit == Exit::from(Signal::SIGKILL) {
            return Err(killed_by_keeper(&self.held.guard));
        }
        if is_lost {
            return Err(loss::failure(&self.held.guard, " while the command ran"));
        }
        Ok(exit)
    }

    /// Returns whether the lock is lost, or so near its end that the command must end now.
    fn is_over(&self, now: Instant) -> bool {
        matches!(self.held.guard.state(), LockState::Lost(_))
            || now + self.kill_after >= deadline(&self.held.guard)
            || self.held.is_over(now)
    }

    /// Returns when to look whether the lock was renewed. Usually it was renewed long before.
    fn next_look(&self, now: Instant) -> Instant {
        let last = self.deadline.checked_sub(self.kill_after).unwrap_or(now);
        let last = self.held.until.map_or(last, |until| until.min(last));
        let early = self.deadline.checked_sub(self.held.guard.validity() / 2);
        match early {
            Some(early) if early > now => early.min(last),
            _ => last.min(now + LOOK_EVERY),
        }
    }

    /// Ends the command with TERM, and with KILL before the lock ends. If the lock is lost already,
    /// another holder may have it, and the command still gets the time to clean up. Without any
    /// time left, the command only gets KILL.
    async fn end_command(mut self, now: Instant) -> Result<Exit, Failure> {
        let kill_at = self.deadline.min(now + self.kill_after);
        let sentence = self.reason(now);
        let has_time = kill_at > now;
        if has_time {
            self.ask_to_end(&sentence, kill_at).await;
        }
        // What the command has started, too.
        let is_dead = self.group.kill().await;
        if !is_dead {
            complain("the command does not die: it runs as another user, or hangs in the kernel");
        }
        // The keeper was first if this process was stopped until after the deadline.
        let was_killed = self.group.end().await && is_dead;
        match has_time {
            true => Ok(Exit::Lost),
            false if was_killed => Err(killed_by_keeper(&self.held.guard)),
            false => Err(Failure::new(Exit::Lost, sentence)),
        }
    }

    /// Says why the command must end, asks it to, and waits for that until `kill_at`.
    async fn ask_to_end(&mut self, sentence: &str, kill_at: Instant) {
        self.group.signal(Signal::SIGTERM);
        if self.group.has_had_terminal() {
            // Interactive shells ignore TERM. They end with HUP, and pass it on to their jobs.
            self.group.signal(Signal::SIGHUP);
        }
        self.group.signal(Signal::SIGCONT); // a process that is stopped gets no TERM
        self.group.keeper.kill_at(kill_at);
        complain(sentence);
        let left = kill_at.saturating_duration_since(Instant::now());
        let ended = async { while !matches!(self.group.changed().await, Change::Ended(_)) {} };
        let _ = timeout(left, ended).await;
    }

    /// Returns the reason why the command must end.
    fn reason(&self, now: Instant) -> String {
        const THEN: &str = "; ending the command";
        match self.held.is_over(now) {
            true => self.held.too_long() + THEN,
            false => loss::sentence(&self.held.guard, THEN),
        }
    }

    /// Reacts to a stop of the command. Without a shell that would resume it, this process does not
    /// stop, and the lock is renewed meanwhile.
    async fn stop(&mut self, signal: i32) {
        let needs_terminal = [Signal::SIGTTIN as i32, Signal::SIGTTOU as i32].contains(&signal);
        if needs_terminal && !self.stops_too && self.group.lend_terminal() {
            return;
        }
        let stops_too = match signal {
            _ if self.stops_too => true,
            _ if signal == Signal::SIGSTOP as i32 => self.group.has_had_terminal(),
            _ => self.group.terminal.is_some(),
        };
        if stops_too {
            self.group.take_terminal();
            // The shell takes over, and resumes the whole pipeline with CONT. If the stop takes
            // longer than the TTL, the keeper kills the group.
            // A stop of this process alone spares the script that waits for it.
            let _ = if self.stops_too {
                raise(Signal::SIGTTIN)
            } else {
                killpg(getpgrp(), Signal::SIGTTIN)
            };
            self.after_stop(needs_terminal).await;
        }
    }

    /// Resumes the command after a stop of this process. Without a shell, the system has ignored
    /// the stop. It would then ignore a stop of the command, too, or end its read.
    async fn after_stop(&mut self, needs_terminal: bool) {
        let resumed = timeout(RESUME_LIMIT, self.job_control.next()).await;
        match resumed {
            Ok(signal) => self.control(signal),
            Err(_) if needs_terminal => {
                self.group.signal(Signal::SIGHUP);
                self.group.signal(Signal::SIGCONT);
            }
            Err(_) => self.go_on(),
        }
    }

    fn control(&mut self, signal: Signal) {
        if signal == Signal::SIGTSTP {
            self.stops_too = true;
            self.group.signal(Signal::SIGTSTP);
        } else {
            self.go_on();
        }
    }

    /// Resumes the group after a stop, unless the lock has ended meanwhile.
    fn go_on(&mut self) {
        self.stops_too = false;
        if !self.is_over(Instant::now()) {
            self.group.resume();
        }
    }
}

/// The longest time from the end of a stop to the arrival of CONT.
const RESUME_LIMIT: Duration = Duration::from_millis(50);

//! The part that makes things fail, according to the plan.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::Result;
use crate::clock;
use crate::fleet::Fleet;
use crate::links::{Flow, Link};
use crate::masters::Master;
use crate::plan::{Event, Fault, MASTERS};
use crate::spans::Span;

/// A fault that has happened.
#[derive(Clone, Debug)]
pub struct Done {
    pub event: Event,
    pub span: Span,
}

/// The nemesis: the masters and clients that it acts on, and a record of its faults.
pub struct Nemesis<'a> {
    pub masters: &'a mut [Master],
    pub fleet: &'a mut Fleet,
    /// The links of each client to all masters.
    pub links: &'a [Vec<Link>],
    pub done: Vec<Done>,
    /// Faults that could not be carried out, with the reason.
    pub failed: Vec<(Fault, String)>,
    /// The lasting step of each master's clock, in milliseconds.
    stepped: [i64; MASTERS],
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Step {
    Begin,
    End,
}

impl<'a> Nemesis<'a> {
    pub fn new(masters: &'a mut [Master], fleet: &'a mut Fleet, links: &'a [Vec<Link>]) -> Self {
        Self {
            masters,
            fleet,
            links,
            done: Vec::new(),
            failed: Vec::new(),
            stepped: [0; MASTERS],
        }
    }

    /// Carries out all events. The times of the events count from now.
    pub fn carry_out(&mut self, events: &[Event]) {
        let start = Instant::now();
        let mut steps = Vec::new();
        for (index, event) in events.iter().enumerate() {
            steps.push((event.from, Step::Begin, index));
            steps.push((event.to, Step::End, index));
        }
        steps.sort_unstable();
        let mut begun = HashMap::new();
        for (at, step, index) in steps {
            thread::sleep((start + at).saturating_duration_since(Instant::now()));
            let (event, now) = (&events[index], clock::now());
            match step {
                Step::Begin => match self.begin(event) {
                    Ok(()) => {
                        begun.insert(index, now);
                    }
                    Err(error) => {
                        self.failed.push((event.fault, error.to_string()));
                        for &master in &event.masters {
                            let master = &mut self.masters[master];
                            if !master.is_up() {
                                master.restart();
                            }
                        }
                    }
                },
                Step::End => {
                    let Some(from) = begun.remove(&index) else {
                        continue;
                    };
                    if let Err(error) = self.end(event) {
                        self.failed.push((event.fault, error.to_string()));
                    }
                    self.done.push(Done {
                        event: event.clone(),
                        span: Span::new(from, clock::now()),
                    });
                }
            }
        }
    }

    fn begin(&mut self, event: &Event) -> Result<()> {
        for &master in &event.masters {
            self.begin_at_master(event, master)?;
        }
        let client = || event.clients[0];
        match event.fault {
            Fault::ClientClock => {
                let step = (event.detail % 6_000) as i64 - 3_000;
                self.fleet.step_clock(client(), step)
            }
            Fault::KillClient => {
                self.fleet.kill(client());
                Ok(())
            }
            Fault::KillRun => self.fleet.hit_run(client(), event.detail, Signal::KILL),
            Fault::StopClient => self.fleet.stop(client()),
            Fault::StopRun => self.fleet.hit_run(client(), event.detail, Signal::STOP),
            _ => Ok(()),
        }
    }

    fn begin_at_master(&mut self, event: &Event, index: usize) -> Result<()> {
        use Fault::*;
        let half_a_command = event.fault == TornLog;
        let master = &mut self.masters[index];
        match event.fault {
            Demote => master.freeze_replica()?,
            KillMaster => master.kill(),
            TerminateMaster => master.terminate()?,
            CutLog | TornLog => {
                master.kill();
                master.damage_log(half_a_command, event.detail)?;
            }
            RestartEmpty => {
                master.kill();
                master.delete_data()?;
            }
            OldSnapshot => expect_ok(master.command(&["SAVE"])?)?,
            StopMaster => master.server.pause(),
            PauseCommands => {
                let time = (event.to - event.from).as_millis().to_string();
                let which = ["ALL", "WRITE"][(event.detail % 2) as usize];
                expect_ok(master.command(&["CLIENT", "PAUSE", &time, which])?)?;
            }
            OutOfMemory => expect_ok(master.command(&["CONFIG", "SET", "maxmemory", "1"])?)?,
            CloseConnections => drop(master.command(&["CLIENT", "KILL", "TYPE", "normal"])?),
            FlushScripts => expect_ok(master.command(&["SCRIPT", "FLUSH"])?)?,
            FlushAll => expect_ok(master.command(&["FLUSHALL"])?)?,
            ClockBack => {
                self.stepped[index] = -20 - (event.detail % 130) as i64;
                self.step_clock(index, 0)?;
            }
            ClockForward => self.step_clock(index, 300 + (event.detail % 5_000) as i64)?,
            ClientClock | KillClient | KillRun | StopClient | StopRun => {}
            Jitter => {
                let most = Flow::Jitter(Duration::from_millis(20 + event.detail % 180));
                self.at_links(event, index, |link| link.set(most, most));
            }
            LosePackets => {
                let some = Flow::LoseSome(2 + event.detail % 20);
                self.at_links(event, index, |link| link.set(some, some));
            }
            Reset | ShortConnections => self.at_links(event, index, Link::reset),
            Delay => {
                let delay = Flow::Delay(Duration::from_millis(5 + event.detail % 140));
                self.at_links(event, index, |link| link.set(delay, delay));
            }
            Hold => self.at_links(event, index, |link| {
                one_way_or_both(link, Flow::Hold, event);
            }),
            Lose => self.at_links(event, index, |link| {
                one_way_or_both(link, Flow::Lose, event);
            }),
            Split => self.at_links(event, index, |link| link.set(Flow::Lose, Flow::Lose)),
        }
        Ok(())
    }

    fn end(&mut self, event: &Event) -> Result<()> {
        for &master in &event.masters {
            self.end_at_master(event, master)?;
        }
        match event.fault {
            Fault::KillClient => self.fleet.respawn(event.clients[0]),
            Fault::StopClient => self.fleet.resume(event.clients[0]),
            Fault::KillRun | Fault::StopRun => self.fleet.resume_run(event.clients[0]),
            _ => Ok(()),
        }
    }

    fn end_at_master(&mut self, event: &Event, index: usize) -> Result<()> {
        use Fault::*;
        let master = &mut self.masters[index];
        match event.fault {
            Demote => master.follow_replica(Duration::from_millis(event.detail % 300))?,
            KillMaster | CutLog | TornLog | RestartEmpty | TerminateMaster => master.restart(),
            OldSnapshot => {
                master.kill();
                master.restart();
            }
            StopMaster => master.server.resume(),
            OutOfMemory => expect_ok(master.command(&["CONFIG", "SET", "maxmemory", "0"])?)?,
            ClockForward => self.step_clock(index, 0)?,
            fault if fault.is_of_network() => {
                self.at_links(event, index, |link| link.set(Flow::Pass, Flow::Pass));
            }
            _ => {}
        }
        Ok(())
    }

    fn at_links(&self, event: &Event, master: usize, act: impl Fn(&Link)) {
        for &client in &event.clients {
            act(&self.links[client][master]);
        }
    }

    fn step_clock(&self, master: usize, step: i64) -> Result<()> {
        if !self.masters[master].has_wrong_clock() {
            return Err("the clocks of the masters cannot be changed here".into());
        }
        self.masters[master].step_clock(self.stepped[master] + step)
    }
}

/// Stalls or loses requests, replies or both.
fn one_way_or_both(link: &Link, flow: Flow, event: &Event) {
    let (requests, replies) =
        [(flow, flow), (flow, Flow::Pass), (Flow::Pass, flow)][(event.detail % 3) as usize];
    link.set(requests, replies);
}

fn expect_ok(reply: String) -> Result<()> {
    if reply == "OK" {
        Ok(())
    } else {
        Err(reply.into())
    }
}

//! `quorlock plan`: the next step, with programs that use the old masters, both lists, and none.

use std::{
    io::Write,
    net::TcpStream,
    process::Command,
    thread::{self, JoinHandle},
    time::{Duration, SystemTime},
};

use quorlock::Coordinator;
use serde_json::{Value, json as value};
use testkit::server::{Server, masters};
use tokio::{runtime, sync::oneshot};

use crate::support::{Ended, Running, each, ended, list, one_line, run, until, urls, with};

/// Returns `quorlock plan` for a change from the `old` masters to the `new` ones.
fn plan(old: &str, new: &str) -> Command {
    let mut command = with(&[], "plan --to");
    command.arg(new).env("QUORLOCK_MASTERS", old);
    command
}

impl Ended {
    /// Returns the number and the text of the marked step, or `None`.
    fn marked(&self) -> Option<&str> {
        self.after("-> ")
    }

    /// Returns the rest of the line that begins with a word.
    fn after(&self, word: &str) -> Option<&str> {
        let mut lines = self.out.lines();
        let rest = lines.find_map(|line| line.trim_start().strip_prefix(word));
        rest.map(str::trim)
    }

    /// Checks the exit status, and the number of the marked step.
    #[track_caller]
    fn marks(self, status: i32, step: &str) -> Self {
        let marked = self.marked().map(|step| &step[..1]);
        assert_eq!((self.status, marked), (status, Some(step)), "{self}");
        self
    }
}

/// Runs the plan from the first three of four masters to the last three.
fn planned(masters: &[Server]) -> Ended {
    planned_until(masters, |_| true)
}

/// Runs the plan until `is_it` accepts what is shown: a server notices the end of a connection a
/// little later.
fn planned_until(masters: &[Server], is_it: impl Fn(&Ended) -> bool) -> Ended {
    let [old, new] = [&masters[..3], &masters[1..]].map(urls);
    let mut last = None;
    until("the plan shows it", || {
        let ended = ended(&mut plan(&old, &new)).in_lines(0);
        is_it(last.insert(ended))
    });
    last.unwrap()
}

/// A program that leaves the first three masters for the last three.
struct Joint {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Joint {
    fn start(masters: &[Server]) -> Self {
        let (end, ended) = oneshot::channel();
        let (is_ready, ready) = oneshot::channel();
        let (old, new) = (list(&masters[..3]), list(&masters[1..]));
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let builder = Coordinator::builder().client_name("web-2/7");
                let locks = builder.masters(new).old_masters(old).build().unwrap();
                locks
                    .all_ready_within(Duration::from_secs(20))
                    .await
                    .unwrap();
                is_ready.send(()).unwrap();
                let _ = ended.await;
            });
        });
        ready.blocking_recv().unwrap();
        Self {
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Joint {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn the_plan_shows_each_step() {
    let masters = masters(4);
    planned(&masters)
        .marks(0, "1")
        .shows("No program is connected. ")
        .shows("(a quarantine takes 1m 1s)")
        .shows("wait for 1m 1s")
        .shows("2 of the 3")
        .shows(&format!("Then stop 127.0.0.1:{}.\n", masters[0].port()));

    let before = Running::hold(&masters[..3], "job");
    planned(&masters)
        .marks(0, "1")
        .shows(&format!("/{}\n", before.id()))
        .hides("No program");

    let joint = Joint::start(&masters);
    let ended = planned(&masters).marks(1, "2");
    assert_eq!(ended.after("both lists"), Some("web-2/7"), "{ended}");

    drop(before);
    let old = "only the old masters";
    planned_until(&masters, |ended| ended.after(old) == Some("none"))
        .marks(1, "3")
        .tells(" ago: such programs used only the old list of masters")
        .shows("No master can tell.");

    // As if the wait were over.
    let fields = (0..32).map(|number| format!(" lists.{number}"));
    let fields: String = fields.collect();
    each(&masters, &format!("HDEL quorlock:origin{fields}"));
    let after = Running::hold(&masters[1..], "other");
    planned(&masters).marks(1, "4");

    drop(joint);
    let is_gone = |ended: &Ended| ended.after("both lists") == Some("none");
    planned_until(&masters, is_gone).marks(0, "5");

    // A job with the old masters that comes and goes is seen, though it is gone.
    run(&masters[..3], "run cron -- true").is(0);
    let ended = planned(&masters).marks(3, "2");
    ended.tells("used other lists of masters in the last hour");

    // The step of both lists was left out.
    let late = Running::hold(&masters[..3], "third");
    let ended = planned(&masters).is(3);
    assert_eq!(ended.marked(), None, "{ended}");
    ended.shows("Stop the programs with only the new masters");
    drop((after, late));
}

#[test]
fn a_job_with_the_old_masters_that_comes_and_goes_holds_up_the_change() {
    let masters = masters(4);
    let _joint = Joint::start(&masters);
    run(&masters[..3], "run cron -- true").is(0);
    let not_yet = "Not yet: step 2 is not done";
    planned(&masters).marks(1, "2").tells(not_yet);
    // The locks of that job may not have ended.
    let _after = Running::hold(&masters[1..], "other");
    let lately = "used other lists of masters in the last hour";
    planned(&masters).marks(3, "2").tells(lately);
}

#[test]
fn the_plan_says_so_if_it_cannot_see_all() {
    let masters = masters(4);
    let joint = Joint::start(&masters);
    let cannot = "Not all can be seen.";
    // One of three old masters is not a majority.
    let deny = "ACL SETUSER default -client";
    each(&masters[..1], deny);
    planned(&masters).hides(cannot).shows(&format!(
        "127.0.0.1:{}       shows no programs: answered NOPERM",
        masters[0].port()
    ));
    each(&masters[1..2], deny);
    planned(&masters).is(1).shows(cannot).shows("+client|list");
    each(&masters[..2], "ACL SETUSER default +client");
    planned(&masters).hides(cannot);

    // A program that says nothing, and one with other masters.
    let mut silent = TcpStream::connect(("127.0.0.1", masters[0].port())).unwrap();
    silent.write_all(b"PING\r\n").unwrap();
    let is_shown = |ended: &Ended| ended.out.contains("1 without a name");
    planned_until(&masters, is_shown).is(1).shows(cannot);
    drop(silent);
    let other = Running::hold(&masters[..2], "job");
    let is_gone = |ended: &Ended| !ended.out.contains("without a name");
    planned_until(&masters, is_gone)
        .marks(3, "2")
        .shows("other lists");
    drop((joint, other));
}

#[test]
fn the_plan_refuses_what_is_not_safe() {
    let masters = masters(4);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let ahead = (now.unwrap() + Duration::from_secs(3_600)).as_micros();
    each(
        &masters[..2],
        &format!("SET quorlock:fence:{{job}} {ahead}"),
    );
    planned(&masters)
        .is(3)
        .shows("ahead of time")
        .shows("quorlock:fence:{job}");
    each(&masters[..1], "DEL quorlock:fence:{job}");
    planned(&masters).is(0);

    // A server of both lists under two addresses would vote twice.
    let twin = masters[0].url().replace("127.0.0.1", "localhost");
    let twins = format!("{},{twin}", urls(&masters[1..]));
    let down = Server::reserve().url();
    for (new, expected) in [(twins, "run_id"), (down, "only 0 of 1 masters now")] {
        run(&masters[..3], &format!("plan --to {new}"))
            .is(3)
            .shows(expected);
    }

    let same = format!("plan --to {}", urls(&masters));
    for (words, expected) in [
        ("plan", 64),
        (&*same, 64),
        ("plan --to ,", 78), // the list has an empty URL
        (
            "plan --to redis://a --master redis://b --from redis://c",
            64,
        ),
    ] {
        run(&masters, words).is(expected);
    }
}

/// The fields are those of cli/JSON.md.
#[test]
fn the_plan_is_shown_as_json() {
    let masters = masters(4);
    let [old, new] = [0..3, 1..4].map(|some| urls(&masters[some]));
    let json = || {
        let ended = ended(plan(&old, &new).arg("--json")).in_lines(0);
        (ended.status, ended.json())
    };
    let (status, shown) = json();
    assert_eq!((status, &shown["step"]), (0, &1.into()), "{shown}");
    assert_eq!(shown["steps"].as_array().unwrap().len(), 5);
    assert_eq!(shown["source"], "QUORLOCK_MASTERS");
    assert_eq!(shown["lists"][1]["list"], "old_masters");
    assert_eq!(shown["programs"], value!([]));
    let _before = Running::hold(&masters[..3], "job");
    let _joint = Joint::start(&masters);
    each(&masters[..1], "ACL SETUSER default -client");
    let (status, shown) = json();
    assert_eq!((status, &shown["step"]), (1, &2.into()), "{shown}");
    let both = value!({"uses": "both", "clients": ["web-2/7"], "unnamed": 0});
    assert_eq!(shown["programs"][0]["uses"], "old");
    assert_eq!(shown["programs"][1], both);
    assert_eq!(shown["unseen"].as_object().unwrap().len(), 1, "{shown}");
    assert!(shown["summary"].as_str().unwrap().starts_with("Not yet: "));
}

#[test]
fn no_step_is_needed_for_the_same_masters() {
    let masters = masters(3);
    let turned: Vec<_> = masters.iter().rev().map(Server::url).collect();
    let words = format!("plan --from {} --to {}", turned.join(","), urls(&masters));
    let ended = run(&[], &words).is(0);
    assert_eq!(ended.marked(), None, "{ended}");
    ended
        .begins("Both lists have the same masters")
        .ends(" no vote for 1m 1s.\n");
    let off = format!("{words} --quarantine off");
    run(&[], &off)
        .is(0)
        .hides("no vote for")
        .tells("votes at once");
    let ended = run(&[], &format!("{words} --json")).is(0);
    assert_eq!(ended.json()["step"], Value::Null);
}

/// A program with other lists is no reason to go on as if there was none.
#[test]
fn the_plan_does_not_begin_while_programs_use_other_lists() {
    let masters = masters(4);
    let _program = Running::hold(&masters[..3], "job");
    let [old, new] = [1..3, 2..4].map(|some| urls(&masters[some]));
    // These programs have neither of the lists.
    let ended = ended(&mut plan(&new, &old)).is(3);
    assert!(ended.after("other lists").is_some(), "{ended}");
    assert_eq!(ended.marked(), None, "{ended}");
    assert!(!one_line(&ended.out).contains("No program is connected"));
    ended.tells("use neither the old nor the new list");
}

/// They cannot hold the same locks. Programs with the old list have to change all the same.
#[test]
fn programs_with_other_lists_and_other_keys_are_no_reason_to_wait() {
    let masters = masters(4);
    let hold =
        |masters, name| Running::hold(masters, &format!("{name} --key-template app:{{name}}"));
    let _other = hold(&masters[..2], "job");
    let ended = planned(&masters).is(0);
    assert_eq!(ended.after("other lists"), None, "{ended}");
    let old = hold(&masters[..3], "another");
    let ended = planned(&masters);
    let who = ended.after("only the old masters").unwrap();
    assert!(who.ends_with(&format!("/{}", old.id())), "{ended}");
}

/// A name in a finding has the form that `status` and the plan have.
#[test]
fn a_program_has_one_name_everywhere() {
    let masters = masters(4);
    let mut hold = with(&masters[..3], "hold job --label");
    let program = Running::held(hold.arg("back~up now"));
    let who = format!("/{} (back-up now)", program.id());
    run(&masters[..3], "status job").shows(&format!("{who}, since "));
    let planned = planned(&masters);
    let shown = planned.after("only the old masters").unwrap();
    assert!(shown.ends_with(&who), "{planned}");
    let doctor = run(&masters[1..], "doctor").is(3);
    doctor.shows("lists: ").tells(&who);
}

/// With --quarantine strict, masters that no program has used have no vote for a while.
#[test]
fn the_plan_does_not_begin_while_new_masters_have_no_vote() {
    let masters = masters(4);
    let [old, new] = [0..3, 1..4].map(|some| urls(&masters[some]));
    ended(plan(&old, &new).arg("--quarantine=strict"))
        .is(1)
        .tells("Not yet: too few masters can vote");
}

/// It and a program that has only the old masters may hold one lock.
#[test]
fn a_job_that_has_only_the_new_masters_too_early_is_seen_though_it_is_gone() {
    let masters = masters(4);
    let _before = Running::hold(&masters[..3], "job");
    run(&masters[1..], "run --label early cron -- true").is(0);
    planned(&masters)
        .is(3)
        .tells("(early)")
        .tells("stop what starts them")
        .tells("Not now");
}

/// Their list then has no majority, which is no danger any more.
#[test]
fn the_change_is_done_when_the_old_masters_are_stopped() {
    let mut masters = masters(5);
    let after = Running::hold(&masters[2..], "job");
    let [old, new] = [&masters[..3], &masters[2..]].map(urls);
    ended(&mut plan(&old, &new)).marks(0, "5");
    masters[..2].iter_mut().for_each(Server::kill);
    ended(&mut plan(&old, &new))
        .marks(0, "5")
        .shows("The change is done.");
    drop(after);
    let asks = "If all programs have only the new list, the change is done.";
    until("nobody is connected", || {
        let ended = ended(&mut plan(&old, &new));
        one_line(&ended.out).contains(asks) && ended.status == 1
    });
}

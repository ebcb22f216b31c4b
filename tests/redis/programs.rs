//! What real servers say before and while the masters are changed: the programs, and the counters.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

use quorlock::{Coordinator, MasterSpec, Quarantine, tools::ListsId};
use quorlock_check::{MasterPrograms, Report, Severity};

use crate::{check::shared, common::*};

fn address(master: &Server) -> String {
    format!("127.0.0.1:{}", master.port())
}

fn id(masters: &[Server], old_masters: &[Server]) -> ListsId {
    let [masters, old_masters] = [masters, old_masters].map(|list| list.iter().map(address));
    let [masters, old_masters] = [masters.collect::<Vec<_>>(), old_masters.collect()];
    ListsId::of(
        masters.iter().map(String::as_str),
        old_masters.iter().map(String::as_str),
    )
}

/// Returns a coordinator that is connected with all masters.
async fn program(name: &str, masters: &[String], old_masters: &[String]) -> Coordinator {
    let builder = patient().client_name(name);
    let locks = builder
        .masters(masters)
        .old_masters(old_masters)
        .build()
        .unwrap();
    locks.all_ready_within(TEST_TIMEOUT / 2).await.unwrap();
    locks
}

/// Checks a change of the masters.
async fn check(masters: &[String], old_masters: &[String]) -> Report {
    let specs = |urls: &[String]| urls.iter().map(MasterSpec::from).collect::<Vec<_>>();
    let (masters, old_masters) = (specs(masters), specs(old_masters));
    let shared = shared(Quarantine::Off);
    let report = quorlock_check::check(&masters, &old_masters, &shared);
    report.await.unwrap()
}

/// Returns the clients that a master shows with these lists.
pub(crate) fn clients(master: &MasterPrograms, lists: ListsId) -> BTreeSet<String> {
    let programs = master.programs.as_ref().unwrap().iter();
    let names = programs.filter_map(|program| program.name.as_ref());
    let names = names.filter(|name| name.lists == lists);
    names.filter_map(|name| name.client.clone()).collect()
}

#[test]
fn masters_show_which_lists_programs_use() {
    with_masters(4, async |masters| {
        let urls = urls(&masters);
        let (old, new) = (&urls[..3], &urls[1..]);
        let before = program("before", old, &[]).await;
        let joint = program("joint", new, old).await;
        let after = program("after", new, &[]).await;
        let report = check(new, old).await;
        let both_at_once = "critical: lists: before with the old list, after with the new one";
        assert!(report.to_string().contains(both_at_once), "{report}");
        let ids = [
            id(&masters[..3], &[]),
            id(&masters[1..], &masters[..3]),
            id(&masters[1..], &[]),
        ];
        assert_eq!([&before, &joint, &after].map(Coordinator::lists_id), ids);
        let stays = [&["before"][..], &["joint"], &["after"]];
        let joins = [&[][..], &["joint"], &["after"]];
        let leaves = [&["before"][..], &["joint"], &[]];
        for (master, expected) in report.programs.iter().zip([stays, stays, joins, leaves]) {
            let seen = ids.map(|id| clients(master, id));
            let expected = expected.map(|names| names.iter().map(ToString::to_string).collect());
            assert_eq!(seen, expected, "{master:?}");
        }
        // The lists of the others are others for a program that knows nothing of the change.
        let report = check(old, &[]).await;
        for who in [
            "lists: after: these programs use other",
            "lists: joint: these programs are in a change",
        ] {
            assert!(report.to_string().contains(who), "{report}");
        }

        before.close().await;
        drop(before);
        until("the old program is gone", async || {
            let report = check(new, old).await;
            let mut masters = report.programs.iter();
            masters
                .all(|master| clients(master, ids[0]).is_empty())
                .then_some(())
        })
        .await;
        joint.close().await;
        after.close().await;
    });
}

#[test]
fn masters_that_show_no_programs_say_why() {
    if server::is_before_7() {
        return; // rules about subcommands need version 7
    }
    with_masters(3, async |mut masters| {
        for (master, right) in masters.iter().zip(["-client|list", "-client|setname"]) {
            let words = ["ACL", "SETUSER", "default", right];
            assert_eq!(master.command(&words), "OK");
        }
        let why =
            |report: &Report, master: usize| report.programs[master].programs.clone().unwrap_err();
        let report = check(&urls(&masters), &[]).await;
        assert!(why(&report, 0).contains("client|list"), "{report:?}");
        assert!(why(&report, 1).contains("CLIENT SETNAME"), "{report:?}");
        assert!(report.programs[2].programs.is_ok(), "{report:?}");
        masters[2].kill();
        let report = check(&urls(&masters), &[]).await;
        assert!(why(&report, 2).contains("refused"), "{report:?}");
    });
}

/// Programs of both lists would get no token. The check of other programs does not look for them.
#[test]
fn a_change_is_refused_while_counters_are_ahead_of_time() {
    with_masters(4, async |masters| {
        let urls = urls(&masters);
        let (old, new) = (&urls[..3], &urls[1..]);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let ahead = now + Duration::from_secs(3_600);
        let key = "quorlock:fence:{r}";
        let set = |master: &Server, time: Duration| {
            let time = time.as_micros().to_string();
            assert_eq!(master.command(&["SET", key, &time]), "OK");
        };
        // Some keys more than one call looks at.
        for master in &masters[..3] {
            let script = "for at = 1, 5000 do redis.call('SET', 'quorlock:fence:' .. at, at) end";
            master.command(&["EVAL", script, "0"]);
        }
        let finding = async |masters: &[String], old_masters: &[String]| {
            let mut findings = check(masters, old_masters).await.findings.into_iter();
            findings.find(|finding| finding.setting == "quorlock:fence:*")
        };
        set(&masters[0], ahead);
        set(&masters[1], now);
        assert_eq!(finding(new, old).await, None, "two masters are a majority");
        set(&masters[3], ahead);
        assert_eq!(
            finding(new, old).await,
            None,
            "two masters of each list are a majority"
        );
        set(&masters[1], ahead);
        let found = finding(new, old).await.unwrap();
        assert_eq!(found.severity, Severity::Critical, "{found}");
        assert!(
            found.value.contains(key) && found.value.contains("1 in all"),
            "{found}"
        );
        let scans = || masters[0].calls(|command| command == "scan");
        let before = scans();
        assert!(before >= 9, "three looks at 5,000 keys");
        assert_eq!(finding(old, &[]).await, None);
        assert_eq!(scans(), before, "programs of one list do not look");
    });
}

#[test]
fn a_user_that_may_not_look_for_counters_is_told() {
    with_masters(2, async |masters| {
        for rule in ["-scan", "-time"] {
            let words = ["ACL", "SETUSER", "default", "+@all", rule];
            assert_eq!(masters[0].command(&words), "OK");
            let urls = urls(&masters);
            let report = check(&urls[1..], &urls[..1]).await;
            let mut findings = report.findings.iter();
            let found = findings
                .find(|one| one.setting == "quorlock:fence:*")
                .unwrap();
            assert_eq!(found.severity, Severity::Unknown, "{report}");
            assert!(found.fix.contains("+scan"), "{report}");
        }
    });
}

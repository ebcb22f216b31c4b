//! The rights in the documentation are enough for every verb of every kind of lock.

use std::time::{Duration, Instant};

use quorlock::{
    __internals::{downgrade, has_queue, has_readers, is_reentrant, plain},
    AskError, Builder, Coordinator, Guard, Lock, LockKind, Quarantine, Reason,
};
use quorlock_check::{Finding, Severity::Info};

use crate::{
    check::{check_for, shared},
    common::*,
};

/// Returns the rules of the user that `docs/operations.md` calls `name`.
fn documented(name: &str) -> Vec<String> {
    let docs = include_str!("../../docs/operations.md");
    let start = format!("ACL SETUSER {name} ");
    let mut blocks = docs
        .split("```text\n")
        .filter_map(|block| block.split_once("```"));
    let block = blocks.find_map(|(block, _)| block.strip_prefix(&*start));
    let rules = block.unwrap().split_whitespace();
    rules.map(|rule| rule.replace("<password>", "pw")).collect()
}

/// Returns the row of the table of rights in `lua/README.md` whose first cell begins with `what`.
pub(crate) fn row_for(what: &str) -> &'static str {
    let docs = include_str!("../../lua/README.md");
    let (_, section) = docs.split_once("### Rights").unwrap();
    let (section, _) = section.split_once("## Replies").unwrap();
    let is_row = |line: &&str| line.starts_with(&format!("| {what}"));
    section.lines().find(is_row).unwrap()
}

/// Returns the rights in the rows for `uses`.
fn tabled<'a>(uses: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut rules = ["on", ">pw", "~app:*", "resetchannels"]
        .map(str::to_owned)
        .to_vec();
    for what in uses {
        let row = row_for(what).replace("\\|", "/");
        let cells: Vec<_> = row.split('|').collect();
        let words = |cell: usize| cells[cell].split('`').skip(1).step_by(2);
        let commands = words(2).filter(|word| word.starts_with(char::is_uppercase));
        rules.extend(commands.map(|word| {
            let command = word.to_ascii_lowercase().replace(['/', ' '], "|");
            format!("+{command}")
        }));
        rules.extend(words(3).map(|key| format!("~{key}")));
        rules.extend(words(4).map(|channel| format!("&{channel}")));
    }
    rules
}

/// Creates a user with `rules` on all masters. Returns the masters' URLs with this user.
fn urls_of(rules: &[String], masters: &[Server]) -> Vec<String> {
    let words = ["ACL", "SETUSER", "user"].into_iter();
    let words: Vec<_> = words.chain(rules.iter().map(String::as_str)).collect();
    let url = |master: &Server| {
        assert_eq!(master.command(&words), "OK", "{rules:?}");
        // Optional rights, for commands that most servers do not have.
        for right in ["+delex", "+delifeq"] {
            master.command(&["ACL", "SETUSER", "user", right]);
        }
        format!("redis://user:pw@127.0.0.1:{}", master.port())
    };
    masters.iter().map(url).collect()
}

fn builder() -> Builder {
    patient()
        .quarantine(Quarantine::Observed)
        .max_ttl(LONG)
        .key_template("app:{name}")
}

/// Sends every verb that a kind of lock has.
async fn every_verb(masters: &[Server], urls: &[String], kind: LockKind, is_fenced: bool) {
    let [one, other] = [0, 1].map(|_| builder().masters(urls).build().unwrap());
    let (mine, theirs) = (one.new_owner(), other.new_owner());
    let (my_lock, their_lock) = (
        one.of_kind(kind, "r", &mine),
        other.of_kind(kind, "r", &theirs),
    );
    if has_readers(kind) && !is_fenced {
        every_access(&one, &other).await;
        // A reader and a writer exclude each other like two writers.
        let reader = plain(one.read_write("r").owner(&mine).read());
        every_verb_of(masters, kind, reader, their_lock.clone()).await;
    }
    if kind == LockKind::Semaphore {
        several_permits([&one, &other], is_fenced).await;
    }
    let (my_lock, their_lock) = if is_fenced {
        (plain(my_lock.fenced()), plain(their_lock.fenced()))
    } else {
        (my_lock, their_lock)
    };
    every_verb_of(masters, kind, my_lock, their_lock).await;
    let broken = block(masters, kind).await;
    let seen = one.of_kind(kind, "r", &mine).inspect().await.unwrap();
    let votes = one.break_held(&seen).await.unwrap();
    assert!(votes.granted_count() >= 2, "{votes}");
    until_released(masters, "app:r").await;
    drop(broken);
    one.close().await;
    other.close().await;
}

/// Becomes a reader, lets another owner read, and breaks the lock.
async fn every_access(one: &Coordinator, other: &Coordinator) {
    let [mine, theirs] = [one.new_owner(), other.new_owner()];
    let held = acquire_on_all(&one.read_write("shared").owner(&mine).write().plain()).await;
    let reader = other.read_write("shared").owner(&theirs).read();
    let waiting = tokio::spawn(async move { reader.acquire().await.unwrap() });
    let observed = one.read_write("shared").owner(&mine).write().plain();
    until("a reader in the queue", async || {
        let seen = observed.inspect().await.unwrap();
        (seen.waiters.len() == 1).then_some(())
    })
    .await;
    downgrade(&held);
    let also = waiting.await.unwrap();
    also.extend(LONG).await.unwrap();
    also.all_votes().await;
    let seen = observed.inspect().await.unwrap();
    assert_eq!(seen.holders.len(), 2, "{seen}");
    one.break_held(&seen).await.unwrap();
    until("a lock that is broken", async || {
        (!observed.is_held().await.unwrap()).then_some(())
    })
    .await;
}

/// Takes both permits of a semaphore, and breaks one while another client waits.
async fn several_permits(locks: [&Coordinator; 2], is_fenced: bool) {
    let [one, other] = locks.map(|locks| {
        let lock = locks.semaphore("shared", 2).plain();
        if is_fenced {
            plain(lock.fenced())
        } else {
            lock
        }
    });
    let broken = acquire_on_all(&one).await;
    let seen = one.inspect().await.unwrap();
    let held = acquire_on_all(&one).await;
    let waiting = tokio::spawn(async move { other.acquire().await.unwrap() });
    until("a waiter in the queue", async || {
        let seen = one.inspect().await.unwrap();
        (seen.waiters.len() == 1 && seen.holders.len() == 2).then_some(())
    })
    .await;
    locks[0].break_held(&seen).await.unwrap();
    let next = waiting.await.unwrap();
    assert_eq!(next.slot(), broken.slot());
    held.extend(LONG).await.unwrap();
    for guard in [next, held] {
        guard.all_votes().await;
        guard.release().await.unwrap();
    }
    drop(broken);
    until("a lock that is free", async || {
        (!one.is_held().await.unwrap()).then_some(())
    })
    .await;
}

/// Sends every verb for two locks that exclude each other, with owners of their own.
async fn every_verb_of(masters: &[Server], kind: LockKind, my_lock: Lock, their_lock: Lock) {
    assert!(!my_lock.is_held().await.unwrap());
    let held = acquire_on_all(&my_lock).await;
    assert!(their_lock.is_held().await.unwrap());
    assert_eq!(their_lock.inspect().await.unwrap().votes.granted_count(), 3);

    // A key that a master lost is put back. For a fenced lock, this is done only while no other
    // client has offered a candidate.
    assert_eq!(masters[0].command(&["DEL", "app:r"]), "1");
    held.extend(LONG).await.unwrap();
    until("a key that is put back", async || {
        (masters[0].command(&["EXISTS", "app:r"]) == "1").then_some(())
    })
    .await;

    let refused = their_lock.try_acquire().await.unwrap_err();
    assert!(refused.is_busy(), "{refused}");
    if is_reentrant(kind) {
        let inner = my_lock.try_acquire().await.unwrap();
        assert_eq!(inner.all_votes().await.granted_count(), 3);
        inner.release().await.unwrap();
    }
    held.extend(LONG).await.unwrap();
    assert_eq!(held.all_votes().await.granted_count(), 3);

    // A waiter hears of the release.
    let waiting = {
        let lock = their_lock.clone();
        tokio::spawn(async move { lock.acquire().await })
    };
    if has_queue(kind) {
        until("a waiter in the queue", async || {
            let seen = my_lock.inspect().await.unwrap();
            (seen.waiters.len() == 1).then_some(())
        })
        .await;
    } else {
        until_watched(masters).await;
    }
    held.release().await.unwrap();
    let held = waiting.await.unwrap().unwrap();
    held.all_votes().await;
    held.release().await.unwrap();

    // The grants of a minority are given back. A waiter for a fair lock keeps its position in the
    // queues at first. In the end, it leaves the queues.
    until_released(masters, "app:r").await;
    let blocking = block(&masters[..2], kind).await;
    let late = my_lock.acquire_within(Duration::from_millis(300)).await;
    let late = late.unwrap_err();
    assert!(late.is_busy(), "{late}");
    blocking.release().await.unwrap();
}

/// Lets another client hold the lock on all `masters`.
async fn block(masters: &[Server], kind: LockKind) -> Guard {
    let locks = coordinator(builder(), masters);
    acquire_on_all(&locks.of_kind(kind, "r", &locks.new_owner())).await
}

#[track_caller]
fn assert_nothing_denied(masters: &[Server], rules: &[String]) {
    for master in masters {
        let denied = master.command(&["ACL", "LOG"]);
        assert_eq!(denied, "", "{rules:?}");
        let errors = master.command(&["INFO", "errorstats"]);
        assert!(!errors.contains("NOPERM"), "{errors} {rules:?}");
    }
}

#[test]
fn the_rights_in_the_guide_are_enough_for_mutexes() {
    with_masters(3, async |masters| {
        let rules = documented("mutexes");
        let urls = urls_of(&rules, &masters);
        for is_fenced in [false, true] {
            every_verb(&masters, &urls, LockKind::Mutex, is_fenced).await;
        }
        // Every kind of holder can be inspected.
        for kind in KINDS {
            let held = block(&masters, kind).await;
            let locks = builder().masters(&urls).build().unwrap();
            let lock = locks.mutex("r");
            let seen = until("all masters", async || {
                let seen = lock.inspect().await.ok()?;
                (seen.votes.granted_count() == 3).then_some(seen)
            })
            .await;
            assert_eq!(seen.holders[0].kind, Some(kind));
            held.release().await.unwrap();
            until_released(&masters, "app:r").await;
        }
        assert_nothing_denied(&masters, &rules);

        // The check tells what such a user cannot have, in one finding, and calls all well.
        let also = ["+config|get", "+client|list"].map(str::to_owned);
        let urls = urls_of(&[&rules[..], &also].concat(), &masters);
        let mut shared = shared(Quarantine::Observed);
        shared.key_template = "app:{name}".to_owned();
        let found = check_for(&shared, &urls).await.findings;
        let mut found = found.iter().filter(|one| one.setting.contains("rights"));
        let is_told = |one: &Finding| one.severity == Info && one.value.contains("fair locks");
        assert!(found.next().is_some_and(is_told) && found.next().is_none());
    });
}

#[test]
fn the_rights_in_the_guide_are_enough_for_all_kinds_and_for_a_check() {
    with_masters(3, async |masters| {
        let mut rules = documented("locks");
        for kind in KINDS {
            for is_fenced in [false, true] {
                let urls = urls_of(&rules, &masters);
                every_verb(&masters, &urls, kind, is_fenced).await;
                assert_nothing_denied(&masters, &rules);
            }
        }
        let also = ["+config|get", "+client|list"].map(str::to_owned);
        rules.extend(also);
        let mut shared = shared(Quarantine::Observed);
        shared.key_template = "app:{name}".to_owned();
        let report = check_for(&shared, &urls_of(&rules, &masters)).await;
        let text = report.to_string();
        assert!(
            !text.contains("rights") && !text.contains("denied"),
            "{text}"
        );
        assert_nothing_denied(&masters, &rules);
    });
}

/// Tests each kind of lock with only the rights in its rows of the table.
#[test]
fn the_rights_in_the_scripts_documentation_are_enough_for_each_kind() {
    with_masters(3, async |masters| {
        for kind in KINDS {
            // The row of fair locks has what they need in addition.
            let also = (kind == LockKind::Fair).then_some("reentrant");
            for is_fenced in [false, true] {
                let fenced = if is_fenced { &["any, fenced"][..] } else { &[] };
                let rows = ["all", "quarantine", "inspect", "break", kind.as_str()];
                let rows = rows.iter().chain(fenced).chain(&also).copied();
                let rules = tabled(rows);
                for master in &masters {
                    master.command(&["ACL", "DELUSER", "user"]);
                }
                let urls = urls_of(&rules, &masters);
                every_verb(&masters, &urls, kind, is_fenced).await;
                assert_nothing_denied(&masters, &rules);
            }
        }
    });
}

/// A user without a right that extends or releases a lock could take it, but not give it back. So
/// the first attempt at each kind of lock finds each missing right, before anything is taken.
#[test]
fn the_first_attempt_finds_each_missing_right_and_takes_nothing() {
    on_each_version(3, async |version, masters| {
        let kinds = match version {
            "the server program" => &KINDS[..],
            _ => &[LockKind::Mutex], // these have errors of their own
        };
        for &kind in kinds {
            for is_fenced in [false, true] {
                for (right, rules) in without_each(kind, is_fenced) {
                    // These servers tell no script, and some tries would delete, or read all while the
                    // key of the last question is there, for 1 ms.
                    let untold = ["del", "evalsha", "get", "hgetall"];
                    if server::is_before_7() && untold.contains(&&*right) {
                        continue;
                    }
                    let case = format!("{version}: {kind}, fenced {is_fenced}, without {right}");
                    give(&masters, &rules);
                    let locks = coordinator(patient(), &masters);
                    let lock = locks.of_kind(kind, "r", &locks.new_owner());
                    let lock = if is_fenced {
                        plain(lock.fenced())
                    } else {
                        lock
                    };
                    find_missing(&case, &right, &locks, &lock).await;
                    give(&masters, &["~*", "+@all"]);
                    for master in &masters {
                        assert_eq!(master.command(&["EXISTS", "r"]), "0", "{case}");
                    }
                    drop(lock.try_acquire().await.expect(&case));
                    locks.ready_within(Duration::ZERO).await.expect(&case);
                    close_at_once(&locks).await;
                }
            }
        }
    });
}

/// A selector gives the user the right, but not to the lock's key. Then the errors have words of
/// their own, which differ between the versions.
#[test]
fn a_right_to_other_keys_only_is_missing() {
    on_each_version(3, async |version, masters| {
        if version == "the server program" && server::is_before_7() {
            return; // these servers have no selectors
        }
        for (kind, right) in [(LockKind::Mutex, "pttl"), (LockKind::Reentrant, "hset")] {
            let case = format!("{version}: {kind}, {right}");
            let rules = [format!("-{right}"), format!("(+{right} ~other)")];
            give(&masters, &rules);
            let locks = coordinator(patient(), &masters);
            let lock = locks.of_kind(kind, "r", &locks.new_owner());
            find_missing(&case, right, &locks, &lock).await;
            give(&masters, &["clearselectors", "+@all"]);
            for master in &masters {
                assert_eq!(master.command(&["EXISTS", "r"]), "0", "{case}");
            }
            close_at_once(&locks).await;
        }
    });
}

/// `ready` cannot know which rights a lock needs, until a majority has denied one.
async fn find_missing(case: &str, right: &str, locks: &Coordinator, lock: &Lock) {
    let is_named = |text: String| text.to_lowercase().contains(right);
    let begun = Instant::now();
    let ready = locks.ready_within(TEST_TIMEOUT).await;
    assert_eq!(ready.is_err(), right == "eval", "{case}: {ready:?}");
    for waits in [false, true] {
        let acquired = match waits {
            true => lock.acquire_within(TEST_TIMEOUT).await,
            false => lock.try_acquire().await,
        };
        let error = acquired.map(drop).expect_err(case);
        assert!(
            matches!(error.reason(), Reason::Denied { .. }),
            "{case}: {error}"
        );
        assert!(is_named(error.to_string()), "{case}: {error}");
        let error = locks.ready_within(TEST_TIMEOUT).await.expect_err(case);
        assert!(matches!(error, AskError::Denied { .. }), "{case}: {error}");
        assert!(is_named(error.to_string()), "{case}: {error}");
    }
    assert!(begun.elapsed() < TEST_TIMEOUT / 8, "{case}");
}

/// Returns each right that such a lock needs, and the rules of a user that has all others. For a
/// fenced lock, only those for its token.
fn without_each(kind: LockKind, is_fenced: bool) -> Vec<(String, Vec<String>)> {
    let row = if is_fenced {
        "any, fenced"
    } else {
        kind.as_str()
    };
    let rights = tabled([row].into_iter()).split_off(tabled([].into_iter()).len());
    let also = ["+eval", "+evalsha", "~r"].map(str::to_owned);
    let each = rights.into_iter().chain(also).filter_map(|rule| {
        let (what, right) = rule.split_at(1);
        let rules = match (what, right) {
            ("+", "publish" | "subscribe" | "unsubscribe") | ("&", _) => return None,
            ("+", command) => vec![format!("-{command}")],
            (_, key) => {
                let mut rules = vec!["resetkeys".to_owned()];
                for companion in [
                    "queue",
                    "deadlines",
                    "writers",
                    "readers",
                    "waiters",
                    "fence",
                ] {
                    rules.push(format!("~quorlock:{companion}:*"));
                }
                rules.retain(|rule| rule[1..] != *key);
                if key != "r" {
                    rules.extend(["~r", "~quorlock:check"].map(str::to_owned));
                }
                rules
            }
        };
        let named = if what == "+" { right } else { "key" };
        Some((named.to_owned(), rules))
    });
    each.collect()
}

/// Gives the user of all coordinators these rights.
fn give(masters: &[Server], rules: &[impl AsRef<str>]) {
    let words = ["ACL", "SETUSER", "default"].into_iter();
    let words: Vec<_> = words.chain(rules.iter().map(AsRef::as_ref)).collect();
    for master in masters {
        assert_eq!(master.command(&words), "OK", "{words:?}");
    }
}

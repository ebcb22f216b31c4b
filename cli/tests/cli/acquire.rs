//! A lock that one process acquires, and another one releases or takes over.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;
use testkit::server::{Server, masters};

use crate::support::{Ended, Running, all_have, assert_free, each, ended, run, until, with};

/// Returns the program with this command, and a file for the handle.
fn command(masters: &[Server], words: &str, file: &Path) -> Command {
    let mut command = with(masters, words);
    command.env("QUORLOCK_MAX_TTL", "10m").arg(file);
    command
}

#[track_caller]
fn acquire(masters: &[Server], words: &str, file: &Path) -> Ended {
    let words = format!("acquire --ttl 10m {words} --handle-file");
    ended(&mut command(masters, &words, file))
}

#[track_caller]
fn release(masters: &[Server], file: &Path) -> Ended {
    ended(&mut command(masters, "-v release --handle-file", file))
}

fn attached(masters: &[Server], file: &Path, script: &str) -> Command {
    let mut command = command(masters, "run -v --attach", file);
    command.args(["--", "sh", "-c", script]);
    command
}

fn handle(masters: &[Server]) -> PathBuf {
    masters[0].directory().join("handle")
}

#[test]
fn one_process_acquires_a_lock_of_each_kind_and_another_releases_it() {
    let masters = masters(3);
    let file = handle(&masters);
    for words in [
        "a",
        "--fair a",
        "--read a",
        "--write --fence a",
        "--permits 1 --fence a",
        "a b",
    ] {
        let ended = acquire(&masters, &format!("-v {words}"), &file).gives(0, "");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("quorlock:1:600000:"), "{text}");
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        ended.omits(text.trim_end());
        for master in &masters {
            let left: u64 = master.command(&["PTTL", "a"]).parse().unwrap();
            assert!(left > 590_000, "{words}: {left}");
        }
        let again = if words == "a b" { "a" } else { words };
        let again = format!("-n {}", again.replace("--read", "--write"));
        acquire(&masters, &again, Path::new("-")).gives(75, "");

        let released = release(&masters, &file).gives(0, "");
        released.omits(text.trim_end());
        assert!(!file.exists());
        assert_free(&masters, "a");
    }
}

#[test]
fn a_lock_that_is_not_held_any_more_is_gone() {
    let masters = masters(3);
    let file = handle(&masters);
    let gone = "quorlock: the lock \"a\" is not held any more: it expired, or was released, broken or forgotten";
    acquire(&masters, "a", &file).is(0);
    run(&masters, "break --yes a").is(0);
    ended(&mut attached(&masters, &file, "echo ran"))
        .gives(76, "")
        .says(gone);
    assert!(!file.exists());
    acquire(&masters, "a", &file).gives(0, "").in_lines(0);
    each(&masters, "PEXPIRE a 1");
    release(&masters, &file).is(76).says(gone);
    assert!(!file.exists());
    acquire(&masters, "a b", &file).gives(0, "");
    run(&masters, "break --yes a").is(0);
    let others = "; locks of the other names end with their TTL, or with `quorlock break`\n";
    release(&masters, &file)
        .is(76)
        .says(&format!("{gone}{others}"));
}

#[test]
fn a_waiter_that_is_killed_leaves_no_lock_and_its_handle_is_not_written() {
    let masters = masters(3);
    let file = handle(&masters);
    let holder = Running::hold(&masters, "--permits 1 a");
    let words = "acquire --ttl 10m --permits 1 a --handle-file";
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let waiter = Running::start(&mut command(&masters, words, &file));
        until("it waits", || all_have(&masters, "quorlock:waiters:{a}"));
        waiter.signal(signal);
        match signal {
            Signal::SIGKILL => drop(waiter),
            _ => drop(waiter.ended().gives(143, "")),
        }
        assert!(!file.exists());
    }
    holder.terminated().is(0);
    acquire(&masters, "--permits 1 --wait 20s a", &file).is(0); // long before 10 min
}

#[test]
fn no_file_is_replaced() {
    let masters = masters(3);
    let (folder, file) = (masters[0].directory(), handle(&masters));
    acquire(&masters, "other", &file).is(0);
    let link = folder.join("link");
    symlink(&file, &link).unwrap();
    let dangling = folder.join("dangling");
    symlink(folder.join("nothing"), &dangling).unwrap();
    let text = folder.join("text");
    fs::write(&text, "my text").unwrap();
    let old = fs::read_to_string(&file).unwrap();
    // The old handle may be that of a held lock.
    for place in [&file, &link, &dangling, &text, &folder.to_owned()] {
        let refused = acquire(&masters, "a", place).gives(74, "");
        refused.says("it exists; if it is the handle of a lock, run `quorlock release` first");
        assert_free(&masters, "a");
    }
    assert_eq!(fs::read_to_string(&text).unwrap(), "my text");
    assert_eq!(fs::read_to_string(&file).unwrap(), old);
    assert!(!folder.join("nothing").exists());
}

#[test]
fn a_handle_that_cannot_be_written_is_no_lock() {
    let masters = masters(3);
    let missing = masters[0].directory().join("missing/handle");
    let failed = acquire(&masters, "a", &missing).gives(74, "");
    failed.says("cannot write the handle to ").in_lines(1);
    assert_free(&masters, "a");

    let mut full = command(&masters, "acquire --ttl 10m a --handle-file", "-".as_ref());
    full.stdout(fs::File::create("/dev/full").unwrap());
    ended(&mut full).is(74).in_lines(1);
    assert_free(&masters, "a");
}

#[test]
fn a_command_runs_under_a_lock_that_was_taken_over() {
    let masters = masters(3);
    let file = handle(&masters);
    let show = "echo $QUORLOCK_LOCK,$QUORLOCK_SLOT,${QUORLOCK_FENCING_TOKEN:+token}";
    for (words, shown) in [
        ("a", "a,,\n"),
        ("--fence a", "a,,token\n"),
        ("--permits 3 --fence a", "a,SLOT,token\n"),
        ("a b", "a b,,\n"),
    ] {
        acquire(&masters, words, &file).is(0);
        let text = fs::read_to_string(&file).unwrap();
        let number: usize = text.split(':').nth(7).unwrap().parse().unwrap();
        let shown = shown.replace("SLOT", &number.saturating_sub(1).to_string());
        ended(&mut attached(&masters, &file, show))
            .gives(0, &shown)
            .omits(text.trim_end());
        assert_free(&masters, "a");
        assert!(!file.exists());
    }

    acquire(&masters, "--fence a", &file).is(0);
    let text = fs::read_to_string(&file).unwrap();
    let script = "echo $QUORLOCK_FENCING_TOKEN; kill -9 $PPID; sleep 60";
    let mut killed = Running::start(&mut attached(&masters, &file, script));
    let token = killed.line();
    assert!(text.contains(&format!(":{token}:")), "{token}: {text}");
    drop(killed);
    // The lock is still held, for another process.
    let next = "echo $QUORLOCK_FENCING_TOKEN; exit 3";
    ended(&mut attached(&masters, &file, next)).gives(3, &format!("{token}\n"));
    assert_free(&masters, "a");
}

#[test]
fn a_lock_that_was_taken_over_can_be_lost() {
    let masters = masters(3);
    let file = handle(&masters);
    let words = "acquire --ttl 3s a --handle-file";
    ended(&mut command(&masters, words, &file)).is(0);
    let mut running = Running::ready(&mut attached(&masters, &file, "echo ready; sleep 60"));
    each(&masters, "DEL a");
    running.errors_until(&["lost \"a\"", "ending the command"]);
    running.ended().is(76);
}

#[test]
fn a_handle_passes_through_pipes() {
    let masters = masters(3);
    let stream = Path::new("-");
    for words in ["release --handle-file", "run --attach"] {
        let text = acquire(&masters, "a", stream).is(0).out;
        let mut next = command(&masters, words, stream);
        if words.starts_with("run") {
            next.args(["--", "true"]);
        }
        let mut next = Running::start(next.stdin(Stdio::piped()));
        next.say(&text);
        next.ended().gives(0, "").in_lines(0);
        assert_free(&masters, "a");
    }
}

#[test]
fn a_handle_of_other_masters_or_keys_is_78_and_another_text_64() {
    let masters = masters(3);
    let file = handle(&masters);
    acquire(&masters, "a", &file).is(0);
    let release_with = |option: &str| {
        let words = format!("{option} release --handle-file");
        ended(&mut command(&masters, &words, &file))
    };
    release_with("--key-template locks:{name}")
        .is(78)
        .says("belongs to other masters, another key template or another database");
    release(&masters[..2], &file).is(78);
    let mut attach = command(&masters, "--max-ttl 1m run --attach", &file);
    let short = ended(attach.args(["--", "echo", "ran"])).gives(78, "");
    short.says("max-ttl");
    assert!(file.exists());

    for text in ["", "text", "quorlock:1:600000:", "\u{fffd}"] {
        let other = file.with_extension("other");
        fs::write(&other, text).unwrap();
        let refused = release(&masters, &other).gives(64, "");
        refused
            .says("there is no handle in ")
            .last_says(
                "; a handle is removed once its lock is released or gone: see `quorlock status`\n",
            )
            .in_lines(1);
        ended(&mut attached(&masters, &other, "echo ran")).gives(64, "");
        assert!(other.exists());
    }
    release(&masters, Path::new("/missing")).is(64);
    release(&masters, &file).is(0); // it was held all the time
}

/// The handle has the TTL, and a longer maximum only makes quarantines longer.
#[test]
fn a_release_needs_no_maximum_for_its_ttl() {
    let masters = masters(3);
    let file = handle(&masters);
    for option in ["", "--max-ttl 1m", "--quarantine off"] {
        acquire(&masters, "a", &file).is(0);
        let words = format!("release {option} --handle-file");
        let mut release = command(&masters, &words, &file);
        ended(release.env_remove("QUORLOCK_MAX_TTL"))
            .gives(0, "")
            .in_lines(0);
        assert_free(&masters, "a");
    }
    // The maximum is not shortened to a short TTL: a master that restarted may know longer ones.
    ended(&mut command(
        &masters,
        "acquire --ttl 5s a --handle-file",
        &file,
    ))
    .is(0);
    let strict = "--quarantine strict release --handle-file";
    ended(command(&masters, strict, &file).env_remove("QUORLOCK_MAX_TTL"))
        .is(69)
        .says(" have no vote for ")
        .omits("have no vote for 5s")
        .last_says("; then try again with the same handle\n");
}

#[test]
fn a_lock_that_was_left_is_told_from_one_that_a_program_holds() {
    let masters = masters(3);
    let file = handle(&masters);
    let _held = Running::hold(&masters, "locks:held");
    for kind in ["locks:a", "--fair locks:b"] {
        acquire(&masters, kind, &file).is(0);
        let name = kind.rsplit(':').next().unwrap();
        let words = |words: &str| format!("--key-template locks:{{name}} status {words}");
        let list = run(&masters, &words("")).is(0);
        list.shows_times(1, ", left by quorlock acquire\n");
        let shown = run(&masters, &words(&format!("--json {name} held"))).json();
        let [left, held] = [0, 1].map(|at| &shown["locks"][at]["holder"]["left_by_acquire"]);
        assert_eq!((left, held), (&true.into(), &false.into()), "{shown}");
        fs::remove_file(&file).unwrap();
        run(&masters, &format!("break --yes locks:{name}")).is(0);
    }
}

#[test]
fn too_few_masters_are_69_and_the_handle_can_be_used_again() {
    let masters = masters(3);
    let file = handle(&masters);
    acquire(&masters, "a", &file).is(0);
    masters[1..].iter().for_each(Server::pause);
    let failed = release(&masters, &file).is(69);
    failed
        .says("cannot release \"a\": only 1 of 3 masters can vote")
        .says("; then try again with the same handle\n");
    assert!(file.exists());
    masters[1..].iter().for_each(Server::resume);
    release(&masters, &file).is(0);
}

/// An option that the command does not have is no advice.
#[test]
fn a_release_without_votes_names_no_option_that_it_does_not_have() {
    let masters = masters(3);
    let file = handle(&masters);
    acquire(&masters, "a", &file).is(0);
    let strict = |words| ended(&mut command(&masters, words, &file));
    strict("--quarantine strict release --handle-file")
        .is(69)
        .says(" have no vote for ")
        .last_says("; then try again with the same handle\n");
    let mut run = command(&masters, "--quarantine strict run --attach", &file);
    ended(run.args(["--", "true"]))
        .is(69)
        .says("cannot take over \"a\": ")
        .last_says("; wait longer with --ready\n");
    release(&masters, &file).is(0);
}

/// Whoever has the handle can release the lock.
#[test]
fn a_handle_that_others_can_read_is_told() {
    let masters = masters(3);
    let file = handle(&masters);
    for mode in [0o600, 0o640, 0o604] {
        let can_read = mode != 0o600;
        let warning = format!("other users could read the handle in {}, ", file.display());
        let check = |ended: Ended| match can_read {
            true => ended.is(0).says(&warning).omits("chmod"),
            false => ended.is(0).omits("other users"),
        };
        for is_attach in [false, true] {
            acquire(&masters, "a", &file).is(0).in_lines(0);
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            check(match is_attach {
                true => ended(&mut attached(&masters, &file, "true")),
                false => release(&masters, &file),
            });
        }
        acquire(&masters, "a", &file).is(0).in_lines(0); // in place of the old handle
        release(&masters, &file).is(0).omits("other users");
    }
}

#[test]
fn the_ttl_is_checked_before_the_wait_and_options_that_make_no_sense_are_none() {
    let masters = masters(3);
    let _holder = Running::hold(&masters, "a");
    let words = "acquire --ttl 10m a --max-ttl 1m --handle-file";
    let refused = ended(&mut command(&masters, words, "-".as_ref())).gives(78, "");
    refused.says("max-ttl");
    for words in [
        "acquire a --handle-file -",
        "acquire --ttl 10m a",
        "acquire --ttl 10m --max-hold 1s a --handle-file -",
        "acquire --ttl 10m --min-hold 1s a --handle-file -",
        "acquire --ttl 10m --kill-after 1s a --handle-file -",
        "release",
        "run --attach - a -- true",
        "run --attach - --fence -- true",
        "run --attach - --ttl 1s -- true",
        "run -- true",
    ] {
        run(&masters, words).gives(64, "");
    }
}

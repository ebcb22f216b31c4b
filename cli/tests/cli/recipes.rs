//! Runs the crontab and the unit of `docs/recipes.md`, and the script of `docs/fencing.md`.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use testkit::server::{Server, masters};

use crate::support::{PROGRAM, configure, ended, list, shell};

const PAGE: &str = include_str!("../../../docs/recipes.md");
const FENCING: &str = include_str!("../../../docs/fencing.md");

/// Returns the text of the first block of a language.
fn block(language: &str) -> &'static str {
    block_of(PAGE, language)
}

fn block_of(page: &'static str, language: &str) -> &'static str {
    let (_, block) = page.split_once(&format!("```{language}\n")).unwrap();
    block.split("\n```").next().unwrap()
}

/// Writes a program, which is a script with this work.
fn program(folder: &Path, name: &str, work: &str) -> String {
    let program = folder.join(name);
    fs::write(&program, format!("#!/bin/sh\n{work}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.display().to_string()
}

/// Returns a shell of cron that runs a line of the page with the masters and files of a test.
fn cron(line: &str, masters: &[Server], job: &str) -> Command {
    let folder = masters[0].directory();
    let file = configure(folder, &list(masters), "");
    let name = job.rsplit('/').next().unwrap();
    let program = program(folder, name, "echo \"$QUORLOCK_LOCK\" ran");
    let line = line
        .replace("/usr/local/bin/quorlock", PROGRAM)
        .replace("/etc/quorlock.toml", file.to_str().unwrap())
        .replace(job, &program);
    let mut shell = shell(&[], &line);
    shell.env_clear().env("PATH", "/usr/bin:/bin");
    shell
}

#[test]
fn one_host_runs_the_cron_job_and_the_others_are_silent() {
    let masters = masters(3);
    let line = block("crontab").strip_prefix("15 3 * * * root ").unwrap();
    let shell = |_| cron(line, &masters, "/usr/local/bin/report");
    let shells: Vec<_> = (0..5).map(shell).collect();
    let start = |mut shell: Command| std::thread::spawn(move || ended(&mut shell));
    let hosts: Vec<_> = shells.into_iter().map(start).collect();
    let mut said: Vec<_> = hosts.into_iter().map(|host| host.join().unwrap()).collect();
    said.sort_by_key(|ended| ended.status);
    let mut said = said.into_iter();
    let first = said.next().unwrap();
    first.gives(0, "report ran\n").in_lines(0);
    for late in said {
        late.gives(75, "").in_lines(0);
    }
}

#[test]
fn the_unit_starts_the_service() {
    let masters: Vec<_> = (0..3)
        .map(|_| Server::start_with(&["--requirepass", "secret"]))
        .collect();
    let folder = masters[0].directory();
    fs::write(folder.join("password"), "secret\n").unwrap();
    let unit = units("[Unit]");
    let line = start_of(unit).replace("%d", folder.to_str().unwrap());
    ended(&mut cron(&line, &masters, "/usr/local/bin/import")).gives(0, "import ran\n");

    verify(folder, "import.service", unit);
}

/// Returns the block of units that has this part.
fn units(part: &str) -> &'static str {
    let mut blocks = PAGE.split("```ini\n").skip(1);
    let block = blocks.find_map(|after| {
        after
            .split("\n```")
            .next()
            .filter(|text| text.contains(part))
    });
    block.unwrap()
}

/// Returns the command of a unit.
fn start_of(unit: &str) -> &str {
    let mut lines = unit.lines();
    lines
        .find_map(|line| line.strip_prefix("ExecStart="))
        .unwrap()
}

/// Lets systemd look for mistakes in a unit. It is not asked for files that are missing here.
fn verify(folder: &Path, name: &str, unit: &str) {
    let file = folder.join(name);
    fs::write(&file, unit.replace("/usr/local/bin/quorlock", "/bin/true")).unwrap();
    let mut systemd = Command::new("systemd-analyze");
    let Ok(verified) = systemd.arg("verify").arg(&file).output() else {
        println!("skipped: systemd-analyze is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    let found = said.lines().filter(|line| line.contains(name));
    assert_eq!(found.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_timer_starts_the_job_of_the_crontab() {
    let server = Server::start();
    let folder = server.directory();
    let (service, timer) = units("# report.timer")
        .split_once("# report.timer")
        .unwrap();
    let (_, job) = block("crontab").split_once(" root ").unwrap();
    assert_eq!(start_of(service), job);
    assert!(service.contains("\nSuccessExitStatus=75\n"), "{service}");
    assert!(
        timer.contains("\nOnCalendar=03:15\n"),
        "as in the crontab: {timer}"
    );
    verify(folder, "report.service", service); // first: the timer needs it
    verify(folder, "report.timer", timer);
}

/// The newest holder's file stays the one that is read, although a late holder writes another.
#[test]
fn a_file_of_a_late_holder_is_not_read() {
    let masters = masters(3);
    let folder = masters[0].directory();
    let (write, read) = block_of(FENCING, "sh").split_once("\nls ").unwrap();
    let write = write.replace("quorlock run", &format!("{PROGRAM} run"));
    let run = |line: &str| ended(shell(&masters, line).current_dir(folder)).in_lines(0);
    let newest = || {
        let file = run(&format!("ls {read}")).is(0).out;
        file.trim_end().to_owned()
    };
    fs::write(folder.join("report.9"), "late").unwrap(); // as text, 9 comes after every token
    for text in ["first", "second"] {
        program(folder, "report", &format!("echo {text}"));
        run(&write).gives(0, "");
        let file = folder.join(newest());
        assert_eq!(fs::read_to_string(file).unwrap(), format!("{text}\n"));
    }
    let before = newest();
    program(folder, "report", "echo half; exit 1");
    run(&write).is(1);
    assert_eq!(newest(), before, "a file that is not whole is not read");
}

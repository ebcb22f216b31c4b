//! Runs the crontab and the unit of `docs/recipes.md`, and the script of `docs/fencing.md`.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use testkit::server::{Server, masters};

use crate::support::{ended, urls};

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

/// Returns a shell that runs a line of the page with the files of a test.
fn shell(line: &str, folder: &Path, job: &str) -> Command {
    let name = job.rsplit('/').next().unwrap();
    let program = folder.join(name);
    fs::write(&program, "#!/bin/sh\necho \"$QUORLOCK_LOCK\" ran\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let line = line
        .replace("/usr/local/bin/quorlock", env!("CARGO_BIN_EXE_quorlock"))
        .replace(
            "/etc/quorlock.toml",
            folder.join("quorlock.toml").to_str().unwrap(),
        )
        .replace(job, program.to_str().unwrap());
    let mut shell = Command::new("/bin/sh");
    // The environment of cron.
    shell
        .args(["-c", &line])
        .env_clear()
        .env("PATH", "/usr/bin:/bin");
    shell
}

fn configure(masters: &[Server]) -> &Path {
    let folder = masters[0].directory();
    let urls: Vec<_> = masters.iter().map(Server::url).collect();
    let text = format!("[set.all]\nmasters = {urls:?}\n");
    fs::write(folder.join("quorlock.toml"), text).unwrap();
    folder
}

#[test]
fn one_host_runs_the_cron_job_and_the_others_are_silent() {
    let masters = masters(3);
    let folder = configure(&masters);
    let line = block("crontab").strip_prefix("15 3 * * * root ").unwrap();
    let hosts: Vec<_> = (0..5)
        .map(|_| {
            let mut shell = shell(line, folder, "/usr/local/bin/report");
            std::thread::spawn(move || ended(&mut shell))
        })
        .collect();
    let mut said: Vec<_> = hosts.into_iter().map(|host| host.join().unwrap()).collect();
    said.sort();
    assert_eq!(said[0], (0, "report ran\n".into(), String::new()));
    for late in &said[1..] {
        assert_eq!(late, &(75, String::new(), String::new()));
    }
}

#[test]
fn the_unit_starts_the_service() {
    let masters: Vec<_> = (0..3)
        .map(|_| Server::start_with(&["--requirepass", "secret"]))
        .collect();
    let folder = configure(&masters);
    fs::write(folder.join("password"), "secret\n").unwrap();
    let unit = block("ini");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .unwrap();
    let line = line.replace("%d", folder.to_str().unwrap());
    let (status, out, err) = ended(&mut shell(&line, folder, "/usr/local/bin/import"));
    assert_eq!((status, &*out), (0, "import ran\n"), "{err}");

    // systemd finds mistakes in the unit, but not files that are missing here.
    let file = folder.join("import.service");
    let present = line.split(' ').next().unwrap();
    fs::write(&file, unit.replace(present, "/bin/true")).unwrap();
    let Ok(verified) = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&file)
        .output()
    else {
        println!("skipped: systemd-analyze is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    let found = said.lines().filter(|line| line.contains("import.service"));
    assert_eq!(found.collect::<Vec<_>>(), [""; 0]);
}

/// The newest holder's file stays the one that is read, although a late holder writes another.
#[test]
fn a_file_of_a_late_holder_is_not_read() {
    let masters = masters(3);
    let folder = configure(&masters);
    let (write, read) = block_of(FENCING, "sh").split_once("\nls ").unwrap();
    let write = write.replace(
        "quorlock run",
        &format!("{} run", env!("CARGO_BIN_EXE_quorlock")),
    );
    let shell = |script: &str| {
        let mut shell = Command::new("/bin/sh");
        let shell = shell.args(["-c", script]).current_dir(folder);
        let (status, out, err) = ended(shell.env("QUORLOCK_MASTERS", urls(&masters)));
        assert_eq!(err, "", "{script}");
        (status, out)
    };
    let newest = || {
        let (status, file) = shell(&format!("ls {read}"));
        assert_eq!(status, 0);
        file.trim_end().to_owned()
    };
    fs::write(folder.join("report.9"), "late").unwrap(); // as text, 9 comes after every token
    let job = folder.join("report");
    for text in ["first", "second"] {
        fs::write(&job, format!("#!/bin/sh\necho {text}\n")).unwrap();
        fs::set_permissions(&job, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(shell(&write), (0, String::new()));
        let file = folder.join(newest());
        assert_eq!(fs::read_to_string(file).unwrap(), format!("{text}\n"));
    }
    let before = newest();
    fs::write(&job, "#!/bin/sh\necho half; exit 1\n").unwrap();
    assert_eq!(shell(&write).0, 1);
    assert_eq!(newest(), before, "a file that is not whole is not read");
}

//! The masters: real servers, whose data and clocks can be tampered with.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::clock;
use crate::plan::{Episode, Storage};
use crate::random::Random;
use crate::server::{self, Server};

/// The longest time that a command of the drill may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A master. It is stopped or killed only by the drill.
#[derive(Debug)]
pub struct Master {
    pub server: Server,
    pub program: String,
    clock: Option<PathBuf>,
    ahead: i64,
    is_up: bool,
}

/// The server programs to use. If [`server::version`] finds programs of several versions, five of
/// them are drawn for each episode.
pub fn programs() -> Vec<Option<PathBuf>> {
    let names = [
        "redis-6.2",
        "redis-7.0",
        "redis-8.0",
        "redis-8.6",
        "valkey-8.0",
        "valkey-8.1",
        "valkey-9.1",
    ];
    let found: Vec<_> = names
        .into_iter()
        .filter_map(server::version)
        .map(Some)
        .collect();
    if found.is_empty() { vec![None] } else { found }
}

impl Master {
    /// Starts the master `index` of an episode. Its clock is right if there is no `shim`.
    pub fn start(
        episode: &Episode,
        index: usize,
        program: Option<&Path>,
        shim: Option<&Path>,
        directory: &Path,
    ) -> Result<Self> {
        let mut environment = Vec::new();
        let mut file = None;
        let (ahead, rate) = episode.clocks[index];
        let ahead = ahead * clock::MILLISECOND as i64;
        if let Some(shim) = shim {
            let path = directory.join(format!("clock-{index}"));
            let since = clock::now() as i64;
            fs::write(&path, [ahead, rate, since].map(i64::to_ne_bytes).concat())?;
            environment.push(("LD_PRELOAD", shim.to_owned()));
            environment.push(("QUORLOCK_DRILL_CLOCK", path.clone()));
            file = Some(path);
        }
        let options: &[&str] = match episode.storage[index] {
            Storage::Log => &["--appendonly", "yes", "--appendfsync", "everysec"],
            Storage::Durable => &["--appendonly", "yes", "--appendfsync", "always"],
            Storage::None | Storage::Snapshot => &[],
        };
        let name = program
            .and_then(Path::file_name)
            .unwrap_or_else(|| "the default server".as_ref());
        Ok(Self {
            server: Server::start_program(program, options, &environment),
            program: name.display().to_string(),
            clock: file,
            ahead,
            is_up: true,
        })
    }

    pub fn command(&self, words: &[&str]) -> Result<String> {
        Ok(self.server.try_command(words, TIMEOUT)?)
    }

    /// Returns whether the drill can change the clock.
    pub fn has_wrong_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// Sets the clock to `step` milliseconds more than at the start of the episode.
    pub fn step_clock(&self, step: i64) -> Result<()> {
        if let Some(path) = &self.clock {
            let ahead = self.ahead + step * clock::MILLISECOND as i64;
            let file = OpenOptions::new().write(true).open(path)?;
            file.write_all_at(&ahead.to_ne_bytes(), 0)?;
        }
        Ok(())
    }

    pub fn kill(&mut self) {
        self.server.kill();
        self.is_up = false;
    }

    /// Starts the server again, with the data that is there.
    pub fn restart(&mut self) {
        self.server.restart();
        self.is_up = true;
    }

    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Deletes all data of a server that is down.
    pub fn delete_data(&self) -> Result<()> {
        for file in self.data()? {
            fs::remove_file(file)?;
        }
        // A server without this folder starts empty. A server with an empty one does not start.
        let folder = self.server.directory().join("appendonlydir");
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        Ok(())
    }

    /// Cuts off the end of the log of a server that is down, or adds half a command to it.
    pub fn damage_log(&self, half_a_command: bool, detail: u64) -> Result<()> {
        let mut logs = self.data()?;
        logs.retain(|path| path.extension().is_some_and(|extension| extension == "aof"));
        let Some(path) = logs.last() else {
            return Err("the server has no log".into());
        };
        let mut log = OpenOptions::new().append(true).open(path)?;
        if half_a_command {
            log.write_all(b"*3\r\n$3\r\nSET\r\n$9\r\nhal")?;
        } else {
            let length = log.metadata()?.len();
            log.set_len(length - Random::new(detail).below(20_000).min(length))?;
        }
        Ok(())
    }

    /// Returns the snapshot and the logs, sorted by name.
    fn data(&self) -> Result<Vec<PathBuf>> {
        let directory = self.server.directory();
        let mut files = Vec::new();
        for folder in [directory.to_owned(), directory.join("appendonlydir")] {
            let Ok(entries) = fs::read_dir(folder) else {
                continue;
            };
            files.extend(
                entries
                    .map(|entry| Ok(entry?.path()))
                    .collect::<Result<Vec<_>>>()?,
            );
        }
        let kinds = ["aof", "manifest", "rdb"];
        files.retain(|path| {
            kinds
                .iter()
                .any(|kind| path.extension().is_some_and(|is| is == *kind))
        });
        files.sort();
        Ok(files)
    }
}

/// Compiles the library that makes the clocks of servers wrong. Returns `None` and says so where
/// that is not possible.
pub fn compile_shim(directory: &Path) -> Option<PathBuf> {
    if !cfg!(all(
        target_os = "linux",
        target_env = "gnu",
        target_pointer_width = "64"
    )) {
        println!("left out: wrong clocks, which need Linux with glibc");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wrong_clock.c");
    let path = directory.join("wrong_clock.so");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&path, &source])
        .status();
    if compiled.is_ok_and(|status| status.success()) {
        return Some(path);
    }
    println!("left out: wrong clocks, which need the C compiler cc");
    None
}

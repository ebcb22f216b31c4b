//! The masters: real servers, whose data and clocks can be tampered with.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::{
    random::Random,
    server::{self, Server},
};

use crate::Result;
use crate::clock::WrongClock;
use crate::plan::{Episode, Storage};

/// The longest time that a command of the drill may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A master. It is stopped or killed only by the drill.
#[derive(Debug)]
pub struct Master {
    pub server: Server,
    pub program: String,
    clock: Option<WrongClock>,
    is_up: bool,
    /// A replica of the master, if the plan demotes it.
    replica: Option<Server>,
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
        let mut clock = None;
        let (ahead, rate) = episode.clocks[index];
        if let Some(shim) = shim {
            let path = directory.join(format!("clock-{index}"));
            let wrong = WrongClock::new(path, ahead, rate)?;
            environment.extend(wrong.environment(shim));
            clock = Some(wrong);
        }
        let options: &[&str] = match episode.storage[index] {
            Storage::Log => &["--appendonly", "yes", "--appendfsync", "everysec"],
            Storage::None | Storage::Snapshot => &[],
        };
        let sync_at_once = ["--repl-diskless-sync-delay", "0"];
        let options = [options, &sync_at_once].concat();
        let server = Server::start_program(program, &options, &environment);
        let replica = (episode.demoted == index).then(|| {
            let port = server.port().to_string();
            let of = ["--replicaof", "127.0.0.1", &port];
            Server::start_program(program, &[&of, &sync_at_once[..]].concat(), &environment)
        });
        let name = program
            .and_then(Path::file_name)
            .unwrap_or_else(|| "the default server".as_ref());
        Ok(Self {
            server,
            program: name.display().to_string(),
            clock,
            is_up: true,
            replica,
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
        let clock = self.clock.as_ref();
        Ok(clock.map_or(Ok(()), |clock| clock.step(step))?)
    }

    /// Ends the server with SIGTERM, which lets it save what it keeps.
    pub fn terminate(&mut self) -> Result<()> {
        let pid = Pid::from_raw(self.server.pid().cast_signed()).ok_or("no process")?;
        kill_process(pid, Signal::TERM)?;
        // The process stays as a zombie until `kill` waits for it.
        let stat = format!("/proc/{}/stat", self.server.pid());
        wait_until(|| fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z ")));
        self.kill();
        Ok(())
    }

    /// Detaches the replica. From now on, it lacks what the master gets.
    pub fn freeze_replica(&self) -> Result<()> {
        let replica = self.replica.as_ref().ok_or("the master has no replica")?;
        if !wait_until(|| is_synced(replica)) {
            return Err("the replica does not get the data of its master".into());
        }
        replica.try_command(&["REPLICAOF", "NO", "ONE"], TIMEOUT)?;
        Ok(())
    }

    /// Makes the master a replica of its own replica, and then a master again after a while. It
    /// then lacks what the replica lacked, but is still the same process.
    pub fn follow_replica(&self, time: Duration) -> Result<()> {
        let replica = self.replica.as_ref().ok_or("the master has no replica")?;
        let of = |server: &Server| {
            let port = server.port().to_string();
            move |follower: &Server| {
                follower.try_command(&["REPLICAOF", "127.0.0.1", &port], TIMEOUT)
            }
        };
        of(replica)(&self.server)?;
        let is_done = wait_until(|| is_synced(&self.server));
        thread::sleep(time);
        self.command(&["REPLICAOF", "NO", "ONE"])?;
        of(&self.server)(replica)?;
        if is_done {
            Ok(())
        } else {
            Err("the master did not get the data of its replica".into())
        }
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
            // A server that is killed while it writes may leave half a command itself. It could not
            // read two of them.
            if fs::read(path)?.ends_with(b"\r\n") {
                log.write_all(b"*3\r\n$3\r\nSET\r\n$9\r\nhal")?;
            }
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

fn is_synced(follower: &Server) -> bool {
    let info = follower.try_command(&["INFO", "replication"], TIMEOUT);
    info.is_ok_and(|info| info.contains("master_link_status:up"))
}

/// Waits until `is_done`, and returns whether that happened in time.
fn wait_until(is_done: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !is_done() {
        if start.elapsed() > TIMEOUT {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
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

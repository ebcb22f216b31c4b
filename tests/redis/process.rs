//! Tests that need a process of their own, to be killed or suspended: the test itself once more.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::common::PATIENCE;

/// It goes when it is dropped.
pub(crate) struct Process {
    process: Child,
    output: mpsc::Receiver<String>,
}

impl Process {
    /// Runs `test` alone, which sees by `variables` that it is not the first.
    pub(crate) fn start(
        test: &str,
        variables: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--include-ignored"])
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, output) = mpsc::channel();
        read_in_background(process.stdout.take(), sender.clone());
        read_in_background(process.stderr.take(), sender);
        Self { process, output }
    }

    /// SIGKILL, and wait.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// SIGSTOP. Returns when it has stopped.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        let stat = format!("/proc/{}/stat", self.process.id());
        let start = Instant::now();
        while !fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(start.elapsed() < PATIENCE / 8, "it does not stop");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    /// Writes a line to its standard input.
    pub(crate) fn tell(&mut self) {
        let input = self.process.stdin.as_mut().unwrap();
        writeln!(input).unwrap();
    }

    /// Ends its standard input.
    pub(crate) fn close(&mut self) {
        self.process.stdin = None;
    }

    /// Whether it has ended, and not well.
    pub(crate) fn has_failed(&mut self) -> bool {
        let ended = self.process.try_wait().unwrap();
        ended.is_some_and(|status| !status.success())
    }

    /// Waits for its end, which must be a good one.
    pub(crate) fn finish(mut self) {
        let mut said = String::new();
        // Both outputs end when the process does, which has a bound of its own.
        while let Ok(part) = self.output.recv_timeout(PATIENCE) {
            said.push_str(&part);
        }
        self.process.kill().ok();
        let status = self.process.wait().unwrap();
        assert!(status.success() && said.contains("1 passed"), "{said}");
    }

    fn signal(&self, name: &str) {
        let status = Command::new("sh")
            .args(["-c", r#"kill -s "$1" "$2""#, "sh", name])
            .arg(self.process.id().to_string())
            .status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may be gone, and a test that panics must not leave it behind
        let _ = self.process.wait();
    }
}

fn read_in_background(pipe: Option<impl Read + Send + 'static>, to: mpsc::Sender<String>) {
    thread::spawn(move || {
        let said = pipe.map(io::read_to_string);
        let _ = to.send(said.and_then(Result::ok).unwrap_or_default());
    });
}

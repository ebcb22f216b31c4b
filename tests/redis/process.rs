//! Child processes that can be killed or suspended: each is a second run of a test.

use std::{
    env,
    ffi::OsString,
    fs,
    io::Write,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{child_output::output_of, common::TEST_TIMEOUT};

/// A child process, which is killed when this is dropped.
pub(crate) struct Process {
    process: Child,
    output: mpsc::Receiver<String>,
}

impl Process {
    /// Runs `test` alone in a child process, which recognizes itself by `variables`.
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
        let output = output_of(&mut process);
        Self { process, output }
    }

    /// Kills the process with SIGKILL, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Stops the process with SIGSTOP, and waits until it has stopped.
    pub(crate) fn pause(&self) {
        self.signal("STOP");
        let stat = format!("/proc/{}/stat", self.process.id());
        let start = Instant::now();
        while !fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(
                start.elapsed() < TEST_TIMEOUT / 8,
                "the process does not stop"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resumes the process with SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    /// Writes an empty line to its standard input.
    pub(crate) fn write_line(&mut self) {
        let input = self.process.stdin.as_mut().unwrap();
        writeln!(input).unwrap();
    }

    /// Closes its standard input.
    pub(crate) fn close_input(&mut self) {
        self.process.stdin = None;
    }

    /// Returns whether the process has failed.
    pub(crate) fn has_failed(&mut self) -> bool {
        let ended = self.process.try_wait().unwrap();
        ended.is_some_and(|status| !status.success())
    }

    /// Waits for the end of the process, which must be a success.
    pub(crate) fn finish(mut self) {
        let mut said = String::new();
        // Both outputs end with the process, which has a time limit of its own.
        while let Ok(part) = self.output.recv_timeout(TEST_TIMEOUT) {
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
        // the process may be gone, and a test that panics must not leave it running
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

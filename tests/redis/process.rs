//! Child processes that can be killed or suspended. Each is a second run of a test.

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

use testkit::child_output::output_of;

use crate::common::TEST_TIMEOUT;

/// A child process. It is killed when this value is dropped.
pub(crate) struct Process {
    process: Child,
    output: mpsc::Receiver<String>,
}

impl Process {
    /// Runs `test` alone in a child process. The environment `variables` tell the test that it runs
    /// in the child.
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

    /// Writes an empty line to the standard input of the process.
    pub(crate) fn write_line(&mut self) {
        let input = self.process.stdin.as_mut().unwrap();
        writeln!(input).unwrap();
    }

    /// Waits until the process ends. Fails if the process failed.
    pub(crate) fn finish(mut self) {
        let mut said = String::new();
        // Both outputs end with the process. The process has a time limit of its own.
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
        // A test that panics must not leave the process running. The process may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! Processes that a bench starts itself: its own program, with a role in the environment.

use std::env;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::load::Result;

/// A process of a bench. It is killed when this value is dropped.
pub struct Child {
    pub process: process::Child,
    stdin: ChildStdin,
    pub lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a process with this role in this variable.
    pub fn start(variable: &str, role: String) -> Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .env(variable, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = process.stdin.take().ok_or("no stdin")?;
        let stdout = process.stdout.take().ok_or("no stdout")?;
        Ok(Self {
            process,
            stdin,
            lines: BufReader::new(stdout).lines(),
        })
    }

    pub fn send_line(&mut self) -> Result<()> {
        Ok(self.stdin.write_all(b"\n")?)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a flag that is set when the parent of this process sends a line, or has ended.
pub fn over() -> Arc<AtomicBool> {
    let over = Arc::new(AtomicBool::new(false));
    let set = over.clone();
    thread::spawn(move || {
        let _ = io::stdin().lock().read_line(&mut String::new());
        set.store(true, Ordering::Release);
    });
    over
}

//! A program in a terminal.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use nix::pty::{Winsize, openpty};

/// A program in a terminal of 80 columns and 24 lines. The program is killed when this is dropped.
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// All that was shown, or all since the last [`shows`](Self::shows).
    pub shown: String,
}

impl Terminal {
    /// Starts a program. Returns `None`, and says so, if it is not installed.
    pub fn start(mut command: Command) -> Option<Self> {
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let inside = || OwnedFd::try_clone(&pty.slave).unwrap();
        command.env("TERM", "xterm");
        command.stdin(inside()).stdout(inside()).stderr(inside());
        let Ok(child) = command.spawn() else {
            println!("skipped: {:?} is not installed", command.get_program());
            return None;
        };
        drop((pty.slave, command));
        let keyboard = File::from(pty.master);
        let mut reader = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A terminal without a program is an error.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                let _ = sender.send(buffer[..length].to_vec());
            }
        });
        Some(Self {
            child,
            keyboard,
            screen,
            shown: String::new(),
        })
    }

    /// Waits until `text` is shown.
    #[track_caller]
    pub fn until(&mut self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.shown.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("no {text:?} in {}", self.shown),
            }
        }
    }

    /// Waits until `text` is shown, and forgets it with all that was shown before.
    #[track_caller]
    pub fn shows(&mut self, text: &str) {
        self.until(text);
        let (_, rest) = self.shown.split_once(text).unwrap();
        self.shown = rest.to_owned();
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end. Returns the exit status.
    pub fn ended(&mut self) -> i32 {
        let status = self.child.wait().unwrap().code().unwrap();
        while let Ok(bytes) = self.screen.recv_timeout(Duration::from_secs(5)) {
            self.shown.push_str(&String::from_utf8_lossy(&bytes));
        }
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

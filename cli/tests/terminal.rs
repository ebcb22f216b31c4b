//! Runs the program in a terminal of 80 columns and 24 lines.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

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

#[path = "../../examples/support/server.rs"]
mod server;

use server::{Server, masters};

/// A program in a terminal.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// All bytes so far.
    shown: String,
}

impl Terminal {
    fn start(masters: &[Server], words: &[&str], no_colour: &str) -> Self {
        let urls: Vec<_> = masters.iter().map(Server::url).collect();
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).unwrap();
        let inside = || OwnedFd::try_clone(&pty.slave).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_quorlock"))
            .args(words)
            .env("QUORLOCK_MASTERS", urls.join(","))
            .env("NO_COLOR", no_colour)
            .env("TERM", "xterm")
            .stdin(inside())
            .stdout(inside())
            .stderr(inside())
            .spawn()
            .unwrap();
        drop(pty.slave);
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
        Self {
            child,
            keyboard,
            screen,
            shown: String::new(),
        }
    }

    /// Reads until `part` is shown.
    #[track_caller]
    fn until(&mut self, part: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.shown.contains(part) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("no {part:?} in {}", self.shown),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let killed = Command::new("kill").args(["-s", name, &id]).status();
        assert!(killed.unwrap().success());
    }

    /// Waits for the end. Returns the exit status.
    fn ended(&mut self) -> i32 {
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

fn write_mutex(masters: &[Server], token: &str) {
    for master in masters {
        master.command(&["SET", "job", token, "PX", "60000"]);
    }
}

#[track_caller]
fn all_have(masters: &[Server], token: &str) {
    for master in masters {
        assert_eq!(master.command(&["GET", "job"]), token);
    }
}

#[test]
fn a_break_asks_and_takes_no_for_an_answer() {
    let masters = masters(3);
    write_mutex(&masters, "t");
    for answer in ["no\n", "\n", "y\n", "\x04"] {
        let mut terminal = Terminal::start(&masters, &["break", "job"], "");
        terminal.until("Type yes: ");
        terminal.press(answer);
        assert_eq!(terminal.ended(), 64, "{answer:?}: {}", terminal.shown);
        assert!(
            terminal.shown.contains("nothing was broken"),
            "{}",
            terminal.shown
        );
        all_have(&masters, "t");
    }
}

#[test]
fn a_break_shows_what_it_destroys_before_it_asks() {
    let masters = masters(3);
    write_mutex(&masters, "t");
    let mut terminal = Terminal::start(&masters, &["break", "job"], "1");
    terminal.until("Type yes: ");
    assert!(
        terminal.shown.starts_with("job  held as a mutex, 5"),
        "{}",
        terminal.shown
    );
    assert!(
        terminal.shown.contains("works on beside the next holder"),
        "{}",
        terminal.shown
    );
    all_have(&masters, "t");
    terminal.press("yes\n");
    assert_eq!(terminal.ended(), 0, "{}", terminal.shown);
    assert_eq!(
        terminal.shown.matches("  broken\r\n").count(),
        3,
        "{}",
        terminal.shown
    );
    assert!(
        masters
            .iter()
            .all(|master| master.command(&["EXISTS", "job"]) == "0")
    );
}

#[test]
fn a_break_leaves_the_lock_to_a_newer_holder() {
    let masters = masters(3);
    write_mutex(&masters, "old");
    let mut terminal = Terminal::start(&masters, &["break", "job"], "");
    terminal.until("Type yes: ");
    write_mutex(&masters, "new");
    terminal.press("yes\n");
    assert_eq!(terminal.ended(), 75, "{}", terminal.shown);
    assert_eq!(
        terminal.shown.matches("kept by a newer holder").count(),
        3,
        "{}",
        terminal.shown
    );
    all_have(&masters, "new");
}

#[test]
fn a_watch_draws_in_place_and_restores_the_terminal() {
    let masters = masters(3);
    let mut terminal = Terminal::start(
        &masters,
        &["status", "job", "--watch", "--interval", "100ms"],
        "",
    );
    terminal.until("\x1b[?1049h"); // another screen
    terminal.until("3 of 3 masters can vote");
    write_mutex(&masters, "t");
    terminal.until("held as a mutex");
    for picture in terminal.shown.split("\x1b[H").skip(1) {
        assert!(picture.matches("\r\n").count() < 24, "{picture:?}");
    }
    terminal.signal("INT");
    assert_eq!(terminal.ended(), 130);
    assert!(
        terminal.shown.ends_with("\x1b[?25h\x1b[?1049l"),
        "{:?}",
        terminal.shown
    );
}

#[test]
fn a_watch_that_is_stopped_gives_back_the_screen() {
    let masters = masters(3);
    let mut terminal = Terminal::start(&masters, &["status", "job", "--watch"], "");
    terminal.until("3 of 3 masters can vote");
    terminal.signal("TSTP");
    terminal.until("\x1b[?25h\x1b[?1049l");
    terminal.shown.clear();
    terminal.signal("CONT");
    terminal.until("\x1b[?1049h"); // another screen again
    terminal.until("3 of 3 masters can vote");
    terminal.signal("TERM");
    assert_eq!(terminal.ended(), 143);
}

#[test]
fn colours_are_for_terminals_and_not_with_no_color() {
    let masters = masters(3);
    for (no_colour, has_colour) in [("", true), ("1", false)] {
        let mut terminal = Terminal::start(&masters, &["status", "job"], no_colour);
        assert_eq!(terminal.ended(), 0);
        assert_eq!(
            terminal.shown.contains("\x1b["),
            has_colour,
            "{:?}",
            terminal.shown
        );
        assert!(terminal.shown.contains("job"), "{}", terminal.shown);
    }
}

#[test]
fn long_lines_are_cut_at_the_edge_of_the_terminal() {
    let mut masters = masters(3);
    masters[0].kill();
    let mut terminal = Terminal::start(&masters, &["status", "job"], "1");
    assert_eq!(terminal.ended(), 0);
    assert!(terminal.shown.contains("no answer: "), "{}", terminal.shown);
    for line in terminal.shown.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{line}");
    }
}

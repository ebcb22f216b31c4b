//! The log of a client: one line for each event, written before the client does anything else.

use std::fmt;

use crate::clock::Nanos;
use crate::locks::LockNumber;

/// An event. `op` is the number of a client's operation. All events of an operation have it.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// All masters have granted a lock to the client.
    Ready,
    /// The client asks for a lock. The call should return at `due`.
    Asked {
        op: u64,
        at: Nanos,
        lock: LockNumber,
        /// The wall clock time in microseconds.
        came: u64,
        due: Nanos,
    },
    /// The client did not get the lock.
    Failed { op: u64, at: Nanos, why: String },
    /// The client has the lock.
    Got {
        op: u64,
        at: Nanos,
        valid_until: Nanos,
        token: Option<u64>,
        owner: String,
    },
    /// The client is about to release the lock, or has noticed that it has lost it.
    Ended {
        op: u64,
        at: Nanos,
        valid_until: Nanos,
    },
    /// The release has returned. It should have returned at `due`.
    Freed { op: u64, at: Nanos, due: Nanos },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "ready"),
            Self::Asked {
                op,
                at,
                lock,
                came,
                due,
            } => write!(f, "asked {op} {at} {} {came} {due}", lock.0),
            Self::Failed { op, at, why } => write!(f, "failed {op} {at} {why}"),
            Self::Got {
                op,
                at,
                valid_until,
                token,
                owner,
            } => {
                let token = token.unwrap_or_default(); // no token is 0
                write!(f, "got {op} {at} {valid_until} {token} {owner}")
            }
            Self::Ended {
                op,
                at,
                valid_until,
            } => write!(f, "ended {op} {at} {valid_until}"),
            Self::Freed { op, at, due } => write!(f, "freed {op} {at} {due}"),
        }
    }
}

impl Note {
    /// Parses a line. Returns `None` for a line that is not a note, such as one that was cut when
    /// its client was killed.
    pub fn parse(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<_> = rest.split(' ').collect();
        let number = |index: usize| words.get(index)?.parse::<u64>().ok();
        Some(match (word, words.len()) {
            ("ready", _) => Self::Ready,
            ("asked", 5) => Self::Asked {
                op: number(0)?,
                at: number(1)?,
                lock: LockNumber(number(2)? as usize),
                came: number(3)?,
                due: number(4)?,
            },
            ("failed", 3) => Self::Failed {
                op: number(0)?,
                at: number(1)?,
                why: words[2].to_owned(),
            },
            ("got", 5) => Self::Got {
                op: number(0)?,
                at: number(1)?,
                valid_until: number(2)?,
                token: number(3).filter(|token| *token != 0),
                owner: words[4].to_owned(),
            },
            ("ended", 3) => Self::Ended {
                op: number(0)?,
                at: number(1)?,
                valid_until: number(2)?,
            },
            ("freed", 3) => Self::Freed {
                op: number(0)?,
                at: number(1)?,
                due: number(2)?,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let (op, at, due, valid_until) = (7, 1_000, 2_000, 3_000);
        let notes = [
            Note::Ready,
            Note::Asked {
                op,
                at,
                lock: LockNumber(11),
                came: 5,
                due,
            },
            Note::Failed {
                op,
                at,
                why: "NoQuorum".to_owned(),
            },
            Note::Got {
                op,
                at,
                valid_until,
                token: Some(9),
                owner: "id:1".to_owned(),
            },
            Note::Got {
                op,
                at,
                valid_until,
                token: None,
                owner: "-".to_owned(),
            },
            Note::Ended {
                op,
                at,
                valid_until,
            },
            Note::Freed { op, at, due },
        ];
        for note in notes {
            assert_eq!(Note::parse(&note.to_string()), Some(note));
        }
        assert_eq!(Note::parse("got 7 1000 30"), None);
    }
}

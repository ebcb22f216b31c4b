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
        /// Set if others may read at the same time.
        reads: bool,
    },
    /// The client did not get the lock.
    Failed { op: u64, at: Nanos, why: String },
    /// The client has the lock.
    Got {
        op: u64,
        at: Nanos,
        /// The start of the round that won the lock.
        asked: Nanos,
        /// The end of the validity. A command does not know it, so this is `at`.
        valid_until: Nanos,
        /// The end of the minimum time. 0 if there is none.
        hold_until: Nanos,
        token: Option<u64>,
        /// The slot of a permit of a semaphore.
        slot: Option<usize>,
        owner: String,
    },
    /// The client extended the lock. The call should have returned at `due`.
    Extended {
        op: u64,
        from: Nanos,
        at: Nanos,
        due: Nanos,
    },
    /// The client is about to release the lock, or has noticed that it has lost it. Or a command
    /// still runs under the lock.
    Ended {
        op: u64,
        at: Nanos,
        valid_until: Nanos,
    },
    /// The release has returned. It should have returned at `due`.
    Freed {
        op: u64,
        at: Nanos,
        due: Nanos,
        /// Set if the release succeeded for a guard that was still valid.
        is_kept: bool,
    },
    /// The client got a lock that no one else uses.
    Probed { at: Nanos },
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
                reads,
            } => write!(
                f,
                "asked {op} {at} {} {came} {due} {}",
                lock.0,
                u8::from(*reads)
            ),
            Self::Failed { op, at, why } => write!(f, "failed {op} {at} {why}"),
            Self::Got {
                op,
                at,
                asked,
                valid_until,
                hold_until,
                token,
                slot,
                owner,
            } => {
                // No token is 0, and no slot is 0.
                let (token, slot) = (token.unwrap_or_default(), slot.map_or(0, |slot| slot + 1));
                write!(
                    f,
                    "got {op} {at} {asked} {valid_until} {hold_until} {token} {slot} {owner}"
                )
            }
            Self::Ended {
                op,
                at,
                valid_until,
            } => write!(f, "ended {op} {at} {valid_until}"),
            Self::Extended { op, from, at, due } => write!(f, "extended {op} {from} {at} {due}"),
            Self::Freed {
                op,
                at,
                due,
                is_kept,
            } => write!(f, "freed {op} {at} {due} {}", u8::from(*is_kept)),
            Self::Probed { at } => write!(f, "probed {at}"),
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
            ("asked", 6) => Self::Asked {
                op: number(0)?,
                at: number(1)?,
                lock: LockNumber(number(2)? as usize),
                came: number(3)?,
                due: number(4)?,
                reads: number(5)? == 1,
            },
            ("failed", 3) => Self::Failed {
                op: number(0)?,
                at: number(1)?,
                why: words[2].to_owned(),
            },
            ("got", 8) => Self::Got {
                op: number(0)?,
                at: number(1)?,
                asked: number(2)?,
                valid_until: number(3)?,
                hold_until: number(4)?,
                token: number(5).filter(|token| *token != 0),
                slot: (number(6)? as usize).checked_sub(1),
                owner: words[7].to_owned(),
            },
            ("extended", 4) => Self::Extended {
                op: number(0)?,
                from: number(1)?,
                at: number(2)?,
                due: number(3)?,
            },
            ("probed", 1) => Self::Probed { at: number(0)? },
            ("ended", 3) => Self::Ended {
                op: number(0)?,
                at: number(1)?,
                valid_until: number(2)?,
            },
            ("freed", 4) => Self::Freed {
                op: number(0)?,
                at: number(1)?,
                due: number(2)?,
                is_kept: number(3)? == 1,
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
                reads: true,
            },
            Note::Failed {
                op,
                at,
                why: "NoQuorum".to_owned(),
            },
            Note::Got {
                op,
                at,
                asked: 500,
                valid_until,
                hold_until: 4_000,
                token: Some(9),
                slot: Some(0),
                owner: "id:1".to_owned(),
            },
            Note::Got {
                op,
                at,
                asked: 500,
                valid_until,
                hold_until: 0,
                token: None,
                slot: None,
                owner: "-".to_owned(),
            },
            Note::Ended {
                op,
                at,
                valid_until,
            },
            Note::Extended {
                op,
                from: 900,
                at,
                due,
            },
            Note::Freed {
                op,
                at,
                due,
                is_kept: true,
            },
            Note::Probed { at },
        ];
        for note in notes {
            assert_eq!(Note::parse(&note.to_string()), Some(note));
        }
        assert_eq!(Note::parse("got 7 1000 30"), None);
    }
}

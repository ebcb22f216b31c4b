//! What one master does: the scripts of the read-write lock.

use std::fmt;

use super::Broken;

/// What an entry of a client says on a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Form {
    #[default]
    Nothing,
    Reads,
    Writes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) form: Form,
    pub(super) attempt: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Vote {
    #[default]
    None,
    Grant,
    Refuse,
}

/// A master, and what the clients have of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Master<const C: usize> {
    pub(super) entries: [Entry; C],
    /// The number of readers, for a rule that only counts them.
    pub(super) readers: u8,
    /// The tickets in both queues, one bit for each. A lower bit is an earlier ticket.
    pub(super) tickets: u8,
    pub(super) is_quarantined: bool,
    /// The answers to the round of each client.
    pub(super) votes: [Vote; C],
    /// Whether the lease of each client counts on this master.
    pub(super) counted: [bool; C],
    /// For each client in a round: the clients that were queued before it here when its round
    /// began, and have been since. One bit for each.
    pub(super) ahead: [u8; C],
}

/// Shows the entries, each with its attempt, and `*` if a lease counts on it. The tickets follow.
impl<const C: usize> fmt::Debug for Master<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_quarantined {
            "[quarantine "
        } else {
            "["
        })?;
        for (client, Entry { form, attempt }) in self.entries.iter().enumerate() {
            if *form != Form::Nothing {
                write!(f, "{client} {form:?} {attempt}")?;
            }
            f.write_str(if self.counted[client] { "* " } else { " " })?;
            if self.votes[client] != Vote::None {
                write!(f, "{client} got {:?} ", self.votes[client])?;
            }
        }
        write!(f, "| {:b}]", self.tickets)
    }
}

/// The caller of a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) client: usize,
    pub(super) attempt: u8,
    /// The bit of its ticket.
    pub(super) ticket: u8,
    pub(super) writes: bool,
}

/// The rules by which all masters decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) broken: Broken,
    /// The bits of the tickets of writers.
    pub(super) write_tickets: u8,
}

impl<const C: usize> Master<C> {
    pub(super) const EMPTY: Self = Self {
        entries: [Entry {
            form: Form::Nothing,
            attempt: 0,
        }; C],
        readers: 0,
        tickets: 0,
        is_quarantined: false,
        votes: [Vote::None; C],
        counted: [false; C],
        ahead: [0; C],
    };

    /// Returns all fields as one number.
    pub(super) fn packed(&self) -> u64 {
        let mut packed = u64::from(self.tickets) << 4
            | u64::from(self.readers) << 1
            | u64::from(self.is_quarantined);
        for client in 0..C {
            let Entry { form, attempt } = self.entries[client];
            packed = packed << 5 | u64::from(attempt) << 2 | form as u64;
            packed = packed << 3 | (self.votes[client] as u64) << 1;
            packed |= u64::from(self.counted[client]);
            packed = packed << 4 | u64::from(self.ahead[client]);
        }
        packed
    }

    pub(super) fn has_writer(&self) -> bool {
        self.entries.iter().any(|entry| entry.form == Form::Writes)
    }

    fn has_reader(&self) -> bool {
        self.readers > 0 || self.entries.iter().any(|entry| entry.form == Form::Reads)
    }

    fn has_other_reader(&self, me: usize) -> bool {
        let others = self.entries.iter().enumerate();
        let mut others = others.filter(|(client, _)| *client != me);
        others.any(|(_, entry)| entry.form == Form::Reads)
    }

    fn put(&mut self, by: Caller, form: Form) {
        self.entries[by.client] = Entry {
            form,
            attempt: by.attempt,
        };
    }

    /// Takes the lock, or queues the caller if `queues`.
    pub(super) fn acquire(&mut self, rules: Rules, by: Caller, queues: bool) -> bool {
        let form = if by.writes { Form::Writes } else { Form::Reads };
        let mine = self.entries[by.client];
        let keeps_read = rules.broken == Broken::UpgradeInPlace && mine.form == Form::Reads;
        if mine.form != Form::Nothing && !keeps_read {
            if mine.attempt == by.attempt {
                return mine.form == form;
            }
            if mine.attempt > by.attempt {
                return false;
            }
            if rules.broken == Broken::OldEntryPasses && mine.form == form {
                self.put(by, form);
                self.tickets &= !by.ticket;
                return true;
            }
            // The entry of an earlier attempt gives no right.
            self.entries[by.client] = Entry::default();
        }
        if queues {
            self.tickets |= by.ticket;
        }
        let mut before = self.tickets & !by.ticket;
        if queues {
            before &= by.ticket - 1;
        }
        let is_free = if by.writes {
            let has_reader = match keeps_read {
                true => self.has_other_reader(by.client),
                false => self.has_reader(),
            };
            !self.has_writer() && !has_reader
        } else {
            before &= rules.write_tickets;
            !self.has_writer()
        };
        if rules.broken == Broken::NoMark && !by.writes {
            before = 0;
        }
        if !is_free || before != 0 {
            return false;
        }
        self.tickets &= !by.ticket;
        if rules.broken == Broken::CountedReaders && !by.writes {
            self.readers = (self.readers + 1).min(3);
        } else {
            self.put(by, form);
        }
        true
    }

    /// Extends what the caller has, as a reader or a writer.
    pub(super) fn extend(&mut self, rules: Rules, by: Caller) -> bool {
        let mine = self.entries[by.client];
        let is_mine = mine.attempt == by.attempt;
        if rules.broken == Broken::CountedReaders && !by.writes && self.readers > 0 {
            return true;
        }
        match (mine.form, by.writes) {
            (Form::Reads, false) | (Form::Writes, true) if is_mine => true,
            (Form::Writes, false) if is_mine => {
                self.put(by, Form::Reads);
                true
            }
            (Form::Nothing, _) if rules.broken == Broken::ExtensionRevives => {
                self.heal(rules, by);
                self.entries[by.client].form != Form::Nothing
            }
            (Form::Nothing, false) if rules.broken == Broken::RefreshBesideWriter => {
                self.put(by, Form::Reads);
                true
            }
            _ => false,
        }
    }

    /// Puts the caller back, past the queues.
    pub(super) fn heal(&mut self, rules: Rules, by: Caller) {
        let mine = self.entries[by.client];
        if mine.form != Form::Nothing && mine.attempt >= by.attempt {
            if mine.form == Form::Writes && !by.writes && mine.attempt == by.attempt {
                self.put(by, Form::Reads);
            }
            return;
        }
        self.entries[by.client] = Entry::default();
        let heals_beside = rules.broken == Broken::HealBesideReader;
        match by.writes {
            true if !self.has_writer() && (heals_beside || !self.has_reader()) => {
                self.put(by, Form::Writes);
            }
            false if !self.has_writer() => self.put(by, Form::Reads),
            _ => {}
        }
    }

    /// Removes what the caller has, and its ticket.
    pub(super) fn release(&mut self, rules: Rules, by: Caller) {
        self.remove(rules, by);
        self.tickets &= !by.ticket;
    }

    /// Removes what the caller has. Puts the caller back into the queue if it `queues`.
    pub(super) fn give_back(&mut self, rules: Rules, by: Caller, queues: bool) {
        if self.remove(rules, by) && queues {
            self.tickets |= by.ticket;
        }
    }

    fn remove(&mut self, rules: Rules, by: Caller) -> bool {
        if rules.broken == Broken::CountedReaders && !by.writes {
            let is_one = self.readers > 0;
            self.readers = self.readers.saturating_sub(1);
            return is_one;
        }
        let mine = self.entries[by.client];
        let is_mine = mine.attempt <= by.attempt || rules.broken == Broken::LateRelease;
        let is_held = mine.form != Form::Nothing;
        if is_held && is_mine {
            self.entries[by.client] = Entry::default();
        }
        is_held && is_mine
    }

    /// Removes a holder that an inspection has shown.
    pub(super) fn break_held(&mut self, rules: Rules, client: usize) {
        let mine = &mut self.entries[client];
        let is_held = mine.form != Form::Nothing;
        *mine = Entry::default();
        if is_held && rules.broken == Broken::BreakDeletesKey {
            self.entries = [Entry::default(); C];
        }
    }
}

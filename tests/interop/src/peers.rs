//! The other libraries, and which lock of theirs matches which lock of this crate.

use std::collections::HashMap;

use crate::build::{Language, NotRun, in_rust};
use crate::process::Program;

/// A lock of another library, and the lock of this crate that it matches.
#[derive(Debug)]
pub struct Peer {
    pub product: &'static str,
    pub lock: &'static str,
    language: Language,
    /// The kind of lock, as the program calls it.
    kind: &'static str,
    /// The kind of lock that this crate uses: `mutex` or `reentrant`.
    pub ours: &'static str,
    pub template: &'static str,
    /// The number of masters that both sides use.
    pub masters: usize,
}

/// The commands that start the programs that were built so far.
#[derive(Debug, Default)]
pub struct Built(HashMap<Language, Result<Vec<String>, NotRun>>);

const RSLOCK: Peer = Peer {
    product: "rslock",
    lock: "`LockManager`",
    language: Language::Rust,
    kind: "mutex",
    ours: "mutex",
    template: "{name}",
    masters: 5,
};

const RED_LOCK: Peer = Peer {
    product: "Redisson",
    lock: "`RedissonRedLock`",
    language: Language::Java,
    kind: "redlock",
    ours: "reentrant",
    ..RSLOCK
};

pub const PEERS: [Peer; 6] = [
    RSLOCK,
    Peer {
        product: "redsync",
        lock: "`Mutex`",
        language: Language::Go,
        ..RSLOCK
    },
    Peer {
        product: "node-redlock",
        lock: "`Redlock`",
        language: Language::Node,
        ..RSLOCK
    },
    Peer {
        product: "pottery",
        lock: "`Redlock`",
        language: Language::Python,
        template: "redlock:{name}",
        ..RSLOCK
    },
    RED_LOCK,
    Peer {
        lock: "`RLock`",
        kind: "rlock",
        masters: 1,
        ..RED_LOCK
    },
];

impl Peer {
    /// Returns a name for messages and for `--only`.
    pub fn name(&self) -> String {
        format!("{} {}", self.product, self.lock.trim_matches('`'))
    }

    /// Builds the program of this peer, unless another peer uses the same program.
    pub fn program(&self, built: &mut Built) -> Result<Program, NotRun> {
        let command = built
            .0
            .entry(self.language)
            .or_insert_with(|| self.language.build());
        let mut command = command.clone()?;
        command.push(self.kind.to_owned());
        Ok(Program {
            name: self.name(),
            command,
        })
    }

    /// Returns the program of this crate with the matching kind of lock.
    pub fn ours(&self) -> Program {
        ours(self.ours, self.template)
    }

    /// Returns the same program with waiters that poll.
    pub fn ours_that_polls(&self) -> Program {
        ours(&format!("polling {}", self.ours), self.template)
    }

    /// Returns the program of this crate with a kind of lock that does not match.
    pub fn ours_as_other_kind(&self) -> Program {
        let other = match self.ours {
            "mutex" => "reentrant",
            _ => "mutex",
        };
        ours(other, self.template)
    }
}

/// Returns the program of this crate. If `kind` begins with `polling`, its waiters poll.
pub fn ours(kind: &str, template: &str) -> Program {
    Program {
        name: format!("quorlock {kind}"),
        command: [in_rust("quorlock"), vec![format!("{kind}@{template}")]].concat(),
    }
}

/// Returns the program of a lock with known faults.
pub fn faulty() -> Program {
    Program {
        name: "the faulty lock".to_owned(),
        command: [in_rust("faulty"), vec!["mutex".to_owned()]].concat(),
    }
}

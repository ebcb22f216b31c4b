//! Commands and scripts on keys alone, without a server.

use std::mem;

use super::{
    commands::{call, execute},
    database::Database,
    effect::Effect,
    keyspace::Keyspace,
    lua,
    reply::Reply,
    script::Script,
};

/// What a command or a script has done to a keyspace.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ran {
    /// The reply.
    pub reply: Reply,
    /// The keys that were written or deleted, in the order of the changes.
    pub changed: Vec<Vec<u8>>,
    /// The channels and texts of the messages that were published.
    pub published: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Keyspace {
    /// Executes a command, such as `["GET", "key"]`. `micros` is the time of the server. No
    /// script is loaded, and there are no connections.
    pub fn run<W: AsRef<[u8]>>(&mut self, words: &[W], micros: u64) -> Ran {
        let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        self.with(micros, |database| execute(database, &words))
    }

    /// Runs a script. `micros` is the time of the server.
    pub fn eval<W: AsRef<[u8]>>(
        &mut self,
        script: &Script,
        keys: &[W],
        arguments: &[W],
        micros: u64,
    ) -> Ran {
        let words: Vec<_> = keys.iter().chain(arguments).map(AsRef::as_ref).collect();
        self.with(micros, |database| {
            lua::run(database, script, (&words, keys.len()), call)
        })
    }

    fn with(&mut self, micros: u64, run: impl FnOnce(&mut Database) -> Reply) -> Ran {
        let mut database = Database {
            keys: mem::take(self),
            micros,
            ..Database::default()
        };
        let reply = run(&mut database);
        *self = database.keys;
        let (mut changed, mut published) = (Vec::new(), Vec::new());
        for effect in database.effects {
            match effect {
                Effect::Changed(key) => changed.push(key),
                Effect::Published(channel, text) => published.push((channel, text)),
                Effect::Flushed { .. } | Effect::Read(_) => {}
            }
        }
        Ran {
            reply,
            changed,
            published,
        }
    }
}

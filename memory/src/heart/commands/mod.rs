//! The commands. Each is executed by the function with its name.

mod client;
mod connection;
mod hashes;
mod keys;
mod scripts;
mod server;
mod sorted_sets;
mod strings;
mod words;

use self::words::arity;
use super::{
    about::{About, Version},
    connections::Tracking,
    database::{Answer, Database, Error, Run, Words},
    effect::Effect,
    reply::Reply,
};

/// A command.
#[derive(Clone, Copy)]
pub(super) struct Command {
    name: &'static str,
    /// The number of words, with the name. A negative number stands for the least number of words.
    arity: i32,
    /// Which words are keys that the command reads and does not write.
    reads: Reads,
    is_for_scripts: bool,
    /// The only version that has the command. `None` if all versions have it.
    version: Option<Version>,
    /// Set if the command is about the connection that sends it.
    pub(super) is_about_connection: bool,
    run: Run,
}

#[derive(Clone, Copy)]
enum Reads {
    All,
    First,
    No,
}

/// The reason why a command is not executed.
pub(super) enum Missing {
    Arity(&'static str),
    /// The user has no right to a command with this name.
    Denied(String),
    Unknown,
}

impl Command {
    /// Finds the command that the first word names, if it may have these words.
    pub(super) fn find(words: Words<'_>, about: &About) -> Result<&'static Self, Missing> {
        let name = words.first().copied().unwrap_or_default();
        let by_name = |command: &Self| {
            let theirs = name.iter().map(u8::to_ascii_uppercase);
            command.name.bytes().cmp(theirs)
        };
        let found = COMMANDS.binary_search_by(by_name);
        let command = &COMMANDS[found.map_err(|_| Missing::Unknown)?];
        if command.version.is_some_and(|only| only != about.version) {
            return Err(Missing::Unknown);
        }
        let (count, least) = (words.len(), command.arity.unsigned_abs() as usize);
        if count < least || command.arity > 0 && count > least {
            return Err(Missing::Arity(command.name));
        }
        if !about.denied.is_empty() {
            let mut name = command.name.to_lowercase();
            if let (true, Some(sub)) = (HAVE_SUBCOMMANDS.contains(&command.name), words.get(1)) {
                name = format!("{name}|{}", String::from_utf8_lossy(sub).to_lowercase());
            }
            if !about.allows(&name) {
                return Err(Missing::Denied(name));
            }
        }
        Ok(command)
    }

    /// Returns whether a connection that is not logged in may send the command.
    pub(super) fn is_for_strangers(&self) -> bool {
        matches!(self.name, "AUTH" | "HELLO" | "QUIT")
    }

    /// Executes the command. Notes the keys that it has read, if the caller tracks them.
    pub(super) fn run(&self, database: &mut Database, words: Words<'_>) -> Answer {
        let answer = (self.run)(database, words);
        let tracking = database.client().map(|client| client.tracking);
        if let Some(Tracking::All | Tracking::Next) = tracking {
            let read = self.read_keys(words).iter();
            let read = read.map(|key| Effect::Read(key.to_vec()));
            database.effects.extend(read);
        }
        answer
    }

    /// Returns the keys that the command reads and does not write.
    fn read_keys<'a>(&self, words: Words<'a>) -> Words<'a> {
        match self.reads {
            Reads::All => &words[1..],
            Reads::First => &words[1..2],
            Reads::No => &[],
        }
    }

    /// A command that writes, or has no keys.
    const fn data(name: &'static str, arity: i32, run: Run) -> Self {
        Self {
            name,
            arity,
            reads: Reads::No,
            is_for_scripts: true,
            version: None,
            is_about_connection: false,
            run,
        }
    }

    /// A command that reads its first key.
    const fn read(name: &'static str, arity: i32, run: Run) -> Self {
        let mut command = Self::data(name, arity, run);
        command.reads = Reads::First;
        command
    }

    /// A command whose words are all keys that it reads.
    const fn read_all(name: &'static str, run: Run) -> Self {
        let mut command = Self::data(name, -2, run);
        command.reads = Reads::All;
        command
    }

    /// A command that scripts may not call.
    const fn outside(name: &'static str, arity: i32, run: Run) -> Self {
        let mut command = Self::data(name, arity, run);
        command.is_for_scripts = false;
        command
    }

    /// A command about the connection that sends it.
    const fn connection(name: &'static str, arity: i32, run: Run) -> Self {
        let mut command = Self::outside(name, arity, run);
        command.is_about_connection = true;
        command
    }

    const fn only(mut self, version: Version) -> Self {
        self.version = Some(version);
        self
    }
}

/// The commands whose rights are those of their subcommands.
const HAVE_SUBCOMMANDS: [&str; 3] = ["CLIENT", "CONFIG", "SCRIPT"];

/// All commands, in the order of their names.
const COMMANDS: &[Command] = &[
    Command::connection("AUTH", -2, connection::auth),
    Command::connection("CLIENT", -2, client::run),
    Command::outside("CONFIG", -2, server::config),
    Command::data("DBSIZE", 1, keys::dbsize),
    Command::data("DECR", 2, strings::decr),
    Command::data("DEL", -2, keys::del),
    Command::data("DELEX", 4, strings::delex).only(Version::Redis8),
    Command::data("DELIFEQ", 3, strings::delifeq).only(Version::Valkey9),
    Command::data("ECHO", 2, server::echo),
    Command::outside("EVAL", -3, |db, words| scripts::eval(db, words, call)),
    Command::outside("EVALSHA", -3, |db, words| scripts::evalsha(db, words, call)),
    Command::read_all("EXISTS", keys::exists),
    Command::data("EXPIRE", 3, keys::expire),
    Command::data("FLUSHALL", -1, keys::flushall),
    Command::data("FLUSHDB", -1, keys::flushdb),
    Command::read("GET", 2, strings::get),
    Command::data("HDEL", -3, hashes::hdel),
    Command::connection("HELLO", -1, connection::hello),
    Command::read("HEXISTS", 3, hashes::hexists),
    Command::read("HGET", 3, hashes::hget),
    Command::read("HGETALL", 2, hashes::hgetall),
    Command::read("HLEN", 2, hashes::hlen),
    Command::read("HMGET", -3, hashes::hmget),
    Command::data("HSET", -4, hashes::hset),
    Command::data("INCR", 2, strings::incr),
    Command::data("INCRBY", 3, strings::incrby),
    Command::data("INFO", -1, server::info),
    Command::data("KEYS", 2, keys::keys),
    Command::read_all("MGET", strings::mget),
    Command::data("PEXPIRE", 3, keys::pexpire),
    Command::data("PING", -1, server::ping),
    Command::read("PTTL", 2, keys::pttl),
    Command::data("PUBLISH", 3, server::publish),
    Command::connection("QUIT", -1, connection::quit),
    Command::data("SCAN", -2, keys::scan),
    Command::outside("SCRIPT", -2, scripts::script),
    Command::connection("SELECT", 2, connection::select),
    Command::data("SET", -3, strings::set),
    Command::data("SETEX", 4, strings::setex),
    Command::data("SETNX", 3, strings::setnx),
    Command::connection("SUBSCRIBE", -2, connection::subscribe),
    Command::data("TIME", 1, server::time),
    Command::read("TTL", 2, keys::ttl),
    Command::read("TYPE", 2, keys::type_),
    Command::data("UNLINK", -2, keys::del),
    Command::connection("UNSUBSCRIBE", -1, connection::unsubscribe),
    Command::data("ZADD", -4, sorted_sets::zadd),
    Command::read("ZCARD", 2, sorted_sets::zcard),
    Command::read("ZLEXCOUNT", 4, sorted_sets::zlexcount),
    Command::read("ZRANGE", -4, sorted_sets::zrange),
    Command::read("ZRANK", 3, sorted_sets::zrank),
    Command::data("ZREM", -3, sorted_sets::zrem),
    Command::read("ZSCORE", 3, sorted_sets::zscore),
];

/// Executes a command of a client.
pub(super) fn execute(database: &mut Database, words: Words<'_>) -> Reply {
    let found = Command::find(words, &database.about);
    let answer = found.map_err(|missing| missing.for_clients(words));
    let answer = answer.and_then(|command| command.run(database, words));
    answer.unwrap_or_else(|error| Reply::Error(error.into_owned()))
}

/// Executes a command of a script.
pub(super) fn call(database: &mut Database, words: Words<'_>) -> Answer {
    let found = Command::find(words, &database.about);
    let command = found.map_err(|missing| missing.for_scripts(words))?;
    if !command.is_for_scripts {
        return Err("ERR This Redis command is not allowed from script".into());
    }
    command.run(database, words)
}

impl Missing {
    /// Returns the error for a client.
    pub(super) fn for_clients(self, words: Words<'_>) -> Error {
        /// The most bytes of arguments in an error.
        const MOST: usize = 128;
        match self {
            Self::Arity(name) => arity(name),
            Self::Denied(name) => denied(&name),
            Self::Unknown => {
                let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
                let name = words.first().map(|name| text(name)).unwrap_or_default();
                let mut arguments = String::new();
                for word in words.iter().skip(1) {
                    if arguments.len() < MOST {
                        arguments += &format!("'{}' ", text(&word[..word.len().min(MOST)]));
                    }
                }
                format!("ERR unknown command '{name}', with args beginning with: {arguments}")
                    .into()
            }
        }
    }

    /// Returns the error for a script.
    pub(super) fn for_scripts(self, words: Words<'_>) -> Error {
        match self {
            _ if words.is_empty() => {
                "ERR Please specify at least one argument for this redis lib call".into()
            }
            Self::Arity(_) => "ERR Wrong number of args calling Redis command from script".into(),
            Self::Denied(name) => {
                let who = "ERR ACL failure in script: User default";
                format!("{who} has no permissions to run the '{name}' command").into()
            }
            Self::Unknown => "ERR Unknown Redis command called from script".into(),
        }
    }
}

fn denied(name: &str) -> Error {
    format!("NOPERM User default has no permissions to run the '{name}' command").into()
}

#[cfg(test)]
mod tests {
    use testkit::random::Random;

    use super::*;
    use crate::heart::{Reply, Server};

    #[test]
    fn commands_are_in_order() {
        assert!(COMMANDS.is_sorted_by(|one, other| one.name < other.name));
    }

    #[test]
    fn no_words_make_a_server_panic() {
        const NOW: u64 = 1_700_000_000_000_000;
        const WORDS: &[&str] = &[
            "",
            "a",
            "b",
            "h",
            "0",
            "1",
            "-1",
            "9223372036854775807",
            "1.5",
            "inf",
            "(a",
            "-",
            "*",
            "[",
            "PX",
            "NX",
            "GET",
            "KEEPTTL",
            "MATCH",
            "COUNT",
            "ON",
            "OPTIN",
            "YES",
            "ID",
            "LOAD",
            "AUTH",
            "IFEQ",
            "TRACKING",
            "KILL",
            "return redis.call(KEYS[1], ARGV[1])",
        ];
        let mut answered = 0;
        for seed in 0..300 {
            let random = &mut Random::new(seed);
            let version = random.pick(&[Version::Redis7, Version::Redis8, Version::Valkey9]);
            let mut server = Server::new("random", version);
            let mut connection = server.connect();
            for step in 0..100 {
                let command = COMMANDS[random.index(COMMANDS.len())].name;
                let count = random.index(6);
                let words = (0..count).map(|_| random.pick(WORDS));
                let words: Vec<_> = [command].into_iter().chain(words).collect();
                let reply = server.execute(connection, &words, NOW + step * 1_000);
                answered += u64::from(!matches!(reply, Reply::Error(_)));
                if !server.is_open(connection) {
                    connection = server.connect();
                }
            }
        }
        assert!(
            answered > 5_000,
            "only {answered} of 30,000 commands made sense"
        );
    }
}

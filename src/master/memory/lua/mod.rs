//! The scripts of `lua/` on the keys of a memory master.

use std::{array, cell::RefCell, collections::BTreeMap, mem, rc::Rc};

use mlua::{Function, Lua, LuaOptions, StdLib, Variadic};

use self::commands::{Database, commands};
use super::{
    keys::{Error, KeyResult, Replied, Value},
    server::ServerState,
};
use crate::core::{
    protocol::{
        command::{Command, Reply},
        script::{ORIGIN, Script},
    },
    restart::{Incarnation, ORIGIN_KEY},
};

mod commands;
#[cfg(test)]
mod common_cases;
#[cfg(test)]
mod fenced;
mod patches;
#[cfg(test)]
mod walks;

impl ServerState {
    pub(crate) fn execute(&mut self, command: &Command) -> Replied {
        self.keys(); // sets the time of the keys
        let words = command.words();
        let mut arguments = Vec::with_capacity(words.argument_count());
        words.arguments(|word| arguments.push(word.to_vec()));
        let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
        let Some(script) = words.script else {
            return self.set_nx_px(&arguments);
        };
        let (_, keys) = words.script_keys();
        let keys: Vec<_> = keys.map(str::as_bytes).collect();
        self.run(script, &keys, &arguments, String::new()) // reads no INFO
    }

    /// Finds out whether the master may have lost locks, and updates the origin record. A dial does
    /// this before everything else. `arguments` are those of `origin_arguments`.
    pub(crate) fn incarnation(&mut self, arguments: &[String]) -> KeyResult<Incarnation> {
        self.keys(); // sets the time of the keys
        let arguments: Vec<_> = arguments.iter().map(String::as_bytes).collect();
        let reply = self.run(&ORIGIN, &[ORIGIN_KEY.as_bytes()], &arguments, self.info())?;
        self.report_changes();
        let found = match &reply {
            Reply::Text(text) => Incarnation::parse(text),
            _ => None,
        };
        found.ok_or_else(|| "ERR the guard's reply makes no sense".into())
    }

    /// Executes `SET key value NX PX ttl`.
    fn set_nx_px(&mut self, words: &[&[u8]]) -> Replied {
        let [_set, key, value, _nx, _px, ttl] =
            array::from_fn(|at| words.get(at).map_or("", |word| text(word)));
        if self.keys.exists(key) {
            return Ok(Reply::Nil);
        }
        let ttl = commands::whole(ttl)?;
        self.keys
            .put(key.to_owned(), Value::Text(value.to_owned()), Some(ttl));
        Ok(Reply::Ok)
    }

    /// Runs a script, which reads `info` as the reply to `INFO`.
    fn run(
        &mut self,
        script: &'static Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        info: String,
    ) -> Replied {
        INTERPRETER.with(|interpreter| {
            interpreter.database.replace(Database {
                keys: mem::take(&mut self.keys),
                micros: self.clock.wall_micros(),
                info,
                published: Vec::new(),
            });
            let ran = interpreter.run(script, keys, arguments);
            let database = interpreter.database.take();
            self.keys = database.keys;
            for (channel, message) in database.published {
                self.connections.publish(&channel, &message);
            }
            replied(ran)
        })
    }
}

/// Converts what a script has returned or thrown to a reply, as a server does.
fn replied(ran: mlua::Result<(bool, mlua::Value)>) -> Replied {
    let reply = match ran {
        Ok((true, reply)) => reply,
        Ok((false, thrown)) => return Err(error_of(&thrown)),
        Err(error) => return Err(error.to_string().into()),
    };
    Ok(match reply {
        mlua::Value::Nil | mlua::Value::Boolean(false) => Reply::Nil,
        mlua::Value::Integer(number) => Reply::Int(number),
        mlua::Value::Number(number) => Reply::Int(number as i64),
        mlua::Value::String(text) => Reply::Text(text.to_string_lossy().into()),
        other => return Err(error_of(&other)),
    })
}

/// Returns the error that a command or a script has returned or thrown.
fn error_of(thrown: &mlua::Value) -> Error {
    let table = thrown.as_table();
    let of_command = table.and_then(|table| table.get::<String>("err").ok());
    let of_script = || {
        let thrown = thrown.to_string().unwrap_or_default();
        format!("ERR Error running script: {thrown}")
    };
    of_command.unwrap_or_else(of_script).into()
}

/// Returns a word of a command. All of them are made from text.
fn text(word: &[u8]) -> &str {
    str::from_utf8(word).unwrap_or_default()
}

thread_local! {
    static INTERPRETER: Interpreter =
        Interpreter::new().expect("the prelude is a constant that loads");
}

/// A Lua interpreter, which all memory masters of a thread share. No script leaves anything in it
/// for the next one.
struct Interpreter {
    lua: Lua,
    /// The keys of the master whose script runs.
    database: Rc<RefCell<Database>>,
    run: Function,
    /// The scripts by their names, as they are with the given patches.
    scripts: RefCell<BTreeMap<(&'static str, u32), Function>>,
}

impl Interpreter {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::MATH | StdLib::STRING | StdLib::TABLE;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let database = Rc::<RefCell<Database>>::default();
        let run = lua.load(PRELUDE).call(commands(&lua, &database)?)?;
        Ok(Self {
            lua,
            database,
            run,
            scripts: RefCell::default(),
        })
    }

    fn run(
        &self,
        script: &'static Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> mlua::Result<(bool, mlua::Value)> {
        let words = keys.iter().chain(arguments);
        let words: Variadic<_> = words.map(|word| text(word)).collect();
        self.run.call((self.compiled(script)?, keys.len(), words))
    }

    fn compiled(&self, script: &'static Script) -> mlua::Result<Function> {
        let key = (script.name, patches::on());
        let known = self.scripts.borrow().get(&key).cloned();
        if let Some(script) = known {
            return Ok(script);
        }
        let text = patches::patched(script.text());
        let compiled = self
            .lua
            .load(text)
            .set_name("=user_script")
            .into_function()?;
        self.scripts.borrow_mut().insert(key, compiled.clone());
        Ok(compiled)
    }
}

/// The part of a server's environment that is in Lua. It returns the function that runs a script.
/// `redis.call` throws the errors that `redis.pcall` returns. As on a server, a script that uses a
/// global variable of its own fails.
const PRELUDE: &str = "
local commands = ...
setmetatable(commands, {
  __index = function()
    return function()
      return nil, 'ERR Unknown Redis command called from script'
    end
  end,
})

KEYS, ARGV, redis = {}, {}, { sha1hex = commands.SHA1HEX }
function redis.error_reply(text)
  return { err = text }
end
function redis.pcall(name, ...)
  local reply, failure = commands[name](...)
  return failure and { err = failure } or reply
end
function redis.call(name, ...)
  local reply, failure = commands[name](...)
  if failure then
    error({ err = failure }, 0)
  end
  return reply
end

print, dofile, loadfile = nil, nil, nil
setmetatable(_G, {
  __index = function(_, name)
    error('Script attempted to access nonexistent global variable ' .. name, 2)
  end,
  __newindex = function(_, name)
    error('Script attempted to create global variable ' .. name, 2)
  end,
})

return function(script, keys, ...)
  KEYS, ARGV = { unpack({ ... }, 1, keys) }, { select(keys + 1, ...) }
  return pcall(script)
end";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        core::{
            ballot::{BallotReply, ballot_reply},
            kind::table::fixture::scripts,
            protocol::{
                command::{Action, fixture::lock_id},
                kind::Kind,
            },
        },
        master::memory::keys::Keys,
    };

    /// Runs a script on a master that has a key of each type.
    fn run(script: &str) -> Replied {
        let interpreter = Interpreter::new().unwrap();
        let mut keys = Keys::default();
        keys.put("text".to_owned(), Value::Text("1".to_owned()), None);
        keys.hset("hash", [("field", "1")]).unwrap();
        keys.zadd("sorted", 0.0, "member").unwrap();
        interpreter.database.borrow_mut().keys = keys;
        let script = interpreter.lua.load(script).set_name("=user_script");
        let script = script.into_function().unwrap();
        replied(interpreter.run.call((script, 0)))
    }

    #[test]
    fn commands_reply_as_on_a_server() {
        for (script, expected) in [
            ("return redis.call('DEL', 'none')", Reply::Int(0)),
            ("return redis.call('EXISTS', 'none', 'text')", Reply::Int(1)),
            ("return redis.call('GET', 'none')", Reply::Nil),
            (
                "return redis.call('HMGET', 'hash', 'none', 'field')[1]",
                Reply::Nil,
            ),
            (
                "return redis.call('HMGET', 'hash', 'none', 'field')[2]",
                Reply::Text("1".into()),
            ),
            (
                "return redis.call('HSET', 'hash', 'field', 2, 'new', 3)",
                Reply::Int(1),
            ),
            ("return redis.call('PEXPIRE', 'none', '1')", Reply::Int(0)),
            ("return redis.call('PTTL', 'none')", Reply::Int(-2)),
            ("return redis.call('PTTL', 'text')", Reply::Int(-1)),
            (
                "return redis.call('SET', 'text', '2', 'NX', 'PX', '1')",
                Reply::Nil,
            ),
            (
                "return redis.call('SET', 'text', '2', 'PX', '1').ok",
                Reply::Text("OK".into()),
            ),
            (
                "return redis.call('TYPE', 'sorted').ok",
                Reply::Text("zset".into()),
            ),
            (
                "return #redis.call('ZRANGE', 'sorted', 0, 999)",
                Reply::Int(1),
            ),
            ("return redis.call('ZRANK', 'sorted', 'none')", Reply::Nil),
            (
                "return redis.call('ZSCORE', 'sorted', 'member')",
                Reply::Text("0".into()),
            ),
            ("return 1.9", Reply::Int(1)),
        ] {
            assert_eq!(run(script), Ok(expected), "{script}");
        }
    }

    #[test]
    fn errors_are_those_of_a_server() {
        for (script, expected) in [
            (
                "return redis.call('GET', 'hash')",
                "WRONGTYPE Operation against a key ",
            ),
            (
                "return redis.pcall('HLEN', 'text')",
                "WRONGTYPE Operation against a key ",
            ),
            (
                "return redis.call('ZSCORE', 'hash', 'member')",
                "WRONGTYPE Operation against a key ",
            ),
            (
                "return redis.call('PEXPIRE', 'text', 'x')",
                "ERR value is not an integer or out of range",
            ),
            (
                "return redis.call('SET', 'text', '1', 'XX')",
                "ERR syntax error",
            ),
            (
                "return redis.call('NOSUCH', 'text')",
                "ERR Unknown Redis command called from script",
            ),
            ("return redis.error_reply('ERR own')", "ERR own"),
            (
                "return nil + 1",
                "ERR Error running script: user_script:1: attempt to perform arithmetic",
            ),
            (
                "mine = 1",
                "ERR Error running script: user_script:1: Script attempted to create global variable mine",
            ),
            (
                "return theirs",
                "ERR Error running script: user_script:1: Script attempted to access nonexistent global variable theirs",
            ),
            (
                "return print",
                "ERR Error running script: user_script:1: Script attempted to access nonexistent global variable print",
            ),
        ] {
            let error = run(script).unwrap_err();
            assert!(error.starts_with(expected), "{script}: {error}");
        }
    }

    /// The search in `core::ballot` relies on this.
    #[test]
    fn the_script_decides_on_candidates_by_the_rule() {
        const CLOCK: u64 = 100;
        let script = scripts()
            .find(|script| script.name == "mutex/acquire")
            .unwrap();
        let decide = |candidate: u64, counter: u64, is_mine: bool, window: u64| {
            let mut state = ServerState::new("memory".into());
            state.set_time(CLOCK);
            let mut put = |key: &str, text: &str| {
                state
                    .keys
                    .put(key.to_owned(), Value::Text(text.to_owned()), Some(1_000));
            };
            if counter > 0 {
                put("fence", &counter.to_string());
            }
            if is_mine {
                put("lock", "me");
            }
            let words = ["me", "1000", &candidate.to_string(), &window.to_string()];
            let replied = state.run(
                script,
                &[b"lock", b"fence"],
                &words.map(str::as_bytes),
                String::new(),
            );
            (
                replied.unwrap(),
                state.keys.get("fence").unwrap().map(str::to_owned),
            )
        };
        for (candidate, counter) in
            (85..=115).flat_map(|one| [0, 84, 90, 100, 110, 113, 114].map(|other| (one, other)))
        {
            for (is_mine, window) in [(false, 0), (false, 10), (true, 0), (true, 10)] {
                let rule = ballot_reply(candidate, counter, is_mine, CLOCK, window);
                let expected = match rule {
                    BallotReply::Accepted => Reply::Int(1),
                    BallotReply::Skewed => Reply::Text(format!("skew {CLOCK}").into()),
                    BallotReply::Stale => Reply::Text(format!("stale {counter}").into()),
                };
                let left = if rule == BallotReply::Accepted {
                    candidate.max(counter)
                } else {
                    counter
                };
                let left = (left > 0).then(|| left.to_string());
                let case = format!("{candidate} {counter} {is_mine} {window}");
                assert_eq!(
                    decide(candidate, counter, is_mine, window),
                    (expected, left),
                    "{case}"
                );
            }
        }
    }

    #[test]
    fn a_mutex_has_a_client_only_if_its_value_is_of_our_form() {
        let hex = "0a".repeat(20);
        for (value, client) in [
            (format!("{hex}@web-3/812"), "web-3/812"),
            (format!("{hex}@a@b"), "a@b"),
            (hex.clone(), ""),
            (format!("{hex}@"), ""),
            (format!("{hex}@a b"), ""),
            (format!("{hex}@{}", "n".repeat(64)), &"n".repeat(64)),
            (format!("{hex}@{}", "n".repeat(65)), ""),
            (format!("{}@a", "0A".repeat(20)), ""),
            (format!("{}@a", "0a".repeat(19)), ""),
            (format!("{hex}0@a"), ""),
            ("secret@example.com".to_owned(), ""),
            (format!("@{hex}"), ""),
        ] {
            let mut state = ServerState::new("memory".into());
            state
                .keys
                .put("r".to_owned(), Value::Text(value.clone()), None);
            let inspect = Command::new(&lock_id(Kind::Mutex, "r"), Action::Inspect);
            let Ok(Reply::Text(shown)) = state.execute(&inspect) else {
                panic!("{value} is not shown");
            };
            let shown: Vec<_> = shown.splitn(5, ' ').collect();
            assert_eq!(shown[4], client, "{value}");
        }
    }
}

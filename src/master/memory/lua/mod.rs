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
mod patches;

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

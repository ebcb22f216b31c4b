//! The scripts of `lua/` on the keys of a memory master.

use std::{cell::RefCell, collections::BTreeMap, mem, rc::Rc};

use mlua::{Function, Lua, LuaOptions, StdLib, Value, Variadic};

use super::{
    commands::{Database, commands},
    keys::Replied,
    patches,
    server::State,
};
use crate::core::kind::{command::Reply, script::Script};

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

thread_local! {
    static INTERPRETER: Interpreter =
        Interpreter::new().expect("the prelude is the same for all, and loads");
}

/// A Lua interpreter, which all memory masters of a thread share. No script leaves anything in it
/// for the next one.
struct Interpreter {
    lua: Lua,
    /// The keys of the master whose script runs.
    database: Rc<RefCell<Database>>,
    run: Function,
    /// The scripts by their names, as they are with the given patches.
    scripts: RefCell<BTreeMap<(&'static str, u8), Function>>,
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
    ) -> mlua::Result<(bool, Value)> {
        let words = keys.iter().chain(arguments);
        let words: Variadic<_> = words
            .map(|word| str::from_utf8(word).unwrap_or_default())
            .collect();
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

impl State {
    pub(super) fn run(
        &mut self,
        script: &'static Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Replied {
        INTERPRETER.with(|interpreter| {
            let database = Database {
                keys: mem::take(&mut self.keys),
                micros: self.wall_micros(),
                published: Vec::new(),
            };
            interpreter.database.replace(database);
            let ran = interpreter.run(script, keys, arguments);
            let database = interpreter.database.take();
            self.keys = database.keys;
            for (channel, message) in database.published {
                self.publish(&channel, &message);
            }
            match ran {
                Ok((true, reply)) => replied(reply),
                Ok((false, thrown)) => Err(thrown_error(&thrown)),
                Err(error) => Err(error.to_string().into()),
            }
        })
    }
}

/// Converts what a script returns to a reply, as a server does.
fn replied(reply: Value) -> Replied {
    Ok(match reply {
        Value::Nil | Value::Boolean(false) => Reply::Nil,
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(number),
        Value::Number(number) => Reply::Int(number as i64),
        Value::String(text) => Reply::Text(text.to_string_lossy().into()),
        Value::Table(_) => return Err(thrown_error(&reply)),
        _ => Reply::Other,
    })
}

/// Returns the error of a command, or of the script itself.
fn thrown_error(thrown: &Value) -> super::keys::Error {
    let of_command = thrown
        .as_table()
        .and_then(|table| table.get::<String>("err").ok());
    let of_script = || {
        format!(
            "ERR Error running script: {}",
            thrown.to_string().unwrap_or_default()
        )
    };
    of_command.unwrap_or_else(of_script).into()
}

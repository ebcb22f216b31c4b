//! Runs Lua scripts on a database.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    mem,
    rc::Rc,
};

use mlua::{
    Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value,
    state::{GcIncParams, GcMode},
};

use super::{
    database::{Answer, Database, Error, Run, Words},
    reply::{Reply, written},
    script::{Script, sha1},
};

/// Runs a script. The first `keys` of the `words` are its `KEYS`, and the rest are its `ARGV`.
/// `call` executes its commands.
pub(super) fn run(
    database: &mut Database,
    script: &Script,
    (words, keys): (Words<'_>, usize),
    call: Run,
) -> Reply {
    INTERPRETER.with(|interpreter| {
        let script = match interpreter.compiled(script) {
            Ok(script) => script,
            Err(error) => return Reply::Error(error.into_owned()),
        };
        interpreter.call.set(call);
        mem::swap(&mut *interpreter.database.borrow_mut(), database);
        let ran = interpreter.run(&script, words, keys);
        mem::swap(&mut *interpreter.database.borrow_mut(), database);
        ran.unwrap_or_else(|error| Reply::Error(format!("ERR {error}")))
    })
}

/// Fails if a script cannot be compiled.
pub(super) fn check(script: &Script) -> Answer<()> {
    INTERPRETER.with(|interpreter| interpreter.compiled(script).map(drop))
}

thread_local! {
    static INTERPRETER: Interpreter =
        Interpreter::new().expect("the prelude is a constant that loads");
}

/// A Lua interpreter, which all servers of a thread share. A script leaves nothing behind for the
/// next script, except what it writes into libraries, such as `redis.x = 1`, and the globals that
/// it replaces. On a server, both are read-only.
struct Interpreter {
    lua: Lua,
    /// The data of the server whose script runs.
    database: Rc<RefCell<Database>>,
    /// Executes the commands of that script.
    call: Rc<Cell<Run>>,
    /// The function of the prelude that runs scripts.
    run: Function,
    /// The compiled scripts, by their hashes.
    scripts: RefCell<HashMap<String, Function>>,
}

impl Interpreter {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::MATH | StdLib::STRING | StdLib::TABLE;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        // Nearly all memory belongs to the scripts, which are kept.
        lua.gc_set_mode(GcMode::Incremental(GcIncParams::default().pause(1_000)));
        let database = Rc::<RefCell<Database>>::default();
        let calls: Rc<Cell<Run>> = Rc::new(Cell::new(|_, _| Ok(Reply::Nil)));
        let (shared, execute) = (database.clone(), calls.clone());
        let call = lua.create_function(move |lua, words: MultiValue| {
            call(lua, &words, |words| {
                execute.get()(&mut shared.borrow_mut(), words)
            })
        })?;
        let shared = database.clone();
        let allows = lua.create_function(move |_, name: String| {
            Ok(shared.borrow().about.allows(&name.to_lowercase()))
        })?;
        let hash = lua.create_function(|_, text: mlua::LuaString| Ok(sha1(&text.as_bytes())))?;
        let run = lua.load(PRELUDE).call((call, allows, hash))?;
        Ok(Self {
            lua,
            database,
            call: calls,
            run,
            scripts: RefCell::default(),
        })
    }

    fn compiled(&self, script: &Script) -> Answer<Function> {
        /// The most scripts that are kept.
        const MOST: usize = 1_000;
        let known = self.scripts.borrow().get(script.hash()).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let chunk = self.lua.load(script.text()).set_name("=user_script");
        let compiled = chunk.into_function().map_err(|error| {
            let text = match &error {
                mlua::Error::SyntaxError { message, .. } => message.clone(),
                other => other.to_string(),
            };
            Error::from(format!("ERR Error compiling script (new function): {text}"))
        })?;
        let mut scripts = self.scripts.borrow_mut();
        if scripts.len() >= MOST {
            scripts.clear();
        }
        scripts.insert(script.hash().to_owned(), compiled.clone());
        Ok(compiled)
    }

    fn run(&self, script: &Function, words: Words<'_>, keys: usize) -> mlua::Result<Reply> {
        let list = |words: &[&[u8]]| {
            let list = self.lua.create_table_with_capacity(words.len(), 0)?;
            for word in words {
                list.raw_push(self.lua.create_string(word)?)?;
            }
            Ok::<_, mlua::Error>(list)
        };
        let (keys, arguments) = words.split_at(keys);
        let (is_done, returned): (bool, Value) =
            self.run.call((script, list(keys)?, list(arguments)?))?;
        match is_done {
            true => to_reply(&returned, 0),
            false => Ok(Reply::Error(error_of(&returned))),
        }
    }
}

/// Executes `redis.call`. Returns the reply, or nil and the error.
fn call(
    lua: &Lua,
    words: &MultiValue,
    execute: impl FnOnce(Words<'_>) -> Answer,
) -> mlua::Result<(Value, Value)> {
    let mut texts = Vec::with_capacity(words.len());
    for word in words {
        texts.push(match word {
            Value::String(text) => text.as_bytes().to_vec(),
            Value::Integer(number) => number.to_string().into_bytes(),
            Value::Number(number) => written(*number).into_bytes(),
            _ => {
                let error = "ERR Lua redis lib command arguments must be strings or integers";
                return Ok((Value::Nil, Value::String(lua.create_string(error)?)));
            }
        });
    }
    let words: Vec<_> = texts.iter().map(Vec::as_slice).collect();
    match execute(&words) {
        Ok(reply) => Ok((to_lua(lua, reply)?, Value::Nil)),
        Err(error) => Ok((Value::Nil, Value::String(lua.create_string(&*error)?))),
    }
}

/// Converts a reply to what a script sees.
fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    let text = |text: &[u8]| Ok(Value::String(lua.create_string(text)?));
    let list = |items: &mut dyn Iterator<Item = Reply>| {
        let table = lua.create_table()?;
        for item in items {
            table.raw_push(to_lua(lua, item)?)?;
        }
        Ok(Value::Table(table))
    };
    let field = |name: &str, text: String| Ok(Value::Table(lua.create_table_from([(name, text)])?));
    match reply {
        Reply::Array(items) | Reply::Push(items) => list(&mut items.into_iter()),
        Reply::Bulk(bytes) => text(&bytes),
        Reply::Double(number) => text(written(number).as_bytes()),
        Reply::Error(error) => field("err", error),
        Reply::Int(number) => Ok(Value::Integer(number)),
        Reply::Map(pairs) | Reply::Pairs(pairs) => {
            list(&mut pairs.into_iter().flat_map(|(name, value)| [name, value]))
        }
        Reply::Nil => Ok(Value::Boolean(false)),
        Reply::Status(status) => field("ok", status),
        Reply::Verbatim(words) => text(words.as_bytes()),
    }
}

/// Converts what a script has returned, which is inside `depth` tables, to a reply, as a server
/// does.
fn to_reply(returned: &Value, depth: usize) -> mlua::Result<Reply> {
    /// How deep tables may be nested. A table may even contain itself. Servers allow about 8,000
    /// tables, but the stack of a thread may be too small for so many.
    const DEEPEST: usize = 128;
    Ok(match returned {
        _ if depth > DEEPEST => Reply::Error("ERR reached lua stack limit".to_owned()),
        Value::Boolean(true) => Reply::Int(1),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(*number as i64),
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Table(table) => {
            if let Some(error) = field(table, "err") {
                return Ok(Reply::Error(error));
            }
            if let Some(status) = field(table, "ok") {
                return Ok(Reply::Status(status));
            }
            let mut items = Vec::new();
            for item in table.sequence_values::<Value>() {
                items.push(to_reply(&item?, depth + 1)?);
            }
            Reply::Array(items)
        }
        _ => Reply::Nil,
    })
}

/// Returns the text of the error that a script has thrown.
fn error_of(thrown: &Value) -> String {
    let of_command = thrown.as_table().and_then(|table| field(table, "err"));
    of_command.unwrap_or_else(|| {
        let thrown = thrown.to_string().unwrap_or_default();
        format!("ERR {thrown}")
    })
}

fn field(table: &Table, name: &str) -> Option<String> {
    let text = table.raw_get::<mlua::LuaString>(name).ok()?;
    Some(text.to_string_lossy())
}

/// The part of a server's environment that is written in Lua. It returns the function that runs a
/// script. `redis.call` throws the errors that `redis.pcall` returns. As on a server, a script that
/// uses a global variable of its own fails, and `pcall` returns the error of a command as a text.
const PRELUDE: &str = include_str!("prelude.lua");

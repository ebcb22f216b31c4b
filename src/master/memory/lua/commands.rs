//! The commands that the scripts of `lua/` call.

use std::{
    cell::RefCell,
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
};

use mlua::{Either, FromLuaMulti, IntoLua, Lua, Table, Variadic};

use crate::master::memory::keys::{Error, KeyResult, Keys, Value};

/// The data that commands work on.
#[derive(Default)]
pub(super) struct Database {
    pub(super) keys: Keys,
    /// The time of day in microseconds.
    pub(super) micros: u64,
    pub(super) info: String,
    /// The channels and texts of messages.
    pub(super) published: Vec<(String, String)>,
}

/// Returns a table with a function for each command. It returns the reply, or nil and the error.
pub(super) fn commands(lua: &Lua, database: &Rc<RefCell<Database>>) -> mlua::Result<Table> {
    let commands = Commands {
        lua,
        database,
        table: lua.create_table()?,
    };
    commands.add_for_keys()?;
    commands.add_for_hashes()?;
    commands.add_for_sorted_sets()?;
    commands.add("INFO", |db, ()| Ok(db.info.clone()))?;
    commands.add("PUBLISH", |db, (channel, message)| {
        db.published.push((channel, message));
        Ok(0)
    })?;
    commands.add("TIME", |db, ()| {
        Ok([db.micros / 1_000_000, db.micros % 1_000_000].map(|part| part.to_string()))
    })?;
    // Not a command of servers: the clock by which keys expire.
    commands.add("MILLIS", |db, ()| Ok(db.keys.now()))?;
    let sha1hex = lua.create_function(|_, text: String| Ok(digest(&text)))?;
    commands.table.set("SHA1HEX", sha1hex)?;
    Ok(commands.table)
}

struct Commands<'a> {
    lua: &'a Lua,
    database: &'a Rc<RefCell<Database>>,
    table: Table,
}

impl Commands<'_> {
    fn add_for_keys(&self) -> mlua::Result<()> {
        self.add("DEL", |db, key: String| Ok(u8::from(db.keys.del(&key))))?;
        self.add("EXISTS", |db, names: Variadic<String>| {
            Ok(names.iter().filter(|key| db.keys.exists(key)).count())
        })?;
        self.add("GET", |db, key: String| Ok(bulk(db.keys.get(&key)?)))?;
        self.add("PEXPIRE", |db, (key, ttl): (String, String)| {
            Ok(u8::from(db.keys.pexpire(&key, whole(&ttl)?)))
        })?;
        self.add("PTTL", |db, key: String| Ok(db.keys.pttl(&key)))?;
        self.add(
            "SET",
            |db, (key, value, options): (String, String, Variadic<String>)| {
                let options: Vec<_> = options.iter().map(String::as_str).collect();
                let ttl = match options[..] {
                    ["NX", "PX", _] if db.keys.exists(&key) => return Ok(Either::Right(false)),
                    ["NX", "PX", ttl] | ["PX", ttl] => whole(ttl)?,
                    _ => return Err("ERR syntax error".into()),
                };
                db.keys.put(key, Value::Text(value), Some(ttl));
                Ok(Either::Left(Status("OK")))
            },
        )?;
        self.add("TYPE", |db, key: String| {
            Ok(Status(match db.keys.value(&key) {
                None => "none",
                Some(Value::Text(_)) => "string",
                Some(Value::Hash(_)) => "hash",
                Some(Value::Sorted(_)) => "zset",
            }))
        })
    }

    fn add_for_hashes(&self) -> mlua::Result<()> {
        self.add("HDEL", |db, (key, fields): (String, Variadic<String>)| {
            db.keys.hdel(&key, &fields)
        })?;
        self.add("HGETALL", |db, key: String| {
            let fields = db.keys.hash(&key)?.iter();
            Ok(fields
                .flat_map(|(field, value)| [field.clone(), value.clone()])
                .collect::<Vec<_>>())
        })?;
        self.add("HLEN", |db, key: String| Ok(db.keys.hash(&key)?.len()))?;
        self.add("HMGET", |db, (key, fields): (String, Variadic<String>)| {
            let hash = db.keys.hash(&key)?;
            let values = fields
                .iter()
                .map(|field| bulk(hash.get(field).map(String::as_str)));
            Ok(values.collect::<Vec<_>>())
        })?;
        self.add("HSET", |db, (key, fields): (String, Variadic<String>)| {
            let pairs = fields
                .chunks_exact(2)
                .map(|pair| (pair[0].clone(), pair[1].clone()));
            db.keys.hset(&key, pairs)
        })
    }

    fn add_for_sorted_sets(&self) -> mlua::Result<()> {
        self.add(
            "ZADD",
            |db, (key, score, member): (String, String, String)| {
                let score = score
                    .parse()
                    .map_err(|_| Error::from("ERR value is not a valid float"))?;
                db.keys.zadd(&key, score, &member).map(u8::from)
            },
        )?;
        self.add(
            "ZLEXCOUNT",
            |db, (key, first, last): (String, String, String)| {
                let members = db.keys.zrange(&key)?.into_iter();
                match (first.as_str(), last.strip_prefix('(')) {
                    ("-", Some(last)) => Ok(members.filter(|member| *member < last).count()),
                    _ => Err(Error::from("ERR no script asks for this range")),
                }
            },
        )?;
        self.add(
            "ZRANGE",
            |db, (key, first, last): (String, usize, usize)| {
                let members = db.keys.zrange(&key)?.into_iter();
                let range = members.take(last.saturating_add(1)).skip(first);
                Ok(range.map(str::to_owned).collect::<Vec<_>>())
            },
        )?;
        self.add("ZRANK", |db, (key, member): (String, String)| {
            let rank = db
                .keys
                .zrange(&key)?
                .into_iter()
                .position(|one| one == member);
            Ok(rank.map_or(Either::Right(false), Either::Left))
        })?;
        self.add("ZREM", |db, (key, member): (String, String)| {
            db.keys.zrem(&key, &member).map(u8::from)
        })?;
        self.add("ZSCORE", |db, (key, member): (String, String)| {
            let score = db.keys.sorted(&key)?.get(&member);
            Ok(bulk(score.map(f64::to_string).as_deref()))
        })
    }

    fn add<A: FromLuaMulti + 'static, R: IntoLua>(
        &self,
        name: &str,
        execute: impl Fn(&mut Database, A) -> KeyResult<R> + 'static,
    ) -> mlua::Result<()> {
        let database = self.database.clone();
        let command = self.lua.create_function(move |_, words: A| {
            Ok(match execute(&mut database.borrow_mut(), words) {
                Ok(reply) => (Some(reply), None),
                Err(error) => (None, Some(error)),
            })
        })?;
        self.table.set(name, command)
    }
}

/// A status reply.
struct Status(&'static str);

impl IntoLua for Status {
    fn into_lua(self, lua: &Lua) -> mlua::Result<mlua::Value> {
        lua.create_table_from([("ok", self.0)])?.into_lua(lua)
    }
}

/// Returns a reply with a text. A script sees `false` if there is none.
fn bulk(text: Option<&str>) -> Either<String, bool> {
    text.map_or(Either::Right(false), |text| Either::Left(text.to_owned()))
}

pub(super) fn whole(word: &str) -> KeyResult<u64> {
    let number = word.parse();
    number.map_err(|_| "ERR value is not an integer or out of range".into())
}

/// Returns a digest of a token or an owner. Servers show its SHA-1. A memory master only needs a
/// text that is the same for the same holder and does not reveal it.
pub(super) fn digest(holder: &str) -> String {
    let mut hasher = DefaultHasher::new();
    holder.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

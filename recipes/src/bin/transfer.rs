//! Transfers between two accounts, in any direction. Both accounts are locked at once, and the
//! database refuses writers that are late.

use std::{collections::HashMap, env, error::Error, time::Duration};

use quorlock::{Builder, Coordinator, FencingToken};
use rusqlite::{Connection, OptionalExtension};
use tokio::task::block_in_place;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let locks = Builder::from_env()?.build()?;
    let mut db = open(&env::var("DATABASE")?)?;
    let account = |at| env::args().nth(at).ok_or("usage: transfer FROM TO");
    let (from, to): (u32, u32) = (account(1)?.parse()?, account(2)?.parse()?);
    if from == to {
        return Err("give two accounts".into());
    }
    let mut done = 0;
    while done < 20 {
        done += u32::from(transfer(&locks, &mut db, from, to).await?);
    }
    locks.close_within(Duration::from_secs(2)).await;
    Ok(())
}

fn open(path: &str) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.busy_timeout(Duration::from_secs(10))?;
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS account
             (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0);
         INSERT OR IGNORE INTO account (id, balance) VALUES (1, 100), (2, 100), (3, 100);",
    )?;
    Ok(db)
}

/// Moves 1 from one account to the other. Returns `false`, and moves nothing, if a later holder of
/// one of the accounts has been here.
async fn transfer(locks: &Coordinator, db: &mut Connection, from: u32, to: u32) -> Result<bool> {
    let name = |id| format!("account/{id}");
    // The order does not matter: transfers never wait for each other in a circle.
    let lock = locks.multi_mutex([name(from), name(to)]).fenced();
    let guard = lock.acquire_within(Duration::from_secs(30)).await?; // the database notices a loss
    let tokens: HashMap<_, _> = guard.tokens().collect(); // each account has tokens of its own
    let (from_token, to_token) = (tokens[&*name(from)], tokens[&*name(to)]);
    block_in_place(|| {
        let balances = (claim(db, from, from_token)?, claim(db, to, to_token)?);
        let (Some(there), Some(here)) = balances else {
            return Ok(false);
        };
        let both = db.transaction()?; // rolled back unless it is committed
        let is_written =
            write(&both, from, from_token, there - 1)? && write(&both, to, to_token, here + 1)?;
        if is_written {
            both.commit()?;
        }
        Ok(is_written)
    })
}

/// Returns the balance, or `None` if the caller is late. From here on, earlier holders are late.
fn claim(db: &Connection, id: u32, token: FencingToken) -> rusqlite::Result<Option<i64>> {
    let sql = "UPDATE account SET fence = ?2 WHERE id = ?1 AND fence <= ?2 RETURNING balance";
    db.query_row(sql, (id, i64::from(token)), |row| row.get(0))
        .optional()
}

/// Returns whether the balance was written.
fn write(db: &Connection, id: u32, token: FencingToken, balance: i64) -> rusqlite::Result<bool> {
    let sql = "UPDATE account SET fence = ?2, balance = ?3 WHERE id = ?1 AND fence <= ?2";
    Ok(db.execute(sql, (id, i64::from(token), balance))? == 1)
}

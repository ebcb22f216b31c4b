//! Writers that increment a number in an SQL database. The database refuses writers that are late.

use std::{env, error::Error, time::Duration};

use quorlock::{Builder, FencingToken};
use rusqlite::{Connection, OptionalExtension};
use tokio::task::block_in_place;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Builder::from_env()?.build()?;
    let lock = locks.mutex("account/7").fenced();
    let db = open(&env::var("DATABASE")?)?;
    let mut done = 0;
    while done < 20 {
        let guard = lock.acquire().await?;
        let token = guard.token();
        let Some(balance) = block_in_place(|| claim(&db, token))? else {
            continue; // a later holder has been here
        };
        if block_in_place(|| write(&db, token, balance + 1))? {
            done += 1;
        }
        drop(guard);
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
         INSERT OR IGNORE INTO account (id, balance) VALUES (7, 0);",
    )?;
    Ok(db)
}

/// Returns the balance, or `None` if the caller is late. From here on, earlier holders are late.
fn claim(db: &Connection, token: FencingToken) -> rusqlite::Result<Option<i64>> {
    let sql = "UPDATE account SET fence = ?1 WHERE id = 7 AND fence <= ?1 RETURNING balance";
    db.query_row(sql, [i64::from(token)], |row| row.get(0))
        .optional()
}

/// Returns whether the balance was written.
fn write(db: &Connection, token: FencingToken, balance: i64) -> rusqlite::Result<bool> {
    let sql = "UPDATE account SET fence = ?1, balance = ?2 WHERE id = 7 AND fence <= ?1";
    Ok(db.execute(sql, [i64::from(token), balance])? == 1)
}

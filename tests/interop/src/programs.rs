//! The programs in Rust. This executable starts itself to run them.

mod faulty;
mod quorlock;
mod rslock;

use std::fs;
use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

/// The answer to an attempt.
pub enum Attempt<H> {
    Failed(String),
    Locked(H),
    Refused(String),
}

/// A library, as the protocol sees it.
trait Library {
    type Held;

    async fn lock(&mut self, name: &str, ttl: Duration, wait: Duration) -> Attempt<Self::Held>;

    async fn unlock(&mut self, held: Self::Held) -> Result<(), String>;

    /// Returns how often the holder of a reentrant lock holds it.
    async fn depth(&mut self, _name: &str) -> Result<u64, String> {
        Err("not supported".to_owned())
    }

    /// Asks the masters whether a lock is still held, by extending it.
    async fn extend(&mut self, _held: &Self::Held) -> Result<(), String> {
        Err("not supported".to_owned())
    }

    async fn close(self)
    where
        Self: Sized,
    {
    }
}

/// Runs the program that the arguments name, until its input ends.
pub fn run(args: &[String]) -> Result<(), String> {
    let [name, kind, masters @ ..] = args else {
        return Err("usage: program NAME KIND MASTER...".to_owned());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1) // serves the library while this thread waits for a command
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let urls = masters.iter().map(|master| format!("redis://{master}"));
    let urls = urls.collect();
    runtime.block_on(async {
        match name.as_str() {
            "faulty" => serve(faulty::Faulty::new(masters), "faulty 0").await,
            "quorlock" => serve(quorlock::Quorlock::new(kind, urls)?, &version("quorlock")).await,
            "rslock" => serve(rslock::Rslock::new(urls), &version("rslock")).await,
            _ => return Err(format!("no program {name}")),
        }
        .map_err(|error| error.to_string())
    })
}

/// Returns a package's name and version, as locked.
fn version(package: &str) -> String {
    let lock = include_str!("../../../Cargo.lock");
    let start = format!("name = \"{package}\"\nversion = \"");
    let rest = lock.split_once(&start).map_or("?\"", |(_, rest)| rest);
    format!("{package} {}", rest.split('"').next().unwrap_or_default())
}

async fn serve<L: Library>(mut library: L, versions: &str) -> io::Result<()> {
    let mut held = Vec::new();
    say(&format!("ready {versions}"))?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<_> = line.split(' ').collect();
        let reply = match words[..] {
            ["lock", name, ttl, wait] => match library.lock(name, ms(ttl), ms(wait)).await {
                Attempt::Failed(error) => format!("failed {error}"),
                Attempt::Locked(lock) => {
                    held.push(lock);
                    "locked".to_owned()
                }
                Attempt::Refused(reason) => format!("refused {reason}"),
            },
            ["unlock"] => match held.pop() {
                Some(lock) => answer(library.unlock(lock).await.map(|()| "unlocked".to_owned())),
                None => "failed nothing is held".to_owned(),
            },
            ["extend"] => match held.last() {
                Some(lock) => answer(library.extend(lock).await.map(|()| "extended".to_owned())),
                None => "failed nothing is held".to_owned(),
            },
            ["depth", name] => answer(
                library
                    .depth(name)
                    .await
                    .map(|depth| format!("depth {depth}")),
            ),
            ["count", name, ttl, millis, pause, path] => {
                let times = [ttl, millis, pause].map(ms);
                count(&mut library, name, times, path).await?
            }
            _ => "failed unknown command".to_owned(),
        };
        say(&reply)?;
    }
    library.close().await;
    Ok(())
}

async fn count<L: Library>(
    library: &mut L,
    name: &str,
    [ttl, length, pause]: [Duration; 3],
    path: &str,
) -> io::Result<String> {
    let end = Instant::now() + length;
    let (mut acquired, mut failed, mut longest) = (0, 0, Duration::ZERO);
    while Instant::now() < end {
        let asked = Instant::now();
        let Attempt::Locked(lock) = library.lock(name, ttl, COUNT_WAIT).await else {
            failed += 1;
            continue;
        };
        longest = longest.max(asked.elapsed());
        // While another process writes the file, it may be empty.
        let number: u64 = fs::read_to_string(path)?.parse().unwrap_or_default();
        tokio::time::sleep(Duration::from_millis(1)).await;
        fs::write(path, (number + 1).to_string())?;
        acquired += 1;
        failed += u64::from(library.unlock(lock).await.is_err());
        tokio::time::sleep(pause).await;
    }
    let longest = longest.as_millis();
    Ok(format!("counted {acquired} {failed} {longest}"))
}

/// Writes a line.
fn say(line: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", line.replace('\n', " "))?;
    output.flush()
}

fn answer(result: Result<String, String>) -> String {
    result.unwrap_or_else(|error| format!("failed {error}"))
}

fn ms(text: &str) -> Duration {
    Duration::from_millis(text.parse().unwrap_or_default())
}

/// The time limit for one acquisition while counting.
const COUNT_WAIT: Duration = Duration::from_secs(20);

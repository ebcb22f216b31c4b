//! Shows the main parts of the crate. The masters are in this process, so no server is needed.
//!
//! Run `cargo run --example quickstart`.

use std::time::Duration;

use quorlock::{Coordinator, Fault, MemoryMaster};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let masters: Vec<_> = (0..5).map(|_| MemoryMaster::new()).collect();
    let locks = Coordinator::builder()
        .masters(&masters) // or .masters(["redis://10.0.0.1", "redis://10.0.0.2", ..])
        .ttl(Duration::from_secs(10))
        .build()?;
    let lock = locks.mutex("orders/42");

    let guard = lock.try_acquire().await?;
    println!("locked:   {}", guard.all_votes().await);
    println!("          valid for {:?}", guard.remaining());

    if let Err(refused) = lock.try_acquire().await {
        println!("refused:  {refused}");
    }
    guard.extend(Duration::from_secs(30)).await?;
    println!("extended: valid for {:?}", guard.remaining());
    guard.release().await?;

    masters[0].inject(Fault::Down);
    masters[1].inject(Fault::Down);
    let guard = lock.acquire_within(Duration::from_secs(1)).await?;
    println!("two down: {}", guard.all_votes().await);
    guard.release().await?;

    masters[2].inject(Fault::Down);
    if let Err(refused) = lock.try_acquire().await {
        println!("3 down:   {refused}");
    }

    masters[2].inject(Fault::None);
    drop(lock.acquire().await?); // `acquire` waits, and the drop posts a release
    println!("one back: locked again");

    let mine = locks.new_owner();
    let outer = locks.reentrant("orders/43", &mine).acquire().await?;
    let inner = locks.reentrant("orders/43", &mine).acquire().await?;
    println!("again:    {} guards of one owner", inner.depth());
    drop((outer, inner)); // the last guard releases the lock

    let printer = locks.fair("printer");
    let guard = printer.acquire().await?;
    let (served, released) = tokio::join!(printer.acquire(), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let seen = printer.inspect().await;
        println!(
            "fair:     {} waiter in the queue",
            seen.map_or(0, |seen| seen.waiters.len())
        );
        guard.release().await // wakes the waiter
    });
    released?;
    drop(served?);
    locks.close().await;
    Ok(())
}

//! Read-write locks.

use std::{mem, time::Duration};

use quorlock::{
    __internals::{downgrade, plain},
    Coordinator, Fault, Guard, Lock, MemoryMaster, Owner, Reason, Renewal,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::world::{World, masters, millis, seconds, timed, until_queued};

fn read(locks: &Coordinator, owner: &Owner) -> Lock {
    plain(locks.read_write("a").owner(owner).read())
}

fn write(locks: &Coordinator, owner: &Owner) -> Lock {
    locks.read_write("a").owner(owner).write().plain()
}

#[tokio::test(start_paused = true)]
async fn a_writer_becomes_a_reader_without_a_gap() {
    let masters = masters(3);
    let locks = Coordinator::new(&masters).unwrap();
    let [one, other, writer] = [(); 3].map(|()| locks.new_owner());
    let guard = write(&locks, &one).acquire().await.unwrap();
    let reading = tokio::spawn({
        let lock = read(&locks, &other);
        async move { lock.acquire().await.unwrap() }
    });
    until_queued(&read(&locks, &locks.new_owner()), 1).await;
    downgrade(&guard);
    downgrade(&guard);
    let also = reading.await.unwrap();
    assert!(guard.shares() && guard.is_valid());
    assert!(write(&locks, &writer).try_acquire().await.is_err());
    guard.extend(Duration::from_secs(10)).await.unwrap();
    guard.release().await.unwrap();
    assert!(also.is_valid());
    also.release().await.unwrap();
    drop(write(&locks, &writer).try_acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_writer_may_read_and_a_reader_cannot_become_the_writer() {
    let masters = masters(3);
    let locks = Coordinator::new(&masters).unwrap();
    let (owner, other) = (locks.new_owner(), locks.new_owner());
    let writing = write(&locks, &owner).acquire().await.unwrap();
    let reading = read(&locks, &owner).acquire().await.unwrap();
    assert_eq!(reading.depth(), 2);
    assert!(read(&locks, &other).try_acquire().await.is_err());
    // A writer that stops reading still writes, and so does one of two levels that write.
    reading.release().await.unwrap();
    assert!(read(&locks, &other).try_acquire().await.is_err());
    assert!(!writing.shares());
    let last = write(&locks, &owner).acquire().await.unwrap();
    writing.release().await.unwrap();
    let reading = read(&locks, &owner).acquire().await.unwrap();
    assert!(read(&locks, &other).try_acquire().await.is_err());
    last.release().await.unwrap();
    let also = read(&locks, &other).acquire().await.unwrap();
    sleep(Duration::from_secs(30)).await;
    assert!(reading.shares() && reading.is_valid());
    let sent: u64 = masters.iter().map(MemoryMaster::commands).sum();
    for refused in [
        write(&locks, &owner).try_acquire().await,
        write(&locks, &owner).acquire().await,
        write(&locks, &owner).acquire_within(Duration::ZERO).await,
    ] {
        let is_upgrade = matches!(&refused, Err(error) if *error.reason() == Reason::Upgrade);
        assert!(is_upgrade, "{refused:?}");
    }
    let now: u64 = masters.iter().map(MemoryMaster::commands).sum();
    assert_eq!(now, sent);
    drop((reading, also));
}

#[tokio::test(start_paused = true)]
async fn a_dead_reader_costs_the_rest_of_its_own_lease() {
    let masters = masters(3);
    let locks = Coordinator::new(&masters).unwrap();
    let [dead, alive, writer] = [(); 3].map(|()| locks.new_owner());
    let ttl = Duration::from_secs(2);
    let dead = read(&locks, &dead)
        .ttl(ttl)
        .renewal(Renewal::Off)
        .acquire()
        .await;
    mem::forget(dead.unwrap());
    let alive: Guard = read(&locks, &alive)
        .ttl(Duration::from_secs(30))
        .acquire()
        .await
        .unwrap();
    let start = Instant::now();
    let lock = write(&locks, &writer);
    let (writing, ()) = tokio::join!(lock.acquire(), async {
        sleep(Duration::from_millis(100)).await;
        alive.release().await.unwrap();
    });
    let waited = start.elapsed();
    assert!(waited <= ttl + Duration::from_millis(50), "{waited:?}");
    assert!(waited >= ttl - Duration::from_millis(50), "{waited:?}");
    drop(writing.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_writer_has_a_fencing_token() {
    let masters = masters(3);
    let locks = Coordinator::new(&masters).unwrap();
    let owner = locks.new_owner();
    let mut last = 0;
    for _ in 0..3 {
        let guard = write(&locks, &owner).fenced().acquire().await.unwrap();
        let token = u64::from(guard.token());
        assert!(token > last);
        last = token;
    }
    let writing = locks.read_write("a").owner(&owner).write().fenced();
    let reading = writing.acquire().await.unwrap().downgrade();
    assert!(locks.read_write("a").read().try_acquire().await.is_ok());
    assert!(reading.is_valid());
}

/// The number of readers that wait in a test of their load.
const READERS: u64 = 30;

/// Lets a dead writer hold the lock on `master` for `time`.
fn occupy(master: &MemoryMaster, writer: char, time: Duration) {
    let value = format!("1 1 {} u:{writer}", time.as_millis());
    let fields = [
        ("mode", "quorlock"),
        ("quorlock:read_write", "3"),
        ("quorlock:writer", &value),
    ];
    master.set_hash("a", fields, Some(time));
}

/// Spawns readers of other processes, which wait for the lock.
fn spawn_readers(masters: &[MemoryMaster]) -> JoinSet<()> {
    let mut readers = JoinSet::new();
    for _ in 0..READERS {
        let locks = Coordinator::new(masters).unwrap();
        readers
            .spawn(async move { drop(read(&locks, &locks.new_owner()).acquire().await.unwrap()) });
    }
    readers
}

/// A digit is a dead writer that has this master, `-` is a master that is down, and `.` is a free
/// one. No reader can win before the lease of a writer ends, and the masters say when that is.
/// Readers do not compete, so nothing is gained if they ask more often than they must to keep their
/// positions.
#[tokio::test(start_paused = true)]
async fn readers_that_cannot_win_only_poll() {
    for (sites, most) in [
        ("111", 5), // a majority names the writer
        ("11.", 5),
        ("1-.", 5),
        ("12.", 5),
        ("1--..", 8),
        ("12-..", 8),
        ("112..", 8), // they ask five masters, and give two grants back
    ] {
        let masters = masters(sites.len());
        let end = seconds(20);
        for (master, site) in masters.iter().zip(sites.chars()) {
            match site {
                '.' => {}
                '-' => master.inject(Fault::Down),
                writer => occupy(master, writer, end),
            }
        }
        let start = Instant::now();
        let mut readers = spawn_readers(&masters);
        let sent = || masters.iter().map(MemoryMaster::commands).sum::<u64>();
        sleep(seconds(5)).await;
        let before = sent();
        sleep(seconds(10)).await;
        let each = (sent() - before) as f64 / 10.0 / READERS as f64;
        println!("{sites}: {each:.1} commands a second for each reader");
        assert!(each <= f64::from(most), "{sites}: {each}");
        while let Some(reader) = readers.join_next().await {
            reader.unwrap();
        }
        let late = start.elapsed().saturating_sub(end);
        assert!(late < millis(50), "{sites}: served after {late:?}");
    }
}

/// One master names the writer, one is down, and one has lost the lock. So no majority names the
/// writer, but its release calls the readers.
#[tokio::test(start_paused = true)]
async fn readers_that_only_poll_are_called() {
    let masters = masters(3);
    let locks = Coordinator::new(&masters).unwrap();
    let writing = write(&locks, &locks.new_owner()).acquire().await.unwrap();
    masters[1].inject(Fault::Down);
    masters[2].delete("a");
    let mut readers = spawn_readers(&masters);
    sleep(millis(500)).await;
    assert!(readers.try_join_next().is_none());
    drop(writing);
    let (took, ()) = timed(async { while readers.join_next().await.is_some() {} }).await;
    assert!(took < millis(50), "{took:?}");
}

/// Holds `lock` for `time`, again and again.
async fn use_forever(lock: Lock, time: Duration) {
    loop {
        let guard = lock.acquire().await.unwrap();
        sleep(time).await;
        guard.release().await.unwrap();
    }
}

/// The longest hold.
const HOLD: Duration = millis(20);

/// The TTL of a holder that dies. Waiters ask again before half of it has passed.
const TTL: Duration = millis(2_000);

/// Returns the longest of 20 waits for `lock`, while `users` use the lock. Before each wait, the
/// holder that `mortal` returns gets the lock and dies.
async fn longest_wait(lock: Lock, users: Vec<Lock>, mortal: impl Fn() -> Option<Lock>) -> Duration {
    let mut others = JoinSet::new();
    for (number, user) in users.into_iter().enumerate() {
        // The times differ, so that the holders do not come and go together.
        others.spawn(use_forever(user, HOLD - millis(number as u64 % 8)));
    }
    let mut longest = Duration::ZERO;
    for turn in 0..20 {
        sleep(millis(turn)).await;
        if let Some(mortal) = mortal() {
            let mortal = mortal.ttl(TTL).renewal(Renewal::Off);
            mem::forget(mortal.acquire().await.unwrap());
        }
        let (took, guard) = timed(lock.acquire()).await;
        longest = longest.max(took);
        sleep(HOLD).await;
        guard.unwrap().release().await.unwrap();
    }
    longest
}

/// Neither many readers nor several writers keep the other side waiting for more than ten holds. If
/// a holder dies, that takes one TTL more.
#[tokio::test(start_paused = true)]
async fn neither_side_waits_for_long() {
    let world = World::new(3).await;
    world.inject_all(&Fault::Delay(millis(1)));
    let coordinators = [(); 4].map(|()| Coordinator::new(&world.masters).unwrap());
    let lock = |user: usize, name| {
        let locks = &coordinators[user % 4];
        locks.read_write(name)
    };
    let readers = || {
        (0..64)
            .map(|user| plain(lock(user, "read").read()))
            .collect()
    };
    let writers = || {
        (0..8)
            .map(|user| plain(lock(user, "written").write()))
            .collect()
    };
    for (name, dying, most) in [
        ("without deaths", false, 10 * HOLD),
        ("with deaths", true, 10 * HOLD + TTL),
    ] {
        let reader = || dying.then(|| plain(lock(1, "read").read()));
        let writer = || dying.then(|| plain(lock(1, "written").write()));
        let writer_waits = longest_wait(plain(lock(0, "read").write()), readers(), reader).await;
        let reader_waits = longest_wait(plain(lock(0, "written").read()), writers(), writer).await;
        println!("{name}, a writer waited for {writer_waits:?}, a reader for {reader_waits:?}");
        assert!(writer_waits <= most, "{name}: {writer_waits:?}");
        assert!(reader_waits <= most, "{name}: {reader_waits:?}");
    }
}

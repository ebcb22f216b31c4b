//! A reply that arrives in tiny pieces costs processor time in proportion to its length.

use std::{
    io,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use quorlock::{Coordinator, Quarantine};
use testkit::{
    hostile::{answers::greeting, process_stats, resp},
    server::skipped,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use crate::own_process::{current_thread, in_own_process};

#[test]
fn a_reply_in_tiny_pieces_costs_time_in_proportion_to_its_length() {
    if process_stats::thread_cpu().is_none() {
        skipped("this system does not report a thread's processor time");
        return;
    }
    in_own_process(|| {
        // Everything runs on this thread, and the processor time of this thread is measured.
        current_thread().block_on(async {
            let _ = cost(50_000).await; // the first call has one-time costs
            let quarter = least_cost(50_000).await;
            let whole = least_cost(200_000).await;
            let ratio = whole.as_secs_f64() / quarter.as_secs_f64();
            println!("50 KB {quarter:?}, 200 KB {whole:?}, ratio {ratio:.2}");
            // 4 in proportion to the length, 16 to its square.
            assert!(ratio < 8.0, "{ratio}: 50 KB {quarter:?}, 200 KB {whole:?}");
        });
    });
}

/// Returns the least cost of a few calls. On a busy machine, other programs empty the caches.
async fn least_cost(length: usize) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..5 {
        least = least.min(cost(length).await);
    }
    least
}

/// Returns the processor time of one call. The reply to the call is an array of `length` bytes.
async fn cost(length: usize) -> Duration {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        send_in_pieces(&stream, length).await.unwrap();
    });
    let locks = Coordinator::builder()
        .master(format!("redis://127.0.0.1:{port}"))
        .quarantine(Quarantine::Off)
        .response_timeout(RESPONSE_TIMEOUT)
        .connect_timeout(RESPONSE_TIMEOUT)
        .ttl(RESPONSE_TIMEOUT * 4)
        .build()
        .unwrap();
    let lock = locks.mutex("a");
    let before = process_stats::thread_cpu().unwrap();
    let start = Instant::now();
    let looked = timeout(RESPONSE_TIMEOUT, lock.inspect()).await.unwrap();
    let cost = process_stats::thread_cpu().unwrap() - before;
    // An array is not a valid reply to an inspection.
    let error = looked.unwrap_err().to_string();
    assert!(!error.contains("no answer"), "{error}");
    assert!(start.elapsed() < RESPONSE_TIMEOUT, "{error}");
    server.await.unwrap();
    cost
}

/// Answers the greeting. Then answers the first command in small pieces. The client reads each
/// piece before the next piece is sent.
async fn send_in_pieces(stream: &TcpStream, length: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = Vec::new();
    'asked: loop {
        while let Some((words, used)) = resp::command(&input) {
            input.drain(..used);
            let Some(reply) = greeting(&words) else {
                break 'asked;
            };
            write(stream, &reply).await?;
        }
        stream.readable().await?;
        let mut buffer = [0; 16 * 1024];
        match stream.try_read(&mut buffer) {
            Ok(count) => input.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let mut reply = format!("*{}\r\n", length / 4).into_bytes();
    reply.extend(b":1\r\n".repeat(length / 4));
    for piece in reply.chunks(PIECE) {
        write(stream, piece).await?;
        // The client's task reads the piece during this sleep.
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The size of a piece. It is not a multiple of 4, the length of a value, so values are cut in the
/// middle.
const PIECE: usize = 501;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

//! Faults of one master, on demand.

use std::env;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::load::Result;
use crate::servers::Server;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// A server stopped by SIGSTOP: its kernel accepts data, but nothing answers.
    Hung,
    /// An endpoint that accepts connections and never answers.
    BlackHole,
    /// A server whose packets are dropped in both directions.
    PacketDrop,
}

impl Fault {
    pub const ALL: [Self; 3] = [Self::Hung, Self::BlackHole, Self::PacketDrop];

    pub fn name(self) -> &'static str {
        match self {
            Self::Hung => "hung",
            Self::BlackHole => "black_hole",
            Self::PacketDrop => "packet_drop",
        }
    }

    pub fn inject(self, victim: &Server) -> Result<()> {
        match self {
            Self::Hung => victim.pause(),
            Self::BlackHole => {}
            Self::PacketDrop => drop_packets(victim.port())?,
        }
        Ok(())
    }

    pub fn clear(self, victim: &Server) -> Result<()> {
        match self {
            Self::Hung => victim.resume(),
            Self::BlackHole => {}
            Self::PacketDrop => nft("delete table inet quorlock")?,
        }
        Ok(())
    }
}

/// A listener that accepts connections and reads nothing, until the process ends.
pub struct BlackHole {
    port: u16,
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl BlackHole {
    pub fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let held: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let into = Arc::clone(&held);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                into.lock().unwrap().push(stream);
            }
        });
        Ok(Self { port, held })
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The number of connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.held.lock().unwrap().len()
    }
}

/// The environment variable that is set in the process with a network namespace of its own.
const INSIDE: &str = "QUORLOCK_BENCH_NETNS";

/// Starts this program again in a network namespace of its own. Packets can be dropped there
/// without an effect on the machine. Returns if the program already runs in this namespace, or if
/// the namespace is not possible here.
pub fn enter_namespace() {
    if env::var_os(INSIDE).is_some() || !can_drop_packets() {
        return;
    }
    let Ok(program) = env::current_exe() else {
        return;
    };
    let error = Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c"])
        .arg("ip link set lo up && exec \"$0\" \"$@\"")
        .arg(program)
        .args(env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    eprintln!("unshare: {error}");
}

/// Returns whether this process runs in the namespace. [`Fault::PacketDrop`] works only there.
pub fn inside_namespace() -> bool {
    env::var_os(INSIDE).is_some()
}

fn can_drop_packets() -> bool {
    Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c"])
        .arg("ip link set lo up && nft add table inet quorlock")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn drop_packets(port: u16) -> Result<()> {
    nft("add table inet quorlock")?;
    nft("add chain inet quorlock input { type filter hook input priority 0; }")?;
    nft(&format!(
        "add rule inet quorlock input tcp dport {port} drop"
    ))?;
    nft(&format!(
        "add rule inet quorlock input tcp sport {port} drop"
    ))
}

fn nft(rule: &str) -> Result<()> {
    let status = Command::new("nft").arg(rule).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("nft {rule}: {status}").into())
    }
}

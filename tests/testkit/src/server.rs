//! Private masters: real servers, each with its own port and directory, without persistence.
//!
//! A server is killed when its [`Server`] is dropped, and also when the test process is
//! killed.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// One master. Dropping it kills the server and removes its directory.
#[derive(Debug)]
pub struct Server {
    port: u16,
    directory: PathBuf,
    /// The server program, or `None` for [`binary`].
    program: Option<PathBuf>,
    options: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
    server: Option<Child>,
    keeper: Keeper,
    /// The UDP port with the same number. While the UDP port is bound, other fixtures treat the TCP
    /// port as taken, even if no server listens on it.
    _claim: UdpSocket,
}

impl Server {
    /// Starts a master and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a master like [`start`](Self::start), with options for the server's command line. In
    /// these, `{port}` is the port of the server.
    pub fn start_with(options: &[&str]) -> Self {
        Self::start_program(None, options, &[])
    }

    /// Starts a master of a version that [`version`] has found.
    pub fn start_version(program: &Path) -> Self {
        Self::start_program(Some(program), &[], &[])
    }

    /// Starts a master like [`start_with`](Self::start_with), with environment variables. Without a
    /// `program`, starts [`binary`].
    pub fn start_program(
        program: Option<&Path>,
        options: &[&str],
        environment: &[(&'static str, PathBuf)],
    ) -> Self {
        Self::start_as(options, |server| {
            server.program = program.map(Path::to_owned);
            server.environment = environment.to_vec();
        })
    }

    /// Starts a Sentinel with this configuration, and with options like
    /// [`start_with`](Self::start_with).
    pub fn start_sentinel(config: &str, options: &[&str]) -> Self {
        Self::start_as(&[&["--sentinel"], options].concat(), |sentinel| {
            // A Sentinel writes what it learns into its configuration.
            let path = sentinel.config();
            let written = fs::write(&path, config);
            written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        })
    }

    /// Reserves ports and launches servers that `prepare` has changed, until one is up.
    fn start_as(options: &[&str], prepare: impl Fn(&mut Self)) -> Self {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let mut server = Self::reserve_with(options);
            prepare(&mut server);
            match server.launch(deadline) {
                Launch::Up => return server,
                Launch::PortTaken if Instant::now() < deadline => {}
                Launch::PortTaken => panic!("every port tried was taken{}", server.log_tail()),
            }
        }
    }

    /// Reserves a port for a master that is not up yet: connections are refused until
    /// [`restart`](Self::restart).
    pub fn reserve() -> Self {
        Self::reserve_with(&[])
    }

    /// Reserves a port like [`reserve`](Self::reserve), with options for the server's command line.
    pub fn reserve_with(options: &[&str]) -> Self {
        let (port, claim) = claim_port();
        let directory = new_directory();
        Self {
            port,
            keeper: Keeper::of(&directory),
            directory,
            program: None,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            environment: Vec::new(),
            server: None,
            _claim: claim,
        }
    }

    /// Kills the server if it runs, then starts it on the same port and in the same directory. The
    /// server comes back empty unless its options asked for persistence.
    pub fn restart(&mut self) {
        self.kill();
        let deadline = Instant::now() + START_TIMEOUT;
        while let Launch::PortTaken = self.launch(deadline) {
            assert!(
                Instant::now() < deadline,
                "port {} was taken while its server was down{}",
                self.port,
                self.log_tail()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the server with SIGKILL and waits until it has exited. Does nothing when the server is
    /// down.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            // `note` comes before the wait. After the wait, another process may have the process
            // ID.
            self.keeper.note("");
            let _ = server.wait();
        }
    }

    /// Stops the server with SIGSTOP and waits until it has stopped. The kernel still accepts
    /// connections, but nothing answers.
    pub fn pause(&self) {
        self.signal("STOP");
        let stat = format!("/proc/{}/stat", self.pid());
        let deadline = Instant::now() + Duration::from_secs(1);
        // The signal takes effect a moment after it was sent. Without /proc there is no way to
        // check.
        while let Ok(stat) = fs::read_to_string(&stat)
            && !stat.contains(") T ")
            && Instant::now() < deadline
        {
            thread::yield_now();
        }
    }

    /// Resumes the server with SIGCONT. It then executes the commands that arrived meanwhile.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Sends one command over a fresh connection, after AUTH if the options set a password.
    ///
    /// Returns the reply as text, such as `OK`, `42`, `(nil)` or `ERR ...`. The elements of an
    /// array are on separate lines.
    #[track_caller]
    pub fn command(&self, words: &[&str]) -> String {
        match self.try_command(words, Duration::from_secs(5)) {
            Ok(reply) => reply,
            Err(error) => panic!("{words:?}: {error}{}", self.log_tail()),
        }
    }

    /// Sends a command like [`command`](Self::command) to a master that may be down or paused.
    pub fn try_command(&self, words: &[&str], timeout: Duration) -> io::Result<String> {
        // The port of a server with TLS takes no plain connections.
        if self.options.iter().any(|option| option == "--tls-port") {
            let stream = UnixStream::connect(self.socket())?;
            stream.set_read_timeout(Some(timeout))?;
            return self.ask_after_login(BufReader::new(stream), words);
        }
        self.ask_after_login(connect(self.port, timeout)?, words)
    }

    fn ask_after_login<S: Read + Write>(
        &self,
        mut connection: BufReader<S>,
        words: &[&str],
    ) -> io::Result<String> {
        if let Some(password) = self.password() {
            ask(&mut connection, &["AUTH", password])?;
        }
        ask(&mut connection, words)
    }

    /// Returns how often clients and scripts have called the commands that `is_counted` selects by
    /// their lower-case names.
    pub fn calls(&self, is_counted: impl Fn(&str) -> bool) -> u64 {
        let stats = self.command(&["INFO", "commandstats"]);
        let commands = stats.lines().filter_map(|line| {
            let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            is_counted(name).then_some(fields.split(',').next()?)
        });
        commands
            .map(|count| count.parse::<u64>().unwrap_or_default())
            .sum()
    }

    /// Subscribes to every channel: the listener receives all messages published from now on.
    #[track_caller]
    pub fn listen(&self) -> Listener {
        let subscribe = || -> io::Result<_> {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            stream.set_read_timeout(Some(START_TIMEOUT))?;
            let mut connection = BufReader::new(stream);
            ask(&mut connection, &["PSUBSCRIBE", "*"])?;
            Ok(Listener(connection))
        };
        subscribe().unwrap_or_else(|error| panic!("cannot subscribe: {error}{}", self.log_tail()))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns `redis://127.0.0.1:port`, without the password.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns `unix:///.../s.sock`, without the password.
    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.join("s.sock")
    }

    /// The directory in which the server saves its data.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn pid(&self) -> u32 {
        match &self.server {
            Some(server) => server.id(),
            None => panic!("the server of port {} is down", self.port),
        }
    }

    /// Returns the last lines of the server's log, under a heading, for failure messages.
    pub fn log_tail(&self) -> String {
        let log = self.log_from(0);
        let lines = log.lines().collect::<Vec<_>>();
        let tail = &lines[lines.len().saturating_sub(20)..];
        format!("\n--- log of port {}:\n{}", self.port, tail.join("\n"))
    }

    fn launch(&mut self, deadline: Instant) -> Launch {
        let before = self.log_from(0).len();
        let mut command = self.server_command();
        let server = command.spawn().unwrap_or_else(|error| {
            panic!("cannot run {}: {error}", command.get_program().display())
        });
        self.keeper.note(&server.id().to_string());
        self.server = Some(server);
        loop {
            if let Some(status) = self.exited() {
                self.kill();
                if self.log_from(before).contains("Address already in use") {
                    return Launch::PortTaken;
                }
                panic!("the server ended with {status}{}", self.log_tail());
            }
            if self.answers() {
                return Launch::Up;
            }
            assert!(
                Instant::now() < deadline,
                "no answer from the server within {START_TIMEOUT:?}{}",
                self.log_tail()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn exited(&mut self) -> Option<process::ExitStatus> {
        self.server.as_mut()?.try_wait().ok().flatten()
    }

    fn server_command(&self) -> Command {
        let log = self.open_log();
        let errors = log.try_clone();
        let errors = errors.unwrap_or_else(|error| panic!("cannot share the log: {error}"));
        let mut command = Command::new(self.program.clone().unwrap_or_else(binary));
        command
            .args(Some(self.config()).filter(|config| config.is_file())) // must come first
            .arg("--port")
            .arg(self.port.to_string())
            .arg("--unixsocket")
            .arg(self.socket())
            .arg("--dir")
            .arg(&self.directory)
            .args(["--bind", "127.0.0.1", "--protected-mode", "no"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args(self.own_options())
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            // Ctrl-C must end the tests and not the server. The server is killed when the tests
            // end.
            .process_group(0);
        command
    }

    /// Asks over the socket in our directory, because a foreign server could answer on the port. A
    /// server opens its port before its socket. If the socket answers, the port is ours as well.
    fn answers(&self) -> bool {
        let pong = || -> io::Result<String> {
            let stream = UnixStream::connect(self.socket())?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            ask(&mut BufReader::new(stream), &["PING"])
        };
        // A server that asks for a password or another user is up. A server that is loading data is
        // not.
        pong().is_ok_and(|reply| {
            ["PONG", "NOAUTH", "NOPERM"]
                .iter()
                .any(|up| reply.starts_with(up))
        })
    }

    /// Sends the signal through the shell. `kill` is built into the shell, so it needs no program.
    fn signal(&self, name: &str) {
        let status = Command::new("sh")
            .args(["-c", r#"kill -s "$1" "$2""#, "sh", name])
            .arg(self.pid().to_string())
            .status();
        assert!(
            status.as_ref().is_ok_and(process::ExitStatus::success),
            "kill -s {name} {}: {status:?}{}",
            self.pid(),
            self.log_tail()
        );
    }

    /// The configuration file of a Sentinel. Other servers have none.
    fn config(&self) -> PathBuf {
        self.directory.join("sentinel.conf")
    }

    fn own_options(&self) -> impl Iterator<Item = String> {
        let port = self.port.to_string();
        let options = self.options.iter();
        options.map(move |option| option.replace("{port}", &port))
    }

    fn password(&self) -> Option<&str> {
        let options = self.options.windows(2);
        let mut passwords = options.filter(|pair| pair[0] == "--requirepass");
        passwords.next_back().map(|pair| pair[1].as_str())
    }

    fn open_log(&self) -> File {
        let path = self.log();
        let log = OpenOptions::new().create(true).append(true).open(&path);
        log.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()))
    }

    fn log_from(&self, start: usize) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        String::from_utf8_lossy(log.get(start..).unwrap_or_default()).into_owned()
    }

    fn log(&self) -> PathBuf {
        self.directory.join("log")
    }
}

/// A subscribed connection that receives messages.
#[derive(Debug)]
pub struct Listener(BufReader<TcpStream>);

impl Listener {
    /// Returns the channels and texts of the messages since the last call.
    pub fn heard(&mut self) -> io::Result<Vec<(String, String)>> {
        let mut messages = Vec::new();
        // Messages published before this PING arrive before its reply.
        let mut reply = ask(&mut self.0, &["PING"])?;
        while let Some(message) = reply.strip_prefix("pmessage\n*\n") {
            let (channel, text) = message.split_once('\n').unwrap_or_default();
            messages.push((channel.to_owned(), text.to_owned()));
            reply = read_reply(&mut self.0)?;
        }
        Ok(messages)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        self.keeper.end();
    }
}

/// A shell that outlives this process for a moment and cleans up. The shell waits for the end of
/// its input, which comes when this process ends in any way. Then the shell kills the last server
/// that it was told of, and removes the directory. A server in a `static` is never dropped, but the
/// shell kills it, too.
#[derive(Debug)]
struct Keeper {
    shell: Child,
}

impl Keeper {
    fn of(directory: &Path) -> Self {
        let script = r#"while read -r line; do pid=$line; done
            [ -z "$pid" ] || kill -9 "$pid"
            rm -rf "$1""#;
        let shell = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(directory)
            .env_remove("pid")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Self {
            shell: shell.unwrap_or_else(|error| panic!("cannot run sh: {error}")),
        }
    }

    /// Tells the shell which server runs. An empty `pid` means that no server runs.
    fn note(&mut self, pid: &str) {
        if let Some(input) = &mut self.shell.stdin {
            // The shell kills this process ID only when this process has ended.
            let _ = writeln!(input, "{pid}");
        }
    }

    /// Makes the shell remove the directory. Failures are ignored, because a test may be panicking.
    fn end(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

enum Launch {
    Up,
    PortTaken,
}

/// Sends a command like [`Server::try_command`], to a master that another thread may restart
/// meanwhile.
pub fn try_command_on(port: u16, words: &[&str], timeout: Duration) -> io::Result<String> {
    ask(&mut connect(port, timeout)?, words)
}

/// Starts `n` masters at the same time.
pub fn masters(n: usize) -> Vec<Server> {
    thread::scope(|scope| {
        let starts: Vec<_> = (0..n).map(|_| scope.spawn(Server::start)).collect();
        let started = starts.into_iter().map(thread::ScopedJoinHandle::join);
        started.collect::<Result<_, _>>()
    })
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns the server program: `$QUORLOCK_TEST_SERVER`, or one on the `PATH`, or the one that
/// `./dev` has linked in `target/server`.
pub fn binary() -> PathBuf {
    find_binary().unwrap_or_else(|| {
        panic!(
            "neither redis-server nor valkey-server is on the PATH: install one, \
             or set QUORLOCK_TEST_SERVER, or run ./dev, which installs one"
        )
    })
}

/// Finds the server program like [`binary`], for callers that do not need a server.
pub fn find_binary() -> Option<PathBuf> {
    if let Some(path) = env::var_os("QUORLOCK_TEST_SERVER").filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    find_in(&env::var_os("PATH").unwrap_or_default(), workspace())
}

/// Finds a server program on this `PATH`, or the one that `./dev` has linked in this workspace.
pub fn find_in(path: &OsStr, workspace: &Path) -> Option<PathBuf> {
    let find = |directories: &[PathBuf]| {
        ["redis-server", "valkey-server"].iter().find_map(|name| {
            let mut programs = directories.iter().map(|directory| directory.join(name));
            programs.find(|program| program.is_file())
        })
    };
    let path: Vec<_> = env::split_paths(path).collect();
    find(&path).or_else(|| find(&[workspace.join("target/server")]))
}

/// Returns the program of one version of a server, such as `redis-8.6`. `./dev servers` fetches
/// these programs. Looks in `$QUORLOCK_TEST_SERVERS`, or in `target/servers/bin`. If the program is
/// missing, prints a line to stderr, and the test leaves that version out.
pub fn version(name: &str) -> Option<PathBuf> {
    let directory = env::var_os("QUORLOCK_TEST_SERVERS").filter(|path| !path.is_empty());
    let directory = directory.map_or_else(|| workspace().join("target/servers/bin"), PathBuf::from);
    let program = directory.join(name);
    let is_there = program.is_file();
    if !is_there {
        skipped(&format!("{name} is missing (./dev servers)"));
    }
    is_there.then_some(program)
}

/// Returns the directory of the workspace.
fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = package.ancestors().nth(2);
    workspace.expect("this package is in tests/testkit")
}

/// Says that this test leaves something out. The test harness would capture `eprintln`, and it does
/// not print the output of tests that pass.
pub fn skipped(why: &str) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(io::stderr(), "SKIPPED: {test}: {why}");
}

/// Returns whether there is no server program, but `QUORLOCK_TEST_URLS` names masters that already
/// run. If so, prints a line to stderr. A test that must start, kill or pause masters then returns
/// early.
pub fn only_urls() -> bool {
    let only_urls = find_binary().is_none() && env::var_os("QUORLOCK_TEST_URLS").is_some();
    if only_urls {
        skipped("there is no server program, only QUORLOCK_TEST_URLS");
    }
    only_urls
}

/// Returns whether the server program is older than version 7. If so, prints a line to stderr.
/// Masters that keep all writes need version 7, so a test of such masters then returns early.
pub fn is_before_7() -> bool {
    let major = |version: &String| version.split('.').next()?.parse::<u32>().ok();
    let is_before = versions().iter().filter_map(major).any(|major| major < 7);
    if is_before {
        skipped("the server program is older than version 7");
    }
    is_before
}

/// Returns whether the server program starts servers of several versions. If so, prints a line to
/// stderr. Old servers cannot be replicas of newer ones, so a test of replicas then returns early.
pub fn is_mixed() -> bool {
    let is_mixed = versions().len() > 1;
    if is_mixed {
        skipped("replicas need the version of their master");
    }
    is_mixed
}

/// Returns the versions that the server program names.
fn versions() -> Vec<String> {
    let named = find_binary().map(|program| Command::new(program).arg("--version").output());
    let Some(Ok(named)) = named else {
        return Vec::new();
    };
    let named = String::from_utf8_lossy(&named.stdout);
    let versions = named.split(" v=").skip(1);
    versions
        .filter_map(|text| Some(text.split_whitespace().next()?.to_owned()))
        .collect()
}

/// Claims a port that no server of this process has had before. The crate remembers the server at
/// each address. It would take a new server at an old address for one that restarted empty.
fn claim_port() -> (u16, UdpSocket) {
    static NEXT: LazyLock<AtomicUsize> =
        LazyLock::new(|| AtomicUsize::new(RandomState::new().hash_one(()) as usize % PORTS.len()));
    for _ in 0..PORTS.len() {
        let at = NEXT.fetch_add(1, Ordering::Relaxed) % PORTS.len();
        let port = PORTS.start + at as u16;
        if let Ok(claim) = UdpSocket::bind((Ipv4Addr::LOCALHOST, port))
            && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
        {
            return (port, claim);
        }
    }
    panic!("no free port in {PORTS:?}");
}

/// Creates a directory whose path is short enough for a socket in it (104 bytes on some systems).
fn new_directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut parent = env::temp_dir();
    if parent.as_os_str().len() > 64 {
        parent = PathBuf::from("/tmp");
    }
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = parent.join(format!("quorlock-{}-{number}", process::id()));
        match DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return directory,
            // A process with the same ID has left it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => panic!("cannot create {}: {error}", directory.display()),
        }
    }
}

fn connect(port: u16, timeout: Duration) -> io::Result<BufReader<TcpStream>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(BufReader::new(stream))
}

fn ask<S: Read + Write>(connection: &mut BufReader<S>, words: &[&str]) -> io::Result<String> {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    connection.get_mut().write_all(request.as_bytes())?;
    read_reply(connection)
}

fn read_reply(connection: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let Some(reply) = line.strip_suffix("\r\n") else {
        return Err(ErrorKind::UnexpectedEof.into());
    };
    match reply.split_at_checked(1).unwrap_or_default() {
        ("+" | "-" | ":", text) => Ok(text.to_owned()),
        ("$" | "*", "-1") => Ok("(nil)".to_owned()),
        ("$", length) => {
            let mut bytes = vec![0; number(length)? + 2];
            connection.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        ("*", length) => {
            let elements = (0..number(length)?).map(|_| read_reply(connection));
            Ok(elements.collect::<io::Result<Vec<_>>>()?.join("\n"))
        }
        _ => Err(io::Error::other(format!("not a RESP2 reply: {reply}"))),
    }
}

fn number(text: &str) -> io::Result<usize> {
    text.parse().map_err(io::Error::other)
}

/// The longest time that a server may take until its first answer. On a busy machine, it may take
/// more than 10 s.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The ports for servers. They are below the ranges from which systems take the local ports of
/// outgoing connections. An outgoing connection could otherwise occupy the port of a server that is
/// down.
const PORTS: Range<u16> = 16_384..32_768;

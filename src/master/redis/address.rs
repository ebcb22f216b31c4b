//! The address of a server.

use std::{io, net::IpAddr, path::PathBuf, pin::Pin, sync::Arc};

use super::wire::Wire;

#[derive(Clone)]
pub(super) enum Address {
    /// The text of the address, and a function that opens a stream to the server.
    Given(Arc<str>, Connect),
    #[cfg(feature = "sentinel")]
    Sentinels(Sentinels),
    Tcp(String, u16),
    #[cfg(feature = "tls")]
    Tls(String, u16),
    Unix(PathBuf),
}

/// Opens a stream to a server.
pub(super) type Connect = Arc<dyn Fn() -> Connecting + Send + Sync>;
pub(crate) type Connecting = Pin<Box<dyn Future<Output = io::Result<Wire>> + Send>>;

impl Address {
    /// Returns the address as text: the host and port, the path, or the service and a Sentinel. The
    /// text has neither the user nor the database, because two URLs that differ only in the user or
    /// the database are URLs of one server.
    pub(super) fn text(&self) -> Arc<str> {
        match self {
            Self::Given(address, _) => address.clone(),
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => sentinels.text(),
            Self::Tcp(host, port) => tcp_address(host, *port),
            #[cfg(feature = "tls")]
            Self::Tls(host, port) => tcp_address(host, *port),
            Self::Unix(path) => format!("unix:{}", path.display()).into(),
        }
    }

    #[cfg(feature = "tls")]
    pub(super) fn uses_tls(&self) -> bool {
        match self {
            #[cfg(feature = "sentinel")]
            Self::Sentinels(sentinels) => sentinels.uses_tls,
            Self::Tls(..) => true,
            Self::Given(..) | Self::Tcp(..) | Self::Unix(_) => false,
        }
    }
}

pub(super) const HAS_COMMA: &str =
    "its host has a comma: each URL of a list begins with its scheme";

/// Checks the host and the port of a server. The error contains neither of them: a password that is
/// not followed by `@` is read as the host or the port.
pub(super) fn check_tcp(host: &str, port: u16) -> Result<(), &'static str> {
    /// The longest host name in DNS.
    const MOST: usize = 253;
    // Only an IPv6 address has a colon. In such an address, `%` comes before the zone.
    let marks = if host.contains(':') { ":.%-_" } else { ".-_" };
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    if host.contains(',') {
        return Err(HAS_COMMA);
    }
    if !(1..=MOST).contains(&host.len()) || !host.chars().all(is_allowed) {
        return Err("its host is not a host name or an IP address");
    }
    let without_dot = host.strip_suffix('.');
    if without_dot.is_some_and(|host| host.parse::<IpAddr>().is_ok()) {
        return Err("its IP address ends with a dot");
    }
    if port == 0 {
        return Err("its port is 0");
    }
    Ok(())
}

/// Checks the number of the database. Servers use numbers of 31 bits.
pub(super) fn check_database(number: i64) -> Result<(), &'static str> {
    let database = i32::try_from(number);
    let is_number = database.is_ok_and(|database| database >= 0);
    is_number
        .then_some(())
        .ok_or("its database is not a number from 0 to 2147483647")
}

pub(super) fn tcp_address(host: &str, port: u16) -> Arc<str> {
    if host.contains(':') {
        format!("[{host}]:{port}").into()
    } else {
        format!("{}:{port}", host.to_ascii_lowercase()).into()
    }
}

/// The Sentinels that know one master.
#[cfg(feature = "sentinel")]
#[derive(Clone)]
pub(super) struct Sentinels {
    /// The name of the master, as the Sentinels know it.
    pub(super) service: Arc<str>,
    /// Sorted by name, so that two lists with the same Sentinels are equal.
    pub(super) sentinels: Vec<Sentinel>,
    /// Set if the Sentinels and the masters expect TLS.
    pub(super) uses_tls: bool,
}

/// One of the Sentinels.
#[cfg(feature = "sentinel")]
#[derive(Clone)]
pub(super) struct Sentinel {
    pub(super) name: Arc<str>,
    pub(super) host: String,
    pub(super) port: u16,
    /// The encoded login. It is empty if there is none.
    pub(super) auth: Arc<[u8]>,
}

#[cfg(feature = "sentinel")]
impl Sentinels {
    /// Returns the name that people see for the master. The name stays the same after a failover.
    fn text(&self) -> Arc<str> {
        let first = self.sentinels.first().map_or("", |first| &first.name);
        format!("sentinel:{}@{first}", self.service).into()
    }

    /// Returns the address of the Sentinel or the master at `host` and `port`.
    pub(super) fn address_of(&self, host: String, port: u16) -> Address {
        match self.uses_tls {
            #[cfg(feature = "tls")]
            true => Address::Tls(host, port),
            _ => Address::Tcp(host, port),
        }
    }
}

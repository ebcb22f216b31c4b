//! The address of a server and the login, from a URL or a ready client.

use std::sync::Arc;

use ::redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult,
};

use super::address::{Address, Connect, HAS_COMMA, NO_DATABASE, check_database, check_tcp};
#[cfg(feature = "sentinel")]
use super::sentinel_url;

#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(in crate::master) address: Address,
    /// The login and the database.
    pub(in crate::master) settings: RedisConnectionInfo,
    /// What to do if the server refuses the login.
    pub(super) login_advice: &'static str,
    /// If the server is in this process, this is the number of the simulated process that uses it.
    /// Otherwise, this is 0. Each simulated process has its own list of known run ids.
    process: u64,
}

const SHAPES: &str = "it should look like redis://[user][:password@]host[:port][/db], \
                      rediss://.. for TLS, unix:///path, \
                      or redis+sentinel://host,host/service";

impl Endpoint {
    /// Reads a URL. Errors contain no part of the URL, because the URL may contain a password.
    pub(crate) fn from_url(url: &str) -> Result<Self, String> {
        #[cfg(feature = "sentinel")]
        if let Some(parsed) = sentinel_url::parse(url) {
            return parsed
                .map(|(sentinels, settings)| Self::new(Address::Sentinels(sentinels), settings));
        }
        // The parser of URLs drops tabs and line breaks, which would change the password or the
        // path.
        let misshapen = |fault: &str| Err(format!("{fault}: {SHAPES}"));
        if url.trim().contains(['\t', '\n', '\r']) {
            return misshapen("a tab or a line break in its URL must be percent-encoded");
        }
        if has_late_login(url) {
            return misshapen("the login in its URL must be percent-encoded");
        }
        // The error of the redis crate is dropped: it may repeat a part of the URL.
        match read(url) {
            Ok(_) if has_unknown_parameter(url) => {
                misshapen("its URL has a parameter that is not known")
            }
            Ok(info) => {
                let endpoint = Self::from_info(&info)?;
                if url.contains('#') {
                    return misshapen("its URL has a part after #");
                }
                Ok(endpoint)
            }
            Err(_) if url.contains("+sentinel://") => {
                Err("a URL of Sentinels needs the crate's feature `sentinel`".to_owned())
            }
            Err(_) => misshapen(&fault_of(url)),
        }
    }

    fn from_info(info: &ConnectionInfo) -> Result<Self, String> {
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Address::Tcp(host.clone(), *port, None),
            ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
            #[cfg(not(feature = "tls"))]
            ConnectionAddr::TcpTls { .. } => {
                return Err("rediss:// needs the crate's feature `tls`".to_owned());
            }
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            } => Address::Tcp(host.clone(), *port, Some(None)),
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(
                    "a TLS connection that verifies nothing (#insecure) is not supported: give the \
                     certificates to trust with ca_file or Builder::tls"
                        .to_owned(),
                );
            }
            _ => return Err("its kind of address is not supported".to_owned()),
        };
        let is_good = match &address {
            Address::Tcp(host, port, _) => check_tcp(host, *port),
            Address::Unix(path) if path.as_os_str().as_encoded_bytes().contains(&0) => {
                Err("the path of its socket contains a NUL character")
            }
            _ => Ok(()),
        };
        is_good
            .and_then(|()| check_database(info.redis_settings().db()))
            .map_err(|fault| format!("{fault}: {SHAPES}"))?;
        Ok(Self::new(address, info.redis_settings().clone()))
    }

    fn new(address: Address, settings: RedisConnectionInfo) -> Self {
        Self {
            address,
            settings,
            login_advice: "look at the user and the password in the URL",
            process: 0,
        }
    }

    /// Sets the login, unless there is a password already. Keeps a user that is set already.
    pub(crate) fn login(mut self, user: &str, password: &str) -> Self {
        if self.has_password() {
            return self;
        }
        self.settings = self.settings.set_password(password);
        if self.settings.username().is_none() && !user.is_empty() {
            self.settings = self.settings.set_username(user);
        }
        self.login_advice = "look at the user, and the password (blanks count) of \
                             password_file, QUORLOCK_PASSWORD or MasterSpec::login";
        self
    }

    /// Returns the endpoint of a server in this process. `process` is the number of the simulated
    /// process that uses the endpoint.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn in_process(address: &str, process: u64, connect: Connect) -> Self {
        Self {
            process,
            ..Self::new(
                Address::Given(address.into(), connect),
                RedisConnectionInfo::default(),
            )
        }
    }

    /// Reads the URL of a server to which `connect` opens the streams.
    pub(crate) fn through(connect: Connect, url: &str) -> Result<Self, String> {
        let scheme = url.trim().split("://").next().unwrap_or_default();
        let scheme = scheme.to_ascii_lowercase();
        if !(["redis", "valkey"].contains(&&*scheme) || scheme.ends_with("unix")) {
            return Err(
                "the streams to it are given, so its URL should begin with redis:// or unix://"
                    .to_owned(),
            );
        }
        let endpoint = Self::from_url(url)?;
        Ok(Self {
            address: Address::Given(endpoint.address(), connect),
            ..endpoint
        })
    }

    pub(crate) fn address(&self) -> Arc<str> {
        self.address.text()
    }

    pub(crate) fn has_password(&self) -> bool {
        self.settings.password().is_some()
    }

    /// Returns whether there is a user without a password. Without a password, no login would be
    /// sent, so the server would treat this program as the default user.
    pub(crate) fn lacks_password(&self) -> bool {
        self.settings
            .username()
            .is_some_and(|user| user != "default")
            && !self.has_password()
    }

    /// Returns a name for the server's origin key, unique among all servers and databases. Each
    /// database has its own origin key.
    pub(super) fn origin_name(&self) -> String {
        format!("{}/{}/{}", self.address(), self.settings.db(), self.process)
    }
}

/// Reads a URL as the redis crate does. That crate has one feature for each TLS library, and two of
/// these features do not compile together. So this crate uses none of them, and passes the URL
/// without TLS.
fn read(url: &str) -> RedisResult<ConnectionInfo> {
    let plain = url.split_once(':').and_then(|(scheme, rest)| {
        let scheme = scheme.to_ascii_lowercase();
        let plain = matches!(scheme.as_str(), "rediss" | "valkeys");
        plain.then(|| format!("redis:{rest}"))
    });
    let Some(plain) = plain else {
        return url.into_connection_info();
    };
    let info = plain.into_connection_info()?;
    let ConnectionAddr::Tcp(host, port) = info.addr() else {
        return Ok(info);
    };
    let address = ConnectionAddr::TcpTls {
        host: host.clone(),
        port: *port,
        insecure: url.ends_with("#insecure"),
        tls_params: None,
    };
    Ok(info.set_addr(address))
}

/// Returns whether a part of the login would be read as the host, because it contains `/`, `?` or
/// `#`. The URL of a unix socket is not checked, because its login is in the query.
fn has_late_login(url: &str) -> bool {
    let rest = match url.split_once("://") {
        Some((scheme, rest)) if !scheme.ends_with("unix") => rest,
        _ => return false,
    };
    let end = rest.find(['/', '?', '#']);
    end.is_some_and(|end| rest[end..].contains('@'))
}

/// Returns whether the query has a parameter that would be ignored, such as a misspelled password.
fn has_unknown_parameter(url: &str) -> bool {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    let known: &[&str] = match url.split("://").next() {
        Some(scheme) if scheme.ends_with("unix") => &["db", "user", "pass", "protocol"],
        _ => &["protocol"],
    };
    let mut parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    parameters.any(|parameter| !known.contains(&parameter.split('=').next().unwrap_or_default()))
}

/// Returns what is wrong with a URL that cannot be used. The text contains no part of the URL that
/// may be a secret.
fn fault_of(url: &str) -> String {
    const SCHEMES: [&str; 5] = ["redis", "rediss", "unix", "valkey", "valkeys"];
    const QUOTES: [char; 2] = ['"', '\''];
    if url.is_empty() {
        return "its URL is empty".to_owned();
    }
    if url.starts_with(QUOTES) || url.ends_with(QUOTES) {
        return "its URL begins or ends with a quotation mark".to_owned();
    }
    let Some((scheme, rest)) = url.split_once("://") else {
        return "its URL does not begin with redis://".to_owned();
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    if !SCHEMES.contains(&scheme) && scheme.chars().all(is_word) {
        return format!("its URL begins with {scheme}://");
    }
    if scheme == "unix" && !rest.starts_with('/') {
        return "the path of its socket does not begin with /".to_owned();
    }
    if rest.contains("://") {
        return "it contains several URLs: put commas between them, or give them one by one"
            .to_owned();
    }
    let server = rest.split(['/', '?']).next().unwrap_or_default();
    let server = server.rsplit('@').next().unwrap_or_default();
    if server.contains(',') {
        return HAS_COMMA.to_owned();
    }
    if let Some(fault) = fault_of_ipv6(server) {
        return fault.to_owned();
    }
    let port = server.rsplit_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| !port.ends_with(']') && port.parse::<u16>().is_err()) {
        return "the port in its URL is not a number up to 65535".to_owned();
    }
    if SCHEMES.contains(&scheme) && has_no_number(scheme, rest) {
        return NO_DATABASE.to_owned();
    }
    "its URL cannot be used".to_owned()
}

/// Returns whether the database is there and is no number. `rest` is what follows the scheme.
fn has_no_number(scheme: &str, rest: &str) -> bool {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let database = match scheme {
        "unix" => query.split('&').find_map(|part| part.strip_prefix("db=")),
        _ => path.split_once('/').map(|(_, path)| path.trim_matches('/')),
    };
    database.is_some_and(|database| !database.is_empty() && database.parse::<i64>().is_err())
}

/// Returns what is wrong with a server that is named by an IPv6 address.
fn fault_of_ipv6(server: &str) -> Option<&'static str> {
    let (address, zone) = server.split_once('%').unwrap_or((server, ""));
    let is_of_ip = |c: char| c.is_ascii_hexdigit() || "[]:.".contains(c);
    if !address.chars().all(is_of_ip) || address.matches(':').count() < 2 {
        return None;
    }
    match address.starts_with('[') {
        true if zone.is_empty() => None,
        true => Some(
            "its IPv6 address has a zone, which no URL can have: use another address, or a name",
        ),
        false => Some("its IPv6 address must be in brackets, as in redis://[::1]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MasterSpec, master::redis::dialer::greet};

    #[test]
    fn addresses_tell_servers_apart_and_show_no_secrets() {
        for (url, address) in [
            ("redis://127.0.0.1", "127.0.0.1:6379"),
            ("redis://user:hunter2@Host:7001/3", "host:7001"),
            ("redis://[::1]:7001", "[::1]:7001"),
            ("valkey://a:1", "a:1"),
            ("unix:///run/r.sock?db=2&pass=hunter2", "unix:/run/r.sock"),
        ] {
            let endpoint = Endpoint::from_url(url).unwrap();
            assert_eq!(&*endpoint.address(), address);
            assert!(!format!("{:?}", MasterSpec::from(url)).contains("hunter2"));
        }
    }

    #[test]
    fn a_blank_is_part_of_a_password_or_a_path() {
        let endpoint = Endpoint::from_url("redis://v:a b@x").unwrap();
        assert_eq!(endpoint.settings.password(), Some("a b"));
        let endpoint = Endpoint::from_url("unix:///a  b/r.sock").unwrap();
        assert_eq!(&*endpoint.address(), "unix:/a  b/r.sock");
    }

    #[test]
    #[cfg(feature = "tls")]
    fn tls_is_read_without_the_redis_crate() {
        for (url, address, uses_tls) in [
            ("rediss://u:p%40@Host:7001/3", "host:7001", true),
            ("valkeys://[::1]", "[::1]:6379", true),
            ("REDISS://a", "a:6379", true),
            ("redis://rediss:1", "rediss:1", false),
        ] {
            let endpoint = Endpoint::from_url(url).unwrap();
            assert_eq!(
                (&*endpoint.address(), MasterSpec::from(url).uses_tls()),
                (address, uses_tls)
            );
        }
        let endpoint = Endpoint::from_url("rediss://u:p%40@Host:7001/3").unwrap();
        assert_eq!(endpoint.settings.password(), Some("p@"));
        assert_eq!(endpoint.settings.db(), 3);
        let refused = Endpoint::from_url("rediss://a#insecure").err().unwrap();
        assert!(refused.contains("verifies nothing"), "{refused}");
        assert!(!refused.contains("Client"), "{refused}");
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn tls_needs_its_feature() {
        for url in ["rediss://:hunter2@a", "valkeys://a", "rediss://a#insecure"] {
            let refused = Endpoint::from_url(url).err().unwrap();
            assert_eq!(refused, "rediss:// needs the crate's feature `tls`");
        }
    }

    #[test]
    fn a_login_is_set_where_there_is_no_password() {
        for (url, same_as) in [
            ("redis://a:7/2", "redis://me:p%20%2F@a:7/2"),
            ("redis://you@a", "redis://you:p%20%2F@a"),
            ("redis://:old@a", "redis://:old@a"),
            ("unix:///s?db=1", "unix:///s?db=1&user=me&pass=p%20%2F"),
            ("unix:///s?pass=old", "unix:///s?pass=old"),
        ] {
            let [endpoint, same] = [url, same_as].map(|url| Endpoint::from_url(url).unwrap());
            let endpoint = endpoint.login("me", "p /");
            let greeting = |endpoint: &Endpoint| {
                let mut bytes = Vec::new();
                greet(endpoint, "n", &mut bytes);
                bytes
            };
            assert_eq!(greeting(&endpoint), greeting(&same), "{url}");
            let advice = endpoint.login_advice;
            let is_of_url = url.contains("old");
            assert_eq!(advice.ends_with("password in the URL"), is_of_url, "{url}");
            assert_eq!(advice.ends_with("MasterSpec::login"), !is_of_url, "{url}");
            assert_eq!(endpoint.origin_name(), same.origin_name(), "{url}");
        }
    }

    #[test]
    fn errors_about_urls_say_what_is_wrong_and_show_no_secrets() {
        let faults = include_str!("../../../tests/tables/wrong_urls.txt").split("\n\n");
        let faults = faults.map(|fault| fault.split_once('\n').unwrap());
        let urls = faults.flat_map(|(fault, urls)| urls.lines().map(move |url| (url, fault)));
        for (url, fault) in urls.chain([("", "its URL is empty")]) {
            let url = url.trim_start().replace('␉', "\t").replace('␊', "\n");
            if url.starts_with("rediss") && cfg!(not(feature = "tls")) {
                continue;
            }
            let error = Endpoint::from_url(&url).err().unwrap_or_default();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(
                error.starts_with(&format!("{fault}: ")) && error.ends_with(SHAPES),
                "{url}: {error}"
            );
        }
    }
}

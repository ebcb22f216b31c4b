//! URLs of masters behind Sentinel.

use ::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::{
    address::{check_database, check_tcp, tcp_address},
    encode::encode,
    sentinel::Sentinels,
};

pub(super) const SHAPE: &str = "it should look like redis+sentinel://[user][:password@]\
                                host[:port],host[:port]/service[/db][?sentinel_user=..\
                                &sentinel_password=..], or rediss+sentinel://.. for TLS";

/// Reads the URL of a master behind Sentinel. Returns `None` if the URL has another scheme. Errors
/// contain no part of the URL that may be a secret.
pub(super) fn parse(url: &str) -> Option<Result<(Sentinels, RedisConnectionInfo), String>> {
    let (scheme, rest) = url.split_once("://")?;
    let uses_tls = match scheme {
        "redis+sentinel" | "valkey+sentinel" => false,
        "rediss+sentinel" | "valkeys+sentinel" => true,
        _ => return None,
    };
    if uses_tls && !cfg!(feature = "tls") {
        let why = format!("{scheme}:// needs the crate's feature `tls`");
        return Some(Err(why));
    }
    let parsed = parse_rest(rest, uses_tls);
    Some(parsed.map_err(|fault| format!("{fault}: {SHAPE}")))
}

const MOST_SENTINELS: usize = 16;

fn parse_rest(
    rest: &str,
    uses_tls: bool,
) -> Result<(Sentinels, RedisConnectionInfo), &'static str> {
    if rest.contains('#') {
        return Err("its URL has a part after #, which means nothing for Sentinels");
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (service, database) = path.split_once('/').unwrap_or((path, ""));
    // Sentinel itself accepts only these characters.
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if service.is_empty() {
        return Err("its URL names no service");
    }
    if !service.chars().all(is_allowed) {
        return Err("the service in its URL may contain only letters, digits, '.', '-' and '_'");
    }
    let auth = auth_of(query)?;
    // The number of Sentinels is limited, because every dial asks all of them at once, and the
    // error of a dial shows each answer.
    if hosts.split(',').count() > MOST_SENTINELS {
        return Err("its URL lists more than 16 Sentinels");
    }
    let hosts: Result<Vec<_>, _> = hosts.split(',').map(sentinel).collect();
    let mut hosts = hosts?;
    hosts.sort_by_cached_key(|(host, port)| tcp_address(host, *port));
    hosts.dedup_by_key(|(host, port)| tcp_address(host, *port));
    // The redis crate decodes the login and the database. The host `master` is not used.
    let master =
        info(login, "master", database).ok_or("its login or its database cannot be read")?;
    check_database(master.redis_settings().db())?;
    let sentinels = Sentinels {
        service: service.into(),
        hosts,
        auth: auth.into(),
        tls: uses_tls.then_some(None),
    };
    Ok((sentinels, master.redis_settings().clone()))
}

fn sentinel(host: &str) -> Result<(String, u16), &'static str> {
    const PORT: &str = ":26379";
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'));
    let port = if has_port { "" } else { PORT };
    let info = info("", &format!("{host}{port}"), "");
    let address = info.as_ref().map(ConnectionInfo::addr);
    match address {
        Some(ConnectionAddr::Tcp(host, port)) if check_tcp(host, *port).is_ok() => {
            Ok((host.clone(), *port))
        }
        _ => Err("a host or a port of a Sentinel in its URL cannot be used"),
    }
}

/// Returns the encoded login for Sentinels. It is empty if there is none.
fn auth_of(query: &str) -> Result<Vec<u8>, &'static str> {
    let (mut user, mut password) = ("", None);
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sentinel_user", value)) => user = value,
            Some(("sentinel_password", value)) => password = Some(value),
            _ => return Err("its URL has a parameter that is not known"),
        }
    }
    let Some(password) = password else {
        return if user.is_empty() {
            Ok(Vec::new())
        } else {
            Err("its URL has a sentinel_user without a sentinel_password")
        };
    };
    let is_escaped = |text: &str| !text.contains(['/', '@', ':', '[', ']', ' ', '\\']);
    let login =
        Some(format!("{user}:{password}")).filter(|_| is_escaped(user) && is_escaped(password));
    let info = login.and_then(|login| info(&login, "sentinel", ""));
    let info = info.ok_or("its sentinel_user or sentinel_password must be percent-encoded")?;
    let settings = info.redis_settings();
    let words = ["AUTH"]
        .into_iter()
        .chain(settings.username())
        .chain(settings.password());
    let words: Vec<_> = words.map(str::as_bytes).collect();
    let mut auth = Vec::new();
    encode(&mut auth, &words);
    Ok(auth)
}

/// Reads the parts of a URL as the redis crate does.
fn info(login: &str, host: &str, database: &str) -> Option<ConnectionInfo> {
    let at = if login.is_empty() { "" } else { "@" };
    let url = format!("redis://{login}{at}{host}/{database}");
    url.into_connection_info().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MasterSpec, master::redis::Endpoint};

    #[test]
    fn the_address_is_the_service_at_the_first_sentinel_whatever_the_order() {
        for (url, address) in [
            ("redis+sentinel://b,a:1/svc", "sentinel:svc@a:1"),
            ("valkey+sentinel://A:1,b,a:1/svc/", "sentinel:svc@a:1"),
            (
                "redis+sentinel://user:hunter2@[::1],[::2]:7/my.svc_1-x/3",
                "sentinel:my.svc_1-x@[::1]:26379",
            ),
            (
                "redis+sentinel://:hunter2%2F@h/svc?sentinel_user=u&sentinel_password=hunter2%40",
                "sentinel:svc@h:26379",
            ),
        ] {
            let endpoint = Endpoint::from_url(url).unwrap();
            assert_eq!(&*endpoint.address(), address);
            let shown = format!("{:?}", MasterSpec::from(url));
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn a_url_lists_at_most_16_sentinels() {
        for (count, is_good) in [(16, true), (17, false), (20_000, false)] {
            let hosts: Vec<_> = (0..count).map(|host| format!("s{host}")).collect();
            let url = format!("redis+sentinel://{}/svc", hosts.join(","));
            let built = Endpoint::from_url(&url);
            assert_eq!(built.is_ok(), is_good, "{count}");
            let text = built.err().unwrap_or_default();
            assert!(text.len() < 300, "{text}");
        }
    }

    #[test]
    fn both_logins_are_decoded_and_kept_apart() {
        let url = "redis+sentinel://u:p%2F@h/s/2?sentinel_user=a&sentinel_password=x%40+y";
        let (sentinels, master) = parse(url).unwrap().unwrap();
        assert_eq!(master.username(), Some("u"));
        assert_eq!((master.password(), master.db()), (Some("p/"), 2));
        let auth = String::from_utf8_lossy(&sentinels.auth);
        assert_eq!(auth, "*3\r\n$4\r\nAUTH\r\n$1\r\na\r\n$4\r\nx@+y\r\n");
        let url = "redis+sentinel://h/s?sentinel_password=x";
        let (sentinels, master) = parse(url).unwrap().unwrap();
        assert_eq!((master.username(), master.password()), (None, None));
        let auth = String::from_utf8_lossy(&sentinels.auth);
        assert_eq!(auth, "*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n");
    }

    #[test]
    fn faults_are_named_without_secrets() {
        for (rest, fault) in [
            ("", "its URL names no service: "),
            ("h", "its URL names no service: "),
            (":hunter2@h/", "its URL names no service: "),
            ("h/s v", "the service in its URL may contain only letters"),
            (":hunter2@/s", "a host or a port of a Sentinel"),
            (":hunter2@a,,b/s", "a host or a port of a Sentinel"),
            (":hunter2@a:x/s", "a host or a port of a Sentinel"),
            (":hunter2@a:99999/s", "a host or a port of a Sentinel"),
            (
                ":hunter2@a/s/x",
                "its login or its database cannot be read: ",
            ),
            ("a/s?hunter2", "its URL has a parameter that is not known: "),
            (
                "a/s?hunter2=1",
                "its URL has a parameter that is not known: ",
            ),
            (
                "a/s?sentinel_user=hunter2",
                "its URL has a sentinel_user without",
            ),
            (
                "a/s?sentinel_password=hunter2/",
                "its sentinel_user or sentinel_password must be percent-encoded: ",
            ),
            (":hunter2@a/s#insecure", "its URL has a part after #"),
            (":hunter2@a:0/s", "a host or a port of a Sentinel"),
            (":hunter2@a,b%00/s", "a host or a port of a Sentinel"),
            (":hunter2@a/s/99999999999", "its database is not a number"),
            (
                "hunter2/@a/s",
                "the service in its URL may contain only letters",
            ),
        ] {
            let url = format!("redis+sentinel://{rest}");
            let error = Endpoint::from_url(&url).err().unwrap();
            assert!(!error.contains("hunter2"), "{error}");
            assert!(
                error.starts_with(fault) && error.ends_with(SHAPE),
                "{url}: {error}"
            );
        }
    }
}

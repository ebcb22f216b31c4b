//! URLs: no text for people shows the password, and the crate accepts the URLs that the `redis`
//! crate accepts, except for those that the `redis` crate reads only in part.

use arbitrary::{Arbitrary, Unstructured};
use quorlock::{ConfigError, Coordinator, MasterSpec};

use super::session::one_of;

/// The start of every password. It has no character that a URL must escape.
const SECRET: &str = "hunter2";

pub fn run(input: &[u8]) {
    let mut input = Unstructured::new(input);
    let Ok(urls) = <[Url; 2]>::arbitrary(&mut input) else {
        return;
    };
    let rest = String::from_utf8_lossy(input.take_rest());
    let texts = urls.map(|url| url.text());
    texts.iter().for_each(|url| assert_hidden(url));
    for url in texts.iter().map(String::as_str).chain([&*rest]) {
        assert_same_as_a_client(url);
    }
    // Without a runtime, a builder checks everything and connects to nothing.
    let builder = Coordinator::builder().masters(&texts).master(&*rest);
    let shown = format!("{builder:?}");
    let error = builder.build().expect_err("there is no runtime");
    let shown = format!("{shown} {error} {error:?}");
    assert!(
        !shown.contains(SECRET) || rest.contains(SECRET),
        "{texts:?}: {shown}"
    );
}

fn assert_hidden(url: &str) {
    let master = MasterSpec::from(url);
    let shown = format!("{master:?}");
    let error = Coordinator::builder()
        .master(master)
        .build()
        .expect_err("there is no runtime");
    let shown = format!("{shown} {error} {error:?}");
    assert!(!shown.contains(SECRET), "{url:?}: {shown}");
}

/// Checks that a URL and a client for the URL have the same login and database. Without a TLS
/// library, a client can be made only for the same URL without TLS.
fn assert_same_as_a_client(url: &str) {
    let master = MasterSpec::from(url);
    let by_url = Coordinator::builder().master(master.clone()).build().err();
    let is_good = matches!(by_url, Some(ConfigError::NoRuntime));
    let plain = url
        .replacen("rediss:", "redis:", 1)
        .replacen("valkeys:", "valkey:", 1);
    match redis::Client::open(plain) {
        Ok(client) if is_good => {
            let settings = client.get_connection_info().redis_settings();
            assert_eq!(master.user(), settings.username(), "{url:?}");
            assert_eq!(master.database(), settings.db(), "{url:?}");
        }
        Ok(_) => {} // this crate refuses what it would not read
        // Only this crate reads the URLs of Sentinels.
        Err(_) if url.contains("+sentinel://") => {}
        Err(_) => assert!(!is_good, "{url:?}"),
    }
}

#[derive(Arbitrary, Debug)]
struct Url {
    #[arbitrary(with = |input: &mut Unstructured<'_>| one_of(&SCHEMES, input))]
    scheme: &'static str,
    user: Option<String>,
    password: String,
    host: Host,
    port: Option<u16>,
    database: Option<String>,
    query: Option<String>,
    fragment: Option<String>,
}

const SCHEMES: [&str; 7] = [
    "redis",
    "rediss",
    "unix",
    "valkey",
    "valkeys",
    "redis+sentinel",
    "rediss+sentinel",
];

#[derive(Arbitrary, Debug)]
enum Host {
    Name(String),
    V4([u8; 4]),
    V6([u16; 8]),
}

impl Url {
    /// Returns the URL. Its login is well-formed, and its other parts may be anything.
    fn text(&self) -> String {
        let user = escaped(self.user.as_deref().unwrap_or_default());
        let password = escaped(&format!("{SECRET}{}", self.password));
        let host = match &self.host {
            // A password that follows an `@`, `/`, `?` or `#` in the host would be no password.
            Host::Name(name) => name.replace(['@', '/', '?', '#', '\\'], ""),
            Host::V4([a, b, c, d]) => format!("{a}.{b}.{c}.{d}"),
            Host::V6(words) => format!("[{}]", std::net::Ipv6Addr::from(*words)),
        };
        if self.scheme == "unix" {
            let database = self.database.as_deref().unwrap_or("0");
            return format!("unix:///{host}?user={user}&pass={password}&db={database}");
        }
        let mut text = format!("{}://{user}:{password}@{host}", self.scheme);
        if self.scheme == "rediss+sentinel" {
            text = format!("{text},{host}");
        }
        let mut push = |mark: &str, part: Option<&str>| {
            if let Some(part) = part {
                text.push_str(mark);
                text.push_str(part);
            }
        };
        push(":", self.port.map(|port| port.to_string()).as_deref());
        push("/", self.database.as_deref());
        push("?", self.query.as_deref());
        push("#", self.fragment.as_deref());
        text
    }
}

/// Returns `text` as a part of a login in a URL.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

//! Passwords that do not stand in URLs.

use std::fmt::Write;

/// Returns `url` with a login, unless it has a password already. The user in the URL counts more
/// than `user`, which may be empty.
pub(crate) fn insert(url: &str, user: &str, password: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    if matches!(scheme, "unix" | "redis+unix" | "valkey+unix") {
        return insert_in_query(url, user, password);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (login, hosts) = match rest[..end].rfind('@') {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => ("", rest),
    };
    if login.contains(':') {
        return url.to_owned();
    }
    let user = if login.is_empty() {
        encoded(user)
    } else {
        login.to_owned()
    };
    format!("{scheme}://{user}:{}@{hosts}", encoded(password))
}

fn insert_in_query(url: &str, user: &str, password: &str) -> String {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let has = |key: &str| query.split('&').any(|part| part.starts_with(key));
    if has("pass=") {
        return url.to_owned();
    }
    let mut words = vec![format!("pass={}", encoded(password))];
    if !user.is_empty() && !has("user=") {
        words.push(format!("user={}", encoded(user)));
    }
    if !query.is_empty() {
        words.push(query.to_owned());
    }
    format!("{path}?{}", words.join("&"))
}

fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}"); // a `String` takes everything
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_inserted_where_it_belongs() {
        for (url, user, expected) in [
            ("redis://a", "", "redis://:p%20%2F@a"),
            ("redis://a:7/2?x=@", "me", "redis://me:p%20%2F@a:7/2?x=@"),
            ("rediss://you@a", "me", "rediss://you:p%20%2F@a"),
            ("redis://:old@a", "me", "redis://:old@a"),
            ("unix:///s", "", "unix:///s?pass=p%20%2F"),
            (
                "unix:///s?db=1",
                "me",
                "unix:///s?pass=p%20%2F&user=me&db=1",
            ),
            ("unix:///s?pass=old", "me", "unix:///s?pass=old"),
            (
                "redis+sentinel://a:1,b:2/m",
                "",
                "redis+sentinel://:p%20%2F@a:1,b:2/m",
            ),
            ("nonsense", "", "nonsense"),
        ] {
            assert_eq!(insert(url, user, "p /"), expected);
        }
    }
}

//! The table of the shared settings, and the environment.

use std::{env, ffi::OsString};

use serde::de::{IntoDeserializer, value::Error};

use super::shared_settings::{SharedSettings, quarantine, text, time, wrong};
use crate::{core::config_error::ConfigError, master::MasterSpec};

/// Reads the variables, in which an empty value counts as none.
pub(super) fn read(
    value: impl Fn(&str) -> Option<OsString>,
) -> Result<SharedSettings, ConfigError> {
    let mut settings = SharedSettings::default();
    for [name, key, ..] in SETTINGS.into_iter().filter(|row| row[0] != PASSWORD) {
        if let Some(value) = value(name).filter(|value| !value.is_empty()) {
            let set = settings.set(key, value);
            set.map_err(|reason| wrong(format!("the variable {name}"), reason))?;
        }
    }
    Ok(settings)
}

impl SharedSettings {
    /// Sets the field `key` to the value of its variable. Errors show no part of the value. Unlike
    /// the other values, the names of files need not be UTF-8.
    fn set(&mut self, key: &str, value: OsString) -> Result<(), String> {
        match key {
            "masters" => self.masters = masters(&text(value)?)?,
            "old_masters" => self.old_masters = masters(&text(value)?)?,
            "user" => self.user = Some(text(value)?),
            "password_file" => self.password_file = Some(value.into()),
            "ca_file" => self.ca_file = Some(value.into()),
            "cert_file" => self.cert_file = Some(value.into()),
            "key_file" => self.key_file = Some(value.into()),
            "ttl" => self.ttl = Some(time(&text(value)?)?),
            "max_ttl" => self.max_ttl = Some(time(&text(value)?)?),
            "connect_timeout" => self.connect_timeout = Some(time(&text(value)?)?),
            "response_timeout" => self.response_timeout = Some(time(&text(value)?)?),
            "key_template" => self.key_template = Some(text(value)?),
            _ => {
                let word = quarantine(text(value)?.into_deserializer());
                self.quarantine = word.map_err(|error: Error| error.to_string())?;
            }
        }
        Ok(())
    }
}

fn masters(urls: &str) -> Result<Vec<MasterSpec>, String> {
    let masters = MasterSpec::list(urls);
    for (number, master) in (1..).zip(&masters) {
        let address = master.address();
        address.map_err(|why| format!("is wrong: master {number}: {why}"))?;
    }
    Ok(masters)
}

/// Returns the variables of the environment that are settings, and those that look like settings
/// but are not. A variable that is empty counts as unset.
///
/// # Errors
///
/// [`ConfigError::BadSetting`] names a variable that is probably misspelt. If the variable were
/// ignored, programs could have different settings, and two of them could hold one lock.
pub fn variables() -> Result<(Vec<String>, Vec<String>), ConfigError> {
    let set = env::vars_os().filter(|(_, value)| !value.is_empty());
    sorted(set.filter_map(|(name, _)| name.into_string().ok()))
}

fn sorted(names: impl Iterator<Item = String>) -> Result<(Vec<String>, Vec<String>), ConfigError> {
    let settings = SETTINGS.map(|[name, ..]| name);
    let (known, mut others): (Vec<_>, Vec<_>) = names.partition(|name| settings.contains(&&**name));
    let is_no_setting = |name: &str| NO_SETTINGS.split(' ').any(|one| one == name);
    let is_foreign = |name: &str| FOREIGN.iter().any(|part| name.contains(part));
    others.retain(|name| !name.starts_with('_') && !is_no_setting(name) && !is_foreign(name));
    for name in &others {
        let text = name.to_uppercase();
        let rated = settings.iter().map(|near| (likeness(&text, near), near));
        let nearest = rated.max_by(|one, other| one.0.total_cmp(&other.0));
        if let Some((_, near)) = nearest.filter(|(likeness, _)| *likeness > 0.83) {
            let reason = format!("is not known: is it {near}?");
            return Err(wrong(format!("the variable {name}"), reason));
        }
    }
    others.retain(|name| name.starts_with("QUORLOCK_"));
    Ok((known, others))
}

/// Returns which part of the pairs of neighbouring letters two names have in common, from 0 to 1.
/// The order in a pair does not matter, so swapped letters cost two pairs, as a wrong letter does.
fn likeness(one: &str, other: &str) -> f64 {
    let pairs = |name: &str| -> Vec<_> {
        let pairs = name.as_bytes().windows(2);
        pairs
            .map(|pair| (pair[0].min(pair[1]), pair[0].max(pair[1])))
            .collect()
    };
    let (mut left, theirs) = (pairs(one), pairs(other));
    let all = left.len() + theirs.len();
    let common = theirs.iter().filter(|pair| {
        let at = left.iter().position(|one| one == *pair);
        at.map(|at| left.swap_remove(at)).is_some()
    });
    (2 * common.count()) as f64 / all as f64
}

/// The settings that programs share, a row each: the variable, the key in a file, the kind of the
/// value, and a text about it. The first sentence of a text is a summary, with the default in
/// brackets. The password has no key, because the errors of parsers show lines of the file.
// The names of a row are on one line.
#[rustfmt::skip]
pub const SETTINGS: [[&str; 4]; 14] = [
    [MASTERS, "masters", "URL",
        "URLs of the masters: redis://, rediss:// (TLS), unix:// (a socket), redis+sentinel://."],
    ["QUORLOCK_OLD_MASTERS", "old_masters", "URL",
        "URLs of the old masters, while the masters are changed. Everything then needs a majority \
         of each list. Give all old masters, also those that stay."],
    ["QUORLOCK_USER", "user", "TEXT",
        "User of masters whose URLs have no password [the default user]."],
    ["QUORLOCK_PASSWORD_FILE", "password_file", FILE,
        "File with the password of masters whose URLs have none. The password is its only line. \
         It is read once, at the start."],
    [PASSWORD, "", "TEXT",
        "Password of masters whose URLs have none. A password file comes before it."],
    ["QUORLOCK_CA_FILE", "ca_file", FILE,
        "Authorities that are trusted for rediss:// URLs [those of the system]. In PEM form."],
    ["QUORLOCK_CERT_FILE", "cert_file", FILE,
        "Certificate of this client in PEM form. It needs ca_file and key_file."],
    ["QUORLOCK_KEY_FILE", "key_file", FILE,
        "Private key of this certificate in PEM form, without a passphrase."],
    ["QUORLOCK_TTL", "ttl", "TIME",
        "Time until a lock ends if its holder dies [10s]."],
    ["QUORLOCK_MAX_TTL", "max_ttl", "TIME",
        "Longest TTL of all programs [1m]. To use a TTL above 1m, raise this first. It must be the \
         same in all programs. A master that may have forgotten locks has no vote for this time."],
    ["QUORLOCK_CONNECT_TIMEOUT", "connect_timeout", "TIME",
        "Time to connect to a master: name resolution, TLS and login [1s]. From 1ms to 60s."],
    ["QUORLOCK_RESPONSE_TIMEOUT", "response_timeout", "TIME",
        "Time for a master's answer [follows its answers, 50ms to 1s]. From 1ms to 60s. Take 500ms \
         if masters lack processor time, as with CPU limits."],
    ["QUORLOCK_KEY_TEMPLATE", "key_template", "KEY",
        "Key of a lock on the masters [{name}]. For example locks:{name}. It must be the same in \
         all programs."],
    ["QUORLOCK_QUARANTINE", "quarantine", "WORD",
        "Protection from masters that may have forgotten locks [observed]. It must be the same in \
         all programs. With strict, a master that is new, or lost its keys, has no vote for \
         max_ttl. Use strict if some programs come and go, such as cron jobs: they see each master \
         for the first time, and would not notice that it has restarted without its locks. With \
         observed, a master that lost its keys counts as new for programs that never used it. With \
         off, a master that restarted without its keys votes at once, and may give away a lock \
         that is held."],
];

/// The variable with the masters.
pub(super) const MASTERS: &str = "QUORLOCK_MASTERS";
/// The variable with the password.
pub(super) const PASSWORD: &str = "QUORLOCK_PASSWORD";
/// The variable with the client name, which is no setting that programs share.
pub(super) const CLIENT_NAME: &str = "QUORLOCK_CLIENT_NAME";
/// The kind of the settings that name a file.
const FILE: &str = "FILE";
/// The variables that are no settings: the name of one program, and what `quorlock run` sets.
const NO_SETTINGS: &str = "QUORLOCK_CLIENT_NAME QUORLOCK_LOCK QUORLOCK_VOTES \
    QUORLOCK_VALID_UNTIL_MS QUORLOCK_FENCING_TOKEN QUORLOCK_SLOT";
/// A variable with one of these parts in its name is ignored, because it describes a Kubernetes
/// service or is for tests.
const FOREIGN: [&str; 3] = ["_SERVICE_", "_PORT", "_TEST_"];

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers of the page find each row, and nothing else.
    #[test]
    fn the_page_has_the_rows_of_the_table() {
        let page = include_str!("../../../docs/settings.md");
        let (_, page) = page.split_once("## The environment and files").unwrap();
        for [name, key, _, text] in SETTINGS {
            let is_row =
                |line: &&str| line.starts_with("| ") && line.contains(&format!("`{name}`"));
            let row = page.lines().find(is_row);
            let row = row.unwrap_or_else(|| panic!("{name} is in no row"));
            assert!(key.is_empty() || row.contains(&format!("`{key}`")), "{row}");
            assert!(text.ends_with('.'), "{text}");
        }
        let named = page.split("QUORLOCK_").skip(1).map(|after| {
            let name = after
                .split(|c: char| !c.is_ascii_uppercase() && c != '_')
                .next();
            format!("QUORLOCK_{}", name.unwrap_or_default())
        });
        for name in named {
            assert!(
                SETTINGS.iter().any(|row| row[0] == name),
                "{name} is no row"
            );
        }
    }

    #[test]
    fn a_variable_is_a_key_in_capital_letters() {
        for [name, key, ..] in SETTINGS {
            let expected = format!("QUORLOCK_{}", key.to_uppercase());
            assert_eq!(name, if key.is_empty() { PASSWORD } else { &*expected });
        }
    }

    #[test]
    fn a_misspelt_variable_is_refused_or_told_of() {
        let (known, unknown, ours) = (Some("known"), Some("unknown"), None);
        for (name, expected) in [
            ("QUORLOCK_OLD_MASTERS", known),
            ("QUORLOCK_PASSWORD", known),
            ("QUORLOCK_OLD_MASTER", Some("QUORLOCK_OLD_MASTERS")),
            ("QUORLOCK_OLDMASTERS", Some("QUORLOCK_OLD_MASTERS")),
            ("QUORLOCK_TLL", Some("QUORLOCK_TTL")),
            ("QUORLOCK_USRE", Some("QUORLOCK_USER")),
            ("quorlock_ttl", Some("QUORLOCK_TTL")),
            ("QUORLOK_QUARANTINE", Some("QUORLOCK_QUARANTINE")),
            ("QUROLOCK_QUARANTINE", Some("QUORLOCK_QUARANTINE")),
            ("QUORLOCK_QUARATNINE", Some("QUORLOCK_QUARANTINE")),
            ("QUORLOCK_MASTER", Some("QUORLOCK_MASTERS")),
            ("QUORLOCK_MASTER_URLS", unknown), // without masters, nothing starts
            ("QUORLOCK_MASTERS_FILE", Some("QUORLOCK_MASTERS")),
            ("QUORLOCK_TEMPLATE", Some("QUORLOCK_KEY_TEMPLATE")),
            ("QUORLOCK_RESPONSE_TIME", Some("QUORLOCK_RESPONSE_TIMEOUT")),
            ("QUORLOCK_PASSWD", Some("QUORLOCK_PASSWORD")),
            ("QUORLOCK_PASSWORDS", Some("QUORLOCK_PASSWORD")),
            ("QUORLOCK_PASSWORD_PATH", Some("QUORLOCK_PASSWORD")),
            ("QUORLOCK_CA", unknown), // without it, no certificate is trusted
            ("QUORLOCK_CONFIG", unknown),
            ("QUORLOCK_PROFILE", unknown),
            ("QUORLOCK_VERSION", unknown), // of the image, perhaps
            ("QUORLOCK_IMAGE", unknown),
            ("QUORLOCK_NODE", unknown),
            ("QUORLOCK_NODE_NAME", unknown),
            ("QUORLOCK_MAX_WAIT", unknown),
            ("QUORLOCK_METRICS", unknown),
            ("QUORLOCK_LOCK_TTL", unknown),
            ("QUORLOCK_CLIENT_NAME", ours),
            ("QUORLOCK_LOCK", ours),
            ("QUORLOCK_VOTES", ours),
            ("QUORLOCK_VALID_UNTIL_MS", ours),
            ("QUORLOCK_FENCING_TOKEN", ours),
            ("QUORLOCK_SLOT", ours),
            ("QUORLOCK_TEST_SERVERS", ours),
            ("QUORLOCK_MASTER_SERVICE_HOST", ours), // of Kubernetes
            ("QUORLOCK_MASTER_PORT_6379_TCP", ours),
            ("_QUORLOCK_TTL", ours), // switched off, perhaps
            ("PASSWORD", ours),
        ] {
            let found = match sorted([name.to_owned()].into_iter()) {
                Ok((settings, _)) if settings == [name] => known,
                Ok((_, others)) if others == [name] => unknown,
                Ok(_) => ours,
                Err(error) => {
                    let expected = format!(
                        "the variable {name} is not known: is it {}?",
                        expected.unwrap_or_default()
                    );
                    assert_eq!(error.to_string(), expected);
                    continue;
                }
            };
            assert_eq!(found, expected, "{name}");
        }
    }

    fn read(variables: &[(&str, &str)]) -> Result<SharedSettings, ConfigError> {
        super::read(|name| {
            assert_ne!(name, PASSWORD, "a builder reads the password");
            let given = variables.iter().find(|(given, _)| *given == name);
            given.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn each_field_is_a_variable() {
        let none = format!("{:?}", SharedSettings::default());
        assert_eq!(format!("{:?}", read(&[]).unwrap()), none);
        for (name, value, field) in [
            (
                "MASTERS",
                "redis://a,\nredis://:hunter2@b",
                "masters: [a:6379, b:6379]",
            ),
            ("OLD_MASTERS", "redis://a", "old_masters: [a:6379]"),
            ("USER", "locks", "user: Some(\"locks\")"),
            ("PASSWORD_FILE", "/p", "password_file: Some(\"/p\")"),
            ("CA_FILE", "/ca", "ca_file: Some(\"/ca\")"),
            ("CERT_FILE", "/c", "cert_file: Some(\"/c\")"),
            ("KEY_FILE", "/k", "key_file: Some(\"/k\")"),
            ("TTL", "2m", "ttl: Some(120s)"),
            ("TTL", "20", "ttl: Some(20s)"), // as with --ttl 20
            ("MAX_TTL", "1m 30s", "max_ttl: Some(90s)"),
            ("CONNECT_TIMEOUT", "5s", "connect_timeout: Some(5s)"),
            ("RESPONSE_TIMEOUT", "500ms", "response_timeout: Some(500ms)"),
            (
                "KEY_TEMPLATE",
                "l:{name}",
                "key_template: Some(\"l:{name}\")",
            ),
            ("QUARANTINE", "strict", "quarantine: Some(Strict)"),
            ("QUARANTINE", "off", "quarantine: Some(Off)"),
        ] {
            let name = format!("QUORLOCK_{name}");
            let shown = format!("{:?}", read(&[(&name, value)]).unwrap());
            assert!(shown.contains(&format!(" {field}")), "{name}: {shown}");
            assert_eq!(
                format!("{:?}", read(&[(&name, "")]).unwrap()),
                none,
                "{name}"
            );
        }
    }

    #[test]
    fn an_error_names_the_variable_and_not_its_value() {
        let time = "is not a time, expected one such as 10s, 500ms or 1m";
        for (name, value, reason) in [
            ("MAX_TTL", "hunter2", time),
            ("TTL", "10x", time),
            (
                "QUARANTINE",
                "hunter2",
                "is not a quarantine, expected strict, observed or off",
            ),
            (
                "OLD_MASTERS",
                "redis://a,redis://:hunter2@b:x",
                "is wrong: master 2: the port in its URL is not a number up to 65535",
            ),
        ] {
            let name = format!("QUORLOCK_{name}");
            let error = read(&[(&name, value)]).unwrap_err().to_string();
            let expected = format!("the variable {name} {reason}");
            assert!(error.starts_with(&expected), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    /// Only the name of a file may be no text.
    #[cfg(unix)]
    #[test]
    fn a_variable_is_text() {
        use std::os::unix::ffi::OsStringExt;
        for [name, key, kind, _] in SETTINGS {
            let bytes = |given: &str| (given == name).then(|| OsString::from_vec(vec![0xff]));
            match super::read(bytes) {
                Ok(mut settings) if kind == FILE => {
                    assert_eq!(settings.files().into_iter().flatten().count(), 1, "{name}");
                }
                Ok(_) => assert!(key.is_empty(), "{name}"),
                Err(error) => {
                    let expected = format!("the variable {name} is not text in UTF-8");
                    assert_eq!(error.to_string(), expected);
                }
            }
        }
    }
}

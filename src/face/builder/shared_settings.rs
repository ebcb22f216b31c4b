//! The settings that programs share, from the environment or a configuration file.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use strsim::{osa_distance, sorensen_dice};

#[cfg(feature = "tls")]
use super::certificates;
use super::{Builder, Coordinator};
use crate::{
    core::{config_error::ConfigError, restart::Quarantine},
    master::MasterSpec,
};

/// Settings that programs share: environment variables, or a section of a configuration file. The
/// command line reads the same settings.
///
/// [`Builder::from_env`] is all that most programs need. Use this type to read the settings from a
/// file, or to look at them before the [`builder`](Self::builder) is made.
///
/// Each field is a key of the file, and a variable: `max_ttl` is `QUORLOCK_MAX_TTL`. Times are
/// texts such as `"500ms"`, `"10s"`, or `"5"` for 5 s. In a variable, lists of masters have commas
/// between the URLs. A variable that is empty counts as unset. With the feature `serde`, the type
/// is deserializable, and a key that is not known is an error. The error of a parser may show a
/// line of the file, so write no password into the file: use
/// [`password_file`](Self::password_file).
///
/// The password is not among the fields. It is the content of
/// [`password_file`](Self::password_file), or else of the variable `QUORLOCK_PASSWORD`. Masters
/// whose URLs have a password keep that password. A line break at the end of the password does not
/// count.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use quorlock::{MemoryMaster, SharedSettings};
///
/// let mut settings = SharedSettings::from_env()?;
/// if settings.masters.is_empty() {
///     let local = [(); 3].map(|()| MemoryMaster::new());
///     settings.masters = local.map(Into::into).to_vec(); // on the machine of a developer
/// }
/// let locks = settings.builder()?.build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct SharedSettings {
    /// See [`Builder::masters`].
    pub masters: Vec<MasterSpec>,
    /// See [`Builder::leaving`].
    pub leaving: Vec<MasterSpec>,
    /// The user of masters whose URLs have no password. `None`: the default user.
    pub user: Option<String>,
    /// The file whose only line is the password of masters whose URLs have none. A relative path
    /// begins in the working directory. In the configuration file of the command line, it begins in
    /// the directory of that file.
    pub password_file: Option<PathBuf>,
    /// A PEM file with the authorities that may sign the certificates of `rediss://` masters
    /// (feature `tls`). The file takes precedence over [`Builder::tls`]. `None`: the authorities of
    /// the system.
    pub ca_file: Option<PathBuf>,
    /// The certificate of this client, if the masters want one. Needs `ca_file` and `key_file`.
    pub cert_file: Option<PathBuf>,
    /// The private key of the certificate in `cert_file`, without a passphrase.
    pub key_file: Option<PathBuf>,
    /// See [`Builder::ttl`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time_of_text"))]
    pub ttl: Option<Duration>,
    /// See [`Builder::max_ttl`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time_of_text"))]
    pub max_ttl: Option<Duration>,
    /// See [`Builder::connect_timeout`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time_of_text"))]
    pub connect_timeout: Option<Duration>,
    /// See [`Builder::node_timeout`].
    #[cfg_attr(feature = "serde", serde(deserialize_with = "time_of_text"))]
    pub node_timeout: Option<Duration>,
    /// See [`Builder::key_template`].
    pub key_template: Option<String>,
    /// Whether the quarantine is [`Strict`](Quarantine::Strict).
    pub strict: Option<bool>,
}

impl SharedSettings {
    /// Reads the settings from the environment. Reads no file. Logs a warning for each variable
    /// that looks like a setting but is not one.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Shared`] names a variable that cannot be used, or one whose name is much like
    /// that of a setting.
    pub fn from_env() -> Result<Self, ConfigError> {
        for name in variables()?.1 {
            tracing::warn!(target: "quorlock", "the variable {name} is no setting of quorlock, and counts for nothing");
        }
        Self::from_variables(|name| env::var_os(name))
    }

    fn from_variables(value: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let get = |name| value(name).filter(|value| !value.is_empty());
        let text = |name| parsed(name, get(name), Ok);
        let time = |name| parsed(name, get(name), |text| Ok(time(&text)?));
        let urls = |name| parsed(name, get(name), masters).map(Option::unwrap_or_default);
        let file = |name| get(name).map(PathBuf::from);
        let truth = |text: String| text.parse().map_err(|_| "is neither true nor false".into());
        Ok(Self {
            masters: urls(MASTERS)?,
            leaving: urls("QUORLOCK_LEAVING")?,
            user: text("QUORLOCK_USER")?,
            password_file: file("QUORLOCK_PASSWORD_FILE"),
            ca_file: file("QUORLOCK_CA_FILE"),
            cert_file: file("QUORLOCK_CERT_FILE"),
            key_file: file("QUORLOCK_KEY_FILE"),
            ttl: time("QUORLOCK_TTL")?,
            max_ttl: time("QUORLOCK_MAX_TTL")?,
            connect_timeout: time("QUORLOCK_CONNECT_TIMEOUT")?,
            node_timeout: time("QUORLOCK_NODE_TIMEOUT")?,
            key_template: text("QUORLOCK_KEY_TEMPLATE")?,
            strict: parsed("QUORLOCK_STRICT", get("QUORLOCK_STRICT"), truth)?,
        })
    }

    /// Reads the password and the certificates, and gives them to the masters, but not to masters
    /// that are set later. The returned settings name no user and no file any more.
    /// [`builder`](Self::builder) does all of this, too. So only a program that uses the masters
    /// without a builder needs `read_files`, for example to check the masters.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Shared`] names a file that cannot be used, or `QUORLOCK_PASSWORD`.
    pub fn read_files(self) -> Result<Self, ConfigError> {
        let password = env::var_os(PASSWORD).filter(|password| !password.is_empty());
        self.with_password(password)?.with_tls()
    }

    /// Gives the masters their password: the content of the password file, or else `variable`.
    fn with_password(mut self, variable: Option<OsString>) -> Result<Self, ConfigError> {
        let user = self.user.take();
        let password = match self.password_file.take() {
            Some(file) => Some(password_of_file(&file)?),
            None if user.is_none() && self.masters.iter().all(MasterSpec::has_password) => None,
            None => parsed(PASSWORD, variable, |text| Ok(password(&text)?))?,
        };
        let Some(password) = password else {
            let reason = "has no password: set QUORLOCK_PASSWORD, or name a password_file";
            let error = user.map(|_| wrong("QUORLOCK_USER or user", reason));
            return error.map_or(Ok(self), Err);
        };
        let user = user.unwrap_or_default();
        Ok(self.each_master(|master| master.login(&user, &password)))
    }

    /// Reads the files for TLS, and gives their content to the masters.
    fn with_tls(self) -> Result<Self, ConfigError> {
        #[cfg(feature = "tls")]
        return certificates::read(self);
        #[cfg(not(feature = "tls"))]
        match [&self.ca_file, &self.cert_file, &self.key_file] {
            [None, None, None] => Ok(self),
            _ => Err(wrong("a file for TLS", "needs the crate's feature `tls`")),
        }
    }

    pub(super) fn each_master(self, change: impl Fn(MasterSpec) -> MasterSpec) -> Self {
        Self {
            masters: self.masters.into_iter().map(&change).collect(),
            leaving: self.leaving.into_iter().map(&change).collect(),
            ..self
        }
    }

    /// Reads the password and the certificates, and returns a builder with these settings. All
    /// methods of the builder can still be called.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Shared`] names a file that cannot be used, or `QUORLOCK_PASSWORD`.
    /// [`Builder::build`] checks the other settings.
    pub fn builder(self) -> Result<Builder, ConfigError> {
        let settings = self.read_files()?;
        let builder = Coordinator::builder()
            .masters(settings.masters)
            .leaving(settings.leaving);
        let builder = settings.max_ttl.into_iter().fold(builder, Builder::max_ttl);
        let (connect, node) = (settings.connect_timeout, settings.node_timeout);
        let builder = settings.ttl.into_iter().fold(builder, Builder::ttl);
        let builder = connect.into_iter().fold(builder, Builder::connect_timeout);
        let builder = node.into_iter().fold(builder, Builder::node_timeout);
        let template = settings.key_template.into_iter();
        let builder = template.fold(builder, Builder::key_template);
        let strict = settings.strict.filter(|is_strict| *is_strict).into_iter();
        Ok(strict.fold(builder, |builder, _| builder.quarantine(Quarantine::Strict)))
    }
}

impl Builder {
    /// Returns a builder with the [shared settings](SharedSettings) of the environment. The command
    /// line reads the same variables: `QUORLOCK_MASTERS`, which must be set, `QUORLOCK_LEAVING`,
    /// `QUORLOCK_KEY_TEMPLATE`, `QUORLOCK_MAX_TTL`, `QUORLOCK_STRICT` and others.
    ///
    /// If all programs use this method, an operator can change the settings on which all programs
    /// must agree, such as the masters, without new code. All methods of the builder can still be
    /// called.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Shared`] names a variable or a file that cannot be used.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorlock::Builder;
    ///
    /// let locks = Builder::from_env()?.client_name("web-3/812").build()?;
    /// # Ok(()) }
    /// ```
    pub fn from_env() -> Result<Self, ConfigError> {
        let settings = SharedSettings::from_env()?;
        if settings.masters.is_empty() {
            let reason = "has no masters: set it to their URLs, with commas between them";
            return Err(wrong(format!("the variable {MASTERS}"), reason));
        }
        settings.builder()
    }
}

const MASTERS: &str = "QUORLOCK_MASTERS";
const PASSWORD: &str = "QUORLOCK_PASSWORD";
/// The variables of the settings.
const SETTINGS: &str = "QUORLOCK_MASTERS QUORLOCK_LEAVING QUORLOCK_USER QUORLOCK_PASSWORD \
    QUORLOCK_PASSWORD_FILE QUORLOCK_CA_FILE QUORLOCK_CERT_FILE QUORLOCK_KEY_FILE QUORLOCK_TTL \
    QUORLOCK_MAX_TTL QUORLOCK_CONNECT_TIMEOUT QUORLOCK_NODE_TIMEOUT QUORLOCK_KEY_TEMPLATE \
    QUORLOCK_STRICT";
/// The variables that `quorlock run` sets.
const OF_RUN: &str = "QUORLOCK_LOCK QUORLOCK_VOTES QUORLOCK_DEADLINE_MS QUORLOCK_FENCING_TOKEN \
    QUORLOCK_SLOT";
/// A variable with one of these parts in its name is ignored, because it describes a Kubernetes
/// service or is for tests.
const FOREIGN: [&str; 3] = ["_SERVICE_", "_PORT", "_TEST_"];

/// Creates the error for a place whose value cannot be used. `reason` must show no part of the
/// value.
pub(super) fn wrong(place: impl Into<String>, reason: impl Into<String>) -> ConfigError {
    ConfigError::Shared {
        place: place.into(),
        reason: reason.into(),
    }
}

/// Returns the variables of the environment that are settings, and those that look like settings
/// but are not. A variable that is empty counts as unset.
///
/// # Errors
///
/// [`ConfigError::Shared`] names a variable that is probably misspelt. If the variable were
/// ignored, programs could have different settings, and two of them could hold one lock.
pub fn variables() -> Result<(Vec<String>, Vec<String>), ConfigError> {
    let set = env::vars_os().filter(|(_, value)| !value.is_empty());
    sorted(set.filter_map(|(name, _)| name.into_string().ok()))
}

fn sorted(names: impl Iterator<Item = String>) -> Result<(Vec<String>, Vec<String>), ConfigError> {
    let settings: Vec<_> = SETTINGS.split(' ').collect();
    let (known, mut others): (Vec<_>, Vec<_>) = names.partition(|name| settings.contains(&&**name));
    let is_of_run = |name: &str| OF_RUN.split(' ').any(|one| one == name);
    let is_foreign = |name: &str| FOREIGN.iter().any(|part| name.contains(part));
    others.retain(|name| !name.starts_with('_') && !is_of_run(name) && !is_foreign(name));
    for name in &others {
        let text = &*name.to_uppercase();
        // `sorensen_dice` compares pairs of letters.
        let is_near = |near: &str| osa_distance(text, near) < 2 || sorensen_dice(text, near) > 0.85;
        if let Some(near) = settings.iter().find(|near| is_near(near)) {
            let reason = format!("is not known: is it {near}?");
            return Err(wrong(format!("the variable {name}"), reason));
        }
    }
    others.retain(|name| name.starts_with("QUORLOCK_"));
    Ok((known, others))
}

/// Parses the value of an environment variable.
fn parsed<T>(
    name: &str,
    value: Option<OsString>,
    parse: impl FnOnce(String) -> Result<T, String>,
) -> Result<Option<T>, ConfigError> {
    let value = value.map(|value| {
        let text = value.into_string();
        parse(text.map_err(|_| "is not text in UTF-8")?)
    });
    let place = format!("the variable {name}");
    value.transpose().map_err(|reason| wrong(place, reason))
}

/// Returns the masters whose URLs are in an environment variable.
fn masters(urls: String) -> Result<Vec<MasterSpec>, String> {
    let masters = MasterSpec::list(&urls);
    for (number, master) in (1..).zip(&masters) {
        let address = master.address();
        address.map_err(|why| format!("is wrong: master {number}: {why}"))?;
    }
    Ok(masters)
}

/// Reads a time such as `500ms`. A number without a unit means seconds, as for `flock` and
/// `timeout`.
pub fn time(text: &str) -> Result<Duration, &'static str> {
    let time = match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    time.ok_or("is not a time, expected one such as 10s, 500ms or 1m")
}

#[cfg(feature = "serde")]
fn time_of_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = <String as serde::Deserialize>::deserialize(from)?;
    time(&text).map(Some).map_err(serde::de::Error::custom)
}

/// Reads at most 64 KiB of the file, because a file of that length is too long for a password.
fn password_of_file(file: &Path) -> Result<String, ConfigError> {
    let wrong = |reason| wrong(format!("the password file {}", file.display()), reason);
    let text = File::open(file).and_then(|file| io::read_to_string(file.take(1 << 16)));
    let text = text.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    password(&text).map_err(|reason| wrong(reason.to_owned()))
}

/// Returns the password in the content of a file or a variable.
fn password(text: &str) -> Result<String, &'static str> {
    let password = text.trim_end_matches(['\r', '\n']);
    Err(if password.is_empty() {
        "is empty: put the password in it"
    } else if text.len() >= 1 << 16 {
        "is 64 KiB or longer: put only the password in it"
    } else if password.contains(['\r', '\n']) {
        "has several lines: put only the password in it"
    } else if password.starts_with('\u{feff}') {
        "begins with a byte order mark, as some editors write it: remove it"
    } else {
        return Ok(password.to_owned());
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_refused_or_told_of() {
        let (known, unknown, ours) = (Some("known"), Some("unknown"), None);
        for (name, expected) in [
            ("QUORLOCK_LEAVING", known),
            ("QUORLOCK_PASSWORD", known),
            ("QUORLOCK_LEAVIN", Some("QUORLOCK_LEAVING")),
            ("QUORLOCK_LEAVE", Some("QUORLOCK_LEAVING")),
            ("QUORLOCK_TLL", Some("QUORLOCK_TTL")),
            ("QUORLOCK_USRE", Some("QUORLOCK_USER")),
            ("quorlock_ttl", Some("QUORLOCK_TTL")),
            ("QUORLOK_STRICT", Some("QUORLOCK_STRICT")),
            ("QUORLOCK_MASTER", Some("QUORLOCK_MASTERS")),
            ("QUORLOCK_MASTER_URLS", unknown), // without masters, nothing starts
            ("QUORLOCK_MASTERS_FILE", Some("QUORLOCK_MASTERS")),
            ("QUORLOCK_TEMPLATE", Some("QUORLOCK_KEY_TEMPLATE")),
            ("QUORLOCK_TIMEOUT", Some("QUORLOCK_NODE_TIMEOUT")),
            ("QUORLOCK_PASSWD", Some("QUORLOCK_PASSWORD")),
            ("QUORLOCK_PASSWORDS", Some("QUORLOCK_PASSWORD")),
            ("QUORLOCK_PASSWORD_PATH", Some("QUORLOCK_PASSWORD")),
            ("QUORLOCK_CA", unknown), // without it, no certificate is trusted
            ("QUORLOCK_CONFIG", unknown),
            ("QUORLOCK_SET", unknown),
            ("QUORLOCK_VERSION", unknown), // of the image, perhaps
            ("QUORLOCK_IMAGE", unknown),
            ("QUORLOCK_NODE", unknown),
            ("QUORLOCK_NODE_NAME", unknown),
            ("QUORLOCK_MAX_WAIT", unknown),
            ("QUORLOCK_METRICS", unknown),
            ("QUORLOCK_LOCK_TTL", unknown),
            ("QUORLOCK_LOCK", ours),
            ("QUORLOCK_VOTES", ours),
            ("QUORLOCK_DEADLINE_MS", ours),
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
        SharedSettings::from_variables(|name| {
            assert!(SETTINGS.split(' ').any(|known| known == name), "{name}");
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
            ("LEAVING", "redis://a", "leaving: [a:6379]"),
            ("USER", "locks", "user: Some(\"locks\")"),
            ("PASSWORD_FILE", "/p", "password_file: Some(\"/p\")"),
            ("CA_FILE", "/ca", "ca_file: Some(\"/ca\")"),
            ("CERT_FILE", "/c", "cert_file: Some(\"/c\")"),
            ("KEY_FILE", "/k", "key_file: Some(\"/k\")"),
            ("TTL", "2m", "ttl: Some(120s)"),
            ("TTL", "20", "ttl: Some(20s)"), // as with --ttl 20
            ("MAX_TTL", "1m 30s", "max_ttl: Some(90s)"),
            ("CONNECT_TIMEOUT", "5s", "connect_timeout: Some(5s)"),
            ("NODE_TIMEOUT", "500ms", "node_timeout: Some(500ms)"),
            (
                "KEY_TEMPLATE",
                "l:{name}",
                "key_template: Some(\"l:{name}\")",
            ),
            ("STRICT", "true", "strict: Some(true)"),
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
            ("STRICT", "hunter2", "is neither true nor false"),
            (
                "LEAVING",
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

    #[cfg(unix)]
    #[test]
    fn a_variable_is_text() {
        use std::os::unix::ffi::OsStringExt;
        let bytes = |_: &str| Some(OsString::from_vec(vec![0xff]));
        let error = SharedSettings::from_variables(bytes).unwrap_err();
        let expected = "the variable QUORLOCK_MASTERS is not text in UTF-8";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_password_is_one_line() {
        for (text, expected) in [
            ("hunter2", Ok("hunter2")),
            ("hunter2\r\n\n", Ok("hunter2")),
            (" a b ", Ok(" a b ")),
            ("\n", Err("is empty: ")),
            ("hunter2\nhunter3", Err("has several lines: ")),
            ("\u{feff}hunter2", Err("begins with a byte order mark")),
        ] {
            match (password(text), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(start)) => {
                    assert!(error.starts_with(start), "{error}");
                    assert!(!error.contains("hunter"), "{error}");
                }
                (found, expected) => panic!("{found:?}, not {expected:?}"),
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_too_long_for_a_password_is_not_read_to_its_end() {
        let error = password_of_file(Path::new("/dev/zero")).unwrap_err();
        let text = "the password file /dev/zero is 64 KiB or longer: ";
        assert!(error.to_string().starts_with(text), "{error}");
    }

    /// Like the file, the variable may end with a line break.
    #[test]
    fn a_password_is_shown_nowhere() {
        let settings = read(&[("QUORLOCK_MASTERS", "redis://a"), ("QUORLOCK_USER", "u")]);
        let with = settings.unwrap().with_password(Some("hunter2\n".into()));
        // A builder reads the variable again. All masters have a password now, so a variable with
        // two lines is no error.
        let settings = with.unwrap().with_password(Some("a\nb".into()));
        let settings = settings.unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"));
        let builder = settings.builder().unwrap();
        assert!(!format!("{builder:?}").contains("hunter2"));
    }
}

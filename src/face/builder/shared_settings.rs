//! The settings that programs share, from the environment or a configuration file.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Deserializer, de::Error as _};

#[cfg(feature = "tls")]
use super::certificates;
use super::{
    Builder, Coordinator,
    environment::{self, CLIENT_NAME, MASTERS, PASSWORD},
};
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
/// between the URLs. A variable that is empty counts as unset. In a file, a key that is not known
/// is an error. The error of a parser may show the file, above all its `Debug`: print only its
/// message, which shows no value. Write no password into the file: use
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
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SharedSettings {
    /// See [`Builder::masters`]. In a file, a list of URLs, or one text with commas between them.
    #[serde(deserialize_with = "masters_in_file")]
    pub masters: Vec<MasterSpec>,
    /// See [`Builder::old_masters`].
    #[serde(deserialize_with = "masters_in_file")]
    pub old_masters: Vec<MasterSpec>,
    /// The user of masters whose URLs have no password. `None`: the default user.
    pub user: Option<String>,
    /// The file whose only line is the password of masters whose URLs have none. See
    /// [`relative_to`](Self::relative_to).
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
    #[serde(deserialize_with = "time_in_file")]
    pub ttl: Option<Duration>,
    /// See [`Builder::max_ttl`].
    #[serde(deserialize_with = "time_in_file")]
    pub max_ttl: Option<Duration>,
    /// See [`Builder::connect_timeout`].
    #[serde(deserialize_with = "time_in_file")]
    pub connect_timeout: Option<Duration>,
    /// See [`Builder::response_timeout`].
    #[serde(deserialize_with = "time_in_file")]
    pub response_timeout: Option<Duration>,
    /// See [`Builder::key_template`].
    pub key_template: Option<String>,
    /// See [`Builder::quarantine`]. In a file, `"strict"`, `"observed"` or `"off"`.
    #[serde(deserialize_with = "quarantine")]
    pub quarantine: Option<Quarantine>,
}

impl SharedSettings {
    /// Reads the settings from the environment. Reads no file. Logs a warning for each variable
    /// that looks like a setting but is not one.
    ///
    /// # Errors
    ///
    /// [`ConfigError::BadSetting`] names a variable that cannot be used, or one whose name is much like
    /// that of a setting.
    pub fn from_env() -> Result<Self, ConfigError> {
        for name in environment::variables()?.1 {
            tracing::warn!(target: "quorlock", "the variable {name} is ignored: quorlock has no such setting");
        }
        environment::read(|name| env::var_os(name))
    }

    /// Lets the relative names of files begin in `directory`, such as that of the configuration
    /// file. Otherwise they begin in the working directory.
    #[must_use]
    pub fn relative_to(mut self, directory: impl AsRef<Path>) -> Self {
        for file in self.files().into_iter().flatten() {
            *file = directory.as_ref().join(&file);
        }
        self
    }

    /// Returns the settings that name a file, in the order of the table.
    pub(super) fn files(&mut self) -> [&mut Option<PathBuf>; 4] {
        [
            &mut self.password_file,
            &mut self.ca_file,
            &mut self.cert_file,
            &mut self.key_file,
        ]
    }

    /// Reads the password and the certificates, and gives them to the masters, but not to masters
    /// that are set later. The returned settings name no user and no file any more.
    /// [`builder`](Self::builder) does all of this, too. So only a program that uses the masters
    /// without a builder needs `read_files`, for example to check the masters, or to give them to
    /// [groups](crate::Groups):
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorlock::{Group, Groups, MasterSpec, SharedSettings};
    ///
    /// let shared = SharedSettings::from_env()?; // without QUORLOCK_MASTERS
    /// let group = |id: &str, urls| {
    ///     let mut of_group = shared.clone();
    ///     of_group.masters = MasterSpec::list(urls);
    ///     of_group.read_files().map(|read| Group::new(id, read.masters))
    /// };
    /// let a = group("a", "redis://10.0.0.1, redis://10.0.0.2, redis://10.0.0.3")?;
    /// let b = group("b", "redis://10.0.1.1, redis://10.0.1.2, redis://10.0.1.3")?;
    /// let locks = Groups::new(shared.builder()?, [a, b])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError::BadSetting`] names a file that cannot be used, or `QUORLOCK_PASSWORD`.
    pub fn read_files(self) -> Result<Self, ConfigError> {
        let password = env::var_os(PASSWORD).filter(|password| !password.is_empty());
        self.with_password(password)?.with_tls()
    }

    /// Gives the masters their password: the content of the password file, or else `variable`.
    fn with_password(mut self, variable: Option<OsString>) -> Result<Self, ConfigError> {
        let user = self.user.take();
        let mut all = self.masters.iter().chain(&self.old_masters);
        let password = match self.password_file.take() {
            Some(file) => Some(password_of_file(&file)?),
            None if user.is_none() && all.all(MasterSpec::has_password) => None,
            None => variable.map(password_of_variable).transpose()?,
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
            old_masters: self.old_masters.into_iter().map(&change).collect(),
            ..self
        }
    }

    /// Reads the password and the certificates, and returns a builder with these settings. All
    /// methods of the builder can still be called.
    ///
    /// # Errors
    ///
    /// [`ConfigError::BadSetting`] names a file that cannot be used, or `QUORLOCK_PASSWORD`.
    /// [`Builder::build`] checks the other settings.
    pub fn builder(self) -> Result<Builder, ConfigError> {
        let settings = self.read_files()?;
        let builder = Coordinator::builder()
            .masters(settings.masters)
            .old_masters(settings.old_masters);
        let builder = settings.max_ttl.into_iter().fold(builder, Builder::max_ttl);
        let (connect, node) = (settings.connect_timeout, settings.response_timeout);
        let builder = settings.ttl.into_iter().fold(builder, Builder::ttl);
        let builder = connect.into_iter().fold(builder, Builder::connect_timeout);
        let builder = node.into_iter().fold(builder, Builder::response_timeout);
        let template = settings.key_template.into_iter();
        let builder = template.fold(builder, Builder::key_template);
        let quarantine = settings.quarantine.into_iter();
        Ok(quarantine.fold(builder, Builder::quarantine))
    }
}

impl Builder {
    /// Returns a builder with the [shared settings](SharedSettings) of the environment. The command
    /// line reads the same variables: `QUORLOCK_MASTERS`, which must be set,
    /// `QUORLOCK_OLD_MASTERS`, `QUORLOCK_KEY_TEMPLATE`, `QUORLOCK_MAX_TTL`, `QUORLOCK_QUARANTINE`
    /// and others. `QUORLOCK_CLIENT_NAME` is the [client name](Self::client_name) of this program,
    /// which the command line does not read.
    ///
    /// If all programs use this method, an operator can change the settings on which all programs
    /// must agree, such as the masters, without new code. All methods of the builder can still be
    /// called.
    ///
    /// # Errors
    ///
    /// [`ConfigError::BadSetting`] names a variable or a file that cannot be used.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use quorlock::Builder;
    ///
    /// let locks = Builder::from_env()?.build()?;
    /// # Ok(()) }
    /// ```
    pub fn from_env() -> Result<Self, ConfigError> {
        let settings = SharedSettings::from_env()?;
        if settings.masters.is_empty() {
            let reason = "has no masters: set it to their URLs, with commas between them";
            return Err(wrong(format!("the variable {MASTERS}"), reason));
        }
        let name = env::var_os(CLIENT_NAME).filter(|name| !name.is_empty());
        let name = name.map(text).transpose();
        let name = name.map_err(|reason| wrong(format!("the variable {CLIENT_NAME}"), reason))?;
        let builder = settings.builder()?;
        Ok(name.into_iter().fold(builder, Self::client_name))
    }
}

/// Creates the error for a place whose value cannot be used. `reason` must show no part of the
/// value.
pub(super) fn wrong(place: impl Into<String>, reason: impl Into<String>) -> ConfigError {
    ConfigError::BadSetting {
        place: place.into(),
        reason: reason.into(),
    }
}

/// Reads a time such as `500ms`. A number without a unit means seconds, as for `flock` and
/// `timeout`.
pub(super) fn time(text: &str) -> Result<Duration, &'static str> {
    let time = match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    time.ok_or("is not a time, expected one such as 10s, 500ms or 1m")
}

// The values in a file. Their errors show no value: the field may have been mistaken for another one,
// and the value may be a password.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "masters must be a list of URLs or one text with commas between them"
)]
enum Masters {
    List(Vec<MasterSpec>),
    Text(String),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a time must be a number of seconds or a text such as 500ms"
)]
enum Time {
    Seconds(u32),
    Text(String),
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "is not a quarantine, expected strict, observed or off"
)]
enum Word {
    Quarantine(Quarantine),
}

fn masters_in_file<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<MasterSpec>, D::Error> {
    Ok(match Masters::deserialize(from)? {
        Masters::List(masters) => masters,
        Masters::Text(urls) => MasterSpec::list(&urls),
    })
}

fn time_in_file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    Ok(Some(match Time::deserialize(from)? {
        Time::Seconds(seconds) => Duration::from_secs(seconds.into()),
        Time::Text(text) => time(&text).map_err(D::Error::custom)?,
    }))
}

/// Reads a word, of a variable, too.
pub(super) fn quarantine<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Quarantine>, D::Error> {
    let Word::Quarantine(quarantine) = Word::deserialize(from)?;
    Ok(Some(quarantine))
}

/// Reads at most 64 KiB of the file, because a file of that length is too long for a password.
fn password_of_file(file: &Path) -> Result<String, ConfigError> {
    let wrong = |reason| wrong(format!("the password file {}", file.display()), reason);
    let text = File::open(file).and_then(|file| io::read_to_string(file.take(1 << 16)));
    let text = text.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    password(&text).map_err(|reason| wrong(reason.to_owned()))
}

fn password_of_variable(value: OsString) -> Result<String, ConfigError> {
    let password = text(value).and_then(|text| password(&text));
    password.map_err(|reason| wrong(format!("the variable {PASSWORD}"), reason))
}

/// Returns the value of a variable as text.
pub(super) fn text(value: OsString) -> Result<String, &'static str> {
    value.into_string().map_err(|_| "is not text in UTF-8")
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

    #[test]
    fn masters_without_a_password_get_one_in_both_lists() {
        for (masters, old_masters) in [
            ("redis://a", "redis://:own@b"),
            ("redis://:own@a", "redis://b"),
        ] {
            let settings = SharedSettings {
                masters: vec![masters.into()],
                old_masters: vec![old_masters.into()],
                ..SharedSettings::default()
            };
            let settings = settings.with_password(Some("given".into())).unwrap();
            let mut all = settings.masters.iter().chain(&settings.old_masters);
            assert!(all.all(MasterSpec::has_password), "{settings:?}");
        }
    }

    /// Like the file, the variable may end with a line break.
    #[test]
    fn a_password_is_shown_nowhere() {
        let settings = SharedSettings {
            masters: vec!["redis://a".into()],
            user: Some("u".into()),
            ..SharedSettings::default()
        };
        let with = settings.with_password(Some("hunter2\n".into()));
        // A builder reads the variable again. All masters have a password now, so a variable with
        // two lines is no error.
        let settings = with.unwrap().with_password(Some("a\nb".into()));
        let settings = settings.unwrap();
        assert!(!format!("{settings:?}").contains("hunter2"));
        let builder = settings.builder().unwrap();
        assert!(!format!("{builder:?}").contains("hunter2"));
    }
    #[test]
    fn names_of_files_are_relative_to_a_directory() {
        let mut settings = SharedSettings::default();
        for (file, name) in settings.files().into_iter().zip(["p", "/ca", "c", "../k"]) {
            *file = Some(name.into());
        }
        let mut settings = settings.relative_to("/etc/locks");
        let names = settings.files().map(|file| file.take().unwrap());
        let expected = ["/etc/locks/p", "/ca", "/etc/locks/c", "/etc/locks/../k"];
        assert_eq!(names, expected.map(PathBuf::from));
    }
}

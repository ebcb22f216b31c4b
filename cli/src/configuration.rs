//! The configuration file.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use quorlock::MasterSpec;
use serde::{Deserialize, Deserializer};

use crate::{args::Common, exit::Exit, failure::Failure};

/// One set of masters.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) masters: Vec<MasterSpec>,
    pub(crate) user: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
    /// The authorities that may sign the certificates of the masters. `None`: those of the system.
    #[cfg(feature = "tls")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The certificate for masters that want one of their clients.
    #[cfg(feature = "tls")]
    pub(crate) cert_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
    pub(crate) key_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "duration")]
    pub(crate) ttl: Option<Duration>,
    #[serde(default, deserialize_with = "duration")]
    pub(crate) max_ttl: Option<Duration>,
    pub(crate) key_template: Option<String>,
    /// Gives no vote to a master that no program has used before.
    #[serde(default)]
    pub(crate) strict: bool,
}

impl Settings {
    fn files(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let files = [
            &mut self.password_file,
            #[cfg(feature = "tls")]
            &mut self.ca_file,
            #[cfg(feature = "tls")]
            &mut self.cert_file,
            #[cfg(feature = "tls")]
            &mut self.key_file,
        ];
        files.into_iter().flatten()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The set that is used without `--set`. A single set needs no default.
    default: Option<String>,
    #[serde(rename = "set")]
    sets: BTreeMap<String, Settings>,
}

/// Reads a set of masters from the configuration file. Returns its name, too.
pub(crate) fn read(common: &Common) -> Result<(String, Settings), Failure> {
    let Some(path) = common.config.clone().or_else(usual_path) else {
        return Err(no_masters());
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(_) if common.config.is_none() && common.set.is_none() && !path.exists() => {
            return Err(no_masters());
        }
        Err(error) => return Err(wrong(&path, format!("cannot be read: {error}"))),
    };
    // The error of the parser shows the line, which may contain a password.
    let mut file: File = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |text| text.matches('\n').count() + 1);
        wrong(
            &path,
            format!("is wrong in line {line}: {}", first_words(error.message())),
        )
    })?;
    let names = file.sets.keys().cloned().collect::<Vec<_>>();
    let name = match (common.set.clone().or(file.default), &names[..]) {
        (Some(name), _) => name,
        (None, [only]) => only.clone(),
        (None, _) => {
            let known = names.join(", ");
            return Err(wrong(
                &path,
                format!("has several sets; name one with --set: {known}"),
            ));
        }
    };
    let Some(mut settings) = file.sets.remove(&name) else {
        return Err(wrong(
            &path,
            format!("has no set {name:?}; it has: {}", names.join(", ")),
        ));
    };
    // As the file was written, not as the program was started.
    for file in settings.files() {
        if let Some(folder) = path.parent() {
            *file = folder.join(&*file);
        }
    }
    Ok((name, settings))
}

fn usual_path() -> Option<PathBuf> {
    let folder = env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty());
    let folder = folder.map(PathBuf::from);
    let folder = folder.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".config")));
    Some(folder?.join("quorlock.toml"))
}

fn no_masters() -> Failure {
    Failure::new(
        Exit::Usage,
        "there are no masters; give --master URL for each, or set QUORLOCK_MASTERS, \
         or write ~/.config/quorlock.toml",
    )
}

fn wrong(path: &Path, what: impl AsRef<str>) -> Failure {
    let sentence = format!("the configuration {} {}", path.display(), what.as_ref());
    Failure::new(Exit::Configuration, sentence)
}

/// Returns the message without the values of the file, which stand in quotes or after a colon.
fn first_words(message: &str) -> &str {
    if message.starts_with("unknown field") || message.starts_with("missing field") {
        return message;
    }
    message
        .split([':', '"'])
        .next()
        .unwrap_or_default()
        .trim_end()
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let duration = humantime::parse_duration(&text);
    let duration = duration.map_err(|_| serde::de::Error::custom("not a time such as 10s"))?;
    Ok(Some(duration))
}

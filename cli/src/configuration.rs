//! The configuration file.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use quorlock::{MasterSpec, SharedSettings};
use quorlock_check::CheckSettings;
use serde::Deserialize;

use crate::{args::Common, exit::Exit, failure::Failure};

/// Returns the identities of the masters of both lists.
fn identities(profile: &SharedSettings) -> impl Iterator<Item = (String, i64)> {
    let masters = profile.masters.iter().chain(&profile.old_masters);
    masters.filter_map(identity)
}

/// Returns a server that is in both profiles.
fn shared_server(profile: &SharedSettings, other: &SharedSettings) -> Option<String> {
    let theirs: Vec<_> = identities(other).collect();
    let shared = identities(profile).find(|one| theirs.contains(one));
    shared.map(|(server, _)| server)
}

/// Returns the settings that all programs must share, with their options, that `profile`
/// has and `listed`, which was not read from a file, has not.
fn lost(profile: &SharedSettings, listed: &SharedSettings) -> Vec<[&'static str; 2]> {
    let (set, usual) = (CheckSettings::from(profile), CheckSettings::default());
    let has_template = set.key_template != usual.key_template && listed.key_template.is_none();
    let has_quarantine = set.quarantine != usual.quarantine && listed.quarantine.is_none();
    let has_max_ttl = set.max_ttl != usual.max_ttl && listed.max_ttl.is_none();
    let lost = [
        (has_template, ["key_template", "--key-template"]),
        (has_quarantine, ["quarantine", "--quarantine"]),
        (has_max_ttl, ["max_ttl", "--max-ttl"]),
    ];
    let lost = lost.into_iter().filter(|(is_lost, _)| *is_lost);
    lost.map(|(_, words)| words).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The profile that is used without `--profile`. A single profile needs no default.
    default: Option<String>,
    #[serde(default, rename = "profile")]
    profiles: BTreeMap<String, SharedSettings>,
}

/// Reads a profile from the configuration file. Returns its name, and where it is.
pub(crate) fn read(common: &Common) -> Result<(String, String, SharedSettings), Failure> {
    let Some((path, mut file)) = read_file(common)? else {
        let why = "there are no masters; give --master URL for each, or set QUORLOCK_MASTERS, \
            or write ~/.config/quorlock.toml";
        return Err(Failure::new(Exit::Usage, why));
    };
    let (name, settings) =
        choose(&mut file, common.profile.as_deref()).map_err(|what| wrong(&path, what))?;
    let path = std::path::absolute(&path).unwrap_or(path);
    let place = format!("the profile {name:?} in {}", path.display());
    // As the file was written, not as the program was started.
    let folder = path.parent().unwrap_or(Path::new(""));
    Ok((name, place, settings.relative_to(folder)))
}

/// Checks masters that were listed beside a configuration file.
///
/// # Errors
///
/// A profile of the file has one of these masters, and a setting that all programs must share and the
/// list has not. With the file and without it, two programs could hold one lock.
pub(crate) fn check_listed(
    listed: &SharedSettings,
    source: &str,
    common: &Common,
) -> Result<(), Failure> {
    let Some((path, file)) = read_file(common)? else {
        return Ok(());
    };
    for (name, profile) in &file.profiles {
        let lost = lost(profile, listed);
        if let (Some(server), [_, ..]) = (shared_server(profile, listed), &lost[..]) {
            let [settings, options] = [0, 1].map(|at| {
                let words: Vec<_> = lost.iter().map(|words| words[at]).collect();
                words.join(" and ")
            });
            let sentence = format!(
                "{source} has {server}, and so has the profile {name:?} in {}, with its own \
                 {settings}, so two programs could hold one lock; use --profile {name}, or give \
                 {options}",
                path.display(),
            );
            return Err(Failure::new(Exit::Configuration, sentence));
        }
    }
    Ok(())
}

/// Returns the server and the database, which identify a master. `None` for a URL that cannot be
/// used.
fn identity(master: &MasterSpec) -> Option<(String, i64)> {
    let address = master.address().ok()?;
    let port = address
        .strip_prefix("localhost:")
        .or(address.strip_prefix("[::1]:"));
    let server = port.map_or_else(|| address.to_string(), |port| format!("127.0.0.1:{port}"));
    Some((server, master.database()))
}

/// Reads the configuration file. `None` if nobody has named a file, and there is no usual one.
fn read_file(common: &Common) -> Result<Option<(PathBuf, File)>, Failure> {
    let Some(path) = common.config.clone().or_else(usual_path) else {
        return Ok(None);
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(_) if common.config.is_none() && common.profile.is_none() && !path.exists() => {
            return Ok(None);
        }
        Err(error) => return Err(wrong(&path, format!("cannot be read: {error}"))),
    };
    let file = parse(&text).map_err(|what| wrong(&path, what))?;
    Ok(Some((path, file)))
}

/// Returns the content of the file, or what is wrong with it.
fn parse(text: &str) -> Result<File, String> {
    let file: File = toml::from_str(text).map_err(|error| fault(text, &error))?;
    if file.profiles.is_empty() {
        return Err("has no profile; write [profile.NAME] and masters = [..]".to_owned());
    }
    // A URL in the place of a name may contain a password.
    let mut names = file.profiles.keys().chain(&file.default);
    if !names.all(|name| is_name(name)) {
        return Err(
            "has a profile whose name has other characters than a-z A-Z 0-9 - _ .".to_owned(),
        );
    }
    conflict(&file.profiles).map_or(Ok(file), Err)
}

/// Says what the parser found wrong. Its own error shows the line, which may contain a password.
fn fault(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |text| text.matches('\n').count() + 1);
    let written = text.lines().nth(line - 1).unwrap_or_default();
    let key = key(written);
    if let Some(table) = key.and_then(|key| meant_table(written, key, error.message())) {
        return format!("is wrong in line {line}: write [profile.{table}] for the profile {table}");
    }
    let at = key.map_or_else(String::new, |key| format!(", at {key}"));
    let what = without_values(error.message());
    format!("is wrong in line {line}{at}: {what}")
}

/// Returns what is wrong if two profiles have the same locks. Two programs could hold one, each
/// with the settings of another profile. Profiles with different key templates have different locks.
fn conflict(profiles: &BTreeMap<String, SharedSettings>) -> Option<String> {
    let all = profiles.iter().enumerate();
    let mut pairs =
        all.flat_map(|(at, one)| profiles.iter().skip(at + 1).map(move |two| (one, two)));
    pairs.find_map(|((name, ours), (other, theirs))| {
        let [one, two] = [ours, theirs].map(CheckSettings::from);
        let setting = match one.key_template == two.key_template {
            true if one.max_ttl != two.max_ttl => "max_ttl",
            true if one.quarantine != two.quarantine => "quarantine",
            _ => return None,
        };
        let server = shared_server(ours, theirs)?;
        Some(format!(
            "has {server} in the profiles {name:?} and {other:?}, which differ in {setting}, \
             so two programs could hold one lock; give both the same {setting}"
        ))
    })
}

/// Returns the profile called `name`, or the default. Or says why there is none.
fn choose(file: &mut File, name: Option<&str>) -> Result<(String, SharedSettings), String> {
    let names: Vec<_> = file.profiles.keys().cloned().collect();
    let known = names.join(", ");
    let name = match (name.or(file.default.as_deref()), &names[..]) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => {
            return Err(format!(
                "has several profiles; name one with --profile: {known}"
            ));
        }
    };
    match file.profiles.remove(name) {
        Some(settings) => Ok((name.to_owned(), settings)),
        None => Err(format!("has no profile {name:?}; it has: {known}")),
    }
}

fn usual_path() -> Option<PathBuf> {
    let folder = env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty());
    let folder = folder
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".config")));
    Some(folder?.join("quorlock.toml"))
}

fn wrong(path: &Path, what: impl AsRef<str>) -> Failure {
    let sentence = format!("the configuration {} {}", path.display(), what.as_ref());
    Failure::new(Exit::Configuration, sentence)
}

/// Returns the message without the values of the file, which stand in quotes or after a colon. What
/// the parser expected is no value.
fn without_values(message: &str) -> String {
    let (what, expected) = message.rsplit_once(", expected ").unzip();
    let what = what.unwrap_or(message).split([':', '"', '`', ',']).next();
    let what = what.unwrap_or_default().trim_end();
    match expected {
        Some("a map" | "struct SharedSettings") => {
            format!("{what}, expected a table such as [profile.production]")
        }
        Some("a string") => format!("{what}, expected a text in quotes"),
        Some(expected) => format!("{what}, expected {expected}"),
        None => what.to_owned(),
    }
}

/// Returns the name of the profile that a table of another name is probably meant to be, such as
/// `[prod]`.
fn meant_table<'a>(line: &str, key: &'a str, message: &str) -> Option<&'a str> {
    let is_other = line.trim_start().starts_with('[') && message.starts_with("unknown field");
    let name = key.strip_prefix("profiles.").unwrap_or(key);
    (is_other && !name.contains('.')).then_some(name)
}

/// Returns whether a text looks like the name of a profile or a setting, and not like a URL.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.len() <= 64 && text.chars().all(is_part)
}

/// Returns the key in a line, or the name of the table that begins there.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=').or(line.split_once(']'))?;
    Some(key.trim().trim_start_matches('[')).filter(|key| is_name(key))
}

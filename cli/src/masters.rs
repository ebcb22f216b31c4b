//! The masters, from the options, the environment or the configuration file.

use std::{
    env, fmt,
    fs::File,
    io::{self, Read},
    mem,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use quorlock::{
    Builder, ConfigError, Coordinator, MasterSpec, Quarantine,
    tools::{ConnectionName, example_keys},
};
use quorlock_check::{Report, Shared, check};
use tokio::runtime::Runtime;

#[cfg(feature = "tls")]
use crate::certificates;
use crate::{
    args::Common,
    client_name::client_name,
    configuration::{self, Settings},
    exit::Exit,
    failure::Failure,
    output::complain,
    runtime,
    values::time,
};

/// The masters and their settings.
pub(crate) struct Masters {
    builder: Builder,
    /// The masters, and those that the programs leave.
    lists: [Vec<MasterSpec>; 2],
    shared: Shared,
    source: Source,
    is_strict: bool,
    exposed: Option<PathBuf>,
}

/// The source of the list of masters.
enum Source {
    Options,
    Set {
        name: String,
        /// The name with the file.
        place: String,
    },
    Variable,
}

impl Masters {
    /// Finds the masters. What the command line names comes before the environment, and the usual
    /// file comes last. Sends nothing.
    pub(crate) fn find(common: &Common) -> Result<Self, Failure> {
        let masters = Self::find_to_check(common)?;
        // In a container, that is usual, and nobody else is there.
        if let Some(file) = masters.exposed().filter(|_| common.wants_news()) {
            let file = file.display();
            complain(format_args!(
                "all users can read the password file {file}; run: chmod 600 {file}"
            ));
        }
        Ok(masters)
    }

    /// Finds the masters of a change from the masters `from` to the masters `to`. If there are none
    /// in `from`, the old masters are those of the settings.
    pub(crate) fn find_change(
        common: &Common,
        from: &[String],
        to: &[String],
    ) -> Result<Self, Failure> {
        if !from.is_empty() && !common.masters.is_empty() {
            let why = "--from and --master exclude each other";
            return Err(Failure::new(Exit::Usage, why));
        }
        let mut named = common.clone();
        let is_named = common.set.is_some() || common.config.is_some();
        if !is_named {
            named.masters.extend_from_slice(from);
        }
        let (source, mut settings) = find_settings(&named)?;
        let used = mem::replace(&mut settings.masters, listed(to));
        if !from.is_empty() {
            settings.leaving = listed(from);
        } else if settings.leaving.is_empty() {
            settings.leaving = used;
        }
        if settings.leaving.is_empty() {
            return Err(Failure::new(Exit::Usage, "there are no old masters"));
        }
        Self::of(source, settings, common)
    }

    /// Finds the masters for a program that checks the password file itself.
    pub(crate) fn find_to_check(common: &Common) -> Result<Self, Failure> {
        let (source, settings) = find_settings(common)?;
        if common.is_verbose() {
            complain(format_args!("the masters are those of {source}"));
        }
        Self::of(source, settings, common)
    }

    fn of(source: Source, settings: Settings, common: &Common) -> Result<Self, Failure> {
        let is_strict = settings.strict == Some(true);
        let shared = shared(&settings);
        let (builder, lists, exposed) = builder(settings, common)?;
        Ok(Self {
            builder,
            lists,
            shared,
            source,
            is_strict,
            exposed,
        })
    }

    /// Returns where the masters come from, for people.
    pub(crate) fn source(&self) -> String {
        self.source.to_string()
    }

    /// Returns whether masters that no program has used before have no vote.
    pub(crate) fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Returns the password file if all users can read it.
    pub(crate) fn exposed(&self) -> Option<&Path> {
        self.exposed.as_deref()
    }

    /// Returns the masters for a check. Must be called outside a runtime.
    pub(crate) fn into_check(self) -> Result<ToCheck, Failure> {
        let idle = runtime::start();
        let idle = idle.map_err(|error| Failure::new(Exit::System, error.to_string()))?;
        let (lists, shared) = (self.lists.clone(), self.shared.clone());
        let inside = idle.enter();
        let locks = self.build(CONNECTIONS_OF_A_CHECK)?;
        drop(inside);
        Ok(ToCheck {
            locks,
            lists,
            shared,
            _idle: idle,
        })
    }

    /// Returns the coordinator. Must be called inside a runtime.
    pub(crate) fn coordinator(self) -> Result<Coordinator, Failure> {
        self.build(1)
    }

    /// Returns a coordinator, if that many connections to each master can be opened.
    fn build(self, connections: usize) -> Result<Coordinator, Failure> {
        let locks = self.builder.build().map_err(|error| {
            let failure = not_built(error, self.lists[0].len());
            match self.source {
                Source::Set { name, .. } => failure.in_set(&name),
                Source::Options | Source::Variable => failure,
            }
        })?;
        // Otherwise, it would look as if masters were down.
        let count = locks.health().len() * connections + OWN_FILES;
        let files = (0..count).map(|_| File::open("/dev/null"));
        match files.collect::<io::Result<Vec<_>>>() {
            Ok(_) => Ok(locks),
            Err(error) => {
                let sentence = format!("cannot open enough files: {error}; look at `ulimit -n`");
                Err(Failure::new(Exit::System, sentence))
            }
        }
    }
}

/// Masters to check.
pub(crate) struct ToCheck {
    /// Knows the masters, and has checked the settings. It dials nobody, because its runtime never
    /// runs: a first dial writes the origin key.
    pub(crate) locks: Coordinator,
    /// The masters, and those that the programs leave.
    pub(crate) lists: [Vec<MasterSpec>; 2],
    shared: Shared,
    _idle: Runtime,
}

impl ToCheck {
    pub(crate) async fn check(&self) -> Result<Report, Failure> {
        let [masters, leaving] = &self.lists;
        Ok(check(masters, leaving, &self.shared).await?)
    }

    /// Returns what the connections of programs show about their key template, if it is ours.
    pub(crate) fn keys(&self) -> Result<u32, Failure> {
        let keys = example_keys(&self.shared.key_template)?;
        let (lists, key) = (self.locks.lists_id(), &keys[0].key);
        Ok(ConnectionName::new(lists, key, self.shared.max_ttl, None).keys)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options => f.write_str("--master"),
            Self::Set { place, .. } => f.write_str(place),
            Self::Variable => f.write_str(MASTERS),
        }
    }
}

/// The files that a command needs beside a connection to each master.
const OWN_FILES: usize = 10;
/// The connections that a check has to one master at the same time.
const CONNECTIONS_OF_A_CHECK: usize = 5;
const MASTERS: &str = "QUORLOCK_MASTERS";

fn find_settings(common: &Common) -> Result<(Source, Settings), Failure> {
    let is_named = common.set.is_some() || common.config.is_some();
    let urls = variable(MASTERS)?.filter(|_| !is_named);
    let (source, masters) = match urls {
        _ if !common.masters.is_empty() => (Source::Options, listed(&common.masters)),
        Some(urls) => (Source::Variable, listed(&[urls])),
        None => {
            let (name, place, settings) = configuration::read(common)?;
            let settings = with_options(settings, common)?;
            return Ok((Source::Set { name, place }, settings));
        }
    };
    let leaving = variable("QUORLOCK_LEAVING")?;
    let settings = Settings {
        masters,
        leaving: listed(leaving.as_slice()),
        key_template: variable("QUORLOCK_KEY_TEMPLATE")?,
        max_ttl: parsed("QUORLOCK_MAX_TTL", time)?,
        connect_timeout: parsed("QUORLOCK_CONNECT_TIMEOUT", time)?,
        node_timeout: parsed("QUORLOCK_NODE_TIMEOUT", time)?,
        strict: parsed("QUORLOCK_STRICT", |text| {
            text.parse()
                .map_err(|_| "it is neither true nor false".to_owned())
        })?,
        ..Settings::default()
    };
    let settings = with_options(settings, common)?;
    configuration::check_listed(&settings, &source, common)?;
    Ok((source, settings))
}

/// Returns settings with those in their place that the command line has.
fn with_options(settings: Settings, common: &Common) -> Result<Settings, Failure> {
    let options = &common.meaning;
    Ok(Settings {
        leaving: match &common.leaving[..] {
            [] => settings.leaving,
            lists => listed(lists),
        },
        key_template: options.key_template.clone().or(settings.key_template),
        max_ttl: options.max_ttl.or(settings.max_ttl),
        connect_timeout: common.connect_timeout.or(settings.connect_timeout),
        node_timeout: common.node_timeout.or(settings.node_timeout),
        strict: options.strict.or(settings.strict),
        ..settings
    })
}

/// Returns the masters of options, each of which may name several.
fn listed(texts: &[String]) -> Vec<MasterSpec> {
    texts
        .iter()
        .flat_map(|text| MasterSpec::list(text))
        .collect()
}

/// Returns the failure for settings that cannot be used, with the list that is wrong. `masters` is
/// the length of the first list, after which the library goes on counting.
fn not_built(mut error: ConfigError, masters: usize) -> Failure {
    let (first, second) = match &mut error {
        ConfigError::BadMaster { master, .. } => (master, None),
        ConfigError::DuplicateMaster { first, second, .. } => (first, Some(second)),
        _ => return error.into(),
    };
    if *first <= masters {
        return error.into();
    }
    for number in [Some(first), second].into_iter().flatten() {
        *number -= masters;
    }
    Failure::new(Exit::Usage, format!("leaving {error}"))
}

/// Returns the settings that the programs share.
fn shared(settings: &Settings) -> Shared {
    let mut shared = Shared::default();
    shared.max_ttl = settings.longest_ttl();
    shared.key_template = settings.template().to_owned();
    shared.connect_timeout = settings.connect_timeout.unwrap_or(shared.connect_timeout);
    shared.node_timeout = settings.node_timeout.unwrap_or(shared.node_timeout);
    if settings.strict == Some(true) {
        shared.quarantine = Quarantine::Strict;
    }
    shared
}

/// What `builder` returns: also both lists, and the password file if all users can read it.
type Built = (Builder, [Vec<MasterSpec>; 2], Option<PathBuf>);

fn builder(settings: Settings, common: &Common) -> Result<Built, Failure> {
    let mut builder = Coordinator::builder().max_ttl(settings.longest_ttl());
    if let Some(name) = client_name() {
        builder = builder.client_name(name);
    }
    #[cfg(feature = "tls")]
    let tls = certificates::read(&settings)?;
    let file = common.password_file.clone().or(settings.password_file);
    let (password, is_exposed) = match &file {
        Some(file) => read_password(file).map(|(text, is_exposed)| (Some(text), is_exposed))?,
        None => (variable("QUORLOCK_PASSWORD")?, false),
    };
    let user = settings.user.unwrap_or_default();
    let login = |master: MasterSpec| match &password {
        Some(password) => master.login(&user, password),
        None => master,
    };
    let lists = [settings.masters, settings.leaving];
    let lists = lists.map(|list| list.into_iter().map(&login).collect::<Vec<_>>());
    #[cfg(feature = "tls")]
    let lists = match tls {
        Some(tls) => lists.map(|list| list.into_iter().map(|one| one.tls(tls.clone())).collect()),
        None => lists,
    };
    let [masters, leaving] = lists.clone();
    builder = builder.masters(masters).leaving(leaving);
    if let Some(ttl) = settings.ttl {
        builder = builder.ttl(ttl);
    }
    if let Some(timeout) = settings.connect_timeout {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(timeout) = settings.node_timeout {
        builder = builder.node_timeout(timeout);
    }
    if let Some(template) = settings.key_template {
        builder = builder.key_template(template);
    }
    if settings.strict == Some(true) {
        builder = builder.quarantine(Quarantine::Strict);
    }
    Ok((builder, lists, file.filter(|_| is_exposed)))
}

/// The longest password file, in bytes. A file such as /dev/zero has no end.
const MOST: u64 = 1 << 16;

/// Returns the password, and whether all users can read it.
fn read_password(file: &Path) -> Result<(String, bool), Failure> {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| {
        let mode = file.metadata()?.permissions().mode();
        file.take(MOST).read_to_string(&mut text).map(|_| mode)
    });
    let mode = read.map_err(|error| {
        let sentence = format!("cannot read the password in {}: {error}", file.display());
        Failure::new(Exit::Configuration, sentence)
    })?;
    let password = text.trim_end_matches(['\r', '\n']);
    let wrong = |what| {
        let sentence = format!("the password file {} {what}", file.display());
        Err(Failure::new(Exit::Configuration, sentence))
    };
    if password.is_empty() {
        return wrong("is empty; put the password in it");
    }
    if password.contains(['\r', '\n']) {
        return wrong("has several lines; put only the password in it");
    }
    Ok((password.to_owned(), mode & 0o004 != 0))
}

/// Returns the value of an environment variable that is more than a text.
fn parsed<T>(
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, Failure> {
    let value = variable(name)?.map(|text| parse(&text));
    value.transpose().map_err(|why| {
        Failure::new(
            Exit::Configuration,
            format!("the variable {name} is wrong: {why}"),
        )
    })
}

/// Returns the value of an environment variable. An empty one counts as unset.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    let value = env::var_os(name).filter(|value| !value.is_empty());
    let value = value.map(|value| {
        value.into_string().map_err(|_| {
            let sentence = format!("the variable {name} is not text in UTF-8");
            Failure::new(Exit::Configuration, sentence)
        })
    });
    value.transpose()
}

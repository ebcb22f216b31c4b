//! The masters, from the options, the environment or the configuration file.

use std::{env, fs::File, io::Read, path::PathBuf};

use quorlock::{Builder, Coordinator, MasterSpec, RestartGuard};

#[cfg(feature = "tls")]
use crate::certificates;
use crate::{
    args::Common,
    client_name::client_name,
    configuration::{self, Settings},
    exit::Exit,
    failure::Failure,
    output::complain,
};

/// The masters and their settings.
pub(crate) struct Masters {
    builder: Builder,
    /// The name of the set in the configuration file.
    name: Option<String>,
}

impl Masters {
    /// Finds the masters: `--master`, then a set that is named, then `QUORLOCK_MASTERS`, then the
    /// default set of the configuration file. Sends nothing.
    pub(crate) fn find(common: &Common) -> Result<Self, Failure> {
        let (name, settings) = find_settings(common)?;
        if let Some(name) = name.as_ref().filter(|_| common.is_verbose()) {
            complain(format_args!("the masters are those of the set {name:?}"));
        }
        let builder = builder(settings, common)?;
        Ok(Self { builder, name })
    }

    /// Returns the name of the set in the configuration file. `None` if the masters were listed.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the coordinator. Must be called inside a runtime.
    pub(crate) fn coordinator(self) -> Result<Coordinator, Failure> {
        self.builder.build().map_err(|error| {
            let failure = Failure::from(error);
            match self.name {
                Some(name) => failure.in_set(&name),
                None => failure,
            }
        })
    }
}

/// Returns the settings, with the name of their set if they come from the configuration file.
fn find_settings(common: &Common) -> Result<(Option<String>, Settings), Failure> {
    let urls = variable("QUORLOCK_MASTERS")?.filter(|_| common.set.is_none());
    let masters = match urls {
        _ if !common.masters.is_empty() => {
            let lists = common.masters.iter();
            lists.flat_map(|urls| MasterSpec::list(urls)).collect()
        }
        Some(urls) => {
            if let Some(file) = &common.config {
                let file = file.display();
                complain(format_args!(
                    "QUORLOCK_MASTERS is set, so {file} is not read; unset it, or give --set"
                ));
            }
            MasterSpec::list(&urls)
        }
        None => {
            let (name, settings) = configuration::read(common)?;
            return Ok((Some(name), settings));
        }
    };
    let settings = Settings {
        masters,
        ..Settings::default()
    };
    Ok((None, settings))
}

fn builder(settings: Settings, common: &Common) -> Result<Builder, Failure> {
    let mut builder = Coordinator::builder();
    if let Some(name) = client_name() {
        builder = builder.client_name(name);
    }
    #[cfg(feature = "tls")]
    if let Some(config) = certificates::read(&settings)? {
        builder = builder.tls(config);
    }
    let file = common.password_file.as_ref();
    let password = find_password(file.or(settings.password_file.as_ref()))?;
    let user = settings.user.unwrap_or_default();
    builder = builder.masters(settings.masters.into_iter().map(|master| match &password {
        Some(password) => master.login(&user, password),
        None => master,
    }));
    if let Some(ttl) = settings.ttl {
        builder = builder.ttl(ttl);
    }
    if let Some(ttl) = settings.max_ttl {
        builder = builder.max_ttl(ttl);
    }
    if let Some(template) = settings.key_template {
        builder = builder.key_template(template);
    }
    if settings.strict {
        builder = builder.restart_guard(RestartGuard::Strict);
    }
    Ok(builder)
}

/// The longest password file, in bytes. A file such as /dev/zero has no end.
const MOST: u64 = 1 << 16;

fn find_password(file: Option<&PathBuf>) -> Result<Option<String>, Failure> {
    let Some(file) = file else {
        return variable("QUORLOCK_PASSWORD");
    };
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(MOST).read_to_string(&mut text));
    read.map_err(|error| {
        let sentence = format!("cannot read the password in {}: {error}", file.display());
        Failure::new(Exit::Configuration, sentence)
    })?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        let sentence = format!(
            "the password file {} is empty; put the password in it",
            file.display()
        );
        return Err(Failure::new(Exit::Configuration, sentence));
    }
    Ok(Some(password.to_owned()))
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

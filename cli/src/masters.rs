//! The masters, from the options, the environment or the configuration file.

use std::{env, fs, path::Path};

use quorlock::{Coordinator, MasterSpec, RestartGuard};

use crate::{
    args::Common,
    configuration::{self, Settings},
    exit::Exit,
    failure::Failure,
    output::complain,
};

/// The masters and their settings.
pub(crate) struct Masters {
    settings: Settings,
    /// The name of the set in the configuration file.
    name: Option<String>,
}

impl Masters {
    /// Finds the masters: `--master`, then a set that is named, then `QUORLOCK_MASTERS`, then the
    /// default set of the configuration file. Sends nothing.
    pub(crate) fn find(common: &Common) -> Result<Self, Failure> {
        let mut masters = Self::without_password(common)?;
        let settings = &mut masters.settings;
        let file = common.password_file.as_deref();
        if let Some(password) = find_password(file.or(settings.password_file.as_deref()))? {
            let user = settings.user.as_deref().unwrap_or_default();
            let urls = std::mem::take(&mut settings.masters).into_iter();
            settings.masters = urls.map(|url| url.login(user, &password)).collect();
        }
        if let Some(name) = masters.name.as_ref().filter(|_| common.is_verbose()) {
            complain(format_args!("the masters are those of the set {name:?}"));
        }
        Ok(masters)
    }

    fn without_password(common: &Common) -> Result<Self, Failure> {
        if !common.masters.is_empty() {
            return Ok(Self::listed(common.masters.iter().map(MasterSpec::from)));
        }
        let urls = variable("QUORLOCK_MASTERS")?.filter(|_| common.set.is_none());
        if let Some(urls) = urls {
            return Ok(Self::listed(MasterSpec::list(&urls)));
        }
        let (name, settings) = configuration::read(common)?;
        Ok(Self {
            settings,
            name: Some(name),
        })
    }

    fn listed(masters: impl IntoIterator<Item = MasterSpec>) -> Self {
        let settings = Settings {
            masters: masters.into_iter().collect(),
            ..Settings::default()
        };
        Self {
            settings,
            name: None,
        }
    }

    /// Returns the name of the set in the configuration file. `None` if the masters were listed.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the coordinator. Must be called inside a runtime.
    pub(crate) fn coordinator(self) -> Result<Coordinator, Failure> {
        let settings = self.settings;
        let mut builder = Coordinator::builder().masters(settings.masters);
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
        Ok(builder.build()?)
    }
}

fn find_password(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(file) = file else {
        return variable("QUORLOCK_PASSWORD");
    };
    let text = fs::read_to_string(file).map_err(|error| {
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

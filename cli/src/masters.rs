//! The masters, from the options, the environment or the configuration file.

#[cfg(feature = "tls")]
use std::sync::Arc;
use std::{env, fs, path::Path, time::Duration};

#[cfg(feature = "tls")]
use quorlock::rustls::ClientConfig;
use quorlock::{Builder, Coordinator, RestartGuard};

#[cfg(feature = "tls")]
use crate::certificates;
use crate::{
    args::Common,
    configuration::{self, Settings},
    exit::Exit,
    failure::Failure,
    password,
};

/// The masters and their settings. It has no `Debug`, because URLs may contain passwords.
pub(crate) struct Masters {
    urls: Vec<String>,
    settings: Settings,
    /// The name of the set in the configuration file.
    name: Option<String>,
    /// The certificates in the files of the set.
    #[cfg(feature = "tls")]
    tls: Option<Arc<ClientConfig>>,
}

impl Masters {
    /// Finds the masters: `--master`, then a set that is named, then `QUORLOCK_MASTERS`, then the
    /// default set of the configuration file. Sends nothing.
    pub(crate) fn find(common: &Common) -> Result<Self, Failure> {
        let mut masters = Self::without_password(common)?;
        #[cfg(feature = "tls")]
        {
            masters.tls = certificates::read(&masters.settings, &masters.urls)?;
        }
        let file = common.password_file.as_deref();
        let file = file.or(masters.settings.password_file.as_deref());
        if let Some(password) = find_password(file)? {
            let login = masters.settings.user.as_deref().unwrap_or_default();
            for url in &mut masters.urls {
                *url = password::insert(url, login, &password);
            }
        }
        Ok(masters)
    }

    fn without_password(common: &Common) -> Result<Self, Failure> {
        if !common.masters.is_empty() {
            return Ok(Self::from_urls(common.masters.clone()));
        }
        let listed = env::var("QUORLOCK_MASTERS").unwrap_or_default();
        if common.set.is_none() && !listed.trim().is_empty() {
            return Ok(Self::from_urls(split(&listed)));
        }
        let (name, mut settings) = configuration::read(common)?;
        Ok(Self {
            urls: std::mem::take(&mut settings.masters),
            settings,
            name: Some(name),
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    fn from_urls(urls: Vec<String>) -> Self {
        Self {
            urls,
            settings: Settings::default(),
            name: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Returns the name of the set in the configuration file. `None` if the masters were listed.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the TTL of locks that have no TTL of their own.
    pub(crate) fn ttl(&self) -> Duration {
        self.settings.ttl.unwrap_or(DEFAULT_TTL)
    }

    /// Returns a builder with the masters and the settings.
    pub(crate) fn builder(&self) -> Builder {
        let mut builder = Coordinator::builder().masters(&self.urls).ttl(self.ttl());
        if let Some(ttl) = self.settings.max_ttl {
            builder = builder.max_ttl(ttl);
        }
        if let Some(template) = &self.settings.key_template {
            builder = builder.key_template(template);
        }
        #[cfg(feature = "tls")]
        if let Some(config) = &self.tls {
            builder = builder.tls(config.clone());
        }
        if self.settings.strict {
            builder = builder.restart_guard(RestartGuard::Strict);
        }
        builder
    }

    /// Returns the coordinator. Must be called inside a runtime.
    pub(crate) fn coordinator(&self) -> Result<Coordinator, Failure> {
        Ok(self.builder().build()?)
    }
}

/// Splits a list of URLs at commas and white space. The URL of a master behind Sentinel contains
/// commas itself: what follows them has no scheme.
fn split(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for part in list.split([',', ' ', '\t', '\n']).map(str::trim) {
        match urls.last_mut() {
            _ if part.is_empty() => {}
            Some(url) if !part.contains("://") => {
                url.push(',');
                url.push_str(part);
            }
            _ => urls.push(part.to_owned()),
        }
    }
    urls
}

fn find_password(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(file) = file else {
        return Ok(env::var("QUORLOCK_PASSWORD")
            .ok()
            .filter(|password| !password.is_empty()));
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

/// The default of the library.
const DEFAULT_TTL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_have_urls_with_commas() {
        for (list, urls) in [
            ("redis://a,redis://b", vec!["redis://a", "redis://b"]),
            (" redis://a , redis://b,\n", vec!["redis://a", "redis://b"]),
            (
                "redis+sentinel://a:1,b:2/m,redis://c",
                vec!["redis+sentinel://a:1,b:2/m", "redis://c"],
            ),
            ("localhost", vec!["localhost"]), // the builder says what is wrong with it
        ] {
            assert_eq!(split(list), urls, "{list:?}");
        }
    }
}

//! The masters, from the options, the environment or the configuration file.

use std::{mem, path::PathBuf, time::Duration};

use quorlock::{
    ConfigError, Coordinator, MasterSpec, Quarantine, SharedSettings,
    tools::{ConnectionName, example_keys, variables},
};
use quorlock_check::{CheckSettings, Report, check};
use tokio::runtime::Runtime;

use crate::{
    args::{Asking, Common},
    client_name::{client_name, holder_name},
    configuration,
    exit::Exit,
    failure::Failure,
    handle,
    holders::Renewal,
    output::complain,
    runtime,
    words::note_places,
};

/// The masters and their settings.
#[derive(Clone)]
pub(crate) struct Masters {
    pub(crate) settings: SharedSettings,
    /// Where the masters come from, for people.
    pub(crate) source: String,
    /// The profile of the configuration file that has them.
    profile: Option<String>,
}

impl Masters {
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
        let is_named = common.profile.is_some() || common.config.is_some();
        if !is_named {
            named.masters.extend_from_slice(from);
        }
        let mut found = find_settings(&named, false)?;
        let settings = &mut found.settings;
        let used = mem::replace(&mut settings.masters, listed(to));
        if !from.is_empty() {
            settings.old_masters = listed(from);
        } else if settings.old_masters.is_empty() {
            settings.old_masters = used;
        }
        if settings.old_masters.is_empty() {
            return Err(Failure::new(Exit::Usage, "there are no old masters"));
        }
        note_places(settings);
        Ok(found)
    }

    /// Finds the masters. What the command line names comes before the environment, and the usual
    /// file comes last. Sends nothing.
    pub(crate) fn find(common: &Common, is_quiet: bool) -> Result<Self, Failure> {
        let found = find_settings(common, is_quiet)?;
        if common.is_verbose() {
            complain(format_args!("the masters are those of {}", found.source));
        }
        note_places(&found.settings);
        Ok(found)
    }

    /// Returns the password file, if all users can read it.
    pub(crate) fn exposed(&self) -> Option<PathBuf> {
        let file = self.settings.password_file.clone();
        file.filter(|file| handle::can_be_read(file, 0o004))
    }

    /// Returns the masters for a check. Must be called outside a runtime.
    pub(crate) fn into_check(self) -> Result<ToCheck, Failure> {
        let idle = runtime::start()?;
        let settings = self.settings.clone().read_files()?;
        let shared = CheckSettings::from(&settings);
        let locks = idle.block_on(async { self.coordinator() })?;
        Ok(ToCheck {
            locks,
            lists: [settings.masters, settings.old_masters],
            shared,
            _idle: idle,
        })
    }

    /// Returns the coordinator of a program that holds locks, which shows its TTL and a label. `left`
    /// is the TTL of a lock that the program leaves at its end.
    pub(crate) fn of_holder(
        mut self,
        asking: &Asking,
        left: Option<Duration>,
        label: &str,
    ) -> Result<Coordinator, Failure> {
        let ttl = left.or(asking.ttl).or(self.settings.ttl).unwrap_or(TTL);
        let label = asking.label.as_deref().unwrap_or(label).trim();
        // A short maximum does not concern a TTL of the settings that is not used.
        if left.is_some() || asking.ttl.is_some() && asking.ttl <= self.settings.max_ttl {
            self.settings.ttl = Some(ttl);
        }
        let kept = asking.min_hold.map(|_| Renewal::MinHold);
        let renewal = left.map(|_| Renewal::Detached).or(kept);
        self.build(holder_name(ttl, renewal, label), false)
    }

    /// Returns the coordinator of a program that takes no lock. Must be called inside a runtime.
    pub(crate) fn coordinator(self) -> Result<Coordinator, Failure> {
        self.build(client_name(), true)
    }

    fn build(self, name: Option<String>, only_looks: bool) -> Result<Coordinator, Failure> {
        let count = self.settings.masters.len();
        let mut builder = self.settings.builder()?.only_looks(only_looks);
        if let Some(name) = name {
            builder = builder.client_name(name);
        }
        builder.build().map_err(|error| {
            let mut failure = not_built(error, count);
            if let Some(profile) = &self.profile {
                failure
                    .sentence
                    .insert_str(0, &format!("the profile {profile:?}: "));
            }
            failure
        })
    }
}

/// Masters to check.
pub(crate) struct ToCheck {
    /// Knows the masters, and has checked the settings. It dials nobody, because its runtime has
    /// never run a task: a first dial writes the origin key.
    pub(crate) locks: Coordinator,
    /// The masters, and the old masters.
    pub(crate) lists: [Vec<MasterSpec>; 2],
    shared: CheckSettings,
    _idle: Runtime,
}

impl ToCheck {
    pub(crate) fn has_quarantine(&self) -> bool {
        self.shared.quarantine != Quarantine::Off
    }

    pub(crate) async fn check(&self) -> Result<Report, Failure> {
        let [masters, old_masters] = &self.lists;
        Ok(check(masters, old_masters, &self.shared).await?)
    }

    /// Returns what the connections of programs show about their key template, if it is ours.
    pub(crate) fn keys(&self) -> Result<u32, Failure> {
        let keys = example_keys(&self.shared.key_template)?;
        let (lists, key) = (self.locks.lists_id(), &keys[0].key);
        Ok(ConnectionName::new(lists, key, self.shared.max_ttl, None).keys)
    }
}

/// The TTL of a coordinator without one.
const TTL: Duration = Duration::from_secs(10);
const MASTERS: &str = "QUORLOCK_MASTERS";

/// Says which variables count for nothing, unless it is quiet.
fn find_settings(common: &Common, is_quiet: bool) -> Result<Masters, Failure> {
    let (known, mut ignored) = variables()?;
    if common.profile.is_some() && !common.masters.is_empty() {
        let why = "--profile and --master exclude each other";
        return Err(Failure::new(Exit::Usage, why));
    }
    let is_named = common.profile.is_some() || common.config.is_some();
    let is_set = known.iter().any(|name| name == MASTERS);
    let (source, profile, mut settings) = if !common.masters.is_empty() {
        let mut settings = SharedSettings::from_env()?;
        settings.masters = listed(&common.masters);
        ("--master".to_owned(), None, settings)
    } else if is_set && !is_named {
        (MASTERS.to_owned(), None, SharedSettings::from_env()?)
    } else {
        let (name, place, settings) = configuration::read(common)?;
        (place, Some(name), settings)
    };
    set_options(&mut settings, common);
    if profile.is_some() {
        ignored.extend(known);
        ignored.retain(|name| name != MASTERS && name != "QUORLOCK_PASSWORD");
    } else {
        configuration::check_listed(&settings, &source, common)?;
    }
    if !is_quiet && !ignored.is_empty() {
        let names = ignored.join(", ");
        complain(format_args!(
            "these variables count for nothing: {names}; `quorlock man | man -l -` shows those that \
             count beside {source}"
        ));
    }
    Ok(Masters {
        settings,
        source,
        profile,
    })
}

/// Puts the settings in their place that the command line has.
fn set_options(settings: &mut SharedSettings, common: &Common) {
    let (given, set) = (common.clone(), settings);
    if !given.old_masters.is_empty() {
        set.old_masters = listed(&given.old_masters);
    }
    set.password_file = given.password_file.or(set.password_file.take());
    set.key_template = given.key_template.or(set.key_template.take());
    set.max_ttl = given.max_ttl.or(set.max_ttl);
    set.quarantine = given.quarantine.or(set.quarantine);
    set.connect_timeout = given.connect_timeout.or(set.connect_timeout);
    set.response_timeout = given.response_timeout.or(set.response_timeout);
}

/// Returns the masters of options, each of which may name several.
fn listed(texts: &[String]) -> Vec<MasterSpec> {
    let lists = texts.iter().map(|text| MasterSpec::list(text));
    lists.flatten().collect()
}

/// Returns the failure for settings that cannot be used, with the list that is wrong. `masters` is
/// the length of the first list, after which the library goes on counting.
fn not_built(mut error: ConfigError, masters: usize) -> Failure {
    let (first, second) = match &mut error {
        ConfigError::BadMaster { master, .. } => (master, None),
        ConfigError::DuplicateMaster { first, second, .. } => (first, Some(second)),
        ConfigError::DuplicateInOtherDatabase { first, .. } => (first, None),
        _ => return error.into(),
    };
    if *first <= masters {
        return error.into();
    }
    for number in [Some(first), second].into_iter().flatten() {
        *number -= masters;
    }
    Failure::new(Exit::Configuration, format!("old {error}"))
}

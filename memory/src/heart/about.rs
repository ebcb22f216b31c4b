//! What a server tells about itself, and what it allows.

use std::collections::{BTreeMap, BTreeSet};

use super::script::sha1;

/// The version that a server shows. It decides which commands the server knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Version {
    /// Redis 7.2.
    #[default]
    Redis7,
    /// Redis 8.4, which has `DELEX`.
    Redis8,
    /// Valkey 9.0, which has `DELIFEQ`.
    Valkey9,
}

/// What a server tells about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    name: String,
    pub(super) version: Version,
    restarts: u32,
    promotions: u32,
    pub(super) settings: BTreeMap<String, String>,
    /// The commands that no user may call, in lower case, such as `client|tracking`.
    pub(super) denied: BTreeSet<String>,
}

/// The settings of a new server, which logs every write, and evicts nothing.
const SETTINGS: [(&str, &str); 6] = [
    ("appendfsync", "always"),
    ("appendonly", "yes"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("no-appendfsync-on-rewrite", "no"),
    ("timeout", "0"),
];

impl About {
    pub(super) fn new(name: &str, version: Version) -> Self {
        let settings = SETTINGS.into_iter();
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            name: name.to_owned(),
            version,
            settings: settings.collect(),
            ..Self::default()
        }
    }

    /// Begins another process, which has another run id.
    pub(super) fn restart(&mut self) {
        self.restarts += 1;
    }

    /// Turns from a replica into a master, which has another replication id.
    pub(super) fn promote(&mut self) {
        self.promotions += 1;
    }

    /// Returns the number of the version, as Redis compatible clients read it.
    pub(super) fn number(&self) -> &'static str {
        match self.version {
            Version::Redis7 | Version::Valkey9 => "7.2.4",
            Version::Redis8 => "8.4.0",
        }
    }

    /// Returns whether users may call a command, given its name in lower case, such as `get` or
    /// `client|list`.
    pub(super) fn allows(&self, name: &str) -> bool {
        let container = name.split('|').next().unwrap_or(name);
        !self.denied.contains(name) && !self.denied.contains(container)
    }

    fn id(&self, of: &str, number: u32) -> String {
        sha1(format!("{} {of} {number}", self.name).as_bytes())
    }

    /// Returns the reply to `INFO`.
    pub(super) fn info(&self) -> String {
        let setting = |name: &str| self.settings.get(name).map_or("", String::as_str);
        let valkey = "server_name:valkey\r\nvalkey_version:9.0.0\r\n";
        let second = self.promotions.checked_sub(1);
        let second = second.map_or_else(|| "0".repeat(40), |number| self.id("replication", number));
        format!(
            "# Server\r\nredis_version:{}\r\n{}redis_mode:standalone\r\nrun_id:{}\r\n\
             maxmemory:{}\r\nmaxmemory_policy:{}\r\naof_enabled:{}\r\n\
             role:master\r\nconnected_slaves:0\r\n\
             master_replid:{}\r\nmaster_replid2:{second}\r\n",
            self.number(),
            if self.version == Version::Valkey9 {
                valkey
            } else {
                ""
            },
            self.id("run", self.restarts),
            setting("maxmemory"),
            setting("maxmemory-policy"),
            u8::from(setting("appendonly") == "yes"),
            self.id("replication", self.promotions),
        )
    }
}

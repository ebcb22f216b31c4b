//! A lock with known faults, to check that the scenarios find them. It asks one master only, writes
//! the key even if another client holds it, and deletes the key without a comparison.

use std::time::Duration;

use testkit::server::try_command_on;

use super::{Attempt, Library};

pub(super) struct Faulty {
    port: u16,
}

impl Faulty {
    pub(super) fn new(masters: &[String]) -> Self {
        let port = |master: &String| master.rsplit_once(':')?.1.parse().ok();
        Self {
            port: masters.first().and_then(port).unwrap_or_default(),
        }
    }

    fn command(&self, words: &[&str]) -> Result<String, String> {
        let reply = try_command_on(self.port, words, Duration::from_secs(5));
        reply.map_err(|error| error.to_string())
    }
}

impl Library for Faulty {
    type Held = String;

    async fn lock(&mut self, name: &str, ttl: Duration, _wait: Duration) -> Attempt<String> {
        let ttl = ttl.as_millis().to_string();
        match self.command(&["SET", name, "me", "PX", &ttl]) {
            Ok(_) => Attempt::Locked(name.to_owned()),
            Err(error) => Attempt::Failed(error),
        }
    }

    async fn unlock(&mut self, held: String) -> Result<(), String> {
        self.command(&["DEL", &held]).map(|_| ())
    }

    async fn depth(&mut self, _name: &str) -> Result<u64, String> {
        Ok(1)
    }
}

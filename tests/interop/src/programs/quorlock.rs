//! This crate.

use std::time::Duration;

use quorlock::{Coordinator, Guard, Owner, Reason, Renewal};

use super::{Attempt, Library};

pub(super) struct Quorlock {
    locks: Coordinator,
    owner: Owner,
    is_reentrant: bool,
}

impl Quorlock {
    /// `kind` is `mutex` or `reentrant`. A key template may follow it, after an `@`. If waiters
    /// poll, `polling` comes before it.
    pub(super) fn new(kind: &str, urls: Vec<String>) -> Result<Self, String> {
        let (kind, template) = kind.split_once('@').unwrap_or((kind, "{name}"));
        let (kind, polls) = match kind.strip_prefix("polling ") {
            Some(kind) => (kind, true),
            None => (kind, false),
        };
        let builder = Coordinator::builder().masters(urls).key_template(template);
        let builder = if polls {
            let [least, most] = [25, 200].map(Duration::from_millis);
            builder.poll_only(true).retry_delay(least..=most)
        } else {
            builder
        };
        let locks = builder.build().map_err(|error| error.to_string())?;
        Ok(Self {
            owner: locks.new_owner(),
            locks,
            is_reentrant: kind == "reentrant",
        })
    }

    fn named(&self, name: &str) -> quorlock::Lock {
        match self.is_reentrant {
            true => self.locks.reentrant(name, &self.owner),
            false => self.locks.mutex(name),
        }
    }
}

impl Library for Quorlock {
    type Held = Guard;

    async fn lock(&mut self, name: &str, ttl: Duration, wait: Duration) -> Attempt<Guard> {
        // The scenarios hold a lock either for less than its TTL, or until it ends.
        let lock = self.named(name).ttl(ttl).renewal(Renewal::Off);
        let attempt = match wait.is_zero() {
            true => lock.try_acquire().await,
            false => lock.acquire_within(wait).await,
        };
        let error = match attempt {
            Ok(guard) => return Attempt::Locked(guard),
            Err(error) => error,
        };
        match error.reason() {
            Reason::OtherKind => Attempt::Refused("other kind".to_owned()),
            _ if error.is_busy() => Attempt::Refused(error.to_string()),
            _ => Attempt::Failed(error.to_string()),
        }
    }

    async fn unlock(&mut self, held: Guard) -> Result<(), String> {
        held.release().await.map_err(|error| error.to_string())
    }

    async fn depth(&mut self, name: &str) -> Result<u64, String> {
        let inspection = self.named(name).inspect().await;
        let inspection = inspection.map_err(|error| error.to_string())?;
        Ok(inspection.holders.first().map_or(0, |holder| holder.depth))
    }

    async fn extend(&mut self, held: &Guard) -> Result<(), String> {
        let extended = held.extend(held.validity()).await;
        extended.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn close(self) {
        self.locks.close().await;
    }
}

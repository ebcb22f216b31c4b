//! Contestants with one list of masters, and with two lists of five, of which four are in both. All
//! get six URLs, those of both lists together.

use quorlock::{Lock, Quarantine};

use super::quorlock::Quorlock;
use crate::load::{Contestant, Result};

/// The masters of both lists together.
pub const MASTERS: usize = 6;

/// Defines a contestant with these parts of the URLs as masters, and as masters that it leaves.
macro_rules! contestant {
    ($(#[$doc:meta])* $name:ident, $masters:expr, $leaving:expr) => {
        $(#[$doc])*
        pub struct $name(Quorlock);

        impl Contestant for $name {
            type Task = Lock;

            async fn connect(urls: &[String]) -> Result<Self> {
                let (masters, leaving) = (&urls[$masters], &urls[$leaving]);
                let this = Quorlock::leaving(masters, leaving, Quarantine::Off)?;
                this.wait_for_grants(this.locks().master_count()).await?;
                Ok(Self(this))
            }

            fn task(&self, key: String) -> Lock {
                self.0.task(key)
            }

            async fn cycle(lock: &mut Lock) -> Result<()> {
                Quorlock::cycle(lock).await
            }

            async fn close(self) -> Result<()> {
                self.0.close().await
            }
        }
    };
}

contestant! {
    /// A mutex on the first five masters.
    OneList, ..5, ..0
}

contestant! {
    /// A mutex on all six masters, which needs four of them.
    SixMasters, .., ..0
}

contestant! {
    /// A mutex while the last of six masters takes the place of the first.
    TwoLists, 1.., ..5
}

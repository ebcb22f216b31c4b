//! The quarantine of a master that may have forgotten locks.

use std::time::Duration;

use super::{Cx, Session};
use crate::{
    core::{
        restart::{DataLoss, Sign},
        time::tick::Tick,
    },
    machine::out::MasterEvent,
};

/// The quarantine of the master: its beginning, its end and the time that is left. It goes on while
/// the master is down.
impl Session {
    /// Notes that there is a connection. `loss` is the loss of data that its dial found.
    pub(super) fn quarantine(&mut self, cx: &mut Cx<'_>, loss: Option<DataLoss>) {
        self.quarantined_until
            .take_if(|until| *until <= cx.now.monotonic);
        if let Some(loss) = loss {
            self.begin_quarantine(cx, loss);
        }
    }

    /// Ends the quarantine, if it is over at `at`, and reports this. Returns whether it ended now.
    pub(crate) fn end_quarantine(&mut self, cx: &mut Cx<'_>, at: Tick) -> bool {
        let end = self.quarantined_until.take_if(|until| *until <= at);
        if end.is_some() {
            cx.tell(MasterEvent::VotesAgain);
        }
        end.is_some()
    }

    /// Returns how long after `now` the quarantine ends, if it has not ended.
    pub(super) fn quarantine_left(&self, now: Tick) -> Option<Duration> {
        let left = self.quarantined_until?.since(now);
        (!left.is_zero()).then_some(left)
    }

    /// Begins a quarantine that lasts until the locks that the master may have forgotten have
    /// expired. The first dial after a loss of data finds a sign of it, such as a new run id. Later
    /// dials find only the record of the loss, which is no news.
    fn begin_quarantine(&mut self, cx: &mut Cx<'_>, loss: DataLoss) {
        let left = self.config.quarantine_length.saturating_sub(loss.age);
        if left.is_zero() {
            return;
        }
        let is_known = loss.sign == Sign::Earlier && self.quarantined_until.is_some();
        if !is_known {
            let why = loss.sign.text();
            cx.tell(MasterEvent::Quarantined { left, why });
        }
        self.quarantined_until = Some(cx.now.monotonic + left);
    }
}

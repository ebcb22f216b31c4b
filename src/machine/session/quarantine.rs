//! The quarantine of a master that may have forgotten locks.

use super::{Cx, Session};
use crate::{
    core::{
        restart::{DataLoss, Sign},
        time::tick::Tick,
    },
    machine::out::MasterEvent,
};

/// The quarantine of the master: its beginning and its end. It goes on while the master is down.
impl Session {
    /// Notes that there is a connection. `loss` is the loss of data that its dial found.
    pub(super) fn quarantine(&mut self, cx: &mut Cx<'_>, loss: Option<DataLoss>) {
        self.health
            .quarantined_until
            .take_if(|until| *until <= cx.now.monotonic);
        if let Some(loss) = loss {
            self.begin_quarantine(cx, loss);
        }
    }

    /// Ends the quarantine, if it is over at `at`, and reports this. Returns whether it ended now.
    pub(crate) fn end_quarantine(&mut self, cx: &mut Cx<'_>, at: Tick) -> bool {
        let end = self.health.quarantined_until.take_if(|until| *until <= at);
        if end.is_some() {
            cx.tell(MasterEvent::VotesAgain);
        }
        end.is_some()
    }

    /// Begins a quarantine that lasts until the locks that the master may have forgotten have
    /// expired. The first dial after a loss of data finds a sign of it, such as a new run id. Later
    /// dials find only the record of the loss, which is no news.
    fn begin_quarantine(&mut self, cx: &mut Cx<'_>, loss: DataLoss) {
        let left = self.config.quarantine_length().saturating_sub(loss.age);
        if left.is_zero() {
            return;
        }
        let is_known = loss.sign == Sign::Earlier && self.health.quarantined_until.is_some();
        if !is_known {
            let why = loss.sign.text();
            self.health.known.quarantine_reason = Some(why);
            cx.tell(MasterEvent::Quarantined { left, why });
        }
        self.health.quarantined_until = Some(cx.now.monotonic + left);
    }
}

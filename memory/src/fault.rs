//! The faults that a test can inject.

use std::time::Duration;

/// A way in which a [`MemoryMaster`](crate::MemoryMaster) fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Every command takes this long to arrive, and is executed when it arrives. Replies take no
    /// time.
    Delay(Duration),
    /// Connections break, and none can be opened.
    Down,
    /// Every command is answered with this error, such as `OOM command not allowed`, and is not
    /// executed. This includes reads and deletions, which a server that is out of memory executes.
    /// Commands about the connection, such as `HELLO` and `SUBSCRIBE`, still work.
    ErrorReply(String),
    /// The master stops, as after SIGSTOP. Commands that are sent to it meanwhile are executed when
    /// the fault ends.
    Hang,
    /// The master executes commands, and its replies are lost. When the fault ends, connections
    /// that lost a reply or a push break.
    Mute,
    /// No fault.
    #[default]
    None,
}

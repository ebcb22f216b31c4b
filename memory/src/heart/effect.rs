//! What commands do besides their replies.

/// What a command has done besides its reply, in order.
#[derive(Debug)]
pub(super) enum Effect {
    /// This key was written or deleted.
    Changed(Vec<u8>),
    /// All keys were deleted, of this database or of all databases.
    Flushed { everywhere: bool },
    /// This text was published on this channel.
    Published(Vec<u8>, Vec<u8>),
    /// The caller has read this key, and tracks it.
    Read(Vec<u8>),
}

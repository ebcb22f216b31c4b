//! The bytes of a command.

use crate::core::protocol::script::Script;

/// A command as bytes, for masters that have its script.
pub(in crate::master) struct Encoded {
    /// The script that a master must have.
    pub(in crate::master) script: Option<&'static Script>,
    bytes: EncodedBytes,
}

/// The bytes of a command, which are the same for all masters. They need an allocation only if they
/// are many, as for a lock with a long name.
#[expect(
    clippy::large_enum_variant,
    reason = "the large variant is the usual one, and exists to avoid an allocation"
)]
enum EncodedBytes {
    Few([u8; Self::FEW], usize),
    Many(Box<[u8]>),
}

impl EncodedBytes {
    const FEW: usize = 240;
}

impl Encoded {
    pub(in crate::master) fn new(script: Option<&'static Script>, bytes: &[u8]) -> Self {
        let mut few = [0; EncodedBytes::FEW];
        let bytes = match few.get_mut(..bytes.len()) {
            Some(start) => {
                start.copy_from_slice(bytes);
                EncodedBytes::Few(few, bytes.len())
            }
            None => EncodedBytes::Many(bytes.into()),
        };
        Self { script, bytes }
    }

    pub(in crate::master) fn as_slice(&self) -> &[u8] {
        match &self.bytes {
            EncodedBytes::Few(bytes, length) => &bytes[..*length],
            EncodedBytes::Many(bytes) => bytes,
        }
    }
}

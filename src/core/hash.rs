//! The hash of texts that programs of several versions must agree on.

/// Returns the hash of `bytes`: FNV-1a, and then [`mix`]. The function must never change.
pub(crate) fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    mix(bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

/// Returns a number in which each bit depends on all bits of `value`: the last steps of
/// MurmurHash3. The function must never change.
pub(crate) fn mix(mut value: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        value = (value ^ value >> 33).wrapping_mul(factor);
    }
    value ^ value >> 33
}

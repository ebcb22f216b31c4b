//! A hash of texts. It must be the same in programs of all versions.

/// Returns the hash of `bytes`: their FNV-1a hash, changed by [`mix`]. The function must never
/// change.
pub(crate) fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    mix(bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

/// Returns a number in which each bit depends on all bits of `value`. The steps are the last ones
/// of MurmurHash3. The function must never change.
pub(crate) fn mix(mut value: u64) -> u64 {
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        value = (value ^ value >> 33).wrapping_mul(factor);
    }
    value ^ value >> 33
}

/// Returns the rank of a master for the lock `key`. The master with the lowest rank is the agreed
/// one: clients that wait for the lock ask this master first. All clients compute the same ranks if
/// they list the masters under the same addresses. The ranks differ from lock to lock, so no master
/// is asked first for all locks.
///
/// The function must never change: clients of different versions share locks.
pub(crate) fn rank(key: &str, address: &str) -> u64 {
    hash(key.bytes().chain([0]).chain(address.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_master_is_the_agreed_one_for_its_share_of_locks() {
        let masters = ["10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"];
        let mut counts = [0; 3];
        for lock in 0..3_000 {
            let key = format!("orders/{lock}");
            let first = (0..3).min_by_key(|master| rank(&key, masters[*master]));
            counts[first.unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| (900..1_100).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn ranks_never_change() {
        assert_eq!(rank("r", "10.0.0.1:6379"), 0x0137_8caf_96a9_0d88);
    }
}

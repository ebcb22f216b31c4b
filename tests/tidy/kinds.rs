//! Checks that each kind of lock can be had from both coordinators.

use quorlock::__internals::KINDS;

use crate::source::read;

#[test]
fn both_coordinators_have_a_method_for_each_kind() {
    for face in [
        "src/face/coordinator/locks.rs",
        "src/face/blocking/coordinator.rs",
    ] {
        for kind in KINDS {
            let method = format!("pub fn {}(&self, ", kind.word());
            assert!(read(face).contains(&method), "{face} has no {method}");
        }
    }
}

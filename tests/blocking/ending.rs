//! The last handles of a coordinator are dropped.

use std::thread;

use quorlock::{Fault, blocking::Coordinator};

use crate::common::*;

#[test]
fn a_release_is_delivered_after_the_last_handle_is_dropped() {
    let masters = masters();
    let guard = acquire_on_all(&coordinator(&masters).mutex("r"));
    masters[0].inject(Fault::Hang);
    thread::spawn(|| drop(guard)).join().unwrap();
    until("the releases of two masters", || {
        have_no_keys(&masters[1..])
    });
    assert!(!have_no_keys(&masters));
    masters[0].inject(Fault::None);
    until("the third release", || have_no_keys(&masters));
}

#[test]
fn a_coordinator_with_a_wrong_setting_is_refused() {
    let built = Coordinator::new(Vec::<quorlock::MemoryMaster>::new());
    assert_eq!(built.unwrap_err(), quorlock::ConfigError::NoMasters);
}

#![no_main]

use std::alloc::System;

use cap::Cap;

/// Fails an allocation above the limit, which ends the process.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// The most memory in bytes that one input may use. Half of it is for the servers of the target.
const MOST: usize = 32 * 1024 * 1024;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let limit = MEMORY.allocated() + MOST;
    MEMORY.set_limit(limit).expect("less is in use");
    quorlock_fuzz::replies::run(input);
    MEMORY.set_limit(usize::MAX).expect("less is in use");
});

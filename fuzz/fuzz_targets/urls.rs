#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| quorlock_fuzz::urls::run(input));

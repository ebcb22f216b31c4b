//! Code shared by the benches. `README.md` explains what each of them measures.

pub mod alloc;
pub mod capacity;
pub mod child;
pub mod contestants;
pub mod fault;
pub mod figure;
pub mod handover;
pub mod load;
pub mod options;
pub mod permits;
pub mod queue;
pub mod results;
pub mod servers;
pub mod stats;
pub mod sweep;
pub mod waiters;

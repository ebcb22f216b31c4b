//! The check of all masters. It asks them about themselves, and judges whether they are fit to hold
//! locks.
//!
//! The check uses connections of its own. It does not use the tasks that serve locks.

mod about;
mod ask;
mod change;
mod counters;
mod facts;
mod judge;
mod programs;
mod report;
mod rights;
mod rules;
mod setting;
#[cfg(test)]
mod tests;
mod together;
mod unanswered;

pub(crate) use ask::Checker;
pub use programs::{MasterPrograms, Program};
pub use report::{CheckReport, Finding, Severity};
pub use setting::Setting;

//! Masters of the simulator. They run the same scripts as servers.

mod clock;
pub(crate) mod connections;
pub(crate) mod keys;
mod lua;
pub(crate) mod server;

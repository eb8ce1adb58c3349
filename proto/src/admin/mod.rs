//! The text commands of `nvidia-cuda-mps-control`: their grammar and the exact texts of the vendor's answers.
//!
//! [`command`] turns a line into a [`Command`], [`reply`] turns facts into the vendor's words, [`limits`] holds the
//! grammar of the values that commands carry, [`defaults`] the few values a daemon keeps when no server runs, and
//! [`personality`] says which release is being played, [`report`] has the
//! grammar of the commands that are ours alone, [`rest`] that of `at-rest` among them, [`form`] how their answers may be
//! written, and [`module`] that of the third interface. Nothing here knows a daemon's state.

pub mod command;
pub mod defaults;
pub mod form;
pub mod limits;
pub mod module;
mod number;
pub mod personality;
pub mod reply;
pub mod report;
pub mod rest;

pub use command::{Command, CommandName, SmPartition};
pub use defaults::Defaults;
pub use form::{Form, Output};
pub use limits::{DeviceKey, MemLimit, Percentage, Priority};
pub use personality::Personality;
pub use report::Report;
pub use rest::{RestQuery, Whose};

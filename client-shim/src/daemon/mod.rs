//! The control daemon as this process knows it: the only folder that speaks to it.
//!
//! | part | does |
//! |---|---|
//! | [`greeting`] | whether a daemon answers, before the driver asks the same |
//! | [`link`] | what the program's threads leave for the daemon, and wait for |
//! | `worker` | the one thread that speaks to it, on one connection |
//! | [`connection`] | that connection, with deadlines |
//! | `listener` | whether who listens there may be the daemon |
//! | `escrow` | gives kept memory into the daemon's vault |
//! | `ledger` | what is to be given and released; pure |
//! | [`news`] | what the daemon says of this process's server, and who is told |
//! | [`evidence`] | what is told to the daemon of faults |
//! | [`recovered`] | what recoveries took, for the daemon |
//! | [`renewal`] | that a dead copy of the driver is cut off |
//! | [`spare`] | where a spare copy of the driver may stand |
//! | [`stage`] | how far the program is with going on after a fault |

pub(crate) mod connection;
mod escrow;
pub(crate) mod evidence;
pub(crate) mod greeting;
mod ledger;
pub(crate) mod link;
mod listener;
pub(crate) mod news;
pub(crate) mod recovered;
pub(crate) mod renewal;
pub(crate) mod spare;
pub(crate) mod stage;
mod worker;

use crate::process::settings::succession;

/// The path of the daemon's door for this library.
fn door() -> std::ffi::OsString {
    succession::socket()
}

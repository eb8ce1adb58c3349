//! The control daemon as this process knows it: the only folder that speaks to it.
//!
//! | part | does |
//! |---|---|
//! | [`greeting`] | whether a daemon answers, before the driver asks the same |
//! | [`connection`] | one connection at its door for this library, with deadlines |
//! | `listener` | whether who listens there may be the daemon |
//! | [`link`] | the thread that gives kept memory into the daemon's vault |
//! | `ledger` | what is to be given and released; pure |
//! | [`news`] | what the daemon says of this process's server |
//! | [`evidence`] | what is told to the daemon of faults |

pub(crate) mod connection;
pub(crate) mod evidence;
pub(crate) mod greeting;
mod ledger;
pub(crate) mod link;
mod listener;
pub(crate) mod news;

use crate::process::settings::succession;

/// The path of the daemon's door for this library.
pub(crate) fn door() -> std::ffi::OsString {
    succession::socket()
}

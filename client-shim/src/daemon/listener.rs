//! Whether who listens on the daemon's socket may be the daemon: memory is given to whoever that is.

use std::{os::fd::AsFd, path::Path};

use nix::sys::socket::{getsockopt, sockopt};

use crate::process::directory;

/// Whether the listener that `socket` is connected to may be the daemon whose socket has this path.
pub(super) fn may_be_the_daemon(socket: &impl AsFd, path: &Path) -> bool {
    let listener = getsockopt(socket, sockopt::PeerCredentials);
    listener.is_ok_and(|listener| directory::may_be_the_daemons(listener.uid(), path))
}

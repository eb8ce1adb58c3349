//! What is said to the daemon of the spare copy of the driver: it gives a server for it, is told how far it is, and says
//! when that server is of no use any more.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use remps_proto::shim::{Answer, Ask, Capabilities, SpareTakes};

use super::{
    connection::PATIENCE,
    link::linked,
    news::{self, SpareServer},
};

/// How long the daemon may take to have a server ready.
const WAIT: Duration = Duration::from_millis(500);

/// The token of the grant that the daemon has declared void, 0 for none.
static VOID: AtomicU64 = AtomicU64::new(0);

/// Where a spare copy may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// What its connections are known by, not 0.
    pub(crate) token: u64,
    pub(crate) server: SpareServer,
}

/// Asks for a server; `None` if there is none, or no daemon that knows of spares.
pub(crate) fn ask() -> Option<Grant> {
    let wait_ms = u64::try_from(WAIT.as_millis()).unwrap_or_default();
    let told = linked()?.ask_now(Ask::Spare { wait_ms }, Capabilities::SPARES, WAIT + PATIENCE)?.pop();
    match told {
        Some((Answer::Spare { token, server }, _)) => {
            news::has_spare();
            Some(Grant { token, server: SpareServer::Number(server) })
        }
        _ => None,
    }
}

fn tell(ask: Ask) {
    let _without_a_daemon = linked().and_then(|link| link.ask_now(ask, Capabilities::SPARES, PATIENCE));
}

/// Tells that the copy of the grant with this token is ready, and what it takes.
pub(crate) fn stands(token: u64, takes: SpareTakes) {
    tell(Ask::SpareStands { token, is_ready: true, behind: 0, takes });
}

/// The program goes on with it.
pub(crate) fn lives(token: u64) {
    tell(Ask::SpareLives { token });
}

/// It is given up.
pub(crate) fn gone(token: u64) {
    tell(Ask::SpareGone { token });
}

/// The daemon says that this grant is void.
pub(super) fn hear(token: u64) {
    VOID.store(token, Ordering::Release);
}

/// Whether the daemon has said so of this one.
pub(crate) fn is_void(Grant { token, .. }: Grant) -> bool {
    VOID.load(Ordering::Acquire) == token
}

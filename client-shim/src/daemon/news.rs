//! What the daemon says of the server that this process is on: whether it is spoilt or gone, and whose fault it was.
//!
//! It is noted for the living copy of the driver: another copy may be on another server, of which the daemon has said
//! nothing yet ([`forget`]).

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use remps_proto::shim::{Answer, Ask, Capabilities, Part, ServerState};

use super::{
    connection::{Connection, Lost, PATIENCE},
    door,
};

/// How long a recovery waits for the daemon's word that a server is reaped. The daemon is its parent, so it knows within
/// moments of the end; this bounds only how long a program waits in vain.
const REAPING: Duration = Duration::from_secs(3);

/// What the daemon has said last of the server that the living copy of the driver is on; 0 for nothing.
static SERVER: Mutex<(u64, ServerState)> = Mutex::new((0, ServerState::NONE));

fn server() -> MutexGuard<'static, (u64, ServerState)> {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection to a daemon that knows of this.
pub(crate) fn connected() -> Option<Connection> {
    let connection = Connection::open(&door()).ok()?;
    connection.welcome.capabilities.has(Capabilities::NEWS).then_some(connection)
}

/// The server that the daemon has spoken of last; 0 for none.
pub(crate) fn server_number() -> u64 {
    server().0
}

/// Notes what the daemon has said of the living copy's server. That there is no server says nothing of the last one.
pub(crate) fn note(word: (u64, ServerState)) {
    if word.0 != 0 {
        *server() = word;
    }
}

/// The living copy is another one, of which the daemon has said nothing yet.
pub(crate) fn forget() {
    *server() = (0, ServerState::NONE);
}

/// Asks how the server is when it is no longer so, or when the time is over.
pub(crate) fn watch(
    connection: &mut Connection,
    (server, state): (u64, ServerState),
    wait: Duration,
) -> Result<(u64, ServerState, Part), Lost> {
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    match connection.ask_within(Ask::Watch { server, state, wait_ms }, None, wait + PATIENCE)?.pop() {
        Some((Answer::Epoch { server, state, part }, _)) => Ok((server, state, part)),
        _ => Err(Lost::Stranger),
    }
}

/// What the daemon says now that this process has to do with the fault of its server.
pub(crate) fn part() -> Part {
    let known = *server();
    if known.0 == 0 {
        return Part::UNKNOWN;
    }
    // Asked as one that has not heard of any end, it tells of that server.
    let asked = (known.0, ServerState::HEALTHY);
    let told = connected().and_then(|mut connection| watch(&mut connection, asked, Duration::ZERO).ok());
    told.filter(|(server, ..)| *server == known.0).map_or(Part::UNKNOWN, |(_, _, part)| part)
}

/// Waits for the daemon's word that the server of the copy that has died is reaped; `false` if it does not come.
pub(crate) fn is_server_reaped() -> bool {
    let mut known = *server();
    let deadline = Instant::now() + REAPING;
    if known.0 == 0 {
        return false;
    }
    let Some(mut connection) = connected() else { return false };
    while known.1 != ServerState::GONE {
        let left = deadline.saturating_duration_since(Instant::now());
        match watch(&mut connection, known, left) {
            Ok((server, state, _)) if server == known.0 => known.1 = state,
            // It has no word about that one.
            Ok(_) | Err(_) => return false,
        }
        if left.is_zero() {
            return known.1 == ServerState::GONE;
        }
    }
    true
}

//! What the daemon says of the server that this process is on: whether it is spoilt or gone, and whose fault it was.
//!
//! It is noted for the living copy of the driver: another copy may be on another server, of which the daemon is asked
//! anew ([`forget`]).

use std::{
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use remps_proto::shim::{Answer, Ask, Capabilities, Part, ServerState};

use super::{
    connection::{Connection, Lost, PATIENCE},
    link::{linked, started},
};

/// How long a recovery waits for the daemon's word that a server is reaped. The daemon is its parent, so it knows within
/// moments of the end; this bounds only how long a program waits in vain.
const REAPING: Duration = Duration::from_secs(3);

/// What the daemon has said last of the server that the living copy of the driver is on; 0 for nothing.
static SERVER: Mutex<(u64, ServerState)> = Mutex::new((0, ServerState::NONE));
static SAID: Condvar = Condvar::new();

/// Who is told how the server is, on the thread that hears it: it must not wait there.
pub(super) static LISTENER: OnceLock<fn(ServerState)> = OnceLock::new();

fn server() -> MutexGuard<'static, (u64, ServerState)> {
    SERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on this one is told. The first one stays.
pub(crate) fn listen(listener: fn(ServerState)) {
    let _the_same = LISTENER.set(listener);
    if let Some(link) = linked() {
        link.wake();
    }
}

pub(super) fn is_awaited() -> bool {
    LISTENER.get().is_some()
}

/// What the daemon has said of the server last; the number is 0 for nothing.
pub(crate) fn said() -> (u64, ServerState) {
    *server()
}

/// The living copy is another one: the daemon is told, and asked anew.
pub(crate) fn forget() {
    *server() = (0, ServerState::NONE);
    if let Some(link) = started() {
        link.wake();
    }
}

/// Notes what the daemon says. That there is no server says nothing of the last one.
pub(super) fn hear(word: (u64, ServerState)) {
    if word.0 != 0 {
        *server() = word;
        SAID.notify_all();
    }
    if let Some(listener) = LISTENER.get() {
        listener(word.1);
    }
}

/// Asks how the server is: once and for all where the daemon can do that. If the last one has ended since, that is what
/// it says first.
pub(super) fn inquire(connection: &mut Connection) -> Result<(), Lost> {
    let (server, _) = said();
    if connection.can(Capabilities::SUBSCRIPTIONS) {
        return connection.ask(Ask::Subscribe { server }, None).map(drop);
    }
    let watch = Ask::Watch { server, state: ServerState::HEALTHY, wait_ms: 0 };
    if let Some((Answer::Epoch { server, state, .. }, _)) = connection.ask(watch, None)?.pop() {
        hear((server, state));
    }
    Ok(())
}

/// What the daemon says now that this process has to do with the fault of its server.
pub(crate) fn part() -> Part {
    let (server, _) = said();
    // Asked as one that has not heard of any end, it tells of that server.
    let ask = Ask::Watch { server, state: ServerState::HEALTHY, wait_ms: 0 };
    let asked = started().filter(|_| server != 0).and_then(|link| link.ask_now(ask, Capabilities::NEWS, PATIENCE));
    match asked.and_then(|mut told| told.pop()) {
        Some((Answer::Epoch { server: of, part, .. }, _)) if of == server => part,
        _ => Part::UNKNOWN,
    }
}

/// Waits for the daemon's word that the server of the copy that has died is reaped; `false` if it does not come.
pub(crate) fn is_server_reaped() -> bool {
    let deadline = Instant::now() + REAPING;
    let mut word = server();
    let of = word.0;
    while of != 0 && word.0 == of && word.1 != ServerState::GONE {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || started().is_none_or(|link| !link.progress().is_connected) {
            break;
        }
        word = SAID.wait_timeout(word, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    of != 0 && *word == (of, ServerState::GONE)
}

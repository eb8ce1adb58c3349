//! Commands over a session's own socket: the start of a program is not the daemon's time.

use super::client::Connection;
use remps_proto::mps::handshake::Role;
use std::io;
use std::path::Path;

/// Opens a session.
///
/// # Errors
/// When the daemon does not greet.
pub fn session(pipe_dir: &Path) -> io::Result<Connection> {
    Connection::greeted(&pipe_dir.join("control"), Role::UI)
}

/// Sends a command.
///
/// # Errors
/// When the daemon is gone.
pub fn send(session: &Connection, line: &str) -> io::Result<()> {
    let line = format!("{line}\n\0");
    session.send(&(line.len() as u64).to_le_bytes())?;
    session.send(line.as_bytes())
}

/// Sends a command, and waits for the first packet of its answer.
///
/// # Errors
/// When none comes.
pub fn ask(session: &Connection, line: &str) -> io::Result<Vec<u8>> {
    send(session, line)?;
    session.receive().map(|packet| packet.bytes)
}

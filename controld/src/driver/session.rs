//! One session of the command line: reads commands one at a time and writes their answers.

use super::events::{Event, Events};
use crate::core::SessionId;
use crate::io::seqpacket::SeqPacket;
use remps_proto::mps::ui::{Announcement, FromDaemon, MAX_COMMAND, output_packets};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a session may be silent; somebody may have it open in a terminal.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// How long a command may take from its length to its text.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a command line may take to read one packet of its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the driver tells a session.
#[derive(Debug)]
pub(super) enum ToSession {
    /// The answer to its command.
    Answer(Vec<String>),
    /// The daemon ends with this status.
    End(u32),
}

#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Packet(#[from] remps_proto::mps::DecodeError),
    #[error("it took too long")]
    TimedOut(#[from] tokio::time::error::Elapsed),
    #[error("it closed")]
    Closed,
    #[error("the daemon ends")]
    DaemonEnds,
}

/// Serves the session until it ends, and says so.
pub(super) async fn serve(
    session: SessionId,
    socket: Arc<SeqPacket>,
    events: Events,
    // driver --answers--> session
    mut answers_rx: mpsc::UnboundedReceiver<ToSession>,
) {
    // Why a session ended concerns only its user, who sees it.
    let _: Result<(), SessionError> = converse(session, &socket, &events, &mut answers_rx).await;
    events.send(Event::SessionEnded { session }).await;
}

async fn converse(
    session: SessionId,
    socket: &SeqPacket,
    events: &Events,
    answers_rx: &mut mpsc::UnboundedReceiver<ToSession>,
) -> Result<(), SessionError> {
    loop {
        let announced = timeout(IDLE_TIMEOUT, socket.receive(64)).await??.ok_or(SessionError::Closed)?;
        let length = match Announcement::decode(&announced.bytes)? {
            Announcement::Command(length) => length,
            Announcement::End => return end(socket, 0).await,
        };
        let capacity = length.min(usize::try_from(MAX_COMMAND).unwrap_or(usize::MAX));
        let command = timeout(COMMAND_TIMEOUT, socket.receive(capacity)).await??.ok_or(SessionError::Closed)?;
        events.send(Event::Command { session, line: command.bytes }).await;
        let answer = tokio::select! {
            answer = answers_rx.recv() => answer.ok_or(SessionError::DaemonEnds)?,
            // Whoever closes while a command is under way (a `quit` that waits, say) is not waited for.
            early = socket.peek(64) => match early? {
                None => return Err(SessionError::Closed),
                Some(_) => answers_rx.recv().await.ok_or(SessionError::DaemonEnds)?,
            },
        };
        match answer {
            ToSession::Answer(lines) => {
                for line in lines {
                    for packet in output_packets(&line) {
                        timeout(WRITE_TIMEOUT, socket.send_when_possible(&packet)).await??;
                    }
                }
            }
            ToSession::End(status) => return end(socket, status).await,
        }
    }
}

async fn end(socket: &SeqPacket, status: u32) -> Result<(), SessionError> {
    timeout(WRITE_TIMEOUT, socket.send_when_possible(&FromDaemon::End(status).encode())).await??;
    Ok(())
}

//! One session of the command line: reads commands one at a time and writes their answers.
//!
//! The answer to `events --follow` goes on until the command line closes, sends another command, or is too slow. The
//! end of its commands ends it not: a command line whose standard input is a pipe says so at once.

use crate::core::SessionId;
use crate::driver::events::{Event, Events};
use crate::io::seqpacket::SeqPacket;
use crate::observe::journal::followers::{CUT_OFF, Following};
use crate::patience::patient;
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
/// How long one that follows events may take, in whose terminal somebody may have stopped the output to read it.
const FOLLOWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The exit status of a command line that was too slow to follow.
const CUT_OFF_STATUS: u32 = 1;

/// What the driver tells a session.
#[derive(Debug)]
pub(in crate::driver) enum ToSession {
    /// The answer to its command.
    Answer(Vec<String>),
    /// The answer to a command that fails.
    Failure {
        /// What it has to say all the same.
        answer: Vec<String>,
        /// Why it fails, if that is not the answer itself.
        reason: Vec<String>,
    },
    /// The answer to its command, with lines that come later.
    Follow(Vec<String>, Following),
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
pub(in crate::driver) async fn serve(
    session: SessionId,
    socket: Arc<SeqPacket>,
    events: Events,
    // driver --answers--> session
    mut answers_rx: mpsc::UnboundedReceiver<ToSession>,
) {
    let rest = Rest(&socket);
    // Why a session ended concerns only its user, who sees it.
    let _: Result<(), SessionError> = converse(session, &socket, &events, &mut answers_rx).await;
    drop(rest);
    events.send(Event::SessionEnded { session }).await;
}

/// What a command line has sent and nobody has read, also when its session is cut short.
struct Rest<'a>(&'a SeqPacket);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.0.refuse_the_rest();
    }
}

async fn converse(
    session: SessionId,
    socket: &SeqPacket,
    events: &Events,
    answers_rx: &mut mpsc::UnboundedReceiver<ToSession>,
) -> Result<(), SessionError> {
    // What was announced while events were followed.
    let mut announced = None;
    loop {
        let announcement = match announced.take() {
            Some(announcement) => announcement,
            None => timeout(IDLE_TIMEOUT, announcement(socket)).await??,
        };
        let length = match announcement {
            Announcement::Command(length) => length,
            Announcement::End => return end(socket, 0).await,
        };
        let capacity = length.min(usize::try_from(MAX_COMMAND).unwrap_or(usize::MAX));
        let command =
            timeout(patient(COMMAND_TIMEOUT), socket.receive(capacity)).await??.ok_or(SessionError::Closed)?;
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
            ToSession::Answer(lines) => write(socket, &lines, patient(WRITE_TIMEOUT)).await?,
            ToSession::Failure { answer, reason } => {
                let packets = reason.iter().flat_map(|line| output_packets(line)).count();
                let failed = FromDaemon::Failed(u32::try_from(packets).unwrap_or(u32::MAX)).encode();
                timeout(patient(WRITE_TIMEOUT), socket.send_when_possible(&failed)).await??;
                write(socket, &[reason, answer].concat(), patient(WRITE_TIMEOUT)).await?;
            }
            ToSession::Follow(lines, following) => {
                write(socket, &lines, FOLLOWER_TIMEOUT).await?;
                match follow(socket, following, answers_rx).await? {
                    Followed::Command(length) => announced = Some(Announcement::Command(length)),
                    Followed::TooSlow => return end(socket, CUT_OFF_STATUS).await,
                    Followed::DaemonEnds(status) => return end(socket, status).await,
                }
            }
            ToSession::End(status) => return end(socket, status).await,
        }
    }
}

async fn announcement(socket: &SeqPacket) -> Result<Announcement, SessionError> {
    let packet = socket.receive(64).await?.ok_or(SessionError::Closed)?;
    Ok(Announcement::decode(&packet.bytes)?)
}

async fn write(socket: &SeqPacket, lines: &[String], patience: Duration) -> Result<(), SessionError> {
    for line in lines {
        for packet in output_packets(line) {
            timeout(patience, socket.send_when_possible(&packet)).await??;
        }
    }
    Ok(())
}

/// Why a session follows events no longer, other than that it closed.
enum Followed {
    /// It has announced another command, of this length.
    Command(usize),
    /// It was cut off.
    TooSlow,
    /// The daemon ends with this status.
    DaemonEnds(u32),
}

async fn follow(
    socket: &SeqPacket,
    mut following: Following,
    answers_rx: &mut mpsc::UnboundedReceiver<ToSession>,
) -> Result<Followed, SessionError> {
    loop {
        tokio::select! {
            // What has been recorded before the daemon's end is still told.
            biased;
            line = following.next() => match line {
                Some(line) => write(socket, &[line], FOLLOWER_TIMEOUT).await?,
                None => {
                    write(socket, &[CUT_OFF.to_owned()], FOLLOWER_TIMEOUT).await?;
                    return Ok(Followed::TooSlow);
                }
            },
            answer = answers_rx.recv() => match answer {
                Some(ToSession::End(status)) => return Ok(Followed::DaemonEnds(status)),
                // No command is under way.
                Some(ToSession::Answer(_) | ToSession::Failure { .. } | ToSession::Follow(..)) => {}
                None => return Err(SessionError::DaemonEnds),
            },
            announced = announcement(socket) => match announced? {
                Announcement::Command(length) => return Ok(Followed::Command(length)),
                // There will be no more commands; the next thing to come is that it closes.
                Announcement::End => {}
            },
        }
    }
}

async fn end(socket: &SeqPacket, status: u32) -> Result<(), SessionError> {
    timeout(patient(WRITE_TIMEOUT), socket.send_when_possible(&FromDaemon::End(status).encode())).await??;
    Ok(())
}

#[cfg(test)]
mod tests;

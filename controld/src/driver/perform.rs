//! How each effect is done.

use super::events::Extent;
use super::following::Following;
use super::sessions::conversation::ToSession;
use super::{ConnectionNote, Driver, Kind, Stage, gpus, keys};
use crate::core::{ConnectionId, Effect, Input, JournalEvent, ServerEpoch, SessionId};
use crate::failpoint::reached;
use crate::io::seqpacket::pair;
use crate::io::server_link::Said;
use crate::report::listed;
use remps_proto::mps::server::{Configuration, Request};
use std::os::fd::AsFd;

impl Driver {
    pub(super) fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Log(line) => self.say(&line),
            Effect::LookAtGpus => self.gpus.look(),
            Effect::LookAtMemory => self.gpus.look_at_memory(),
            Effect::ChangeModes(changes) => {
                let remarks = self.gpus.change(changes, &self.successor);
                self.say_all(&remarks);
            }
            Effect::HoldModes(modes) => {
                let remarks = self.gpus.hold_modes(&modes, &self.successor);
                self.say_all(&remarks);
            }
            Effect::EndStranger { process, force } => gpus::end_stranger(process, force),
            Effect::OpenEntrance(entrance) => self.open_entrance(&entrance),
            Effect::CloseEntrance(entrance) => self.close_entrance(&entrance),
            Effect::BindJoined { join, entrance } => self.bind_joined(join, &entrance),
            Effect::AcceptJoin { join, name } => self.accept_join(join, name),
            Effect::TellJoin { join, defaults } => self.tell_limits(join, &defaults),
            Effect::RefuseJoin { join, reason } => self.refuse_join(join, &reason),
            Effect::EndJoin { join, reason } => self.end_join(join, reason),
            Effect::EndSession { session } => self.hand(session, ToSession::End(0)),
            Effect::KeepServers { number, servers, defaults } => self.kept.keep(number, &servers, &defaults),
            Effect::SpawnServer { server, uid, gid, multi_user, gpu } => {
                self.start_server(server, uid, gid, Extent { multi_user, gpu });
            }
            Effect::AdoptLink { server, connection, configuration } => {
                self.adopt_link(server, connection, &configuration);
            }
            Effect::Ask { server, id, request } => self.ask(server, id, &request),
            Effect::Tell { server, request } => {
                let told = self.links.with(server, |link| link.tell(&request));
                if self.unless_lost(told) == Some(Said::Unsupported) {
                    self.say(&format!("Servers of this release can't be told: {request:?}"));
                }
            }
            Effect::Dispatch { server, connection } => self.dispatch(server, connection),
            Effect::HandOver { connection } => self.hand_over_to(connection),
            Effect::Recall { connection } => self.recall(connection),
            Effect::WatchProcess { pid, connection } => self.watch_process(pid, connection),
            Effect::Close { connection } => self.close(connection),
            Effect::Signal { server, signal } => self.servers.signal(server, signal),
            Effect::Answer { session, lines } => self.answer(session, lines),
            Effect::AnswerFailure { session, reason } => self.answer_failure(session, vec![], reason),
            Effect::AnswerRows { session, columns, rows, format } => {
                self.answer_quietly(session, listed(columns, rows, format));
            }
            Effect::AnswerPs { session, rows } => self.describe(session, rows),
            Effect::Report { session, peer, report } => self.report(session, peer, report),
            Effect::ListDevices { session } => {
                if let Some(known) = self.listing.known(session) {
                    self.feed(known);
                }
            }
            Effect::CloseSessions => {
                self.sessions.end_idle();
                reached("sessions-closed");
            }
            Effect::Save => {
                self.save();
                reached("saved");
            }
            Effect::Record(event) => self.record(&event),
            Effect::Announce(announcement) => self.reports.announce(*announcement),
            Effect::FindGpus { process } => self.witnesses.find_gpus(process),
            Effect::MeasureServer { server, pid } => self.servers.measure(server, pid),
            Effect::EndProcess { process, force } => self.end_process(process, force),
            Effect::NoteFuneral { process, until, endless } => {
                self.following(|following, turn| following.note_funeral(turn, process, until, endless));
            }
            Effect::CatchUp { server } => self.links.catch_up(server),
            Effect::ReleaseCopies { process } => {
                self.following(|following, turn| following.release_copies(turn, process));
            }
            Effect::SpareVoid { process, token } => {
                self.vault(|vault, turn| vault.spare_is_void(turn, process, token));
            }
            Effect::Exit { status } => {
                self.record(&JournalEvent::DaemonEnded { status });
                self.exit = Some(status);
            }
        }
    }

    pub(super) fn answer(&mut self, session: SessionId, lines: Vec<String>) {
        self.say_all(&lines);
        self.answer_quietly(session, lines);
    }

    pub(super) fn answer_quietly(&mut self, session: SessionId, lines: Vec<String>) {
        self.count_command(session, &lines);
        self.hand(session, ToSession::Answer(lines));
    }

    /// Answers a command of ours that fails, with the reason for standard error.
    pub(super) fn answer_failure(&mut self, session: SessionId, answer: Vec<String>, reason: Vec<String>) {
        self.count_command(session, if reason.is_empty() { &answer } else { &reason });
        self.hand(session, ToSession::Failure { answer, reason });
    }

    fn hand(&mut self, session: SessionId, answer: ToSession) {
        if self.sessions.answer(session, answer) {
            reached("answered");
        }
    }

    /// The server that has said hello on this connection gets its configuration there.
    ///
    /// A successor that finds the stage before this one can't know whether the configuration went out; it ends such a
    /// server, which has no clients yet.
    fn adopt_link(&mut self, server: ServerEpoch, connection: ConnectionId, configuration: &Configuration) {
        let Some(known) = self.connections.remove(connection) else {
            self.feed(Input::ServerLinkLost { server, reason: "its connection is closed".to_owned() });
            return;
        };
        let socket = known.socket.clone();
        drop(known);
        let _ = socket.discard();
        reached("hello-taken");
        self.links.insert(server, connection, socket.clone());
        self.following(Following::look_for_uvm);
        // A GPU has its name only when somebody has used it, and its instances may be others than before.
        self.witnesses.look_for_gpus();
        let told = self.links.with(server, |link| link.configure(configuration));
        if self.unless_lost(told).is_some() {
            let note = ConnectionNote::of(Stage::Link, self.servers.peer(server), Some(server));
            reached("configuration-sent");
            self.successor.hold(connection.0, Kind::SERVER_CONNECTION, &note, &[socket.as_fd()]);
            reached("link-held");
        }
    }

    /// Makes the pair of sockets that connects a client with its server.
    ///
    /// The holder gets the client's end first, then the server its own. The client gets its end only when the server
    /// has greeted it there ([`handover`](super::clients::handover)): a server that dies before that costs nobody anything.
    fn dispatch(&mut self, server: ServerEpoch, connection: ConnectionId) {
        let Some(peer) = self.core.client_peer(connection).filter(|_| self.connections.has(connection)) else {
            return;
        };
        let (client_end, server_end) = match pair() {
            Ok(pair) => pair,
            Err(error) => {
                self.say(&format!("Client {} can't be connected: {error}", peer.pid));
                self.close(connection);
                self.feed(Input::ClientDone { connection, status: None });
                return;
            }
        };
        self.successor.note(connection, Stage::Dispatching, peer, Some(server));
        reached("dispatching-noted");
        let end_key = keys::client_end(connection);
        self.successor.hold(end_key, Kind::CLIENT_END, &connection.0.to_le_bytes(), &[client_end.as_fd()]);
        reached("client-end-held");
        self.note_hidden(connection, peer, server);
        let request = Request::NewClient.packets();
        let told =
            self.links.with(server, |link| link.send(&request, Some((Request::NEW_CLIENT_DESCRIPTOR, server_end))));
        reached("server-told");
        if self.unless_lost(told).is_none() {
            // The core hears of the lost server first, and then of a client that waits as before.
            self.wait_again(connection, peer);
        } else if let Err(error) = self.handovers.begin(connection, peer, server, client_end) {
            self.say(&format!("Client {} can't be connected: {error}", peer.pid));
            self.close(connection);
            self.feed(Input::ClientDone { connection, status: None });
        }
    }
}

//! Who takes what has happened: everything that wakes the driver is passed on here, and nothing is decided.

use super::Driver;
use super::connections::ACCEPTING;
use super::events::Event;
use super::following::Following;
use super::successor::HolderNews;
use super::successor::notes::Stage;
use super::turn::{Told, Turn};
use super::vault::{Keeper, VaultNews};
use super::witnesses::Sign;
use crate::core::{ConnectionId, EntranceId, Evidence, Input, JournalEvent, is_hidden};
use crate::failpoint::reached;
use crate::holder::FromHolder;
use crate::observe::http::Question;
use remps_proto::admin::reply::ps_table;
use remps_proto::mps::log::Record;
use std::sync::Arc;

/// What woke the driver.
pub(super) enum Wake {
    Event(Event),
    Holder(HolderNews),
    Records(std::io::Result<Vec<Record>>),
    Sign(Sign),
    Vault(VaultNews),
    Asked(Question),
    Terminate,
    ChildEnded,
    HandOver,
    Reopen,
    Deadline,
}

impl Driver {
    /// Passes on what has woken the driver.
    pub(super) fn woken(&mut self, wake: Wake) {
        match wake {
            Wake::Event(event) => self.event(event),
            Wake::Holder(HolderNews::Said(said)) => self.holder_said(said),
            Wake::Holder(HolderNews::Lost(error)) => self.holder_lost(&error),
            Wake::Holder(HolderNews::Sought(result)) => self.holder_sought(result),
            Wake::Records(Ok(records)) => self.records(&records),
            Wake::Records(Err(error)) => self.say(&format!("The log FIFO can't be read: {error}")),
            Wake::Sign(sign) => self.sign(sign),
            Wake::Vault(news) => self.vault_news(news),
            Wake::Asked(question) => self.asked(question),
            Wake::Terminate => {
                self.feed(Input::Terminate);
                reached("quit-known");
            }
            Wake::HandOver => self.hand_over(),
            Wake::Reopen => self.reopen(),
            Wake::ChildEnded => self.reap(),
            Wake::Deadline => {
                self.links.seem_overdue();
                self.vault(Keeper::expire);
                self.successor.ask_again();
                self.logs.overdue(self.now()).into_iter().for_each(|sign| self.feed(sign));
                self.feed(Input::Tick);
            }
        }
        self.vault(|vault, turn| {
            vault.succeed(turn);
            vault.tell_watchers(turn);
            vault.answer_about_spares(turn);
        });
        self.look_after_waiters();
        self.tell_of_unheard();
    }

    fn holder_said(&mut self, said: FromHolder) {
        match said {
            FromHolder::Accepted { key, privileged, fd } => self.accepted(ConnectionId(key), fd, privileged),
            FromHolder::Passed { number } if self.successor.passed(number) => self.state_settled(),
            FromHolder::Passed { number } => self.vault(|vault, turn| vault.barrier_passed(turn, number)),
            FromHolder::Failed { key, reason } if self.successor.refused(key, reason) => self.state_settled(),
            FromHolder::Failed { key, .. } if self.vault.refused(key) => {}
            FromHolder::Failed { key, reason } => {
                tracing::warn!(key, %reason, "the holder could not keep something");
            }
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Role { connection, role, peer } => self.role(connection, role, peer),
            Event::Refused { connection, refusal } => {
                if self.connections.is_in_handshake(connection) {
                    self.logs.chatter(ACCEPTING);
                }
                self.logs.chatter(refusal.line());
                self.close(connection);
            }
            Event::Hello { connection, peer, hello } => {
                reached("hello-seen");
                self.successor.note(connection, Stage::Configuring, peer, None);
                reached("hello-noted");
                tracing::debug!(pid = peer.pid, shared_memory = hello.shared_memory, "server hello");
                self.feed(Input::ServerHello { connection, peer });
            }
            Event::ServerHasEnd { connection } => {
                // A fault that the server has told of before it greeted is known first.
                self.read_log_now();
                self.server_has_end(connection);
            }
            Event::ServerClosedEnd { connection } => self.server_closed_end(connection),
            Event::ClientDone { connection, status } => {
                reached("status-read");
                self.client_left(connection, status);
            }
            Event::HandshakeFinished { connection, is_answered } => {
                if is_answered {
                    self.feed(Input::RestAnswered { connection });
                }
                self.feed(Input::ClientDone { connection, status: None });
            }
            Event::JoinAsked { join, asked, tell } => self.join_asked(join, *asked, tell),
            Event::JoinListed { join, devices } => self.join_listed(join, devices),
            Event::JoinBound { join, entrance, result } => self.join_bound(join, entrance, result),
            Event::JoinVisited { join, socket, peer, is_owner } => self.join_visited(join, socket, peer, is_owner),
            Event::JoinLeaves { join } => self.feed(Input::JoinLeaves { join }),
            Event::JoinGone { join } => self.join_gone(join),
            Event::Command { session, line } => {
                if let Some((peer, rights)) = self.command_of(session, &line) {
                    reached("command-read");
                    self.feed(Input::Command { session, peer, rights, line });
                }
            }
            Event::SessionEnded { session } => self.session_ended(session),
            Event::LinkPacket { server, packet } => self.link_packet(server, &packet),
            Event::LinkEnded { server, reason } => {
                let lost = self.links.lose(server, reason);
                self.link_lost(lost);
            }
            Event::CaughtUp { server } => self.feed(Input::CaughtUp { server }),
            Event::AnswersOverdue { server } => {
                self.links.overdue(server).into_iter().for_each(|input| self.feed(input));
            }
            Event::LinkWritable { server } => {
                let written = self.links.writable(server);
                self.unless_lost(written);
            }
            Event::IdentityKnown { server, identity, extent } if self.core.is_starting(server) => {
                self.spawn_server(server, identity, extent);
            }
            Event::IdentityKnown { server, .. } => {
                self.feed(Input::SpawnFailed { server, reason: "it is not wanted any longer".to_owned() });
            }
            Event::ServerSaid { pid, lines, dropped } => self.logs.server_said(pid, &lines, dropped),
            Event::ServerExited { server, cause } => {
                let heard = self.witnesses.following.server_ended(server, cause);
                heard.into_iter().for_each(|event| self.event(event));
            }
            Event::ServerHeard { server, cause } => self.server_exited(server, cause),
            Event::ProcessGone { process, end } => {
                let heard = self.witnesses.following.process_ended(process, end);
                heard.into_iter().for_each(|event| self.event(event));
            }
            Event::WatchAgain { pid, connection } => self.watch_again(pid, connection),
            Event::ProcessHeard { process, end } => self.process_gone(process, end),
            Event::Known { connection, peer, found } => {
                if is_hidden(peer.pid) {
                    self.hidden_known(peer, &found);
                }
                // Unless it has left meanwhile.
                if let Some(socket) = self.connections.socket(connection) {
                    let entrance = socket.entrance().map(EntranceId);
                    if is_hidden(peer.pid) {
                        return self.hidden_is(connection, peer, found.identity, entrance);
                    }
                    let identity = Arc::new(found.identity);
                    self.feed(Input::ClientArrived { connection, peer, identity, entrance });
                }
            }
            Event::Identified { process, found } => self.identified(process, *found),
            Event::Attached { process, is_first, result } => {
                self.following(|following, turn| following.attached(turn, process, is_first, result));
            }
            Event::Given { process, result, reply } => {
                self.following(|following, turn| following.attached_given(turn, process, result, reply));
            }
            Event::Sifted { process, open, reply } => {
                self.following(|following, turn| following.sifted(turn, process, open, reply));
            }
            Event::UnfollowedEnded { process } => {
                self.bury(process);
                self.feed(Input::Tick);
            }
            Event::LookOverdue { process, connection } => {
                self.following(|following, turn| following.look_overdue(turn, process, connection));
            }
            Event::Fault { process, fault, lost, is_of_own_server } => {
                if lost > 0 {
                    let (witness, process) = ("uvm-event", Some(process));
                    self.record(&JournalEvent::WitnessLost { witness, process, count: lost });
                }
                self.feed(Input::Evidence(Evidence::UvmEvent { process, fault, is_of_own_server }));
            }
            Event::Unheard { process, error } => {
                tracing::warn!(pid = process.pid, %error, "a client's tools queue can't be read any longer");
                self.following(|following, turn| following.is_unheard(turn, process));
            }
            Event::GpusFound(found) => {
                let found = self.witnesses.gpus_found(found);
                self.feed(found);
            }
            Event::SpacesFound { process, gpus } => self.feed(Input::SpacesFound { process, gpus }),
            Event::Measured { server, memory_bytes } => self.feed(Input::ServerMeasured { server, memory_bytes }),
            Event::Described { session, rows } => self.answer(session, ps_table(&rows)),
            Event::GpusSeen(seen) => {
                let seen = self.gpus.seen(seen, &self.core.managed_modes(), &self.successor);
                seen.into_iter().for_each(|input| self.feed(input));
            }
            Event::MemorySeen(memory) => self.feed(Input::MemorySeen { memory, asked: true }),
            Event::UsageSeen(memory) => self.usage_seen(memory),
            Event::ModesChanged(changed) => {
                let changed = self.gpus.changed(changed, &self.successor);
                self.feed(changed);
            }
            Event::Devices { devices } => {
                let told = self.listing.done(&devices);
                self.told(told);
            }
            Event::ServersKept { number, result } => {
                reached("state-known");
                self.kept.done(number, result.is_ok());
                self.feed(Input::ServersKept { number, result });
            }
        }
    }
}

impl Driver {
    fn turn<T>(&mut self, act: impl FnOnce(&mut Following, &mut Keeper, &mut Turn<'_>) -> T) -> T {
        let now = self.now();
        let mut turn = Turn::new(&self.core, &self.successor, now);
        let done = act(&mut self.witnesses.following, &mut self.vault, &mut turn);
        let told = turn.into_told();
        self.told(told);
        done
    }

    /// Has those do something who follow clients, and passes on what they tell.
    pub(super) fn following<T>(&mut self, act: impl FnOnce(&mut Following, &mut Turn<'_>) -> T) -> T {
        self.turn(|following, _, turn| act(following, turn))
    }

    /// Has the vault do something, and passes on what it tells.
    pub(super) fn vault<T>(&mut self, act: impl FnOnce(&mut Keeper, &mut Turn<'_>) -> T) -> T {
        self.turn(|_, vault, turn| act(vault, turn))
    }

    /// Passes on what somebody has told.
    pub(super) fn told(&mut self, told: impl IntoIterator<Item = Told>) {
        for told in told {
            match told {
                Told::Input(input) => self.feed(input),
                Told::Line(line) => self.say(&line),
                Told::Event(event) => self.record(&event),
                Told::Missing(witness, process, why) => {
                    let told = self.witnesses.is_missing(witness, process, why);
                    self.told(told);
                }
                Told::Heard(witness) => {
                    let told = self.witnesses.is_found(witness);
                    self.told(told);
                }
                // Unless it has left meanwhile.
                Told::LookedAt(connection, peer) if self.connections.has(connection) => {
                    self.client_arrived(connection, peer);
                }
                Told::LookedAt(..) => {}
            }
        }
    }
}

//! Clients' processes: their ends are waited for.

use super::Driver;
use super::events::Event;
use super::processes::{core_pid, kernel_pid, known_at_once};
use crate::core::{ConnectionId, End, Input, Pid, ProcessKey, is_stand_in};
use crate::devices;
use crate::io::process::{WatchedProcess, open_process, start_time};
use crate::io::reaper;
use std::sync::Arc;
use std::time::Duration;

/// How long to wait before a process that can't be watched is tried again.
const WATCH_RETRY: Duration = Duration::from_secs(1);

impl Driver {
    /// Reports when a client's process ends, and follows it with the witnesses. One that can't be watched, because the
    /// daemon is out of descriptors, is a client as long as it may live, and is tried again.
    pub(super) fn watch_process(&mut self, pid: Pid, connection: Option<ConnectionId>) {
        if is_stand_in(pid) {
            return self.watch_hidden(pid, connection);
        }
        let socket = connection.and_then(|connection| self.connections.socket(connection));
        let named = socket.and_then(|socket| socket.peer_pidfd().ok());
        let opened = match named {
            Some(fd) => WatchedProcess::from_pidfd(kernel_pid(pid), fd),
            None => open_process(kernel_pid(pid)),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                let process = ProcessKey { pid, start_time: 0 };
                self.feed(Input::ProcessGone { process, end: End::Unknown });
                return;
            }
            Err(error) => {
                self.watch_later(pid, connection, &error);
                return;
            }
        };
        let identity = known_at_once(pid);
        let process = ProcessKey { pid, start_time: identity.start_time };
        if connection.is_none() {
            // A server has named it, by its pid alone: which process that is has to be known before it ends.
            self.feed(Input::IdentityKnown { pid, identity: Arc::clone(&identity) });
        }
        let uid = self.core.process_user(pid).unwrap_or(self.owner);
        let pidfd = opened.pidfd().and_then(|fd| fd.try_clone_to_owned().ok());
        self.following(|following, turn| following.follow(turn, process, pidfd));
        self.witnesses.await_end(process, uid, identity, opened);
    }

    fn watch_later(&self, pid: Pid, connection: Option<ConnectionId>, error: &std::io::Error) {
        tracing::warn!(pid, %error, "a client's process can't be watched yet");
        let events = self.events.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(tokio::time::Instant::now() + WATCH_RETRY).await;
            events.send(Event::WatchAgain { pid, connection }).await;
        });
    }

    /// Tries again to watch a process, unless its server has gone meanwhile, or its pid is another's by now.
    pub(super) fn watch_again(&mut self, pid: Pid, connection: Option<ConnectionId>) {
        let Some(known) = self.core.client_processes().into_iter().find(|known| known.pid == pid) else {
            return;
        };
        let started = start_time(kernel_pid(pid)).unwrap_or_default();
        if known.start_time != 0 && started != 0 && known.start_time != started {
            self.feed(Input::ProcessGone { process: known, end: End::Unknown });
        } else if !self.witnesses.awaits_end(known) {
            self.watch_process(pid, connection);
        }
    }

    pub(super) fn process_gone(&mut self, process: ProcessKey, end: End) {
        self.witnesses.has_ended(process);
        self.forget_hidden(process.pid);
        self.feed(Input::ProcessGone { process, end });
        self.bury(process);
    }

    /// As PID 1: buries the orphans that the kernel gives us, and nobody else's children.
    pub(super) fn reap(&self) {
        let ours: Vec<Pid> =
            self.servers.pids().chain([self.successor.holder_pid()]).chain(devices::probe_pids()).collect();
        reaper::reap_orphans(|pid| ours.contains(&core_pid(pid)));
    }
}

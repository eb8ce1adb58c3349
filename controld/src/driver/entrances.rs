//! The sockets of namespaces: made and removed as the core says, and found again by a successor.
//!
//! The holder accepts there as on the daemon's own sockets. A connection tells by its own name to which it came
//! ([`runtime_dir`](crate::io::runtime_dir)).

use super::successor::keys;
use super::{Driver, StartError};
use crate::core::{Device, Entrance, EntranceId, Input};
use crate::devices;
use crate::holder::Kind;
use crate::io::runtime_dir::{CONTROL, RuntimeDirError};
use crate::settings::servers_file::Plan;
use crate::sys::passed;
use remps_proto::admin::module::DEFAULT_NAMESPACE;
use remps_proto::shim::{DEFAULTS_NAME, SOCKET_NAME};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// What a namespace's folder has.
const FILES: [&str; 3] = [CONTROL, SOCKET_NAME, DEFAULTS_NAME];

/// The namespace's name in a path: the default's folder is its server's.
fn folder(entrance: &Entrance) -> Option<&str> {
    Some(entrance.namespace.as_str()).filter(|name| *name != DEFAULT_NAMESPACE)
}

impl Driver {
    /// Makes the socket of a new namespace, and tells the core of it.
    pub(super) fn open_entrance(&mut self, entrance: &Entrance) {
        let result = self.entrance(entrance, None);
        if result.is_ok() {
            self.hold_settings();
        }
        self.feed(Input::EntranceOpened { entrance: entrance.id, result });
    }

    /// Listens for the clients of a namespace, on the socket of an earlier daemon if its file is still there.
    fn entrance(&mut self, entrance: &Entrance, old: Option<OwnedFd>) -> Result<(), String> {
        let (id, server, namespace) = (entrance.id, entrance.server.as_str(), folder(entrance));
        let old = old.filter(|_| self.directory.resume_entrance(server, namespace));
        let is_new = old.is_none();
        let listener = match old {
            Some(listener) => {
                let _ = passed::allow(&listener, false);
                Ok(listener)
            }
            None => self.directory.open_entrance(id.0, server, namespace),
        };
        let listener = listener.map_err(|error: RuntimeDirError| error.to_string())?;
        let listening = self.successor.listen(keys::entrance(id), Kind::LISTENER_PUBLIC, listener, is_new);
        listening.map_err(|error| error.to_string())?;
        self.share_vault_with(entrance);
        self.tell_programs_of(entrance);
        self.open_log_of(entrance);
        Ok(())
    }

    /// Writes what programs get that have the preload library and say nothing, where those of a namespace find the daemon.
    fn tell_programs_of(&mut self, entrance: &Entrance) {
        let Entrance { server, namespace, .. } = entrance;
        let content = self.told_to_programs(None);
        if let Err(error) = self.directory.tell_programs_of(server, folder(entrance), content.as_deref()) {
            self.say(&format!("Programs of {server}/{namespace} are not told what [replay] has for them: {error}"));
        }
    }

    /// Lets the programs of a namespace reach the vault from where they find the daemon.
    fn share_vault_with(&mut self, entrance: &Entrance) {
        // A thin daemon's directory is perhaps on another file system, which no name can be shared with.
        if self.core.is_joined(entrance.id) {
            return;
        }
        if !self.vault.rules.policy().enabled || self.directory.folder().identity(SOCKET_NAME).is_none() {
            return;
        }
        let linked = self.directory.link_into(&entrance.server, folder(entrance), SOCKET_NAME);
        if let Err(error) = linked {
            let Entrance { server, namespace, .. } = entrance;
            self.say(&format!("No memory is kept for programs of {server}/{namespace}: {error}"));
        }
    }

    /// The same for all namespaces, when the vault's socket is another one.
    pub(super) fn share_vault(&mut self) {
        self.core.entrances().iter().for_each(|entrance| self.share_vault_with(entrance));
    }

    /// Takes the socket of a namespace away.
    pub(super) fn close_entrance(&mut self, entrance: &Entrance) {
        // First, so that nobody who comes meanwhile waits for one who never answers.
        self.successor.forget_listener(keys::entrance(entrance.id));
        self.close_joined(entrance.id);
        self.directory.close_entrance(&entrance.server, folder(entrance));
        self.hold_settings();
    }

    /// Goes on with the namespaces of an earlier daemon. One whose socket can't be made again is gone, and said to be.
    pub(super) fn resume_entrances(&mut self, mut old: BTreeMap<EntranceId, OwnedFd>) {
        for entrance in self.core.entrances() {
            if self.core.is_joined(entrance.id) {
                let old = old.remove(&entrance.id);
                self.resume_joined(&entrance, old);
                continue;
            }
            if let Err(error) = self.entrance(&entrance, old.remove(&entrance.id)) {
                let Entrance { server, namespace, .. } = &entrance;
                self.say(&format!("Clients of {server}/{namespace} can't be let in any longer: {error}"));
            }
        }
        // Of namespaces that nobody was told of, or that were being deleted.
        for id in old.into_keys() {
            self.successor.release(keys::entrance(id));
        }
    }

    /// Makes the servers of the file that the option `-a` names, all of them or none, and those that are kept on disk,
    /// each if it can be. A daemon that goes on where another one stopped has what that one had.
    ///
    /// # Errors
    /// [`StartError::Servers`] with the reason why those of the option can't be made.
    pub(super) async fn make_servers(&mut self, plan: Option<Plan>) -> Result<(), StartError> {
        let (kept, defaults) = self.read_kept();
        let is_first = !self.core.has_planned_servers();
        if plan.is_some() && !is_first {
            self.say("The file of servers is left alone: an earlier daemon has read it");
        }
        let plan = plan.filter(|_| is_first);
        let is_made = |name: &str| self.core.entrances().iter().any(|entrance| entrance.server == name);
        let mut of_disk: Plan = kept.iter().map(|(name, server)| (name.clone(), server.clone())).collect();
        of_disk.retain(|name, _| !is_made(name));
        if let Some(plan) = &plan {
            for (name, server) in plan {
                if of_disk.remove(name).is_some_and(|of_disk| of_disk != *server) {
                    self.say(&format!("Server {name} is as the option -a has it, and not as it was kept"));
                }
            }
        }
        if plan.is_some() || !of_disk.is_empty() {
            let listed = devices::list().await.map_err(|error| error.to_string());
            if let Some(plan) = plan {
                self.make_planned(&plan, &listed).map_err(StartError::Servers)?;
                self.core.servers_are_planned();
            }
            for (name, server) in of_disk {
                let one = Plan::from([(name.clone(), server.clone())]);
                if let Err(reason) = self.make_planned(&one, &listed) {
                    self.set_aside(name, server, &reason);
                }
            }
            self.save();
        }
        self.keep_what_is_so(&kept, &defaults).await;
        Ok(())
    }

    /// Makes all servers of a plan, or none.
    fn make_planned(&mut self, plan: &Plan, listed: &Result<Vec<Device>, String>) -> Result<(), String> {
        let planned = plan
            .iter()
            .map(|(name, server)| (name.as_str(), server.uid, server.devices.as_slice(), &server.namespaces));
        let entrances = self.core.plan_servers(planned, listed)?;
        for entrance in &entrances {
            if let Err(reason) = self.entrance(entrance, None) {
                entrances.iter().for_each(|made| self.close_entrance(made));
                plan.keys().for_each(|name| self.core.forget_planned(name));
                return Err(reason);
            }
        }
        for entrance in &entrances {
            self.feed(Input::EntranceOpened { entrance: entrance.id, result: Ok(()) });
        }
        Ok(())
    }

    /// The paths of all their sockets, and of what is beside these.
    pub(super) fn entrance_paths(&self) -> Vec<std::path::PathBuf> {
        let entrances = self.core.entrances();
        let paths = entrances
            .iter()
            .filter(|entrance| !self.core.is_joined(entrance.id))
            .map(|entrance| self.directory.entrance_paths(&entrance.server, folder(entrance), &FILES));
        paths.flatten().collect()
    }
}

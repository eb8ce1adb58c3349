//! Named servers and default limits on disk, where they outlive the daemon's end: read at the start, and written before
//! each change.
//!
//! | who says something of a server | is believed |
//! |---|---|
//! | the holder, which has all that an earlier daemon of this line had | first |
//! | the file of the option `-a`, at the start of a line | then |
//! | the kept file | then, for servers that nobody before has named |
//!
//! What `set_default_…` has said is there again, too, but where the daemon's environment says something else.
//!
//! A kept server that can't be made now, because its device is missing for instance, is set aside: it stays in the file
//! for the next start. While the file can't be read, or be written, changes are refused and nothing is written over.

use super::Driver;
use super::events::{Event, Events};
use crate::core::KeptDefaults;
use crate::core::saved::SavedNamed;
use crate::io::blocking::{NoResult, STATE};
use crate::io::folder::Folder;
use crate::io::state_folder::StateFolder;
use crate::patience::patient;
use crate::settings::servers_file::{Plan, PlannedServer};
use crate::settings::state_file;
use nix::sys::stat::fstat;
use remps_proto::admin::limits::{DeviceKey, MemLimit, Percentage, Priority};
use remps_proto::admin::module::Limits;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a disk may take for one file before whoever waits for it is told that it does not answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where named servers are kept.
#[derive(Debug)]
pub(super) struct Kept {
    /// The folder, or why there is none.
    folder: Result<Arc<Mutex<StateFolder>>, String>,
    /// What is kept and can't be made.
    aside: Plan,
    /// Those that are set aside no longer once the change of this number is kept.
    settled: Option<(u64, Vec<String>)>,
    events: Events,
}

impl Kept {
    /// Nowhere.
    pub(super) fn new(events: Events) -> Self {
        Self { folder: Err("they are not kept".to_owned()), aside: Plan::new(), settled: None, events }
    }

    /// Opens the folder and reads what is kept.
    ///
    /// # Errors
    /// Why nothing can be read, nor be kept from now on.
    fn open(&mut self, path: &Path, pipes: &Folder) -> Result<(Plan, KeptDefaults), String> {
        let pipes = fstat(pipes).ok().map(Into::into);
        let read = StateFolder::open(path, pipes).map_err(|error| error.to_string()).and_then(|mut folder| {
            let Some((text, believed)) = folder.read().map_err(|error| error.to_string())? else {
                return Ok((folder, (Plan::new(), KeptDefaults::default())));
            };
            let read = state_file::read(&text);
            let kept = read.map_err(|error| format!("{}: {error}", folder.file().display()))?;
            folder.is_believed(believed);
            Ok((folder, kept))
        });
        match read {
            Ok((folder, kept)) => {
                self.folder = Ok(Arc::new(Mutex::new(folder)));
                Ok(kept)
            }
            Err(reason) => {
                self.folder = Err(reason.clone());
                Err(reason)
            }
        }
    }

    /// The text of these servers and of what is set aside. One that has joined is there while its thin daemon says so.
    fn text(&self, servers: &[SavedNamed], defaults: &KeptDefaults) -> (String, Vec<String>) {
        let servers = servers.iter().filter(|server| server.joined.is_none());
        let mut plan = self.aside.clone();
        plan.extend(servers.clone().map(|server| (server.name.clone(), planned(server))));
        let settled = servers.map(|server| server.name.clone());
        (state_file::written(&plan, defaults), settled.filter(|name| self.aside.contains_key(name)).collect())
    }

    /// Keeps these servers and defaults, and tells when that is done.
    pub(super) fn keep(&mut self, number: u64, servers: &[SavedNamed], defaults: &KeptDefaults) {
        let (text, settled) = self.text(servers, defaults);
        self.settled = Some((number, settled));
        let (folder, events) = (self.folder.clone(), self.events.clone());
        tokio::spawn(async move {
            let result = write(folder, text).await;
            events.send(Event::ServersKept { number, result }).await;
        });
    }

    /// A change is kept, or is not.
    pub(super) fn done(&mut self, number: u64, is_kept: bool) {
        let settled = self.settled.take_if(|(wanted, _)| *wanted == number);
        for name in settled.into_iter().filter(|_| is_kept).flat_map(|(_, names)| names) {
            self.aside.remove(&name);
        }
    }
}

/// Writes a text on a thread of its own.
async fn write(folder: Result<Arc<Mutex<StateFolder>>, String>, text: String) -> Result<(), String> {
    let folder = folder?;
    let write = move || folder.lock().unwrap_or_else(PoisonError::into_inner).write(&text);
    match STATE.run(0, patient(PATIENCE), write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(NoResult::Exhausted | NoResult::Stuck) => Err("the disk does not answer".to_owned()),
        Err(NoResult::Panicked(error)) => Err(error.to_string()),
    }
}

/// A server as a file of servers has it.
fn planned(server: &SavedNamed) -> PlannedServer {
    let device = |text: &String| text.split_once(' ').map(|(_, uuid)| DeviceKey::Uuid(uuid.to_owned()));
    let spaces = server.namespaces.iter().map(|space| {
        let said = space.limits.clone().unwrap_or_default();
        let limits = Limits {
            memory: said.memory.map(MemLimit),
            percentage: said.percentage.and_then(|value| Percentage::new(value).ok()),
            priority: said.priority.and_then(|number| Priority::parse(number.to_string().as_bytes()).ok()),
        };
        (space.name.clone(), limits)
    });
    PlannedServer {
        uid: server.uid,
        devices: server.devices.iter().filter_map(device).collect(),
        namespaces: spaces.collect(),
    }
}

impl Driver {
    /// Reads what is kept, if anything is to be, and goes on with the defaults in it; those servers that nobody has named
    /// before, and what the file has.
    pub(super) fn read_kept(&mut self) -> (Plan, KeptDefaults) {
        let nothing = (Plan::new(), KeptDefaults::default());
        let Some(path) = self.settings.state_directory.clone() else { return nothing };
        self.core.keep_servers();
        match self.kept.open(&path, self.directory.folder()) {
            Ok((plan, defaults)) => {
                let named = self.settings.defaults_said;
                for variable in self.core.take_kept_defaults(defaults.clone(), named) {
                    self.say(&format!("Servers start with what {variable} says, and not with what was kept"));
                }
                (plan, defaults)
            }
            Err(reason) => {
                self.say(&format!(
                    "Named servers and default limits are not read from disk, and can't be changed: {reason}"
                ));
                self.reports.degraded.without_kept_servers(format!("not read from disk, no changes: {reason}"));
                nothing
            }
        }
    }

    /// Sets a kept server aside that can't be made.
    pub(super) fn set_aside(&mut self, name: String, server: PlannedServer, reason: &str) {
        self.say(&format!("The kept server {name} can't be made, and stays kept: {reason}"));
        self.kept.aside.insert(name, server);
    }

    /// Keeps what there is, if what was kept is something else.
    pub(super) async fn keep_what_is_so(&mut self, kept: &Plan, defaults: &KeptDefaults) {
        if self.kept.folder.is_err() {
            return;
        }
        let (text, _) = self.kept.text(&self.core.saved().named, &self.core.kept_defaults());
        if text == state_file::written(kept, defaults) {
            return;
        }
        if let Err(reason) = write(self.kept.folder.clone(), text).await {
            self.say(&format!("Named servers and default limits can't be kept: {reason}"));
        }
    }
}

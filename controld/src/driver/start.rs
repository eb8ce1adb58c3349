//! The start of the daemon: fresh, or where a killed daemon stopped ([`restore`](super::successor::restore)).

use super::clients::handover::Handovers;
use super::connections::Connections;
use super::events::Events;
use super::gpus::Gpus;
use super::joins::Joins;
use super::kept::Kept;
use super::links::Links;
use super::listing::Listing;
use super::logs::Logs;
use super::reports::Reports;
use super::resting::Resting;
use super::servers::Servers;
use super::sessions::Sessions;
use super::successor::restore::Found;
use super::successor::{Successor, keys};
use super::usage::Usage;
use super::vault::Keeper;
use super::{Driver, Signals, Witnesses};
use crate::core::{Core, Policy};
use crate::failpoint::reached;
use crate::holder::{HolderError, HolderLink, Kind, LOG_BACKLOG_KEY};
use crate::io::folder::Kind as FileKind;
use crate::io::log_fifo::{self, LogFifo};
use crate::io::mode_records::ModeRecords;
use crate::io::notify::Watchdog;
use crate::io::runtime_dir::{CONTROL, CONTROL_PRIVILEGED, LOG, RuntimeDir, RuntimeDirError};
use crate::io::server_version;
use crate::observe::log::LogSink;
use crate::settings::Settings;
use crate::settings::servers_file::Plan;
use crate::sys::passed;
use crate::sys::proc::ProcDir;
use nix::sys::stat::fstat;
use remps_proto::admin::Personality;
use remps_proto::mps::log::Decoder;
use remps_proto::mps::server::Dialect;
use remps_proto::shim::{ProgramDefaults, SOCKET_NAME};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Clients, servers and users without privileges connect here.
const CONTROL_MODE: u32 = 0o666;
/// The owner's and root's command line connects here.
const PRIVILEGED_MODE: u32 = 0o700;

/// Programs of every user connect to the vault.
const SHIM_MODE: u32 = 0o666;

/// Why the daemon can't start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The pipe directory.
    #[error(transparent)]
    Directory(#[from] RuntimeDirError),
    /// The log FIFO.
    #[error("cannot make {}: {source}", path.display())]
    Fifo {
        /// The FIFO.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The holder process.
    #[error("the holder process can't be started: {0}")]
    Holder(#[from] HolderError),
    /// The servers that the option `-a` names.
    #[error("the servers of the file can't be made: {0}")]
    Servers(String),
    /// A system call.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

fn open_fifo(directory: &mut RuntimeDir, found: &mut Found) -> Result<LogFifo, StartError> {
    // One whose file is gone, or another by now, can't be found by the next server.
    let is_there = |fd: &OwnedFd| fstat(fd).is_ok_and(|held| directory.folder().identity(LOG) == Some(held.into()));
    let fifo = match found.fifo.take().filter(is_there) {
        Some(fd) => fd,
        None => {
            directory.clear_way(LOG, FileKind::Fifo)?;
            let made = log_fifo::create(directory.folder(), LOG, log_fifo::MODE);
            made.map_err(|source| StartError::Fifo { path: directory.file(LOG), source })?
        }
    };
    directory.remove_on_exit(LOG)?;
    Ok(LogFifo::from_fd(fifo)?)
}

/// Undoes a start that failed. What an earlier daemon left stays for one that succeeds.
async fn abandon(is_fresh: bool, mut directory: RuntimeDir, successor: Successor) {
    if is_fresh {
        directory.remove_files();
        successor.end().await;
    } else {
        directory.keep_files();
    }
}

impl Driver {
    /// Takes over what an earlier daemon left, or starts fresh, and opens the control sockets.
    ///
    /// The lock of the pipe directory must be held. Call it within a current-thread runtime.
    ///
    /// # Errors
    /// [`StartError`] when the daemon can't serve.
    pub(crate) async fn start(
        settings: Settings,
        plan: Option<Plan>,
        policy: Policy,
        log: LogSink,
        mut directory: RuntimeDir,
    ) -> Result<Self, StartError> {
        let started = Instant::now();
        let own_pid = std::process::id();
        let signals = Signals::caught()?;
        let (holder, held) = HolderLink::attach_in(directory.folder()).await?;
        let mut successor = Successor::new(holder);
        reached("attached");
        let is_fresh = held.is_empty();
        let mut found = Found::sort(held);
        let left = std::mem::take(&mut found.left);
        successor.go_on(left.keeping);
        let fifo = match open_fifo(&mut directory, &mut found) {
            Ok(fifo) => fifo,
            Err(error) => {
                abandon(is_fresh, directory, successor).await;
                return Err(error);
            }
        };
        log.control(own_pid, &format!("Starting control daemon using socket {}", directory.file(CONTROL).display()));
        log.control(
            own_pid,
            &format!(
                "To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={}",
                directory.path().display()
            ),
        );
        if let Some(version) = policy.personality.binary_version().filter(|_| policy.personality.logs_binary_version())
        {
            log.control(own_pid, &format!("CUDA MPS Control binary version: {version}"));
        }
        for remark in settings.remarks.iter().chain(&directory.take_remarks()) {
            log.control(own_pid, remark);
        }
        if let Some(remark) = left.remark {
            log.control(own_pid, remark);
        }
        let mut backlog = Decoder::default();
        backlog.push(&found.backlog);
        backlog.for_each(|record| log.record(&record, None));

        let (events, events_rx) = Events::channel();
        let servers = Servers::new(&settings, events.clone());
        let witnesses = Witnesses::open(&settings, events.clone());
        let vault = Keeper::new(&settings);
        let installed = server_version::find(None, settings.library_path.as_deref()).map(|installed| installed.version);
        let reports = Reports::new(&settings, policy.personality, installed);
        let records = &settings.file.policy.gpus.records;
        let records = (!records.is_empty()).then(|| PathBuf::from(records));
        let mode_records = ModeRecords::new(Arc::clone(directory.folder()), records);
        let gpus = Gpus::new(settings.file.policy.gpus.clone(), mode_records, events.clone());
        let dialect = if policy.personality < Personality::V580 { Dialect::Ordinals } else { Dialect::Keys };
        let owner = policy.owner;
        let defaults = settings.defaults.clone();
        let mut driver = Self {
            core: Core::new(policy.clone(), defaults),
            started,
            settings,
            owner,
            logs: Logs::new(log, fifo),
            directory,
            successor,
            events: events.clone(),
            events_rx,
            signals,
            connections: Connections::new(events.clone()),
            sessions: Sessions::new(events.clone(), policy.personality),
            joins: Joins::new(events.clone()),
            links: Links::new(dialect, events.clone()),
            servers,
            handovers: Handovers::new(events.clone()),
            pending: VecDeque::new(),
            feeding: false,
            listing: Listing::new(events.clone()),
            kept: Kept::new(events),
            witnesses,
            vault,
            reports,
            gpus,
            resting: Resting::default(),
            usage: Usage::default(),
            watchdog: Watchdog::wanted(|name| std::env::var_os(name), started),
            exit: None,
        };
        driver.begin_witnessing();
        if let Some(saved) = found.state.take() {
            driver.take_over(policy, &saved, &mut found);
        }
        if let Some(found) = driver.witnesses.know_gpus().await {
            driver.feed(found);
        }
        let copies = std::mem::take(&mut found.copies);
        let dead = driver.following(|following, turn| following.take_over_copies(turn, copies));
        dead.into_iter().for_each(|process| driver.bury(process));
        reached("state-restored");
        driver.successor.hold(keys::LOG_FIFO, Kind::LOG_FIFO, &[], &[driver.logs.fifo()]);
        driver.save();
        reached("start-saved");
        driver.successor.release(LOG_BACKLOG_KEY);
        driver.take_over_connections(&mut found);
        reached("connections-restored");
        let regions = std::mem::take(&mut found.regions);
        driver.vault(|vault, turn| vault.take_over(turn, regions));
        let appeared = match driver.appear(&mut found) {
            Ok(()) => driver.make_servers(plan).await,
            Err(error) => Err(error),
        };
        match appeared {
            Ok(()) => {
                driver.begin_observing(is_fresh).await;
                driver.logs.keep_uncleaned(&driver.settings.log_directory);
                let parts = std::mem::take(&mut found.mode_records);
                let (watched, remarks) = driver.gpus.begin(found.modes.take(), parts, &driver.successor);
                driver.say_all(&remarks);
                driver.feed(watched);
                Ok(driver)
            }
            Err(error) => {
                let Self { directory, successor, .. } = driver;
                abandon(is_fresh, directory, successor).await;
                Err(error)
            }
        }
    }

    /// Lets others find the daemon.
    fn appear(&mut self, found: &mut Found) -> Result<(), StartError> {
        self.listen(found)?;
        self.open_vault(found.shim.take());
        self.share_vault();
        self.open_joins();
        reached("listening");
        self.tell_programs();
        self.directory.write_pid_file()?;
        for remark in self.directory.take_remarks() {
            self.say(&remark);
        }
        // Now that all files are there: the holder removes those that it is told of while they exist.
        self.hold_settings();
        reached("pid-file-written");
        Ok(())
    }

    /// Writes what programs get that have the preload library and say nothing, or takes away what another daemon has
    /// written. Without it they get what they would have had.
    fn tell_programs(&mut self) {
        let content = self.told_to_programs(None);
        if let Err(error) = self.directory.tell_programs(content.as_deref()) {
            self.say(&format!("Programs are not told what [replay] has for them: {error}"));
        }
    }

    /// What programs get that have the preload library and say nothing, as they read it; those of a claim whose daemon says
    /// what they have where no table does.
    pub(super) fn told_to_programs(&self, claim: Option<ProgramDefaults>) -> Option<String> {
        let own = ProcDir::own();
        let [users, cgroups] = ["user", "cgroup"].map(|kind| Some(own.as_ref()?.namespace(kind).ok()?.1));
        self.settings.file.told_to_programs(claim, users, cgroups)
    }

    /// Opens the socket `shim`, or goes on with the one that an earlier daemon had. Without it the daemon does all else.
    fn open_vault(&mut self, old: Option<OwnedFd>) {
        if !self.vault.rules.policy().enabled {
            self.successor.release(keys::SHIM_LISTENER);
            return;
        }
        // Programs give their memory to who listens there, so it is a socket of ours or a new one.
        let old = old.filter(|_| self.directory.folder().has(SOCKET_NAME, FileKind::Socket));
        let old = old.filter(|_| self.directory.remove_on_exit(SOCKET_NAME).is_ok());
        match old.map_or_else(|| self.directory.bind_listener(SOCKET_NAME, SHIM_MODE), Ok) {
            Ok(listener) => self.vault(|vault, turn| vault.open(turn, listener)),
            Err(error) => self.say(&format!("No memory is kept for programs: {error}")),
        }
    }

    /// Opens the control sockets, or goes on with those that an earlier daemon had, on which newcomers wait already.
    fn listen(&mut self, found: &mut Found) -> Result<(), StartError> {
        let sockets = [
            (keys::PRIVILEGED_LISTENER, Kind::LISTENER_PRIVILEGED, CONTROL_PRIVILEGED, PRIVILEGED_MODE),
            (keys::PUBLIC_LISTENER, Kind::LISTENER_PUBLIC, CONTROL, CONTROL_MODE),
        ];
        for (key, kind, name, mode) in sockets {
            let old = if kind == Kind::LISTENER_PUBLIC { found.public.take() } else { found.privileged.take() };
            // A socket whose file somebody has removed can't be found by anybody; and what another user put there in
            // its place, while everybody could write to the directory, is not ours.
            let old = old.filter(|_| self.directory.folder().has(name, FileKind::Socket));
            let is_new = old.is_none();
            let listener = match old {
                Some(listener) => {
                    // An earlier release's takes descriptors.
                    let _ = passed::allow(&listener, false);
                    self.directory.remove_on_exit(name)?;
                    listener
                }
                None => self.directory.bind_listener(name, mode)?,
            };
            self.successor.listen(key, kind, listener, is_new)?;
        }
        self.resume_entrances(std::mem::take(&mut found.entrances));
        Ok(())
    }
}

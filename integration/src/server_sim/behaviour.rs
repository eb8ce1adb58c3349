//! The script of this server, read once.

use nix::fcntl::{Flock, FlockArg};
use sim_wire::fault;
use sim_wire::hardware::{self, Device};
use sim_wire::script::Script;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

/// From greeting to role; a real server takes 94 to 360 ms.
const INITIALISATION: Duration = Duration::from_millis(20);
/// Most contexts of a device and server, as documented for recent drivers.
const MAX_CLIENTS: usize = 60;

/// Where to stop responding for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hang {
    /// Before connecting.
    Start,
    /// After the greeting.
    Role,
    /// After the role.
    Hello,
}

/// A step of a client's way to the server, at which somebody else's fault comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The daemon asks how the server is.
    Status,
    /// The daemon has told the server of the client.
    Told,
    /// The server has greeted the client.
    Greeted,
    /// The client has said who it is.
    Credentials,
}

/// What the variables ask for; see the module's table.
#[derive(Debug)]
pub(super) struct Behaviour {
    pub(super) devices: Vec<Device>,
    pub(super) initialisation: Duration,
    pub(super) gate: Option<PathBuf>,
    pub(super) hang: Option<Hang>,
    pub(super) hang_request: Option<u32>,
    pub(super) crash_at_clients: Option<u64>,
    pub(super) max_clients: usize,
    pub(super) fault_spread: Duration,
    pub(super) faults_after_culprit: bool,
    pub(super) traps_stay_untold: bool,
    pub(super) fault_at: Option<Step>,
    pub(super) fault_at_connection: u64,
    pub(super) hangs_with_stopped_victims: bool,
    pub(super) binary_version: u32,
    pub(super) driver_version: String,
    starts: Option<PathBuf>,
    stderr: Option<String>,
    exit_status: Option<u8>,
    exit_first: Option<usize>,
}

impl Behaviour {
    pub(super) fn new(script: &Script) -> Self {
        Self {
            devices: hardware::devices(script),
            initialisation: script.milliseconds("MPS_SIM_INIT_MS", INITIALISATION),
            gate: script.text("MPS_SIM_INIT_GATE").map(PathBuf::from),
            hang: script.text("MPS_SIM_HANG").and_then(|place| match place.as_str() {
                "start" => Some(Hang::Start),
                "role" => Some(Hang::Role),
                "hello" => Some(Hang::Hello),
                _ => None,
            }),
            hang_request: script.number("MPS_SIM_HANG_REQUEST"),
            crash_at_clients: script.number("MPS_SIM_CRASH_AT_CLIENTS"),
            max_clients: script.number("MPS_SIM_MAX_CLIENTS").unwrap_or(MAX_CLIENTS),
            fault_spread: script.milliseconds("MPS_SIM_FAULT_MS", fault::SPREAD),
            faults_after_culprit: script.number("MPS_SIM_FAULT_AFTER_CULPRIT") == Some(1),
            traps_stay_untold: script.number("MPS_SIM_TRAPS_UNTOLD") == Some(1),
            fault_at: script.text("MPS_SIM_FAULT_AT").and_then(|step| match step.as_str() {
                "status" => Some(Step::Status),
                "told" => Some(Step::Told),
                "greeted" => Some(Step::Greeted),
                "credentials" => Some(Step::Credentials),
                _ => None,
            }),
            fault_at_connection: script.number("MPS_SIM_FAULT_AT_CONNECTION").unwrap_or_default(),
            hangs_with_stopped_victims: script.number("MPS_SIM_HANG_WITH_STOPPED") == Some(1),
            binary_version: script.number("MPS_SIM_BINARY_VERSION").unwrap_or(13000),
            driver_version: script.text("MPS_SIM_DRIVER_VERSION").unwrap_or_else(|| "580".to_owned()),
            starts: script.text("MPS_SIM_STARTS").map(PathBuf::from),
            stderr: script.text("MPS_SIM_STDERR"),
            exit_status: script.number("MPS_SIM_EXIT_STATUS"),
            exit_first: script.number("MPS_SIM_EXIT_FIRST"),
        }
    }

    /// Does what is asked for before anything else; gives the status to exit with, if that is asked for.
    pub(super) fn at_start(&self) -> Option<u8> {
        let number = self.count_start();
        if let Some(text) = &self.stderr {
            // A closed standard error is the test's own choice.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
        let exits = self.exit_first.is_none_or(|first| number.is_some_and(|number| number <= first));
        self.exit_status.filter(|_| exits)
    }

    /// Appends a line to the file of starts and counts them, this one included.
    fn count_start(&self) -> Option<usize> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(self.starts.as_ref()?).ok()?;
        // Servers of several users may start at the same time.
        let mut file = Flock::lock(file, FlockArg::LockExclusive).ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        writeln!(file, "{}", std::process::id()).ok()?;
        Some(text.lines().count() + 1)
    }
}

/// Never returns; signals with their default action still end the process.
pub(super) fn hang() -> ! {
    loop {
        nix::unistd::pause();
    }
}

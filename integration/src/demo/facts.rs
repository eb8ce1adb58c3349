//! What happened, as data: the JSON object of `--json`, and the source of the text.

use serde::Serialize;

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Facts {
    /// Where it was played.
    pub(super) machine: MachineFacts,
    /// What happened when, in order.
    pub(super) timeline: Vec<Entry>,
    /// The three clients that were there before the fault.
    pub(super) clients: Vec<ClientFacts>,
    /// The fault and what was said about it.
    pub(super) fault: FaultFacts,
    /// Those who came afterwards.
    pub(super) newcomers: Vec<NewcomerFacts>,
    /// The daemon's end.
    pub(super) quit: QuitFacts,
    /// What this release promises, and whether it was kept.
    pub(super) promises: Vec<Promise>,
    /// What was not shown, and why.
    pub(super) not_proven: Vec<String>,
}

/// Where it was played.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct MachineFacts {
    /// `real` or `simulated`: driver, GPU and servers.
    pub(super) driver: &'static str,
    /// Why it is simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why_simulated: Option<String>,
    /// The GPUs, of a real driver.
    pub(super) devices: Vec<String>,
    /// The users whose clients were run.
    pub(super) users: Vec<u32>,
}

/// One line of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Entry {
    /// Milliseconds since the start of the daemon.
    pub(super) ms: f64,
    /// Who says it.
    pub(super) who: String,
    /// What.
    pub(super) text: String,
}

/// A client that was there before the fault.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ClientFacts {
    /// As in the timeline.
    pub(super) name: String,
    /// Its user.
    pub(super) uid: u32,
    /// Its process.
    pub(super) pid: i32,
    /// Its server.
    pub(super) server: Option<u32>,
    /// Whether it shares its server with the culprit, or is the culprit.
    pub(super) shares_the_fault: bool,
    /// Whether it is the culprit.
    pub(super) is_culprit: bool,
    /// From its start until it had a context and memory (and, a bystander, a step done), in milliseconds.
    pub(super) served_after_ms: Option<f64>,
    /// Steps of a bystander.
    pub(super) steps: Option<u64>,
    /// The longest step of a bystander since the fault, in milliseconds.
    pub(super) longest_step_since_fault_ms: Option<f64>,
    /// Whether a bystander's memory had counted every step at its end.
    pub(super) is_intact: Option<bool>,
    /// What it failed of.
    pub(super) failure: Option<Failure>,
    /// How its process ended.
    pub(super) exit: Exit,
}

/// A driver call that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Failure {
    /// Milliseconds since the start of the daemon.
    pub(super) at_ms: f64,
    /// The driver's function.
    pub(super) call: String,
    /// `CUresult`.
    pub(super) code: u32,
    /// Its name.
    pub(super) name: String,
    /// What brought it about.
    pub(super) why: String,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Exit {
    /// Exit status.
    pub(super) status: Option<i32>,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
}

/// The fault and what was said about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct FaultFacts {
    /// Which was injected.
    pub(super) kind: &'static str,
    /// When its kernel was launched, in milliseconds since the start of the daemon.
    pub(super) launched_ms: Option<f64>,
    /// Who did it.
    pub(super) culprit: Option<i32>,
    /// Whom the server's log calls the culprit.
    pub(super) named_by_server: Option<i32>,
    /// Whether that is right; `None` when it names nobody.
    pub(super) is_named_rightly: Option<bool>,
    /// All that the server's log says about the fault.
    pub(super) server_log: Vec<String>,
    /// `get_server_status` when the first client knew.
    pub(super) server_status: Option<String>,
}

/// A client that came afterwards.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct NewcomerFacts {
    /// As in the timeline.
    pub(super) name: String,
    /// Its user.
    pub(super) uid: u32,
    /// The server that served it.
    pub(super) server: Option<u32>,
    /// When its first process was started, in milliseconds since the start of the daemon.
    pub(super) came_at_ms: f64,
    /// From then to the first allocation, all attempts together, in milliseconds.
    pub(super) served_after_ms: Option<f64>,
    /// From `main` to the first allocation of the attempt that was served, in milliseconds.
    pub(super) first_allocation_ms: Option<f64>,
    /// The attempts that failed.
    pub(super) failures: Vec<Refusal>,
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Refusal {
    /// Its process.
    pub(super) pid: i32,
    /// With what it failed.
    pub(super) failure: Failure,
    /// Whether the server's log says that the server refused it because of the fault.
    pub(super) is_by_server: bool,
}

/// The daemon's end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct QuitFacts {
    /// Whether the daemon had lived until then.
    pub(super) was_alive: bool,
    /// Exit status of `quit`.
    pub(super) status: Option<i32>,
    /// Exit status of the daemon.
    pub(super) daemon_status: Option<i32>,
    /// How long both took, in milliseconds.
    pub(super) took_ms: f64,
    /// Files left in the pipe directory.
    pub(super) files_left: Vec<String>,
    /// Processes left, pid and command line.
    pub(super) processes_left: Vec<String>,
}

/// A promise of this release.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Promise {
    /// A short name that stays the same from release to release.
    pub(super) name: &'static str,
    /// What is promised.
    pub(super) text: &'static str,
    /// Whether it was kept; `None` when it could not be tried here.
    pub(super) kept: Option<bool>,
    /// What was seen.
    pub(super) seen: String,
}

impl Facts {
    /// Whether no promise was broken.
    pub(super) fn all_kept(&self) -> bool {
        self.promises.iter().all(|promise| promise.kept != Some(false))
    }

    /// One JSON object with a final newline; `passed` is [`Self::all_kept`].
    pub(super) fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Whole<'a> {
            passed: bool,
            #[serde(flatten)]
            facts: &'a Facts,
        }
        let whole = Whole { passed: self.all_kept(), facts: self };
        let mut text = serde_json::to_string(&whole).expect("plain data");
        text.push('\n');
        text
    }
}

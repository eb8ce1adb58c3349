//! What happened in one run, as data: the only source of the lines, the table, the promises and the picture.

use serde::Serialize;
use std::fmt;

/// Whose daemon a run is with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Side {
    /// Ours.
    Remps,
    /// NVIDIA's.
    Nvidia,
}

impl Side {
    /// As it is called where both are set side by side.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Remps => "ReMPS",
            Self::Nvidia => "NVIDIA's daemon",
        }
    }
}

/// Who does something. Each has a lane of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Lane {
    /// The control daemon.
    Daemon,
    /// A server, by its pid.
    Server(i32),
    /// A program that knows of nothing, on the culprit's server.
    Plain,
    /// A program under the preload library, there too.
    InPlace,
    /// The one that makes the fault. With ours `run` starts it.
    Culprit,
    /// A program in a fault domain of its own.
    Elsewhere,
    /// A program that is killed in the middle of a kernel, on the server of the one before.
    Killed,
    /// Somebody who comes, by number.
    Newcomer(u8),
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daemon => f.write_str("daemon"),
            Self::Server(pid) => write!(f, "server {pid}"),
            Self::Plain => f.write_str("plain program"),
            Self::InPlace => f.write_str("with the library"),
            Self::Culprit => f.write_str("culprit"),
            Self::Elsewhere => f.write_str("other domain"),
            Self::Killed => f.write_str("killed program"),
            Self::Newcomer(number) => write!(f, "newcomer {number}"),
        }
    }
}

/// Something that happened. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub(super) enum What {
    /// An act of the play begins.
    Act {
        /// Its number.
        number: u8,
    },
    /// A process begins.
    Started {
        /// Its pid.
        pid: i32,
    },
    /// A daemon or server takes connections.
    Ready,
    /// A program has a context and memory.
    Served {
        /// The CUDA program's pid, which under `run` is not the one that was started.
        pid: i32,
        /// Since it came, all its attempts together.
        after_ms: f64,
    },
    /// A server has taken a client.
    Took {
        /// The client.
        pid: i32,
    },
    /// A program goes on with its work.
    Worked {
        /// Steps so far.
        steps: u64,
        /// The longest since it was told last.
        longest_ms: f64,
    },
    /// A program has asked for its memory to be kept.
    Committed {
        /// Whether the daemon keeps it.
        is_kept: bool,
    },
    /// It has launched a kernel that takes a while.
    Launched,
    /// It launches a kernel that writes to an address where nothing is mapped.
    Faulted,
    /// The daemon says who did it.
    Verdict {
        /// Whom it names.
        pid: Option<i32>,
        /// `certain`, `likely` or `unknown`.
        confidence: String,
        /// What tells of it.
        witness: String,
    },
    /// The server's log says who did it.
    Blamed {
        /// Whom it names.
        pid: i32,
    },
    /// A driver call failed, and the program ends.
    Failed {
        /// The driver's function.
        call: String,
        /// `CUresult`.
        code: u32,
        /// Its name.
        name: String,
    },
    /// A program goes on in place.
    Recovered {
        /// What the library says that it took.
        took_ms: f64,
        /// Bytes of device memory that were compared then.
        bytes: u64,
        /// Whether all were the same.
        is_intact: bool,
    },
    /// A program that was started again has asked for what its predecessor had.
    Found {
        /// Bytes that were compared; 0 when there is nothing.
        bytes: u64,
        /// Whether all were the same.
        is_intact: bool,
    },
    /// It is killed with SIGKILL.
    Killed,
    /// Another program file stands in the daemon's place, and it is told to make room.
    Upgraded,
    /// A program has ended as it was told to.
    Ended {
        /// Whether all its memory was what it should be; `None` where that is not looked at.
        is_intact: Option<bool>,
    },
    /// A process is gone.
    Gone {
        /// Exit status.
        status: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
}

impl What {
    /// The number of an act that begins.
    pub(super) fn act(&self) -> Option<u8> {
        if let Self::Act { number } = self { Some(*number) } else { None }
    }

    /// The pid of a program with a context and memory, and how long it took to it.
    pub(super) fn served(&self) -> Option<(i32, f64)> {
        if let Self::Served { pid, after_ms } = self { Some((*pid, *after_ms)) } else { None }
    }

    /// The driver's error.
    pub(super) fn failed(&self) -> Option<u32> {
        if let Self::Failed { code, .. } = self { Some(*code) } else { None }
    }

    /// The longest step that is told of, in milliseconds.
    pub(super) fn step(&self) -> Option<f64> {
        if let Self::Worked { longest_ms, .. } = self { Some(*longest_ms) } else { None }
    }

    /// Whom the daemon names, with which confidence and by what.
    pub(super) fn verdict(&self) -> Option<(Option<i32>, &str, &str)> {
        if let Self::Verdict { pid, confidence, witness } = self { Some((*pid, confidence, witness)) } else { None }
    }

    /// Whom the server's log names.
    pub(super) fn blamed(&self) -> Option<i32> {
        if let Self::Blamed { pid } = self { Some(*pid) } else { None }
    }

    /// How long a recovery took, what was compared and whether it was equal.
    pub(super) fn recovered(&self) -> Option<(f64, u64, bool)> {
        if let Self::Recovered { took_ms, bytes, is_intact } = self {
            Some((*took_ms, *bytes, *is_intact))
        } else {
            None
        }
    }

    /// Whether somebody who worked works no more.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Gone { .. })
    }
}

/// What, when, who.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Event {
    /// Milliseconds since the run began.
    pub(super) ms: f64,
    /// Who.
    pub(super) lane: Lane,
    /// What.
    #[serde(flatten)]
    pub(super) what: What,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct End {
    /// Exit status of the command that ends the daemon.
    pub(super) status: Option<i32>,
    /// Files left in the pipe directory.
    pub(super) files_left: Vec<String>,
    /// Processes left, pid and command line.
    pub(super) processes_left: Vec<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Story {
    /// Whose daemon.
    pub(super) side: Side,
    /// What stood for daemon, driver and servers, in words.
    pub(super) setting: String,
    /// All that happened, in order of time.
    pub(super) events: Vec<Event>,
    /// How it ended, where the daemon was told to.
    pub(super) end: Option<End>,
}

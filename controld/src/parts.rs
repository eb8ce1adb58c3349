//! Parts of the daemon that something else drives: its own integration tests, and the benchmark, the demo and the
//! bystander programs of `integration`. Names and folders are those of the parts; nothing is done here.

/// Options and commands, for the test that compares them with the manual page.
pub mod cli {
    pub use crate::cli::{LOCAL_COMMANDS, OPTIONS};
}

/// What a witness says.
pub mod core {
    pub use crate::core::{Access, MemoryFault, ProcessKey};
}

/// The children that list GPUs, for the demo's question what the machine has.
pub mod devices {
    pub use crate::devices::gpus::LOOK_ARGUMENT;
    pub use crate::devices::{PROBE_ARGUMENT, ProbedDevice};
}

/// What the door of the preload library notes with the holder.
pub mod door {
    pub use crate::door::note::{NameNote, RegionNote};
}

/// The holder and the daemon's link to it.
pub mod holder {
    pub use crate::holder::{
        ARGUMENT, FIRST_HOLDER_KEY, Failure, FromHolder, Held, HolderError, HolderLink, Kind, LOG_BACKLOG_KEY,
        MAX_STATE_BYTES, SOCKET_NAME, Settings, process,
    };
}

/// Processes, files and sockets.
pub mod io {
    pub use crate::io::{daemonize, log_fifo, reaper, runtime_dir, server_process};
    /// Folders that are held open.
    pub mod folder {
        pub use crate::io::folder::Folder;
    }
    /// Processes and their ends.
    pub mod process {
        pub use crate::io::process::{ExitCause, open_process, pid_namespace_inode, start_time, uid_of};
    }
}

/// Logs, the journal, metrics.
pub mod observe {
    /// Metrics and health over HTTP.
    pub mod http {
        pub use crate::observe::http::Endpoint;
    }
    /// The event journal.
    pub mod journal {
        pub use crate::observe::journal::{Journal, timestamp};
    }
    /// The vendor's two logs.
    pub mod log {
        pub use crate::observe::log::{CONTROL_LOG, Format, Limits, LogSink};
    }
    /// How often something may be.
    pub mod rate {
        pub use crate::observe::rate::Rate;
    }
}

/// How long the daemon waits for others under test.
pub mod patience {
    pub use crate::patience::patient;
}

/// Pictures.
pub mod report {
    /// What happened when, in lanes.
    pub mod lanes {
        pub use crate::report::lanes::{Chart, Lane, Mark, Tone, escaped};
    }
}

/// System calls.
pub mod sys {
    pub use crate::sys::{fork, pidfd, polled};
    /// The UVM driver's calls.
    pub mod uvm {
        pub use crate::sys::uvm::get_descriptor;
    }
}

/// The tools queue and the patched module's notices.
pub mod witness {
    pub use crate::witness::notice;
    /// The tools queue of a client.
    pub mod uvm {
        pub use crate::witness::uvm::{AttachError, Attached, Copies, Tracker, Uvm};
    }
}

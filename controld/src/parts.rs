//! Parts of the daemon that something else drives: its own integration tests, and the benchmark, the demo and the
//! bystander programs of `integration`. Names and folders are those of the parts; nothing is done here.

/// Options and commands, for the test that compares them with the manual page.
pub mod cli {
    pub use crate::cli::{LOCAL_COMMANDS, OPTIONS};
}

/// What a witness says, and the core itself for the test of its memory.
pub mod core {
    pub use crate::core::{
        Access, ConnectionId, Core, Effect, End, Evidence, ExitCause, Identity, Input, JournalEvent, MemoryFault,
        NoReply, Peer, Pid, Place, Policy, ProcessKey, RequestId, ServerEpoch, XidClass,
    };
}

/// The children that list GPUs, for the demo's question what the machine has.
pub mod devices {
    pub use crate::devices::gpus::LOOK_ARGUMENT;
    pub use crate::devices::{PROBE_ARGUMENT, ProbedDevice};
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
    pub use crate::io::{daemonize, folder, log_fifo, process, reaper, runtime_dir, server_process};
}

/// Logs, the journal, metrics.
pub mod observe {
    pub use crate::observe::{http, journal, log, rate, recorder};
}

/// How long the daemon waits for others under test.
pub mod patience {
    pub use crate::patience::patient;
}

/// System calls.
pub mod sys {
    pub use crate::sys::{fork, pidfd, polled, uvm, uvm_abi};
}

/// What the vault notes with the holder.
pub mod vault {
    pub use crate::door::note::{Note, TitleNote};
}

/// The tools queue and the patched module's notices.
pub mod witness {
    pub use crate::witness::{notice, uvm};
}

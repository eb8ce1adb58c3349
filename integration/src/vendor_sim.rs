//! A stand-in for NVIDIA's `nvidia-cuda-mps-control` where there is none to be had: as much of it as shows what a fault, a
//! death and an upgrade do to its clients, and nothing that ReMPS adds.
//!
//! One server for all, started for the first client; a client that comes is told to the server at once, whatever state
//! that is in; nothing is held for a client that dies; with the daemon its server ends, and with that all clients, since
//! the server's connection closes (OBSERVED.md, "Start and end" and "Faults"). It has one user, no command line, and no
//! end but a signal. The tests run the vendor's own program where it can be had, and compare.
//!
//! ```text
//! accept ─▶ a thread a connection ─▶ server: noted, its start is over
//!                                 └▶ client: waits for the server, gets one end of a socket pair, the server the other
//! log FIFO ─▶ server.log
//! ```

mod connections;
mod logs;

use connections::Servers;
use logs::Log;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sim_wire::seqpacket::Seqpacket;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Both directories must be named: this program has no defaults, which would be those of a daemon that really runs.
fn directory(variable: &str) -> io::Result<PathBuf> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("{variable} is not set"));
    std::env::var_os(variable).map(PathBuf::from).ok_or_else(missing)
}

/// The whole daemon.
#[must_use]
pub fn run() -> ExitCode {
    match serve() {
        Ok(never) => match never {},
        Err(error) => {
            // Nobody may be listening; there is nobody else to tell.
            let _ = writeln!(io::stderr(), "mps-vendor-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<std::convert::Infallible> {
    let (pipes, logs) = (directory("CUDA_MPS_PIPE_DIRECTORY")?, directory("CUDA_MPS_LOG_DIRECTORY")?);
    fs::create_dir_all(&pipes)?;
    fs::create_dir_all(&logs)?;
    // Kept as long as this process lives; whoever asks for it learns the pid.
    let lock = File::create(pipes.join("control_lock"))?;
    fcntl(&lock, FcntlArg::F_SETLK(&whole_file()))?;
    mkfifo(&pipes.join("log"), Mode::S_IRUSR | Mode::S_IWUSR)?;
    let log = Arc::new(Log::open(&logs)?);
    log.follow(&pipes.join("log"))?;
    let socket = Seqpacket::listen(&pipes.join("control"))?;
    log.say(&format!("Starting control daemon using socket {}", pipes.join("control").display()));
    let servers = Arc::new(Servers::new(Arc::clone(&log)));
    loop {
        let connection = socket.accept()?;
        let servers = Arc::clone(&servers);
        // A peer that breaks off is its own affair.
        std::thread::spawn(move || drop(servers.meet(connection)));
    }
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::c_short::try_from(libc::F_WRLCK).expect("a small number"),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).expect("a small number"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// The server's command, found where `PATH` says.
fn server() -> std::process::Command {
    let mut command = std::process::Command::new("nvidia-cuda-mps-server");
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    // No parent-death signal: a server ends when its connection closes, and that is what is to be seen.
    command
}

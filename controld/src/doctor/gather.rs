//! Finds out what checks need of the real machine.

use super::machine::{Daemon, Gpu, Listening, Machine, Space};
use crate::devices::gpus::{LOOK_ARGUMENT, ProbedGpu};
use crate::io::runtime_dir::{CONTROL, CONTROL_LOCK, PID_FILE};
use crate::io::server_version;
use crate::settings::Settings;
use crate::sys::proc;
use crate::ui::{self, Unanswered};
use crate::witness::notice::{DeviceFile, NoticeSource};
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use remps_proto::notice::Mode;
use remps_proto::notice::control::{GET_POLICY, Policy};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long the daemon may take for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long `nvidia-smi` may take: without persistence mode it wakes every GPU up.
const SMI_LIMIT: Duration = Duration::from_secs(20);
/// Bytes read of a program's answer: some hundred a GPU, and of the look at GPUs as many for each process outside MPS.
const MOST_ANSWER_BYTES: u64 = 512 * 1024;
/// Servers whose status is asked for.
const MOST_SERVERS: usize = 64;

/// The machine that this is.
pub(super) fn machine(environment: impl Fn(&str) -> Option<OsString> + Copy) -> Machine {
    let settings = Settings::read(environment);
    let (config, remarks, log_directory) = match settings {
        Ok(settings) => (Ok(settings.file), settings.remarks, settings.log_directory),
        Err(error) => (Err(error.to_string()), Vec::new(), Settings::log_directory(environment)),
    };
    let pipe_directory = Settings::pipe_directory(environment);
    let daemon = daemon(&pipe_directory);
    let is_there = matches!(daemon, Daemon::Answers { .. } | Daemon::Silent(_));
    Machine {
        root: PathBuf::from("/"),
        daemon_pid: is_there.then(|| daemon_pid(&pipe_directory)).flatten(),
        daemon,
        pipe_directory,
        log_directory,
        config,
        remarks,
        own_program: std::env::current_exe().unwrap_or_default(),
        search_path: environment("PATH"),
        server_binary: environment("MPS_SERVER_BINARY"),
        library_folders: server_version::library_folders(environment("LD_LIBRARY_PATH").as_deref()),
        gpus: nvidia_smi(),
        look: look(),
        open: |path| OpenOptions::new().read(true).write(true).open(path).map(drop),
        fault_mode,
        space,
        listening,
    }
}

/// Asks the daemon of a pipe directory.
fn daemon(pipe_directory: &Path) -> Daemon {
    let begun = Instant::now();
    match ui::ask(pipe_directory, "get_server_list", ANSWER_LIMIT) {
        Ok(answer) => {
            let took = begun.elapsed();
            let pids = answer.text.lines().filter_map(|line| line.trim().parse().ok()).take(MOST_SERVERS);
            let status = |pid: u32| {
                let asked = ui::ask(pipe_directory, &format!("get_server_status {pid}"), ANSWER_LIMIT);
                (pid, asked.map(|answer| answer.text.trim().to_owned()).unwrap_or_default())
            };
            Daemon::Answers { took, servers: pids.map(status).collect() }
        }
        Err(Unanswered::Broken(why)) => Daemon::Silent(why.to_owned()),
        Err(Unanswered::NoDaemon(why)) if holds_lock(pipe_directory).is_some() => Daemon::Silent(why.to_owned()),
        Err(Unanswered::NoDaemon(_)) => {
            let control = pipe_directory.join(CONTROL);
            if !control.exists() {
                Daemon::Absent
            } else if is_listening(&control) {
                Daemon::Awaited
            } else {
                Daemon::StaleSocket
            }
        }
    }
}

/// Whether anybody listens; a full queue is somebody, too.
fn is_listening(control: &Path) -> bool {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let Ok(socket) = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None) else { return false };
    let connected = UnixAddr::new(control).and_then(|address| connect(socket.as_raw_fd(), &address));
    matches!(connected, Ok(()) | Err(nix::errno::Errno::EAGAIN))
}

/// The daemon's pid: whoever holds its lock, else what its file says.
fn daemon_pid(pipe_directory: &Path) -> Option<u32> {
    let of_file = || std::fs::read_to_string(pipe_directory.join(PID_FILE)).ok()?.trim().parse().ok();
    // A process of another pid namespace has none here, and the kernel says 0 or less.
    let pid =
        holds_lock(pipe_directory).and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0).or_else(of_file)?;
    Path::new(&proc::of(pid)).exists().then_some(pid)
}

fn holds_lock(pipe_directory: &Path) -> Option<i32> {
    let file = File::open(pipe_directory.join(CONTROL_LOCK)).ok()?;
    let kind = |number: libc::c_int| libc::c_short::try_from(number).unwrap_or_default();
    let mut lock =
        libc::flock { l_type: kind(libc::F_WRLCK), l_whence: kind(libc::SEEK_SET), l_start: 0, l_len: 0, l_pid: 0 };
    fcntl(&file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    (lock.l_type != kind(libc::F_UNLCK)).then_some(lock.l_pid)
}

fn fault_mode(device: &Path) -> io::Result<Mode> {
    let device = DeviceFile::new(device);
    let (fd, mut bytes) = (device.open()?, [0; Policy::SIZE]);
    device.control(fd.as_fd(), GET_POLICY, &mut bytes)?;
    Ok(Policy::decode(&bytes).mode)
}

fn space(path: &Path) -> io::Result<Space> {
    let found = nix::sys::statvfs::statvfs(path)?;
    let block = found.fragment_size();
    Ok(Space { total: found.blocks().saturating_mul(block), free: found.blocks_available().saturating_mul(block) })
}

/// Who listens at an address as `observe.listen` has it.
pub(super) fn listening(listen: &str) -> Listening {
    let asked = match listen.strip_prefix("unix:") {
        Some(path) => unix_stream(Path::new(path)).map(|mut stream| is_ours(&mut stream)),
        None => tcp_stream(listen).map(|mut stream| is_ours(&mut stream)),
    };
    match asked {
        Ok(true) => Listening::Ours,
        Ok(false) => Listening::Another,
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            Listening::Nobody
        }
        Err(error) => Listening::Unknown(error.to_string()),
    }
}

fn unix_stream(path: &Path) -> io::Result<UnixStream> {
    // Who has no room in his queue would else keep us waiting.
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn tcp_stream(address: &str) -> io::Result<TcpStream> {
    let address: SocketAddr = address.parse().map_err(io::Error::other)?;
    TcpStream::connect_timeout(&address, ANSWER_LIMIT)
}

/// Whether a daemon of ours is at the other end: it answers this with one word, also when it is not ready.
fn is_ours(stream: &mut (impl Read + Write + AsFd)) -> bool {
    const QUESTION: &[u8] = b"GET /startupz HTTP/1.1\r\n\r\n";
    let is_answer = |answer: String| answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n");
    stream.write_all(QUESTION).is_ok() && read_until(stream, Instant::now() + ANSWER_LIMIT).is_ok_and(is_answer)
}

/// What the driver's own tool says of the GPUs.
fn nvidia_smi() -> Result<Vec<Gpu>, String> {
    const FIELDS: &str = "--query-gpu=index,compute_mode,persistence_mode,mig.mode.current";
    let (text, status) = answer("nvidia-smi", Command::new("nvidia-smi").args([FIELDS, "--format=csv,noheader"]))?;
    let gpus = parse_gpus(&text);
    match (gpus.is_empty(), status) {
        (false, _) => Ok(gpus),
        (true, Some(status)) => Err(format!("nvidia-smi ended with {status}")),
        (true, None) => Err("nvidia-smi names no GPU".to_owned()),
    }
}

/// Compute modes, and who is on the GPUs outside MPS: a child of this program loads the management library.
fn look() -> Result<Vec<ProbedGpu>, String> {
    const LIBRARY: &str = "the management library";
    let mut child = Command::new(proc::OWN_PROGRAM);
    let (text, _) = answer(LIBRARY, child.arg(LOOK_ARGUMENT))?;
    let gpus: Result<Vec<ProbedGpu>, _> = text.lines().map(serde_json::from_str).collect();
    match gpus {
        Ok(gpus) if gpus.is_empty() => Err(format!("{LIBRARY} names no GPU")),
        Ok(gpus) => Ok(gpus),
        Err(error) => Err(format!("{LIBRARY}: {error}")),
    }
}

/// What a program writes, and how it has ended, if it has already.
fn answer(name: &str, command: &mut Command) -> Result<(String, Option<ExitStatus>), String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{name}: {error}"))?;
    let output = child.stdout.take().map(|mut output| read_until(&mut output, Instant::now() + SMI_LIMIT));
    let text = output.unwrap_or_else(|| Err(io::Error::from(io::ErrorKind::BrokenPipe)));
    if text.is_err() {
        // It may hang in the driver; whoever started it does not.
        let _ = child.kill();
    }
    let status = child.try_wait();
    let text = text.map_err(|error| format!("{name}: {error}"))?;
    Ok((text, status.ok().flatten()))
}

fn read_until(output: &mut (impl Read + AsFd), deadline: Instant) -> io::Result<String> {
    let mut bytes = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(output.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut piece = [0; 4096];
        match output.read(&mut piece)? {
            0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            _ if bytes.len() as u64 > MOST_ANSWER_BYTES => {
                return Err(io::Error::other(format!("it says more than {MOST_ANSWER_BYTES} bytes")));
            }
            length => bytes.extend_from_slice(&piece[..length]),
        }
    }
}

/// Lines of `index, compute mode, persistence mode, MIG mode`.
pub(super) fn parse_gpus(text: &str) -> Vec<Gpu> {
    let gpu = |line: &str| {
        let words: Vec<&str> = line.split(',').map(str::trim).collect();
        let [index, compute_mode, persistence, mig] = words.as_slice() else { return None };
        index.parse::<u32>().ok()?;
        let own = |word: &str| word.to_owned();
        Some(Gpu { index: own(index), compute_mode: own(compute_mode), persistence: own(persistence), mig: own(mig) })
    };
    text.lines().filter_map(gpu).collect()
}

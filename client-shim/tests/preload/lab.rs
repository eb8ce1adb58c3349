//! A folder with a stand-in driver and small C programs, run with the library that users preload.
//!
//! The C sources lie in `tests/c`, are compiled when a test asks for them, and know nothing of the library.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{OnceLock, mpsc},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// What any program of a test may take, on a machine that is busy with other things.
const PROGRAM_DEADLINE: Duration = Duration::from_secs(120);

/// The library as cargo has built it for these tests, or another build of it that `MPS_SHIM_UNDER_TEST` names: the one
/// that is released, for example.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let built = || std::env::current_exe().expect("a test program knows its own path");
        let given = std::env::var_os("MPS_SHIM_UNDER_TEST").map(PathBuf::from);
        let library = given.unwrap_or_else(|| built().with_file_name("libmps_client_shim.so"));
        assert!(library.is_file(), "there is no {}", library.display());
        library
    })
}

/// A test's own folder: `libcuda.so.1` and what the test compiles.
pub(crate) struct Lab {
    folder: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let lab = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        lab.compile("driver.c", "libcuda.so.1", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"]);
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles `tests/c/<source>` to `<output>` in the folder. `arguments` follow the source, as libraries must.
    pub(crate) fn compile(&self, source: &str, output: &str, arguments: &[&str]) -> PathBuf {
        let target = self.path(output);
        let compiled = Command::new("gcc")
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
            .arg(&target)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source))
            .arg("-L")
            .arg(self.folder.path())
            .args(arguments)
            .args(["-ldl", "-lpthread"])
            .output()
            .expect("gcc runs");
        assert!(compiled.status.success(), "{source}: {}", String::from_utf8_lossy(&compiled.stderr));
        target
    }

    /// The program for looking `cuInit` up in many ways.
    pub(crate) fn lookup(&self) -> PathBuf {
        self.compile("lookup.c", "lookup", &[])
    }

    /// `program` with the library preloaded, the stand-in driver in reach, and nothing else said about MPS.
    pub(crate) fn preloaded(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.plain(program);
        command.env("LD_PRELOAD", library());
        command
    }

    /// `program` without the library.
    pub(crate) fn plain(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("CUDA_MPS_PIPE_DIRECTORY", self.pipe_directory())
            .env_remove("MPS_SHIM_REQUIRE")
            .env_remove("MPS_SHIM_LOG")
            .env_remove("MPS_SHIM_KEEP")
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null());
        command
    }

    /// Where the programs look for a daemon. The folder is not made.
    pub(crate) fn pipe_directory(&self) -> PathBuf {
        self.path("mps")
    }
}

/// What a program wrote and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Whether standard error has a line with all of `parts`.
    pub(crate) fn said(&self, parts: &[&str]) -> bool {
        self.stderr.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

/// Runs `command` to its end, which must be a success.
pub(crate) fn run(command: &mut Command) -> Ran {
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts"))
}

/// Waits for the end of `child`, which must be a success; past the deadline it is killed and the test fails.
pub(crate) fn finish(child: Child) -> Ran {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id fits"));
    let (output_tx, output_rx) = mpsc::channel();
    let waiter = thread::spawn(move || output_tx.send(child.wait_with_output()));
    let Ok(output) = output_rx.recv_timeout(PROGRAM_DEADLINE) else {
        // The waiter has not reaped it, so the id is still the child's.
        kill(pid, Signal::SIGKILL).expect("the child is ours");
        panic!("the program did not end in {PROGRAM_DEADLINE:?}");
    };
    waiter.join().expect("the waiter only waits").expect("the output is taken");
    let Output { status, stdout, stderr } = output.expect("the program can be waited for");
    let ran = Ran {
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    };
    assert!(status.success(), "{status}: {ran:?}");
    ran
}

/// Starts `command` and returns when its standard error has a line containing `part`. The rest of standard error is
/// dropped when the child ends.
pub(crate) fn start_until(command: &mut Command, part: &str) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut errors = BufReader::new(child.stderr.take().expect("standard error is a pipe")).lines();
    let seen = errors.by_ref().map_while(Result::ok).any(|line| line.contains(part));
    assert!(seen, "the program never said {part:?}");
    thread::spawn(move || errors.for_each(drop));
    child
}

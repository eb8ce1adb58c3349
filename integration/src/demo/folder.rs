//! The demonstration's own folder with its programs and libraries; nothing of it is left when it is dropped.

use super::DemoError;
use super::part;
use crate::lab::process::ended_within;
use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Pid;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where the folder may lie: the path of a socket must be short, and programs must be allowed to run there.
const PLACES: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];
/// What cargo makes of the three libraries: the simulated driver, the simulated kernel module, the preload library.
const LIBRARIES: [&str; 3] = ["libcuda.so", "libuvm_sim.so", "libmps_client_shim.so"];
/// Others may look at what is here; only this user writes to it.
const OPEN_MODE: u32 = 0o755;
/// How long whatever is left may take to go.
const LEFT_LIMIT: Duration = Duration::from_secs(20);

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    dir: TempDir,
    build: PathBuf,
}

impl Folder {
    /// Makes it and fills it. The build folder may be closed to the daemon's servers, so that all is copied.
    pub(super) fn fill() -> Result<Self, DemoError> {
        let own = std::env::current_exe().map_err(DemoError::system("find the demo's own executable"))?;
        let build = own.parent().unwrap_or(Path::new("/")).to_owned();
        let dir = tempfile::Builder::new().prefix("mps-demo-").tempdir_in(place()?);
        let folder = Self { dir: dir.map_err(DemoError::system("make a folder for the demo"))?, build };
        let libraries = LIBRARIES.map(|name| folder.built(name));
        let place = || -> io::Result<()> {
            open(folder.path())?;
            for name in ["bin", "lib"] {
                fs::create_dir(folder.path().join(name))?;
                open(&folder.path().join(name))?;
            }
            let first = folder.program(part::ALL[0]);
            copy(&own, &first)?;
            for name in &part::ALL[1..] {
                // Where a file can't have two names it is copied.
                fs::hard_link(&first, folder.program(name)).or_else(|_| copy(&own, &folder.program(name)))?;
            }
            Ok(())
        };
        place().map_err(DemoError::system(format!("fill {}", folder.path().display())))?;
        for (name, built) in LIBRARIES.iter().zip(libraries) {
            let built = built?;
            copy(&built, &folder.library(name)).map_err(DemoError::system(format!("copy {}", built.display())))?;
        }
        // Programs ask for either name.
        let other = folder.path().join("lib/libcuda.so.1");
        symlink("libcuda.so", other).map_err(DemoError::system("link libcuda.so"))?;
        Ok(folder)
    }

    /// A library as cargo has built it, beside this program or in the folder of what it is made of.
    fn built(&self, name: &str) -> Result<PathBuf, DemoError> {
        let places = [self.build.join(name), self.build.join("deps").join(name)];
        let found = places.iter().find(|path| path.is_file()).cloned();
        found.ok_or_else(|| {
            DemoError::Missing(format!(
                "there is no {} beside this program; start it by `cargo run`",
                places[0].display()
            ))
        })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Where cargo builds: it tells its children to look for libraries there.
    pub(super) fn build(&self) -> &Path {
        &self.build
    }

    /// A program.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.path().join("bin").join(name)
    }

    /// A library. That of the driver has a folder of its own, which nothing else must be found in.
    pub(super) fn library(&self, name: &str) -> PathBuf {
        if name == LIBRARIES[0] { self.path().join("lib").join(name) } else { self.path().join(name) }
    }

    /// Puts a fresh copy of a program in its place in one step, as an upgrade does.
    pub(super) fn renew(&self, name: &str) -> Result<(), DemoError> {
        let (old, new) = (self.program(name), self.program("upgrade"));
        copy(&old, &new)
            .and_then(|()| fs::rename(&new, &old))
            .map_err(DemoError::system(format!("renew {}", old.display())))
    }
}

/// The first place that takes programs.
fn place() -> Result<&'static Path, DemoError> {
    let is_good = |path: &&Path| {
        let runs = statvfs(*path).is_ok_and(|found| !found.flags().contains(FsFlags::ST_NOEXEC));
        runs && nix::unistd::access(*path, nix::unistd::AccessFlags::W_OK).is_ok()
    };
    let found = PLACES.iter().map(Path::new).find(is_good);
    found.ok_or_else(|| DemoError::Missing(format!("programs can be written and run in none of {}", PLACES.join(", "))))
}

fn open(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(OPEN_MODE))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    open(to)
}

/// Processes whose command line or environment names a folder, which nobody else's does; each with its command line.
pub(super) fn processes_of(folder: &Path) -> Vec<(Pid, String)> {
    let own = std::process::id().to_string();
    let mark = folder.as_os_str().as_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let pid = Pid::from_raw(name.parse().ok().filter(|_| name != own)?);
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        let command = read("cmdline");
        let has = |bytes: &[u8]| bytes.windows(mark.len()).any(|window| window == mark);
        (has(&command) || has(&read("environ")))
            .then(|| (pid, String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned()))
    });
    found.collect()
}

/// Ends whatever runs on a folder. One that dies may leave a successor, so the table is read until nothing is left.
pub(super) fn end_all(folder: &Path) {
    let deadline = Instant::now() + LEFT_LIMIT;
    loop {
        let left = processes_of(folder);
        if left.is_empty() || Instant::now() > deadline {
            return;
        }
        for (pid, _) in &left {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        for (pid, _) in left {
            let _ = ended_within(pid, deadline.saturating_duration_since(Instant::now()));
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        end_all(self.path());
    }
}

//! The vendor's programs, fetched from Debian when a test needs them; nothing of them is kept in the repository.
//!
//! `apt` does the work in folders of our own: a copy of the machine's Debian sources with the components `contrib` and
//! `non-free` and a `trixie` entry added, private lists and caches. The result is kept under the folder named by
//! `REMPS_VENDOR_CACHE`, or `vendor/` in cargo's target folder. Without `apt`, a network or Debian sources the tests
//! that need a peer say `Skipped`.

mod sources;

use crate::lab::process::{Finished, run};
use crate::under_test::{Skipped, target_dir};
use nix::fcntl::{Flock, FlockArg};
use remps_proto::admin::Personality;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// A slow mirror may take this long for one step.
const STEP_LIMIT: Duration = Duration::from_secs(180);

/// A driver branch that Debian ships.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// Debian 12.
    R535,
    /// Debian 13.
    R550,
}

impl Release {
    /// Both.
    pub const ALL: [Self; 2] = [Self::R535, Self::R550];

    /// Its number.
    #[must_use]
    pub const fn branch(self) -> &'static str {
        match self {
            Self::R535 => "535",
            Self::R550 => "550",
        }
    }

    /// The same as a personality.
    #[must_use]
    pub const fn personality(self) -> Personality {
        match self {
            Self::R535 => Personality::V535,
            Self::R550 => Personality::V550,
        }
    }
}

/// The fetched programs.
#[derive(Clone, Debug)]
pub struct Vendor {
    root: PathBuf,
}

impl Vendor {
    /// `nvidia-cuda-mps-control` of a release.
    #[must_use]
    pub fn control(&self, release: Release) -> PathBuf {
        self.root.join(release.branch()).join("usr/bin/nvidia-cuda-mps-control")
    }

    /// `nvidia-cuda-mps-server` of a release.
    #[must_use]
    pub fn server(&self, release: Release) -> PathBuf {
        self.root.join(release.branch()).join("usr/sbin/nvidia-cuda-mps-server")
    }

    /// The folder with `libcuda.so.1` of a release.
    #[must_use]
    pub fn libcuda_dir(&self, release: Release) -> PathBuf {
        self.root.join(release.branch()).join("usr/lib/x86_64-linux-gnu/nvidia/current")
    }

    fn complete(&self) -> bool {
        Release::ALL.into_iter().all(|release| self.control(release).is_file() && self.done(release).is_file())
    }

    fn done(&self, release: Release) -> PathBuf {
        self.root.join(release.branch()).join(".complete")
    }
}

/// The programs, fetched when they are not there yet.
///
/// # Errors
/// When they can't be had, with the reason.
pub fn fetched() -> Result<Vendor, Skipped> {
    static FETCHED: OnceLock<Result<Vendor, Skipped>> = OnceLock::new();
    FETCHED.get_or_init(|| fetch(&cache_dir())).clone()
}

fn cache_dir() -> PathBuf {
    std::env::var_os("REMPS_VENDOR_CACHE").map_or_else(|| target_dir().join("vendor"), PathBuf::from)
}

fn fetch(root: &Path) -> Result<Vendor, Skipped> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Skipped(format!("{what}: {error}"));
    let vendor = Vendor { root: root.to_path_buf() };
    if vendor.complete() {
        return Ok(vendor);
    }
    fs::create_dir_all(root).map_err(|error| failed("cannot make the cache", &error))?;
    // Several test processes may want the same files at once.
    let lock = fs::File::create(root.join(".lock")).map_err(|error| failed("cannot lock the cache", &error))?;
    let _lock =
        Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| failed("cannot lock the cache", &errno))?;
    if vendor.complete() {
        return Ok(vendor);
    }
    let apt = Apt::prepare(root)?;
    apt.step(apt.command("apt-get").arg("update"))?;
    for release in Release::ALL {
        let unpacked = root.join(release.branch());
        // A first attempt may have been cut off.
        let _ = fs::remove_dir_all(&unpacked);
        for package in ["nvidia-cuda-mps", "libcuda1"] {
            let version = apt.newest(package, release.branch())?;
            let into = root.join("debs");
            fs::create_dir_all(&into).map_err(|error| failed("cannot make the cache", &error))?;
            apt.step(apt.command("apt-get").arg("download").arg(format!("{package}={version}")).current_dir(&into))?;
            let archive = archive_of(&into, package, &version)?;
            apt.step(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
        }
        fs::write(vendor.done(release), "").map_err(|error| failed("cannot write to the cache", &error))?;
    }
    Ok(vendor)
}

/// The downloaded archive; `apt` writes a `:` in the version as `%3a`.
fn archive_of(dir: &Path, package: &str, version: &str) -> Result<PathBuf, Skipped> {
    let start = format!("{package}_{}_", version.replace(':', "%3a"));
    let entries = fs::read_dir(dir).map_err(|error| Skipped(format!("cannot read the cache: {error}")))?;
    entries
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with(&start))
        .map(|entry| entry.path())
        .ok_or_else(|| Skipped(format!("apt left no {start}*.deb")))
}

/// `apt` with everything in folders of its own.
struct Apt {
    options: Vec<String>,
}

impl Apt {
    fn prepare(root: &Path) -> Result<Self, Skipped> {
        let failed = |error: std::io::Error| Skipped(format!("cannot prepare apt: {error}"));
        let apt = root.join("apt");
        for dir in ["parts", "lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(apt.join(dir)).map_err(failed)?;
        }
        let sources = sources::with_vendor(Path::new("/etc/apt"))
            .ok_or_else(|| Skipped("this machine has no Debian package sources".to_owned()))?;
        fs::write(apt.join("parts/vendor.sources"), sources).map_err(failed)?;
        let option = |name: &str, value: &Path| format!("{name}={}", value.display());
        Ok(Self {
            options: vec![
                option("Dir::Etc::SourceList", Path::new("/dev/null")),
                option("Dir::Etc::SourceParts", &apt.join("parts")),
                option("Dir::State::Lists", &apt.join("lists")),
                option("Dir::Cache", &apt.join("cache")),
                "APT::Get::List-Cleanup=0".to_owned(),
                // The folders belong to whoever runs the test, and nobody else uses them.
                "APT::Sandbox::User=root".to_owned(),
                "Debug::NoLocking=1".to_owned(),
                "Acquire::Retries=2".to_owned(),
            ],
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.arg("-o").arg(option);
        }
        command
    }

    fn step(&self, command: &mut Command) -> Result<Finished, Skipped> {
        let shown = format!("{command:?}");
        let shown = shown.rsplit("\"-o\"").next().unwrap_or_default().to_owned();
        let finished = run(command, b"", STEP_LIMIT).map_err(|error| Skipped(format!("{shown}: {error}")))?;
        if finished.code == Some(0) {
            return Ok(finished);
        }
        let reason = finished.stderr_text();
        Err(Skipped(format!("{shown}: {}", reason.lines().last().unwrap_or("failed without a word"))))
    }

    /// The newest version of a package in a driver branch; `apt-cache` lists the newest first.
    fn newest(&self, package: &str, branch: &str) -> Result<String, Skipped> {
        let listed = self.step(self.command("apt-cache").arg("madison").arg(package))?;
        let listed = listed.stdout_text();
        let versions = listed.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim);
        versions
            .map(str::to_owned)
            .find(|version| version.starts_with(&format!("{branch}.")))
            .ok_or_else(|| Skipped(format!("no {package} {branch} in this machine's Debian mirror")))
    }
}

//! The programs of the demonstration: built when cargo runs it, else found beside its own executable.

use super::DemoError;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CONTROL: &str = "nvidia-cuda-mps-control";
const SERVER: &str = "nvidia-cuda-mps-server";
const BYSTANDER: &str = "mps-bystander";
const AGGRESSOR: &str = "mps-aggressor";
const FIRST_ALLOCATION: &str = "mps-first-alloc";
/// The file that cargo makes of the simulated driver library.
const LIBRARY: &str = "libcuda.so";

/// Where they lie.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    /// Our daemon and command line.
    pub(super) control: PathBuf,
    /// The simulated server.
    pub(super) server: PathBuf,
    /// The simulated `libcuda.so.1`.
    pub(super) library: PathBuf,
    /// A client that works until it is told to stop.
    pub(super) bystander: PathBuf,
    /// A client that faults.
    pub(super) aggressor: PathBuf,
    /// A client that makes one allocation.
    pub(super) first_allocation: PathBuf,
}

impl Programs {
    /// Builds them if this program runs under cargo, with its profile; finds them.
    pub(super) fn ready() -> Result<Self, DemoError> {
        let own = std::env::current_exe().map_err(DemoError::system("find the demo's own executable"))?;
        let folder = own.parent().unwrap_or(Path::new("/"));
        if let Some(cargo) = std::env::var_os("CARGO") {
            build(Path::new(&cargo), folder)?;
        }
        let find = |name: &str| {
            let path = folder.join(name);
            if path.is_file() { Ok(path) } else { Err(DemoError::Build(format!("there is no {}", path.display()))) }
        };
        Ok(Self {
            control: find(CONTROL)?,
            server: find(SERVER)?,
            library: find(LIBRARY)?,
            bystander: find(BYSTANDER)?,
            aggressor: find(AGGRESSOR)?,
            first_allocation: find(FIRST_ALLOCATION)?,
        })
    }
}

/// Builds into `folder`, which is `<target>/<profile>`.
fn build(cargo: &Path, folder: &Path) -> Result<(), DemoError> {
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let target = folder.parent().unwrap_or(folder);
    let programs = [CONTROL, SERVER, BYSTANDER, AGGRESSOR, FIRST_ALLOCATION];
    let programs: Vec<String> = programs.iter().map(|name| format!("--bin={name}")).collect();
    // This program's own package among them and all at once: then they share one set of features with what cargo has
    // built for this program, and nothing is compiled twice.
    let packages = ["integration", "remps-controld", "libcuda-sim"].map(|name| format!("--package={name}"));
    let mut command = Command::new(cargo);
    command.args(["build", "--lib", "--profile", profile, "--target-dir"]).arg(target).args(programs).args(packages);
    // Progress and errors of the compiler are for whoever watches; standard output is the demonstration's.
    let status = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(DemoError::system(format!("run {}", cargo.display())))?;
    if status.success() { Ok(()) } else { Err(DemoError::Build(format!("cargo ends with {status}"))) }
}

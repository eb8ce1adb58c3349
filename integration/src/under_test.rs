//! What the compliance tests run against: `MPS_UNDER_TEST=ours` (the default) or `theirs`.
//!
//! `MPS_THEIRS` may name another control program of the vendor's, for example the installed one of a GPU machine; without
//! it, theirs are the two that Debian ships.
//!
//! A claim about behaviour is proven by a test that passes on the vendor's own program first. A subject is one program
//! in one release: ours is told which one to play, theirs is what Debian ships.

use crate::lab::process::run;
use crate::vendor::{self, Release};
use remps_proto::admin::Personality;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// Why a test did not run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Skipped({0})")]
pub struct Skipped(pub String);

impl Skipped {
    /// Says so where the test harness does not swallow it.
    pub fn report(&self) {
        let name = std::thread::current().name().unwrap_or("test").to_owned();
        // There is nobody else to tell when standard error is gone.
        let _ = writeln!(std::io::stderr(), "{name}: {self}");
    }
}

/// One program in one release.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The control program.
    pub control: PathBuf,
    /// The release it is or plays.
    pub personality: Personality,
    /// Whether it is ours.
    pub ours: bool,
}

impl Subject {
    /// The environment that makes it that release.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        if self.ours { vec![("MPS_PERSONALITY".into(), self.personality.to_string().into())] } else { Vec::new() }
    }

    /// Ours in a release.
    ///
    /// # Errors
    /// When it does not build.
    pub fn ours(personality: Personality) -> Result<Self, Skipped> {
        Ok(Self { control: ours()?, personality, ours: true })
    }

    /// The vendor's.
    ///
    /// # Errors
    /// When it can't be fetched.
    pub fn theirs(release: Release) -> Result<Self, Skipped> {
        let vendor = vendor::fetched()?;
        Ok(Self { control: vendor.control(release), personality: release.personality(), ours: false })
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", if self.ours { "ours as" } else { "theirs" }, self.personality)
    }
}

/// Whether the vendor's program is under test.
///
/// # Panics
/// When the variable says something else.
#[must_use]
pub fn theirs() -> bool {
    match std::env::var("MPS_UNDER_TEST").as_deref() {
        Ok("theirs") => true,
        Ok("ours") | Err(_) => false,
        Ok(other) => panic!("MPS_UNDER_TEST is ours or theirs, not {other:?}"),
    }
}

/// The subjects of a test that holds for both.
///
/// # Errors
/// When there is none.
pub fn subjects() -> Result<Vec<Subject>, Skipped> {
    if let Some(control) = std::env::var_os("MPS_THEIRS").filter(|_| theirs()) {
        Ok(vec![installed(PathBuf::from(control))?])
    } else if theirs() {
        Release::ALL.into_iter().map(Subject::theirs).collect()
    } else {
        // The oldest release that Debian ships newest of, and the one that was measured on a GPU.
        [Personality::V550, Personality::V580].into_iter().map(Subject::ours).collect()
    }
}

/// The vendor's program at a path, with the release that its `-v` tells.
fn installed(control: PathBuf) -> Result<Subject, Skipped> {
    let printed = Command::new(&control).arg("-v").stdin(Stdio::null()).output();
    let printed = printed.map_err(|error| Skipped(format!("{}: {error}", control.display())))?;
    let text = String::from_utf8_lossy(&printed.stdout);
    let number = text.split_once("Binary version: ").and_then(|(_, rest)| rest.lines().next()?.trim().parse().ok());
    let personality = number.and_then(Personality::from_binary_version);
    let personality = personality.ok_or_else(|| Skipped(format!("{} tells no version", control.display())))?;
    Ok(Subject { control, personality, ours: false })
}

/// The subjects of a test of what ours does better: none when theirs is under test.
///
/// # Errors
/// When there is none.
pub fn only_ours() -> Result<Vec<Subject>, Skipped> {
    if theirs() { Err(Skipped("an improvement of ours".to_owned())) } else { subjects() }
}

/// Runs `test` for every subject, or says why not.
pub fn for_each(subjects: Result<Vec<Subject>, Skipped>, test: impl Fn(&Subject)) {
    match subjects {
        Ok(subjects) => subjects.iter().for_each(test),
        Err(skipped) => skipped.report(),
    }
}

/// The folder that cargo builds into, found from where this program lies.
#[must_use]
pub fn target_dir() -> PathBuf {
    let program = std::env::current_exe().expect("a test program knows its own path");
    // <target>/<profile>/deps/<program>, or one level less for an example.
    let profile =
        program.ancestors().find(|dir| dir.join("deps").is_dir()).unwrap_or_else(|| Path::new("target/debug"));
    profile.parent().unwrap_or(profile).to_path_buf()
}

/// Our control program, built once in each test process.
fn ours() -> Result<PathBuf, Skipped> {
    static BUILT: OnceLock<Result<PathBuf, Skipped>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            build("remps-controld", &["--bin", "nvidia-cuda-mps-control"])?;
            Ok(target_dir().join("debug/nvidia-cuda-mps-control"))
        })
        .clone()
}

/// How long cargo may take: longer than any build, and shorter than anybody waits for a test.
const BUILD_LIMIT: Duration = Duration::from_secs(600);

/// Builds something that tests need, and says what it waits for: another cargo on the same folder, a clippy run or a
/// release build of somebody else, holds it up for as long as that takes, and all tests of a program with it.
///
/// # Errors
/// When cargo does not run.
///
/// # Panics
/// When it does not build, or not in ten minutes.
pub fn build(package: &str, arguments: &[&str]) -> Result<(), Skipped> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--package", package]).args(arguments).arg("--target-dir").arg(target_dir());
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    match run(&mut command, b"", BUILD_LIMIT) {
        Ok(built) => {
            assert_eq!(built.code, Some(0), "{package} does not build:\n{}", built.stderr_text());
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            panic!("{package} is not built in {BUILD_LIMIT:?}: does another cargo use {}?", target_dir().display())
        }
        Err(error) => Err(Skipped(format!("cargo does not run: {error}"))),
    }
}

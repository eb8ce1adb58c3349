//! What the compliance tests run against: `MPS_UNDER_TEST=ours` (the default) or `theirs`.
//!
//! `MPS_THEIRS` may name another control program of the vendor's, for example the installed one of a GPU machine; without
//! it, theirs are the two that Debian ships.
//!
//! A claim about behaviour is proven by a test that passes on the vendor's own program first. A subject is one program
//! in one release: ours is told which one to play, theirs is what Debian ships.

use crate::lab::stage::is_long;
use crate::vendor::{self, Release};
use remps_proto::admin::Personality;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Why a test did not run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Skipped({0})")]
pub struct Skipped(pub String);

impl Skipped {
    /// Says so where the test harness does not swallow it: on standard error, and in the file that `REMPS_SKIPPED`
    /// names, for a runner that shows nothing of tests that pass.
    pub fn report(&self) {
        // Set by a runner that gives each test a process of its own, whose threads have no names.
        let name = std::env::var("NEXTEST_TEST_NAME").ok();
        let name = name.or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default();
        let line = format!("{name}: {self}\n");
        // There is nobody else to tell when these are gone.
        let _ = std::io::stderr().write_all(line.as_bytes());
        if let Some(path) = std::env::var_os("REMPS_SKIPPED") {
            let file = fs::OpenOptions::new().create(true).append(true).open(path);
            let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
        }
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
    #[must_use]
    pub fn ours(personality: Personality) -> Self {
        Self { control: ours(), personality, ours: true }
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
        Ok([Personality::V550, Personality::V580].map(Subject::ours).to_vec())
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

/// Runs a test of ours that does not depend on the release that the daemon plays, with the newest of them; with all of
/// them where the long variants run.
pub fn once(test: impl Fn(&Subject)) {
    let all_but_newest = |subjects: &Vec<Subject>| if is_long() { 0 } else { subjects.len() - 1 };
    for_each(only_ours().map(|subjects| subjects[all_but_newest(&subjects)..].to_vec()), test);
}

/// The folder of cargo's profile that this test program was built in: `<target>/debug`, as a rule.
///
/// # Panics
/// When this is no program that cargo has built for tests.
#[must_use]
pub fn profile_dir() -> PathBuf {
    let program = std::env::current_exe().expect("a test program knows its own path");
    let profile = program.ancestors().find(|dir| dir.join("deps").is_dir());
    profile.expect("a test lies in a folder of cargo's").to_path_buf()
}

/// The folder that cargo builds into.
#[must_use]
pub fn target_dir() -> PathBuf {
    let profile = profile_dir();
    profile.parent().map(Path::to_path_buf).unwrap_or(profile)
}

/// A program of this package, as cargo has built it for its tests.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    profile_dir().join(name)
}

/// A library that this package's tests depend on, as cargo has built it: `libcuda.so`, for example.
///
/// # Panics
/// When cargo has not.
#[must_use]
pub fn built_library(file: &str) -> PathBuf {
    let path = profile_dir().join("deps").join(file);
    assert!(path.is_file(), "there is no {}: it is made for the tests of the package `integration`", path.display());
    path
}

/// Our control program under its own name, which is part of what is tested.
///
/// Cargo makes no other package's programs for a test, so that what is linked here is this package's build of the same
/// source: always there, and never older than the test.
fn ours() -> PathBuf {
    const NAME: &str = "nvidia-cuda-mps-control";
    static NAMED: OnceLock<PathBuf> = OnceLock::new();
    NAMED
        .get_or_init(|| name_program(&program("mps-control-under-test"), &profile_dir().join("under-test"), NAME))
        .clone()
}

/// Gives a file another name in a folder, by a link that is replaced in one step: other tests do the same, in this
/// process too.
///
/// # Panics
/// When no link can be made there.
pub fn name_program(file: &Path, folder: &Path, name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let inode = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    let named = folder.join(name);
    if inode(&named) != inode(file) {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let new = folder.join(format!("{name}.{}.{number}", std::process::id()));
        // An earlier process of the same pid may have left it.
        let _ = fs::remove_file(&new);
        fs::create_dir_all(folder)
            .and_then(|()| fs::hard_link(file, &new))
            .and_then(|()| fs::rename(&new, &named))
            .unwrap_or_else(|error| panic!("{} can't be linked to {}: {error}", file.display(), named.display()));
        // It stays where another test was quicker: a link in the place of the same file is no change to the kernel.
        let _ = fs::remove_file(&new);
    }
    named
}

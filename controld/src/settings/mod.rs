//! What the environment and the configuration file say, read once at the start.
//!
//! The environment is the vendor's (`CUDA_MPS_*`). The file is ours and may be missing: `MPS_CONTROL_CONFIG` names it,
//! else `/etc/nvidia-mps/mps-control.toml`. Unknown keys are errors, so that a misspelt one is not silently without
//! effect; the man page `mps-control.toml(5)` lists them.
//!
//! | part | does |
//! |---|---|
//! | `file` | the keys, with their defaults; those that decide something are the core's policies |
//! | `parse` | text to values, with every error in it |
//! | `faults` | what is wrong with a file, each with its line |
//! | `replay` | what programs get that have the preload library and say nothing, and how soon the servers that they leave end |
//! | `cluster` | whom to tell in a cluster |
//! | `retired` | keys that are no settings any more |
//! | `check` | values that have the right type and make no sense |
//! | [`servers_file`] | servers and namespaces of the option `-a` |
//! | [`state_file`] | the same as the daemon keeps them over its own end |
//! | [`show`] | `--check-config`: every value with where it comes from |

mod check;
mod cluster;
mod faults;
mod file;
mod parse;
mod replay;
mod retired;
pub(crate) mod servers_file;
pub(crate) mod show;
pub(crate) mod state_file;

pub(crate) use cluster::Surroundings;
pub(crate) use faults::{ConfigFault, Lines};
pub(crate) use file::ConfigFile;

use crate::core::{Policy, Said, Sharing};
use crate::patience::{patient, very_patient};
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::{Percentage, Priority, parse_device_limits};
use remps_proto::shim::ProgramDefaults;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Where the vendor's daemon keeps its sockets.
pub(crate) const DEFAULT_PIPE_DIRECTORY: &str = "/tmp/nvidia-mps";
/// Where the vendor's daemon logs.
pub(crate) const DEFAULT_LOG_DIRECTORY: &str = "/var/log/nvidia-mps";
/// The configuration file when the environment names none.
pub(crate) const DEFAULT_CONFIG: &str = "/etc/nvidia-mps/mps-control.toml";
/// `state_directory` where systemd says which.
pub(crate) const AUTOMATIC: &str = "auto";
/// In bytes; a larger file is none that an operator wrote.
const LARGEST_FILE: u64 = 1 << 20;

/// Why the configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// The file that was named can't be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not TOML, or has keys or values that are not known or make no sense.
    #[error("{}", Listed(path, faults))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong with it.
        faults: Vec<ConfigFault>,
    },
}

/// One line for each fault, with the file's name, as compilers write them.
struct Listed<'a>(&'a Path, &'a [ConfigFault]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(path, faults) = self;
        let lines: Vec<String> = faults.iter().map(|fault| format!("{}: {fault}", path.display())).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Where the values of the configuration file come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// The file's path.
    pub path: PathBuf,
    /// Whether there is such a file.
    pub found: bool,
    /// The lines of its keys.
    pub lines: Lines,
}

/// Everything that the start of the daemon needs to know.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// `CUDA_MPS_PIPE_DIRECTORY`.
    pub pipe_directory: PathBuf,
    /// `CUDA_MPS_LOG_DIRECTORY`.
    pub log_directory: PathBuf,
    /// The configuration file's content, or its defaults.
    pub file: ConfigFile,
    /// Where that comes from.
    pub source: Source,
    /// What servers start with, from `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`, `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` and
    /// `CUDA_MPS_CLIENT_PRIORITY`.
    pub defaults: Defaults,
    /// Which of these the environment says.
    pub defaults_said: Said,
    /// What is wrong with the environment and out of date in the file, for the log.
    pub remarks: Vec<String>,
    /// `MPS_SERVER_BINARY`.
    pub server_binary: Option<OsString>,
    /// `PATH`.
    pub search_path: Option<OsString>,
    /// `MPS_PERSONALITY`.
    pub personality: Option<String>,
    /// `LD_LIBRARY_PATH`.
    pub library_path: Option<OsString>,
    /// Where named servers are kept; `None` is nowhere.
    pub state_directory: Option<PathBuf>,
    /// `NOTIFY_SOCKET` of systemd.
    pub notify_socket: Option<OsString>,
    /// What Kubernetes says of the cluster by variables.
    pub surroundings: Surroundings,
}

impl Settings {
    /// The pipe directory alone, which is all that the command line needs.
    pub(crate) fn pipe_directory(environment: impl Fn(&str) -> Option<OsString>) -> PathBuf {
        directory(environment("CUDA_MPS_PIPE_DIRECTORY"), DEFAULT_PIPE_DIRECTORY)
    }

    /// The log directory alone, for whoever cannot use the configuration file.
    pub(crate) fn log_directory(environment: impl Fn(&str) -> Option<OsString>) -> PathBuf {
        directory(environment("CUDA_MPS_LOG_DIRECTORY"), DEFAULT_LOG_DIRECTORY)
    }

    /// Reads the environment, through `environment`, and the configuration file.
    ///
    /// # Errors
    /// [`SettingsError`] when there is a configuration file that can't be used.
    pub(crate) fn read(environment: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingsError> {
        let named = environment("MPS_CONTROL_CONFIG").filter(|path| !path.is_empty());
        Self::read_with(named.as_deref().map(Path::new), environment)
    }

    /// The same with this configuration file; without one the default path is tried.
    ///
    /// # Errors
    /// [`SettingsError`] when there is a configuration file that can't be used.
    pub(crate) fn read_with(
        named: Option<&Path>,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, SettingsError> {
        let (file, source, retired) = read_file(named)?;
        let path = source.path.display();
        let mut remarks: Vec<String> = retired.iter().map(|retired| format!("{path}: {retired}")).collect();
        let (mut defaults, mut defaults_said) = (Defaults::default(), Said::default());
        let text = |name: &str| environment(name).map(|value| value.to_string_lossy().into_owned());
        if let Some(value) = text("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") {
            match Percentage::parse(value.as_bytes()) {
                Ok(percentage) => {
                    defaults.set_percentage(percentage);
                    defaults_said.threads = true;
                }
                Err(error) => remarks.push(format!("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={value}: {error}")),
            }
        }
        if let Some(value) = text("CUDA_MPS_CLIENT_PRIORITY") {
            match Priority::parse(value.as_bytes()) {
                Ok(priority) => {
                    defaults.set_priority(priority);
                    defaults_said.priority = true;
                }
                Err(error) => remarks.push(format!("CUDA_MPS_CLIENT_PRIORITY={value}: {error}")),
            }
        }
        if let Some(value) = text("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") {
            for limit in parse_device_limits(&value) {
                match limit {
                    Ok((device, limit)) => {
                        defaults.set_limit(device, limit);
                        defaults_said.memory = true;
                    }
                    Err(error) => remarks.push(format!("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: {error}")),
                }
            }
        }
        let state_directory = match file.state_directory.as_str() {
            // Systemd names as many as StateDirectory= does.
            AUTOMATIC => text("STATE_DIRECTORY").and_then(|all| all.split(':').next().map(PathBuf::from)),
            path => Some(PathBuf::from(path)),
        };
        Ok(Self {
            state_directory: state_directory.filter(|path| path.is_absolute()),
            pipe_directory: Self::pipe_directory(&environment),
            log_directory: Self::log_directory(&environment),
            file,
            source,
            defaults,
            defaults_said,
            remarks,
            server_binary: environment("MPS_SERVER_BINARY"),
            search_path: environment("PATH"),
            personality: text("MPS_PERSONALITY").filter(|value| !value.is_empty()),
            library_path: environment("LD_LIBRARY_PATH"),
            notify_socket: environment("NOTIFY_SOCKET"),
            surroundings: Surroundings::read(text),
        })
    }

    /// The policy that the core works by; owner, group and personality are the caller's to set.
    pub(crate) fn policy(&self, multi_user: bool) -> Policy {
        let mut policy = self.file.policy.clone();
        if multi_user {
            policy.sharing = Sharing::MultiUser;
        }
        policy.end_tainted = self.file.replay.end_tainted;
        policy.burial_hold = self.file.replay.burial_hold;
        let constants = &mut policy.constants;
        constants.silence = patient(constants.silence);
        constants.suspected_silence = very_patient(constants.suspected_silence);
        constants.evidence_window = very_patient(constants.evidence_window);
        policy
    }
}

impl Settings {
    /// What the file itself has for programs that have the preload library and say nothing; `None` where it does not say.
    pub(crate) fn said_to_programs(&self) -> Option<ProgramDefaults> {
        let says = |key: &str| self.source.lines.get(&format!("replay.{key}")).is_some();
        replay::OF_TABLES.into_iter().any(says).then(|| self.file.replay.words())
    }
}

fn directory(value: Option<OsString>, default: &str) -> PathBuf {
    value.filter(|path| !path.is_empty()).map_or_else(|| PathBuf::from(default), PathBuf::from)
}

fn read_file(named: Option<&Path>) -> Result<(ConfigFile, Source, Vec<ConfigFault>), SettingsError> {
    let path = named.unwrap_or(Path::new(DEFAULT_CONFIG)).to_owned();
    let text = match read_bounded(&path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => {
            let source = Source { path, found: false, lines: Lines::default() };
            return Ok((ConfigFile::default(), source, Vec::new()));
        }
        Err(source) => return Err(SettingsError::Read { path, source }),
    };
    match parse::parse(&text) {
        Ok((file, lines, retired)) => Ok((file, Source { path, found: true, lines }, retired)),
        Err(faults) => Err(SettingsError::Invalid { path, faults }),
    }
}

/// Reads the file of the option `-a`.
///
/// # Errors
/// [`SettingsError`] when it can't be read, is too large, or has anything in it that it must not have.
pub(crate) fn read_servers(path: &Path, installed: Option<u32>) -> Result<servers_file::Plan, SettingsError> {
    let text = read_bounded(path).map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
    servers_file::parse(&text, installed).map_err(|faults| SettingsError::Invalid { path: path.to_owned(), faults })
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_FILE {
        let what = format!("is larger than {LARGEST_FILE} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;

//! What the environment and the configuration file say, read once at the start.
//!
//! The environment is the vendor's (`CUDA_MPS_*`). The file is ours and may be missing: `MPS_CONTROL_CONFIG` names it,
//! else `/etc/nvidia-mps/mps-control.toml`. Unknown keys are errors, so that a misspelt one is not silently without
//! effect; the man page `mps-control.toml(5)` lists them.

use crate::core::{Policy, Sharing};
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::{Percentage, Priority, parse_device_limits};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the vendor's daemon keeps its sockets.
pub const DEFAULT_PIPE_DIRECTORY: &str = "/tmp/nvidia-mps";
/// Where the vendor's daemon logs.
pub const DEFAULT_LOG_DIRECTORY: &str = "/var/log/nvidia-mps";
/// The configuration file when the environment names none.
pub const DEFAULT_CONFIG: &str = "/etc/nvidia-mps/mps-control.toml";

/// The configuration file. Times are in seconds, fractions allowed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    /// `per-user` (default) or `single`, the vendor's rule. `multi-user` is the option `-M`.
    pub sharing: Sharing,
    /// How long SIGTERM lets clients finish.
    pub drain_timeout: f64,
    /// How long a server may take to end before it is killed.
    pub kill_timeout: f64,
    /// How long a server may take to become ready.
    pub start_timeout: f64,
    /// First delay after a failed start.
    pub first_retry: f64,
    /// Largest delay between starts.
    pub largest_retry: f64,
    /// How long a server without clients stays beside others; 0 is for ever.
    pub idle_timeout: f64,
    /// How many clients of one user may wait.
    pub max_waiting_per_user: usize,
    /// How long the holder process waits for a new daemon after this one was killed.
    pub successor_wait: f64,
    /// Largest size of each log file, in MiB; 0 is without limit.
    pub log_size_mib: u64,
    /// Log lines a second for each source before lines are dropped and counted; 0 is without limit.
    pub log_lines_per_second: u32,
}

impl Default for ConfigFile {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            sharing: policy.sharing,
            drain_timeout: policy.drain_timeout.as_secs_f64(),
            kill_timeout: policy.kill_timeout.as_secs_f64(),
            start_timeout: policy.start_timeout.as_secs_f64(),
            first_retry: policy.first_retry.as_secs_f64(),
            largest_retry: policy.largest_retry.as_secs_f64(),
            idle_timeout: policy.idle_timeout.unwrap_or_default().as_secs_f64(),
            max_waiting_per_user: policy.max_waiting_per_user,
            successor_wait: 600.0,
            log_size_mib: 64,
            log_lines_per_second: 1000,
        }
    }
}

/// Why the configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file that was named can't be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not TOML, or has a key or value that is not known.
    #[error("{}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A time that is none.
    #[error("{}: {key} = {value} is no number of seconds", path.display())]
    Seconds {
        /// The file.
        path: PathBuf,
        /// Which key.
        key: &'static str,
        /// Its value.
        value: f64,
    },
}

/// Everything that the start of the daemon needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `CUDA_MPS_PIPE_DIRECTORY`.
    pub pipe_directory: PathBuf,
    /// `CUDA_MPS_LOG_DIRECTORY`.
    pub log_directory: PathBuf,
    /// The configuration file's content, or its defaults.
    pub file: ConfigFile,
    /// What servers start with, from `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE`, `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT` and
    /// `CUDA_MPS_CLIENT_PRIORITY`.
    pub defaults: Defaults,
    /// What is wrong with the environment, for the log.
    pub remarks: Vec<String>,
    /// `MPS_SERVER_BINARY`.
    pub server_binary: Option<OsString>,
    /// `PATH`.
    pub search_path: Option<OsString>,
    /// `MPS_PERSONALITY`.
    pub personality: Option<String>,
    /// `LD_LIBRARY_PATH`.
    pub library_path: Option<OsString>,
    /// `NOTIFY_SOCKET` of systemd.
    pub notify_socket: Option<OsString>,
}

impl Settings {
    /// The pipe directory alone, which is all that the command line needs.
    #[must_use]
    pub fn pipe_directory(environment: impl Fn(&str) -> Option<OsString>) -> PathBuf {
        directory(environment("CUDA_MPS_PIPE_DIRECTORY"), DEFAULT_PIPE_DIRECTORY)
    }

    /// Reads the environment, through `environment`, and the configuration file.
    ///
    /// # Errors
    /// [`SettingsError`] when there is a configuration file that can't be used.
    pub fn read(environment: impl Fn(&str) -> Option<OsString>) -> Result<Self, SettingsError> {
        let named = environment("MPS_CONTROL_CONFIG").filter(|path| !path.is_empty());
        let file = read_file(named.as_deref())?;
        let mut remarks = Vec::new();
        let mut defaults = Defaults::default();
        let text = |name: &str| environment(name).map(|value| value.to_string_lossy().into_owned());
        if let Some(value) = text("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") {
            match Percentage::parse(value.as_bytes()) {
                Ok(percentage) => defaults.set_percentage(percentage),
                Err(error) => remarks.push(format!("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={value}: {error}")),
            }
        }
        if let Some(value) = text("CUDA_MPS_CLIENT_PRIORITY") {
            match Priority::parse(value.as_bytes()) {
                Ok(priority) => defaults.set_priority(priority),
                Err(error) => remarks.push(format!("CUDA_MPS_CLIENT_PRIORITY={value}: {error}")),
            }
        }
        if let Some(value) = text("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") {
            for limit in parse_device_limits(&value) {
                match limit {
                    Ok((device, limit)) => drop(defaults.set_limit(device, limit)),
                    Err(error) => remarks.push(format!("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT: {error}")),
                }
            }
        }
        Ok(Self {
            pipe_directory: Self::pipe_directory(&environment),
            log_directory: directory(environment("CUDA_MPS_LOG_DIRECTORY"), DEFAULT_LOG_DIRECTORY),
            file,
            defaults,
            remarks,
            server_binary: environment("MPS_SERVER_BINARY"),
            search_path: environment("PATH"),
            personality: text("MPS_PERSONALITY").filter(|value| !value.is_empty()),
            library_path: environment("LD_LIBRARY_PATH"),
            notify_socket: environment("NOTIFY_SOCKET"),
        })
    }

    /// The policy that the core works by; owner, group and personality are the caller's to set.
    #[must_use]
    pub fn policy(&self, multi_user: bool) -> Policy {
        let file = &self.file;
        Policy {
            sharing: if multi_user { Sharing::MultiUser } else { file.sharing },
            drain_timeout: Duration::from_secs_f64(file.drain_timeout),
            kill_timeout: Duration::from_secs_f64(file.kill_timeout),
            start_timeout: Duration::from_secs_f64(file.start_timeout),
            first_retry: Duration::from_secs_f64(file.first_retry),
            largest_retry: Duration::from_secs_f64(file.largest_retry),
            idle_timeout: Some(Duration::from_secs_f64(file.idle_timeout)).filter(|timeout| !timeout.is_zero()),
            max_waiting_per_user: file.max_waiting_per_user,
            ..Policy::default()
        }
    }
}

fn directory(value: Option<OsString>, default: &str) -> PathBuf {
    value.filter(|path| !path.is_empty()).map_or_else(|| PathBuf::from(default), PathBuf::from)
}

fn read_file(named: Option<&OsStr>) -> Result<ConfigFile, SettingsError> {
    let path = Path::new(named.unwrap_or(OsStr::new(DEFAULT_CONFIG)));
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => return Ok(ConfigFile::default()),
        Err(source) => return Err(SettingsError::Read { path: path.to_owned(), source }),
    };
    let file: ConfigFile = toml::from_str(&text)
        .map_err(|source| SettingsError::Parse { path: path.to_owned(), source: Box::new(source) })?;
    let times = BTreeMap::from([
        ("drain_timeout", file.drain_timeout),
        ("kill_timeout", file.kill_timeout),
        ("start_timeout", file.start_timeout),
        ("first_retry", file.first_retry),
        ("largest_retry", file.largest_retry),
        ("idle_timeout", file.idle_timeout),
        ("successor_wait", file.successor_wait),
    ]);
    match times.into_iter().find(|(_, value)| Duration::try_from_secs_f64(*value).is_err()) {
        Some((key, value)) => Err(SettingsError::Seconds { path: path.to_owned(), key, value }),
        None => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let pairs: BTreeMap<String, OsString> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
        Settings::read(|name| pairs.get(name).cloned())
    }

    fn with_file(text: &str) -> Result<Settings, SettingsError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c.toml");
        std::fs::write(&path, text).expect("written");
        settings(&[("MPS_CONTROL_CONFIG", path.to_str().expect("ascii"))])
    }

    #[test]
    fn an_empty_environment_gives_the_vendors_defaults() {
        let settings = settings(&[]).expect("no file is no error");
        assert_eq!(settings.pipe_directory, Path::new("/tmp/nvidia-mps"));
        assert_eq!(settings.log_directory, Path::new("/var/log/nvidia-mps"));
        assert_eq!(settings.defaults, Defaults::default());
        assert_eq!(settings.policy(false), Policy::default());
        assert_eq!(settings.policy(true).sharing, Sharing::MultiUser);
    }

    #[test]
    fn limits_come_from_the_vendors_variables() {
        let settings = settings(&[
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "33.3"),
            ("CUDA_MPS_CLIENT_PRIORITY", "1"),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G,x=2G"),
        ])
        .expect("no file is no error");
        assert_eq!(settings.defaults.percentage().get().to_string(), "33.3");
        assert_eq!(settings.defaults.priority().get(), 1);
        assert_eq!(settings.defaults.limits().len(), 1);
        assert_eq!(settings.remarks.len(), 1, "the bad entry is remarked, the good one kept: {:?}", settings.remarks);
    }

    #[test]
    fn the_vendors_single_server_rule_is_one_key() {
        let settings = with_file("sharing = \"single\"\nidle_timeout = 0\ndrain_timeout = 2.5\n").expect("sound");
        let policy = settings.policy(false);
        assert_eq!((policy.sharing, policy.idle_timeout), (Sharing::Single, None));
        assert_eq!(policy.drain_timeout, Duration::from_millis(2500));
    }

    #[test]
    fn unknown_keys_bad_times_and_missing_files_are_errors() {
        assert!(matches!(with_file("sharin = \"single\"\n"), Err(SettingsError::Parse { .. })));
        assert!(matches!(with_file("sharing = \"all\"\n"), Err(SettingsError::Parse { .. })));
        assert!(matches!(with_file("drain_timeout = -1\n"), Err(SettingsError::Seconds { key: "drain_timeout", .. })));
        assert!(matches!(settings(&[("MPS_CONTROL_CONFIG", "/nowhere.toml")]), Err(SettingsError::Read { .. })));
    }
}

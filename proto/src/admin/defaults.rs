//! The values that servers to come start with, and the answers that need nothing else.

use super::command::{Command, SmPartition};
use super::limits::{DeviceKey, MemLimit, Percentage, Priority};
use super::personality::Personality;
use super::reply;
use super::report::{self, Report};

/// What words of [`Defaults::written`] begin with.
const THREADS: &str = "threads=";
const PRIORITY: &str = "priority=";
const MEMORY: &str = "memory=";

/// Default percentage, priority and memory limits, as `set_default_*` leaves them.
#[derive(Clone, PartialEq, Debug)]
pub struct Defaults {
    percentage: Percentage,
    priority: Priority,
    /// In the order in which they were set: at a server's start the last one that names a device wins.
    limits: Vec<(DeviceKey, MemLimit)>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { percentage: Percentage::FULL, priority: Priority::Normal, limits: Vec::new() }
    }
}

/// What [`Defaults::apply`] made of a command.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// The lines for the user.
    pub answer: Vec<String>,
    /// A line for the log that the user does not see.
    pub remark: Option<String>,
    /// Whether a value changed, so that it is worth storing and, for the priority, telling running servers.
    pub changed: bool,
}

impl Defaults {
    /// More limits than this are refused: each of 32 ordinals once and as many UUIDs twice over.
    pub const MAX_LIMITS: usize = 128;

    /// The default share of threads.
    #[must_use]
    pub const fn percentage(&self) -> Percentage {
        self.percentage
    }

    /// The default priority.
    #[must_use]
    pub const fn priority(&self) -> Priority {
        self.priority
    }

    /// The limits, oldest first.
    #[must_use]
    pub fn limits(&self) -> &[(DeviceKey, MemLimit)] {
        &self.limits
    }

    /// Sets the share of threads.
    pub const fn set_percentage(&mut self, percentage: Percentage) {
        self.percentage = percentage;
    }

    /// Sets the priority.
    pub const fn set_priority(&mut self, priority: Priority) {
        self.priority = priority;
    }

    /// Sets a limit or, with [`MemLimit::NONE`], takes it away. The device becomes the last one set.
    ///
    /// False when nothing was kept because there are [`Self::MAX_LIMITS`] already.
    pub fn set_limit(&mut self, device: DeviceKey, limit: MemLimit) -> bool {
        self.limits.retain(|(known, _)| *known != device);
        if limit.is_none() {
            return true;
        }
        let room = self.limits.len() < Self::MAX_LIMITS;
        if room {
            self.limits.push((device, limit));
        }
        room
    }

    /// The limit set for exactly this name of a device.
    #[must_use]
    pub fn limit(&self, device: &DeviceKey) -> Option<MemLimit> {
        self.limits.iter().find(|(known, _)| known == device).map(|(_, limit)| *limit)
    }

    /// These values as a line of text, which [`parse`](Self::parse) reads.
    #[must_use]
    pub fn written(&self) -> String {
        let mut line = format!("{THREADS}{} {PRIORITY}{}", self.percentage.get(), self.priority.get());
        for (device, MemLimit(bytes)) in &self.limits {
            line.push_str(&format!(" {MEMORY}{device}:{bytes}"));
        }
        line
    }

    /// Reads them; `None` when anything in it is not understood, since less than all limits is none to go by.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut defaults = Self::default();
        for word in line.split_ascii_whitespace() {
            if let Some(share) = word.strip_prefix(THREADS) {
                defaults.percentage = Percentage::new(share.parse().ok()?).ok()?;
            } else if let Some(level) = word.strip_prefix(PRIORITY) {
                defaults.priority = Priority::parse(level.as_bytes()).ok()?;
            } else {
                let (device, bytes) = word.strip_prefix(MEMORY)?.rsplit_once(':')?;
                let limit = MemLimit(bytes.parse().ok()?);
                if limit.is_none() || !defaults.set_limit(DeviceKey::parse(device.as_bytes()).ok()?, limit) {
                    return None;
                }
            }
        }
        Some(defaults)
    }

    /// Answers a command about the defaults; `None` for every other command.
    pub fn apply(&mut self, command: &Command) -> Option<Applied> {
        let before = self.clone();
        let (answer, remark) = match command {
            Command::SetDefaultActiveThreadPercentage { percentage } => {
                let remark = match percentage {
                    Ok(percentage) => {
                        self.percentage = *percentage;
                        None
                    }
                    Err(invalid) => Some(invalid.to_string()),
                };
                (vec![reply::percentage(self.percentage.get())], remark)
            }
            Command::GetDefaultActiveThreadPercentage => (vec![reply::percentage(self.percentage.get())], None),
            Command::SetDefaultDevicePinnedMemLimit { device, limit } => (vec![], self.apply_limit(device, limit)),
            Command::GetDefaultDevicePinnedMemLimit { device } => match device {
                Err(invalid) => (vec![], Some(invalid.to_string())),
                Ok(device) => match self.limit(device) {
                    Some(limit) => (vec![limit.to_string()], None),
                    None => (vec![], Some(reply::LOG_NO_DEFAULT_LIMIT.to_owned())),
                },
            },
            Command::SetDefaultClientPriority { priority } => match priority {
                Ok(priority) => {
                    self.priority = *priority;
                    (vec![], None)
                }
                Err(invalid) => (vec![invalid.to_string()], None),
            },
            Command::GetDefaultClientPriority => (vec![self.priority.get().to_string()], None),
            Command::GetServerList
            | Command::GetServerStatus { .. }
            | Command::StartServer { .. }
            | Command::ShutdownServer { .. }
            | Command::GetClientList { .. }
            | Command::GetDeviceClientList { .. }
            | Command::SetActiveThreadPercentage { .. }
            | Command::GetActiveThreadPercentage { .. }
            | Command::SetDevicePinnedMemLimit { .. }
            | Command::GetDevicePinnedMemLimit { .. }
            | Command::TerminateClient { .. }
            | Command::Ps { .. }
            | Command::DeviceQuery { .. }
            | Command::SmPartition(_)
            | Command::Lspart
            | Command::Quit { .. }
            | Command::EndClient { .. }
            | Command::Report(_)
            | Command::ListDevices { .. }
            | Command::Change(_)
            | Command::Unknown(_) => return None,
        };
        Some(Applied { answer, remark, changed: *self != before })
    }

    fn apply_limit<D, L>(&mut self, device: &Result<DeviceKey, D>, limit: &Result<MemLimit, L>) -> Option<String>
    where
        D: std::fmt::Display,
        L: std::fmt::Display,
    {
        match (device, limit) {
            (Err(invalid), _) => Some(invalid.to_string()),
            (Ok(_), Err(invalid)) => Some(invalid.to_string()),
            (Ok(device), Ok(limit)) => {
                let kept = self.set_limit(device.clone(), *limit);
                (!kept).then(|| format!("more than {} memory limits, {device} is not kept", Self::MAX_LIMITS))
            }
        }
    }
}

/// The answer to a command that a release refuses before it looks for the server; `None` for every other command.
///
/// 580 looks at the device of a memory limit first, and says only in its log what is wrong with it.
#[must_use]
pub fn answer_before_server(command: &Command, personality: Personality) -> Option<Vec<String>> {
    let bad_device = matches!(
        command,
        Command::SetDevicePinnedMemLimit { device: Err(_), .. }
            | Command::GetDevicePinnedMemLimit { device: Err(_), .. }
    );
    (bad_device && personality >= Personality::V580).then(Vec::new)
}

/// The answer of a daemon that has no server to a command that asks for one; `None` when the daemon must do something
/// (`start_server` for a user, `quit`) or look at its devices, and for the commands of [`Defaults::apply`].
#[must_use]
pub fn answer_without_server(command: &Command) -> Option<Vec<String>> {
    match command {
        Command::GetServerList | Command::GetDeviceClientList { server: None } => Some(vec![]),
        Command::GetServerStatus { server: None } => Some(vec![reply::PID_REQUIRED.to_owned()]),
        Command::StartServer { uid: None, .. } => Some(vec![reply::UID_REQUIRED.to_owned()]),
        Command::GetServerStatus { server: Some(server) }
        | Command::ShutdownServer { server, .. }
        | Command::GetClientList { server }
        | Command::GetDeviceClientList { server: Some(server) }
        | Command::SetActiveThreadPercentage { server, .. }
        | Command::GetActiveThreadPercentage { server }
        | Command::SetDevicePinnedMemLimit { server, .. }
        | Command::GetDevicePinnedMemLimit { server, .. }
        | Command::DeviceQuery { server: Some(server), .. } => Some(vec![reply::server_not_found(*server)]),
        Command::TerminateClient { server, .. } => Some(reply::terminate_server_not_found(*server)),
        Command::Ps { server: None } => Some(vec![reply::NO_SERVER.to_owned()]),
        Command::Ps { server: Some(server) } => Some(reply::ps_server_not_found(*server)),
        Command::SmPartition(SmPartition::Invalid) => Some(vec![reply::SM_PARTITION_USAGE.to_owned()]),
        Command::Unknown(word) => Some(vec![reply::unknown_command(word)]),
        Command::Report(Report::Misused { name, word }) => Some(report::misused(*name, word.as_deref())),
        Command::StartServer { uid: Some(_), .. }
        | Command::EndClient { .. }
        | Command::SetDefaultActiveThreadPercentage { .. }
        | Command::GetDefaultActiveThreadPercentage
        | Command::SetDefaultDevicePinnedMemLimit { .. }
        | Command::GetDefaultDevicePinnedMemLimit { .. }
        | Command::SetDefaultClientPriority { .. }
        | Command::GetDefaultClientPriority
        | Command::DeviceQuery { server: None, .. }
        | Command::SmPartition(SmPartition::Add { .. } | SmPartition::Remove { .. })
        | Command::Lspart
        | Command::Report(_)
        | Command::ListDevices { .. }
        | Command::Change(_)
        | Command::Quit { .. } => None,
    }
}

#[cfg(test)]
mod tests;

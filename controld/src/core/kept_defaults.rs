//! What `set_default_…` has said of servers to come, as far as it outlives the daemon: what a command has said, and not
//! what the daemon was started with, which whoever starts the next one says again.

use remps_proto::admin::command::Command;
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::{DeviceKey, MemLimit, Percentage, Priority};

/// Which of the three values somebody has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Said {
    pub threads: bool,
    pub priority: bool,
    /// The limits of all devices together: what one device has not is a part of it.
    pub memory: bool,
}

impl Said {
    const THREADS: u32 = 1;
    const PRIORITY: u32 = 2;
    const MEMORY: u32 = 4;

    /// What a command says, where it makes sense.
    pub(super) const fn by(command: &Command) -> Self {
        Self {
            threads: matches!(command, Command::SetDefaultActiveThreadPercentage { percentage: Ok(_) }),
            priority: matches!(command, Command::SetDefaultClientPriority { priority: Ok(_) }),
            memory: matches!(command, Command::SetDefaultDevicePinnedMemLimit { device: Ok(_), limit: Ok(_) }),
        }
    }

    /// What is other than it was.
    pub(super) fn between(before: &Defaults, after: &Defaults) -> Self {
        Self {
            threads: before.percentage() != after.percentage(),
            priority: before.priority() != after.priority(),
            memory: before.limits() != after.limits(),
        }
    }

    pub(super) const fn or(self, other: Self) -> Self {
        Self {
            threads: self.threads || other.threads,
            priority: self.priority || other.priority,
            memory: self.memory || other.memory,
        }
    }

    /// As a successor reads it.
    pub(super) fn saved(self) -> u32 {
        let bit = |is_said: bool, bit: u32| if is_said { bit } else { 0 };
        bit(self.threads, Self::THREADS) | bit(self.priority, Self::PRIORITY) | bit(self.memory, Self::MEMORY)
    }

    pub(super) const fn restored(saved: u32) -> Self {
        Self {
            threads: saved & Self::THREADS != 0,
            priority: saved & Self::PRIORITY != 0,
            memory: saved & Self::MEMORY != 0,
        }
    }
}

/// The values that are kept; `None` is what nobody has said.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct KeptDefaults {
    pub percentage: Option<Percentage>,
    pub priority: Option<Priority>,
    /// Oldest first.
    pub limits: Option<Vec<(DeviceKey, MemLimit)>>,
}

impl KeptDefaults {
    pub(super) fn of(defaults: &Defaults, said: Said) -> Self {
        Self {
            percentage: said.threads.then(|| defaults.percentage()),
            priority: said.priority.then(|| defaults.priority()),
            limits: said.memory.then(|| defaults.limits().to_vec()),
        }
    }

    /// Which values there are.
    pub(super) const fn said(&self) -> Said {
        Said { threads: self.percentage.is_some(), priority: self.priority.is_some(), memory: self.limits.is_some() }
    }

    /// Puts these values in the place of others.
    pub(super) fn put_into(&self, defaults: &mut Defaults) {
        if let Some(percentage) = self.percentage {
            defaults.set_percentage(percentage);
        }
        if let Some(priority) = self.priority {
            defaults.set_priority(priority);
        }
        if let Some(limits) = &self.limits {
            for (device, _) in defaults.limits().to_vec() {
                defaults.set_limit(device, MemLimit::NONE);
            }
            for (device, limit) in limits {
                defaults.set_limit(device.clone(), *limit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited() -> Defaults {
        let mut defaults = Defaults::default();
        defaults.set_percentage(Percentage::new(40.0).expect("a share"));
        defaults.set_limit(DeviceKey::Ordinal(0), MemLimit(1 << 30));
        defaults
    }

    #[test]
    fn what_was_said_is_known_to_a_successor_also_of_a_daemon_that_did_not_note_it() {
        for bits in 0..8 {
            assert_eq!(Said::restored(bits).saved(), bits);
        }
        let said = Said::between(&Defaults::default(), &limited());
        assert_eq!(said, Said { threads: true, priority: false, memory: true });
        let kept = KeptDefaults::of(&limited(), said);
        assert_eq!(kept.said(), said);
        let mut next = Defaults::default();
        next.set_limit(DeviceKey::Ordinal(1), MemLimit(1 << 20));
        kept.put_into(&mut next);
        assert_eq!(next, limited(), "limits that were kept are all that there are");
    }

    #[test]
    fn a_command_that_makes_no_sense_says_nothing() {
        use remps_proto::admin::personality::Personality;
        let by = |line: &str| Said::by(&Command::parse(line.as_bytes(), Personality::V580));
        assert!(by("set_default_active_thread_percentage 10").threads);
        assert!(by("set_default_client_priority 1").priority);
        assert!(by("set_default_device_pinned_mem_limit 0 0").memory);
        for line in [
            "set_default_active_thread_percentage 0",
            "set_default_client_priority 9",
            "set_default_device_pinned_mem_limit x 1G",
            "get_default_client_priority",
            "set_active_thread_percentage 7 10",
        ] {
            assert_eq!(by(line), Said::default(), "{line}");
        }
    }
}

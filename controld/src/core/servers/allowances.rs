//! What a server's clients may have, as it is told: by what was said of its namespace, and else by the daemon's defaults.
//!
//! NVIDIA's server limits each client, and knows no sum. Where a domain's clients share what it may have (`shared_by`),
//! each is limited to an equal part, and no more come in than there are parts ([`shares`]). So the sum holds whatever
//! the clients say and whoever ends, and a successor needs to know nothing of who was given what. Parts by need, which a
//! server would have to be told before each client, are not made: when it reads a limit is not known.
//!
//! [`shares`]: crate::core::serving::shares

use super::domain::Domain;
use super::named::NamedServer;
use crate::core::ids::{DomainId, ServerEpoch};
use crate::core::peer::Entrance;
use crate::core::{Core, Effect};
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::{DeviceKey as AdminKey, MemLimit, Percentage};
use remps_proto::admin::module::{DEFAULT_NAMESPACE, Limits};
use remps_proto::mps::device::DeviceKey;
use remps_proto::mps::server::{Configuration, Request};

/// A device as a server knows it, by its number there.
fn numbered(number: usize) -> Option<DeviceKey> {
    DeviceKey::new(&number.to_string())
}

impl NamedServer {
    /// How many devices its processes see; 0 when nobody could tell.
    pub(in crate::core) fn devices_seen(&self) -> usize {
        if self.devices.is_empty() { self.visible as usize } else { self.devices.len() }
    }

    /// The number that one of the daemon's devices has for it. A limit for a device that a server does not see would make
    /// it drop all limits.
    fn translated(&self, device: &AdminKey) -> Option<DeviceKey> {
        if self.devices.is_empty() {
            return DeviceKey::new(&device.to_string());
        }
        match device {
            // Of a thin daemon that sees these devices and no others.
            AdminKey::Ordinal(ordinal) if self.joined.is_some() => {
                numbered(*ordinal as usize).filter(|_| (*ordinal as usize) < self.devices.len())
            }
            // By its number, since servers before 580 know no other name.
            AdminKey::Uuid(uuid) if self.joined.is_some() => {
                numbered(self.devices.iter().position(|own| own.uuid.starts_with(uuid.as_str()))?)
            }
            AdminKey::Ordinal(ordinal) => numbered(self.devices.iter().position(|own| own.ordinal == *ordinal)?),
            AdminKey::Uuid(uuid) => {
                let is_own = self.devices.iter().any(|own| own.uuid.starts_with(uuid.as_str()));
                DeviceKey::new(uuid).filter(|_| is_own)
            }
        }
    }
}

impl Core {
    /// What servers to come in a namespace start with where nothing is said of it.
    pub(super) fn defaults_of(&self, entrance: Option<&Entrance>) -> &Defaults {
        let server = entrance.and_then(|entrance| self.servers.named().get(&entrance.server));
        server.and_then(|server| server.joined.as_ref()).map_or(&self.defaults, |joined| &joined.defaults)
    }

    /// What a new server of a domain is told.
    pub(in crate::core) fn configuration(&self, domain: DomainId) -> Configuration {
        let entrance = self.servers.domain(domain).and_then(|domain| domain.key.entrance.clone());
        let server = entrance.as_ref().and_then(|entrance| self.servers.named().get(&entrance.server));
        let defaults = self.defaults_of(entrance.as_ref());
        let limits = entrance.as_ref().map(|entrance| self.servers.named().limits(entrance)).unwrap_or_default();
        let pinned_limits = match (server, limits.memory) {
            (Some(server), Some(limit)) => of_every_device(server, limit),
            (server, _) => {
                let key = |device: &AdminKey| match server {
                    Some(server) => server.translated(device),
                    None => DeviceKey::new(&device.to_string()),
                };
                defaults.limits().iter().filter_map(|(device, limit)| Some((key(device)?, limit.0))).collect()
            }
        };
        let parts = self.servers.domain(domain).map_or(1, |domain| domain.parts());
        Configuration {
            thread_percentage: part_of_threads(limits.percentage.unwrap_or_else(|| defaults.percentage()).get(), parts),
            pinned_limits: pinned_limits.into_iter().map(|(device, limit)| (device, part_of(limit, parts))).collect(),
            priority: limits.priority.unwrap_or_else(|| defaults.priority()).get(),
        }
    }

    /// Whether the clients of a server have a priority of their own.
    pub(in crate::core) fn has_own_priority(&self, server: ServerEpoch) -> bool {
        let domain = self.servers.get(server).and_then(|server| self.servers.domain(server.domain));
        let entrance = domain.and_then(|domain| domain.key.entrance.as_ref());
        entrance.is_some_and(|entrance| {
            let is_joined = self.servers.named().get(&entrance.server).is_some_and(|server| server.joined.is_some());
            is_joined || self.servers.named().limits(entrance).priority.is_some()
        })
    }

    /// Tells the servers of a namespace, and of all that it bounds, of what has been said of it.
    pub(in crate::core) fn tell_limits(&mut self, server: &str, namespace: &str, said: Limits) {
        let is_bound = |entrance: &Entrance| {
            entrance.server == server && (namespace == DEFAULT_NAMESPACE || entrance.namespace == namespace)
        };
        let told: Vec<(ServerEpoch, DomainId)> = self
            .servers
            .iter()
            .filter(|running| running.is_connected())
            .filter(|running| {
                let domain = self.servers.domain(running.domain);
                domain.and_then(|domain| domain.key.entrance.as_ref()).is_some_and(is_bound)
            })
            .map(|running| (running.epoch, running.domain))
            .collect();
        let seen = self.servers.named().get(server).map_or(0, NamedServer::devices_seen);
        for (epoch, domain) in told {
            let Configuration { thread_percentage, pinned_limits, priority } = self.configuration(domain);
            let mut requests = Vec::new();
            if said.percentage.is_some() {
                requests.push(Request::SetThreadPercentage(thread_percentage));
            }
            if said.memory.is_some() {
                // What is not limited any more has to be said, too.
                for device in (0..seen).filter_map(numbered) {
                    let limit = pinned_limits.iter().find(|(known, _)| *known == device).map_or(0, |(_, limit)| *limit);
                    requests.push(Request::SetPinnedLimit(device, limit));
                }
            }
            if said.priority.is_some() {
                requests.push(Request::SetPriority(priority));
            }
            for request in requests {
                self.turn.push(Effect::Tell { server: epoch, request });
            }
        }
    }

    /// What the clients of a namespace have, with the daemon's defaults where nothing else is said.
    pub(in crate::core) fn limits_in_force(&self, entrance: &Entrance) -> Limits {
        let own = self.servers.named().limits(entrance);
        let defaults = self.defaults_of(Some(entrance));
        let (percentage, priority): (Percentage, _) = (defaults.percentage(), defaults.priority());
        own.or(Limits { memory: None, percentage: Some(percentage), priority: Some(priority) })
    }
}

fn of_every_device(server: &NamedServer, limit: MemLimit) -> Vec<(DeviceKey, u64)> {
    (0..server.devices_seen()).filter_map(|number| Some((numbered(number)?, limit.0))).collect()
}

impl Domain {
    /// Into how many parts what its clients may have is divided: a server knows limits of each client alone.
    fn parts(&self) -> usize {
        self.policy.group.shared_by.unwrap_or(1)
    }
}

/// A client's part of a limit of memory. None at all is no limit, so a part is never nothing.
fn part_of(limit: u64, parts: usize) -> u64 {
    if limit == 0 { 0 } else { (limit / parts as u64).max(1) }
}

/// A client's part of threads, where not all may be used.
fn part_of_threads(percentage: f64, parts: usize) -> f64 {
    if percentage < 100.0 { percentage / parts as f64 } else { percentage }
}

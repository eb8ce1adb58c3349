//! Servers that somebody has named, and their namespaces: which there are, whom they let in, what their clients may have.
//!
//! A server has the namespace `default` and any number of others. Each is a fault domain with a socket of its own, its
//! entrance: whoever reaches that belongs there, so a container that mounts one's directory can be nowhere else. A
//! namespace's clients have at most what the server's are allowed, also where nobody has said anything of the namespace.

use super::joined::Joined;
use crate::core::ids::{EntranceId, Uid};
use crate::core::peer::Entrance;
use crate::core::saved::{Saved, SavedLimits, SavedNamed, SavedNamespace};
use remps_proto::admin::limits::{MemLimit, Percentage, Priority};
use remps_proto::admin::module::change::server_of_user;
use remps_proto::admin::module::{DEFAULT_NAMESPACE, Limits};
use std::collections::BTreeMap;

/// Namespaces of all servers together: each has a listening socket.
pub(in crate::core) const MOST_NAMESPACES: usize = 256;
/// What the names of users' own servers begin with.
const OF_USER: &str = "uid_";
/// Names that the daemon's own files have in the pipe directory and in those of servers.
const TAKEN: [&str; 7] =
    ["control", "control_privileged", "control_lock", "control_join", "log", "shim", "shim_defaults"];

/// A device that a server is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::core) struct NamedDevice {
    /// Its number among those that the daemon sees.
    pub(in crate::core) ordinal: u32,
    /// `GPU-…` or `MIG-…`, whole.
    pub(in crate::core) uuid: String,
}

/// A namespace of a server.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::core) struct NamedSpace {
    pub(in crate::core) id: EntranceId,
    /// What was said of it alone.
    pub(in crate::core) limits: Limits,
    /// Whether it has its socket.
    pub(in crate::core) is_open: bool,
}

/// A server that somebody has named.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::core) struct NamedServer {
    /// The user that it serves; `None` is whoever reaches it.
    pub(in crate::core) uid: Option<Uid>,
    /// The devices that it may use; none is all.
    pub(in crate::core) devices: Vec<NamedDevice>,
    /// How many devices its processes see; 0 when nobody could tell.
    pub(in crate::core) visible: u32,
    pub(in crate::core) namespaces: BTreeMap<String, NamedSpace>,
    /// What it is as one as which a thin daemon has joined.
    pub(in crate::core) joined: Option<Joined>,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub(in crate::core) struct Named {
    servers: BTreeMap<String, NamedServer>,
    last: u64,
    /// Whether servers of a file were made when the first daemon of this line started.
    pub(in crate::core) is_file_applied: bool,
}

fn entrance(server: &str, namespace: &str, id: EntranceId) -> Entrance {
    Entrance { id, server: server.to_owned(), namespace: namespace.to_owned() }
}

impl Named {
    pub(in crate::core) fn get(&self, server: &str) -> Option<&NamedServer> {
        self.servers.get(server)
    }

    pub(in crate::core) fn get_mut(&mut self, server: &str) -> Option<&mut NamedServer> {
        self.servers.get_mut(server)
    }

    pub(in crate::core) fn iter(&self) -> impl Iterator<Item = (&str, &NamedServer)> {
        self.servers.iter().map(|(name, server)| (name.as_str(), server))
    }

    /// The entrances of all namespaces, open or about to be.
    pub(in crate::core) fn entrances(&self) -> impl Iterator<Item = Entrance> + '_ {
        self.iter()
            .flat_map(|(name, server)| server.namespaces.iter().map(move |(space, it)| entrance(name, space, it.id)))
    }

    /// The namespace that has this entrance.
    pub(in crate::core) fn find(&self, id: EntranceId) -> Option<(Entrance, &NamedServer)> {
        self.iter().find_map(|(name, server)| {
            let (space, _) = server.namespaces.iter().find(|(_, space)| space.id == id && space.is_open)?;
            Some((entrance(name, space, id), server))
        })
    }

    /// The entrance for a user's clients that come by no socket of a namespace: of his own server, if it is named.
    pub(in crate::core) fn of_user(&self, uid: Uid) -> Option<Entrance> {
        let name = server_of_user(uid);
        let space = self.get(&name)?.namespaces.get(DEFAULT_NAMESPACE).filter(|space| space.is_open)?;
        Some(entrance(&name, DEFAULT_NAMESPACE, space.id))
    }

    /// What the clients of a namespace may have.
    pub(in crate::core) fn limits(&self, entrance: &Entrance) -> Limits {
        let Some(server) = self.get(&entrance.server) else {
            return Limits::default();
        };
        let of = |name: &str| server.namespaces.get(name).map(|space| space.limits).unwrap_or_default();
        of(&entrance.namespace).within(of(DEFAULT_NAMESPACE))
    }

    /// What `CUDA_VISIBLE_DEVICES` of a server's processes is; `None` is what the daemon's is.
    pub(in crate::core) fn visible_devices(&self, server: &str) -> Option<String> {
        let devices = &self.get(server)?.devices;
        let names: Vec<&str> = devices.iter().map(|device| device.uuid.as_str()).collect();
        (!names.is_empty()).then(|| names.join(","))
    }

    /// Why a server can't be made so; the names of users' own servers are theirs.
    fn refusal(&self, name: &str, uid: Option<Uid>) -> Option<String> {
        if self.servers.contains_key(name) {
            return Some(format!("Server {name} exists already"));
        }
        if TAKEN.contains(&name) {
            return Some(format!("No server can be called {name}, the name of a file of the daemon's"));
        }
        if name.starts_with(OF_USER) && uid.map(server_of_user).as_deref() != Some(name) {
            return Some(format!("{name} is the name of a user's own server: say --uid as in the name"));
        }
        self.has_no_room()
    }

    fn has_no_room(&self) -> Option<String> {
        let is_full = self.entrances().count() >= MOST_NAMESPACES;
        is_full.then(|| format!("There are {MOST_NAMESPACES} namespaces already, the most that there may be"))
    }

    fn next_id(&mut self) -> EntranceId {
        self.last += 1;
        EntranceId(self.last)
    }

    /// Notes a server whose socket is still to be made.
    ///
    /// # Errors
    /// Why it can't be, in words for who wants it.
    pub(in crate::core) fn add_server(
        &mut self,
        name: &str,
        uid: Option<Uid>,
        devices: Vec<NamedDevice>,
        visible: u32,
    ) -> Result<Entrance, String> {
        if let Some(refusal) = self.refusal(name, uid) {
            return Err(refusal);
        }
        let server = NamedServer { uid, devices, visible, namespaces: BTreeMap::new(), joined: None };
        self.servers.insert(name.to_owned(), server);
        self.add_space(name, DEFAULT_NAMESPACE)
    }

    /// Notes a namespace whose socket is still to be made.
    ///
    /// # Errors
    /// Why it can't be, in words for who wants it.
    pub(in crate::core) fn add_namespace(&mut self, server: &str, name: &str) -> Result<Entrance, String> {
        let Some(known) = self.get(server).filter(|known| known.is_open()) else {
            return Err(not_found(server));
        };
        if known.namespaces.contains_key(name) {
            return Err(format!("Namespace {name} of server {server} exists already"));
        }
        if TAKEN.contains(&name) {
            return Err(format!("No namespace can be called {name}, the name of a file of the daemon's"));
        }
        match self.has_no_room() {
            Some(refusal) => Err(refusal),
            None => self.add_space(server, name),
        }
    }

    fn add_space(&mut self, server: &str, name: &str) -> Result<Entrance, String> {
        let id = self.next_id();
        let known = self.servers.get_mut(server).ok_or_else(|| not_found(server))?;
        known.namespaces.insert(name.to_owned(), NamedSpace { id, limits: Limits::default(), is_open: false });
        Ok(entrance(server, name, id))
    }

    /// A namespace has its socket.
    pub(in crate::core) fn opened(&mut self, id: EntranceId) {
        let mut spaces = self.servers.values_mut().flat_map(|server| server.namespaces.values_mut());
        if let Some(space) = spaces.find(|space| space.id == id) {
            space.is_open = true;
        }
    }

    /// Has a server serve this user from now on, or with `None` whoever reaches it.
    ///
    /// # Errors
    /// Why that can't be, in words for who wants it.
    pub(in crate::core) fn set_user(&mut self, server: &str, uid: Option<Uid>) -> Result<(), String> {
        if server.starts_with(OF_USER) && self.servers.contains_key(server) {
            return Err(format!("{server} is a user's own server, and stays his"));
        }
        self.servers.get_mut(server).ok_or_else(|| not_found(server))?.uid = uid;
        Ok(())
    }

    /// Forgets a namespace, or with `default` the whole server; which those were.
    pub(in crate::core) fn remove(&mut self, server: &str, namespace: &str) -> Vec<Entrance> {
        if namespace == DEFAULT_NAMESPACE {
            let removed = self.servers.remove(server).into_iter().flat_map(|it| it.namespaces);
            return removed.map(|(name, space)| entrance(server, &name, space.id)).collect();
        }
        let spaces = self.servers.get_mut(server).map(|it| &mut it.namespaces);
        let removed = spaces.and_then(|spaces| spaces.remove(namespace));
        removed.into_iter().map(|space| entrance(server, namespace, space.id)).collect()
    }

    /// What a successor must know. What has no socket yet was never answered for, and is not known to it.
    pub(in crate::core) fn saved(&self) -> Vec<SavedNamed> {
        let space = |(name, space): (&String, &NamedSpace)| SavedNamespace {
            name: name.clone(),
            id: space.id.0,
            limits: Some(saved_limits(&space.limits)),
        };
        let open = self.servers.iter().filter(|(_, server)| server.is_open());
        open.map(|(name, server)| SavedNamed {
            name: name.clone(),
            uid: server.uid,
            devices: server.devices.iter().map(|device| format!("{} {}", device.ordinal, device.uuid)).collect(),
            visible: server.visible,
            namespaces: server.namespaces.iter().filter(|(_, space)| space.is_open).map(space).collect(),
            joined: server.joined.as_ref().map(Joined::saved),
        })
        .collect()
    }

    /// The number that the last namespace had.
    pub(in crate::core) fn last(&self) -> u64 {
        self.last
    }

    /// As an earlier daemon has left them.
    pub(in crate::core) fn restored(saved: &Saved) -> Self {
        let device = |text: &String| {
            let (ordinal, uuid) = text.split_once(' ')?;
            Some(NamedDevice { ordinal: ordinal.parse().ok()?, uuid: uuid.to_owned() })
        };
        let space = |saved: &SavedNamespace| {
            let limits = saved.limits.as_ref().map(read_limits).unwrap_or_default();
            (saved.name.clone(), NamedSpace { id: EntranceId(saved.id), limits, is_open: true })
        };
        let server = |saved: &SavedNamed| NamedServer {
            uid: saved.uid,
            devices: saved.devices.iter().filter_map(device).collect(),
            visible: saved.visible,
            namespaces: saved.namespaces.iter().map(space).collect(),
            joined: saved.joined.as_ref().map(Joined::restored),
        };
        let servers = saved.named.iter().map(|saved| (saved.name.clone(), server(saved))).collect();
        Self { servers, last: saved.last_entrance, is_file_applied: saved.is_file_applied }
    }
}

impl NamedServer {
    /// Whether it has its socket.
    pub(in crate::core) fn is_open(&self) -> bool {
        self.namespaces.get(DEFAULT_NAMESPACE).is_some_and(|space| space.is_open)
    }
}

/// There is no such server.
pub(in crate::core) fn not_found(server: &str) -> String {
    format!("Server {server} not found")
}

fn saved_limits(limits: &Limits) -> SavedLimits {
    SavedLimits {
        memory: limits.memory.map(|limit| limit.0),
        percentage: limits.percentage.map(Percentage::get),
        priority: limits.priority.map(Priority::get),
    }
}

fn read_limits(saved: &SavedLimits) -> Limits {
    Limits {
        memory: saved.memory.map(MemLimit),
        percentage: saved.percentage.and_then(|value| Percentage::new(value).ok()),
        priority: saved.priority.and_then(|number| Priority::parse(number.to_string().as_bytes()).ok()),
    }
}

//! What the third interface changes: named servers and their namespaces. And the devices as they see them.
//!
//! A command is answered when what it asks for is so: a socket is there, or it is gone. Nothing is made of one that fails.
//! Devices are looked up before a server is given them: one that does not exist would be found out by the server's own
//! process alone, which ends of it.

use super::keeping::{Step, said};
use super::rights::Asker;
use crate::core::Device;
use crate::core::ids::{EntranceId, SessionId, Uid};
use crate::core::peer::Entrance;
use crate::core::servers::named::{NamedDevice, not_found};
use crate::core::{Core, Effect, Peer, Sharing};
use remps_proto::admin::limits::DeviceKey;
use remps_proto::admin::module::{Change, DEFAULT_NAMESPACE, Format, Limits};
use std::collections::{BTreeMap, BTreeSet};

/// The columns of `device list`, as the manual names them.
const DEVICES: [&str; 8] =
    ["ordinal", "server", "pci-id", "device-uuid", "name", "total-sms", "total-chunks", "attributes"];
/// What stands for nothing in a table.
const NOTHING: &str = "-";

/// A command that waits for the list of devices.
#[derive(Debug, Clone, PartialEq)]
enum Awaits {
    Rows { server: Option<String>, format: Format },
    Server { peer: Peer, name: String, uid: Option<Uid>, devices: Vec<DeviceKey> },
}

/// Commands about named servers that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    devices: BTreeMap<SessionId, Awaits>,
    /// Whose socket is being made, for whom.
    sockets: BTreeMap<EntranceId, (SessionId, Peer)>,
}

impl Core {
    pub(super) fn fail(&mut self, session: SessionId, reason: impl Into<String>) {
        self.turn.push(Effect::AnswerFailure { session, reason: vec![reason.into()] });
    }

    /// `device list`.
    pub(super) fn list_devices(&mut self, session: SessionId, server: Option<String>, format: Format) {
        if let Some(name) = server.as_deref().filter(|name| self.servers.named().get(name).is_none()) {
            let reason = not_found(name);
            return self.fail(session, reason);
        }
        self.commands.pending.devices.insert(session, Awaits::Rows { server, format });
        self.turn.push(Effect::ListDevices { session });
    }

    /// Whether the list of devices was for one of these commands, which goes on with it.
    pub(super) fn devices_awaited(&mut self, session: SessionId, devices: &Result<Vec<Device>, String>) -> bool {
        let Some(awaits) = self.commands.pending.devices.remove(&session) else {
            return false;
        };
        match (awaits, devices) {
            (Awaits::Rows { .. }, Err(reason)) => self.fail(session, format!("The devices can't be listed: {reason}")),
            (Awaits::Rows { server, format }, Ok(devices)) => {
                let rows = self.device_rows(devices, server.as_deref());
                self.turn.push(Effect::AnswerRows { session, columns: &DEVICES, rows, format });
            }
            (Awaits::Server { peer, name, uid, devices: wanted }, listed) => {
                match chosen(&wanted, listed) {
                    Ok(chosen) => {
                        let visible = listed.as_ref().map_or(0, Vec::len);
                        let visible = u32::try_from(visible).unwrap_or_default();
                        let added = self.servers.named_mut().add_server(&name, uid, chosen, visible);
                        self.open(session, peer, added);
                    }
                    Err(reason) => self.fail(session, reason),
                };
            }
        }
        true
    }

    /// The daemon's devices, and those of each named server, by their numbers there.
    fn device_rows(&self, devices: &[Device], only: Option<&str>) -> Vec<Vec<String>> {
        let row = |ordinal: usize, server: &str, device: &Device| {
            let Device { row, multiprocessors, .. } = device;
            let attributes = row.attributes.clone().unwrap_or_else(|| NOTHING.to_owned());
            let chunks = multiprocessors / device.chunk();
            let numbers = [multiprocessors.to_string(), chunks.to_string()];
            let [sms, chunks] = numbers;
            let (pci, uuid, name) = (row.pci.to_string(), row.uuid.clone(), row.name.clone());
            vec![ordinal.to_string(), server.to_owned(), pci, uuid, name, sms, chunks, attributes]
        };
        let own = devices.iter().filter(|_| only.is_none()).map(|it| row(it.row.ordinal as usize, NOTHING, it));
        let named = self.servers.named().iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
        let of_servers = named.flat_map(|(name, server)| {
            let is_given = |device: &&Device| server.devices.iter().any(|given| given.uuid == device.row.uuid);
            let seen: Vec<&Device> = if server.devices.is_empty() {
                devices.iter().collect()
            } else {
                let given = |uuid: &str| devices.iter().find(|device| device.row.uuid == uuid);
                server.devices.iter().filter_map(|device| given(&device.uuid)).filter(is_given).collect()
            };
            seen.into_iter().enumerate().map(move |(number, device)| row(number, name, device)).collect::<Vec<_>>()
        });
        own.chain(of_servers).collect()
    }

    /// A command that changes named servers; whoever asks may.
    pub(super) fn change(&mut self, session: SessionId, asker: &Asker, change: Change) {
        if self.turn.quit.is_some() {
            return self.fail(session, "The daemon is about to quit");
        }
        match change {
            Change::CreateServer { name, uid, devices } => {
                let uid = match self.user_of_server(uid) {
                    Ok(uid) => uid,
                    Err(reason) => return self.fail(session, reason),
                };
                let awaits = Awaits::Server { peer: asker.peer, name, uid, devices };
                self.commands.pending.devices.insert(session, awaits);
                self.turn.push(Effect::ListDevices { session });
            }
            Change::CreateNamespace { server, name } => {
                let added = self.servers.named_mut().add_namespace(&server, &name);
                self.open(session, asker.peer, added);
            }
            Change::SetServer { name, uid, limits } => {
                let namespace = DEFAULT_NAMESPACE.to_owned();
                self.make(Some(session), Step::Set { server: name, namespace, uid, limits });
            }
            Change::SetNamespace { server, name, limits } => {
                self.make(Some(session), Step::Set { server, namespace: name, uid: None, limits });
            }
            Change::DeleteServer { name, force } => {
                let namespace = DEFAULT_NAMESPACE.to_owned();
                self.make(Some(session), Step::Delete { server: name, namespace, force });
            }
            Change::DeleteNamespace { name, .. } if name == DEFAULT_NAMESPACE => {
                self.fail(session, "The namespace default goes with its server");
            }
            Change::DeleteNamespace { server, name, force } => {
                self.make(Some(session), Step::Delete { server, namespace: name, force });
            }
        }
    }

    /// Whom a server may serve. Where one process serves all users, it is root's, and the manual has no other.
    pub(super) fn user_of_server(&self, uid: Option<Uid>) -> Result<Option<Uid>, String> {
        match (self.turn.policy.sharing, uid) {
            (Sharing::MultiUser, Some(uid)) if uid != 0 => {
                Err("Servers of a daemon for all users are root's: --uid=0, or none".to_owned())
            }
            (Sharing::MultiUser, _) => Ok(None),
            // Servers run as the users whom they serve, which only root may have others do.
            (Sharing::PerUser | Sharing::Single, Some(uid)) if !self.may_serve(uid) => {
                Err(format!("This daemon is of user {} and can't serve user {uid}", self.turn.policy.owner))
            }
            (Sharing::PerUser | Sharing::Single, uid) => Ok(uid),
        }
    }

    fn may_serve(&self, uid: Uid) -> bool {
        self.turn.policy.owner == 0 || self.turn.policy.owner == uid
    }

    /// Has the socket of a new namespace made.
    fn open(&mut self, session: SessionId, peer: Peer, added: Result<Entrance, String>) {
        match added {
            Ok(entrance) => {
                self.commands.pending.sockets.insert(entrance.id, (session, peer));
                self.turn.push(Effect::OpenEntrance(entrance));
            }
            Err(reason) => self.fail(session, reason),
        }
    }

    /// The socket of a namespace is there, or can't be.
    pub(in crate::core) fn entrance_opened(&mut self, id: EntranceId, result: Result<(), String>) {
        let asked = self.commands.pending.sockets.remove(&id);
        let Some(entrance) = self.servers.named().entrances().find(|entrance| entrance.id == id) else {
            // Its server was deleted meanwhile.
            if let Some((session, _)) = asked {
                self.fail(session, "It was deleted meanwhile");
            }
            return;
        };
        if let Err(reason) = result {
            self.servers.named_mut().remove(&entrance.server, &entrance.namespace);
            if let Some((session, _)) = asked {
                self.fail(session, reason);
            }
            return;
        }
        match asked {
            Some((session, maker)) => self.make(Some(session), Step::Open { entrance: id, maker }),
            None => {
                self.servers.named_mut().opened(id);
                self.turn.log(format!("Clients of {} are let in", said(&entrance)));
            }
        }
    }

    /// Starts the process of a server that was just made, so that it is seen at once whether it can run: for its user, or
    /// else for who has made it. Namespaces start theirs with their first client.
    pub(in crate::core) fn begin_server(&mut self, entrance: &Entrance, maker: Peer) {
        if entrance.namespace != DEFAULT_NAMESPACE {
            return;
        }
        let uid = self.servers.named().get(&entrance.server).and_then(|server| server.uid).unwrap_or(maker.uid);
        let gid = if uid == maker.uid { maker.gid } else { uid };
        let domain = self.servers.domain_of_entrance(&self.turn.policy, uid, gid, Some(entrance.clone()));
        self.servers.request_server(domain);
    }

    /// Whether a daemon of this line has read a file of servers.
    pub(crate) fn has_planned_servers(&self) -> bool {
        self.servers.named().is_file_applied
    }

    /// A daemon of this line has read a file of servers.
    pub(crate) fn servers_are_planned(&mut self) {
        self.servers.named_mut().is_file_applied = true;
    }

    /// A server that was planned can't be made.
    pub(crate) fn forget_planned(&mut self, name: &str) {
        self.servers.named_mut().remove(name, DEFAULT_NAMESPACE);
    }

    /// Notes all servers of a file beside those that there are, each with its user, devices and what is said of its
    /// namespaces; the entrances to make.
    ///
    /// # Errors
    /// Why one of them can't be; then nothing is noted of any.
    pub(crate) fn plan_servers<'a>(
        &mut self,
        plan: impl Iterator<Item = (&'a str, Option<Uid>, &'a [DeviceKey], &'a BTreeMap<String, Limits>)>,
        listed: &Result<Vec<Device>, String>,
    ) -> Result<Vec<Entrance>, String> {
        let visible = u32::try_from(listed.as_ref().map_or(0, Vec::len)).unwrap_or_default();
        let mut named = self.servers.named().clone();
        let before: BTreeSet<EntranceId> = named.entrances().map(|entrance| entrance.id).collect();
        for (name, uid, devices, namespaces) in plan {
            let uid = self.user_of_server(uid).map_err(|reason| format!("{name}: {reason}"))?;
            let devices = chosen(devices, listed).map_err(|reason| format!("{name}: {reason}"))?;
            let made = named.add_server(name, uid, devices, visible)?;
            named.opened(made.id);
            for (space, limits) in namespaces {
                if space != DEFAULT_NAMESPACE {
                    named.add_namespace(name, space)?;
                }
                let is_limited = limits.memory.is_some_and(|limit| !limit.is_none());
                let server = named.get_mut(name).filter(|server| !is_limited || server.devices_seen() > 0);
                let server =
                    server.ok_or_else(|| format!("{name}: which devices it has can't be told: no limit holds"))?;
                if let Some(known) = server.namespaces.get_mut(space) {
                    known.limits = *limits;
                }
            }
            if let Some(known) = named.get_mut(name).and_then(|server| server.namespaces.get_mut(DEFAULT_NAMESPACE)) {
                known.is_open = false;
            }
        }
        let entrances = named.entrances().filter(|entrance| !before.contains(&entrance.id)).collect();
        *self.servers.named_mut() = named;
        Ok(entrances)
    }
}

/// The devices that are meant, whole; none is all.
///
/// # Errors
/// Which there is not, and which there are.
pub(in crate::core) fn chosen(
    wanted: &[DeviceKey],
    listed: &Result<Vec<Device>, String>,
) -> Result<Vec<NamedDevice>, String> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let listed = listed.as_ref().map_err(|reason| format!("The devices can't be looked up: {reason}"))?;
    let mut chosen: Vec<NamedDevice> = Vec::new();
    for key in wanted {
        let is_it = |device: &&Device| match key {
            DeviceKey::Ordinal(ordinal) => device.row.ordinal == *ordinal,
            DeviceKey::Uuid(uuid) => {
                device.row.uuid.get(..uuid.len()).is_some_and(|start| start.eq_ignore_ascii_case(uuid))
            }
        };
        let found: Vec<&Device> = listed.iter().filter(is_it).collect();
        let [device] = found.as_slice() else {
            let what = if found.is_empty() { "There is no device" } else { "More than one device begins with" };
            let known: Vec<String> =
                listed.iter().map(|device| format!("{} ({})", device.row.ordinal, device.row.uuid)).collect();
            return Err(format!("{what} {key}; there are {}", known.join(", ")));
        };
        let named = NamedDevice { ordinal: device.row.ordinal, uuid: device.row.uuid.clone() };
        if chosen.contains(&named) {
            return Err(format!("Device {} is named twice", named.uuid));
        }
        chosen.push(named);
    }
    Ok(chosen)
}

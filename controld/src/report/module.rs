//! What the modules of release 615's third interface answer to questions.
//!
//! A server that somebody has named has one row, with the process that takes the newcomers of its namespace `default`.
//! Of the others, the one that takes a user's newcomers who have nothing else in common is `uid_UID`, as 615 calls a user's
//! own, and any other has the number of its start behind that, `uid_1000_7`. So a server that gets no client any more
//! leaves its name to the one in its place.
//!
//! The order of the columns and the status `Ready` are the manual's; the words for what a server does else are ours, since
//! the manual has none.

use super::Viewer;
use super::client::client_not_found;
use super::table::aligned;
use super::text::{NOTHING, harmless, or_nothing};
use crate::core::picture::{
    ClientFacts, ClientPhase, DomainPhase, GpuFacts, NamedFacts, NamespaceFacts, ServerFacts, ServerPhase, Snapshot,
};
use crate::core::{Entrance, Gpu, Pid};
use remps_proto::admin::Form;
use remps_proto::admin::limits::MemLimit;
use remps_proto::admin::module::change::shown_memory;
use remps_proto::admin::module::{ClientField, DEFAULT_NAMESPACE, Feature, Format, NamespaceField, Query, ServerField};
use remps_proto::admin::report::usage;

/// The columns, as the manual names them.
const SERVERS: [&str; 7] = ["name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids"];
const CLIENTS: [&str; 5] = ["pid", "server", "device", "namespace", "cmd"];
const LISTED_OF_CLIENTS: [ClientField; 5] =
    [ClientField::Pid, ClientField::Server, ClientField::Device, ClientField::Namespace, ClientField::Command];
const PARTITIONS: [&str; 8] =
    ["server", "device", "name", "chunks", "sm-count", "include-remainder", "status", "visible-uuid"];
const FEATURES: [&str; 4] = ["feature", "state", "module", "covers"];

/// The answer to a question of the third interface.
///
/// # Errors
/// What is answered where what is named does not exist, or not for this viewer.
pub(crate) fn module(snapshot: &Snapshot, viewer: Viewer, query: &Query) -> Result<Vec<String>, Vec<String>> {
    let rows = || Rows::of(snapshot, viewer);
    match query {
        Query::Help(module) => Ok(vec![usage(*module)]),
        Query::Servers { name: None, format } => {
            Ok(listed(&SERVERS, rows().iter().map(|row| row.fields(snapshot)).collect(), *format))
        }
        Query::Servers { name: Some(wanted), format } => {
            let rows = rows();
            Ok(listed(&SERVERS, vec![found(&rows, wanted)?.fields(snapshot)], *format))
        }
        Query::Server { name, field } => Ok(vec![found(&rows(), name)?.value(snapshot, *field)]),
        Query::Namespaces { name, server, format } => {
            let (all, columns) = (rows(), NamespaceField::ALL.iter().map(|field| field.word()).collect::<Vec<_>>());
            let only = server.as_ref().map(|server| found(&all, server)).transpose()?;
            let shown = only.map_or(all.as_slice(), std::slice::from_ref);
            let spaces = shown.iter().flat_map(|row| row.spaces().into_iter().map(move |space| (row, space)));
            let is_wanted = |(_, space): &(&Row<'_>, Space)| name.as_ref().is_none_or(|name| space.name == *name);
            let wanted: Vec<Vec<String>> = spaces
                .filter(is_wanted)
                .map(|(row, space)| {
                    NamespaceField::ALL.iter().map(|field| row.space_value(snapshot, &space, *field)).collect()
                })
                .collect();
            match name {
                Some(name) if wanted.is_empty() => Err(vec![format!("Namespace {name} not found")]),
                _ => Ok(listed(&columns, wanted, *format)),
            }
        }
        Query::Namespace { name, server, field } => {
            let all = rows();
            let row = found(&all, server)?;
            let space = row.spaces().into_iter().find(|space| space.name == *name);
            let space = space.ok_or_else(|| vec![format!("Namespace {name} of server {server} not found")])?;
            Ok(vec![row.space_value(snapshot, &space, *field)])
        }
        Query::Clients { server, format } => {
            if let Some(server) = server {
                found(&rows(), server)?;
            }
            let is_wanted = |client: &&ClientFacts| {
                server.as_ref().is_none_or(|server| client_value(snapshot, client, ClientField::Server) == *server)
            };
            let row = |client| LISTED_OF_CLIENTS.iter().map(|field| client_value(snapshot, client, *field)).collect();
            Ok(listed(&CLIENTS, active(snapshot, viewer).filter(is_wanted).map(row).collect(), *format))
        }
        Query::Client { pid, field } => {
            let client = active(snapshot, viewer).find(|client| client.process.pid == *pid);
            let client = client.ok_or_else(|| client_not_found(*pid))?;
            Ok(vec![client_value(snapshot, client, *field)])
        }
        Query::Partitions { server, format } => {
            if let Some(server) = server {
                found(&rows(), server)?;
            }
            Ok(listed(&PARTITIONS, Vec::new(), *format))
        }
        Query::Features { feature, format } => {
            let row = |feature: &Feature| vec![feature.word(), "disabled", feature.word(), NOTHING];
            let shown = Feature::ALL.iter().filter(|known| feature.is_none_or(|wanted| wanted == **known));
            let rows = shown.map(|feature| row(feature).into_iter().map(str::to_owned).collect());
            Ok(listed(&FEATURES, rows.collect(), *format))
        }
        Query::Needs(need) => Err(vec![need.refusal(snapshot.daemon.personality.parse().ok())]),
    }
}

/// The clients that are on a server, of those that somebody may see.
fn active(snapshot: &Snapshot, viewer: Viewer) -> impl Iterator<Item = &ClientFacts> {
    let is_active = |client: &&ClientFacts| client.server.is_some() && client.phase != ClientPhase::Gone;
    snapshot.clients.iter().filter(move |client| viewer.may_see(client.uid)).filter(is_active)
}

/// A server as it is listed.
enum Row<'a> {
    /// One that somebody has named, and the process that takes newcomers of its namespace `default`, if one runs.
    Named { facts: &'a NamedFacts, process: Option<&'a ServerFacts> },
    /// A process of those that nobody has.
    Other(&'a ServerFacts),
}

/// A namespace as it is listed.
struct Space {
    name: String,
    memory: Option<u64>,
    percentage: Option<f64>,
    priority: Option<u32>,
}

/// All that somebody may see.
struct Rows;

impl Rows {
    /// Those with names of their own first.
    fn of(snapshot: &Snapshot, viewer: Viewer) -> Vec<Row<'_>> {
        let may_see = |named: &&NamedFacts| named.uid.is_none_or(|uid| viewer.may_see(uid));
        let seen = |server: &&ServerFacts| viewer.may_see(server.uid);
        let process = |name: &str| {
            let is_its = |server: &&ServerFacts| {
                let is_default = |entrance: &Entrance| entrance.server == name && is_default(entrance);
                server.entrance.as_ref().is_some_and(is_default)
            };
            let own = snapshot.servers.iter().filter(seen).filter(is_its);
            // One that is about to go says less than the one in its place.
            own.min_by_key(|server| (!takes_newcomers(server), server.epoch.0))
        };
        let named = snapshot.named.iter().filter(may_see);
        let named = named.map(|facts| Row::Named { facts, process: process(&facts.name) });
        let others = snapshot.servers.iter().filter(seen).filter(|server| server.entrance.is_none());
        named.chain(others.map(Row::Other)).collect()
    }
}

fn is_default(entrance: &Entrance) -> bool {
    entrance.namespace == DEFAULT_NAMESPACE
}

fn takes_newcomers(server: &ServerFacts) -> bool {
    matches!(server.phase, ServerPhase::Initializing | ServerPhase::Active)
}

fn found<'a, 'b>(rows: &'b [Row<'a>], wanted: &str) -> Result<&'b Row<'a>, Vec<String>> {
    rows.iter().find(|row| row.name() == wanted).ok_or_else(|| vec![format!("Server {wanted} not found")])
}

impl Row<'_> {
    fn name(&self) -> String {
        match self {
            Self::Named { facts, .. } => facts.name.clone(),
            Self::Other(server) => name(server),
        }
    }

    fn process(&self) -> Option<&ServerFacts> {
        match self {
            Self::Named { process, .. } => *process,
            Self::Other(server) => Some(server),
        }
    }

    /// What it does; one without a process says why.
    fn status(&self, snapshot: &Snapshot) -> &'static str {
        if let Some(server) = self.process() {
            return status(server.phase);
        }
        let name = self.name();
        let mut own = snapshot.domains.iter().filter(|domain| {
            domain.entrance.as_ref().is_some_and(|entrance| entrance.server == name && is_default(entrance))
        });
        match own.find(|domain| domain.phase != DomainPhase::Idle).map(|domain| domain.phase) {
            None | Some(DomainPhase::Idle) => "Idle",
            Some(DomainPhase::Broken) => "Failed",
            Some(_) => "Initializing",
        }
    }

    fn directory(&self, snapshot: &Snapshot, namespace: &str) -> String {
        let root = harmless(&snapshot.daemon.pipe_directory);
        match self {
            Self::Named { facts, .. } if namespace == DEFAULT_NAMESPACE => format!("{root}/{}", facts.name),
            Self::Named { facts, .. } => format!("{root}/{}/{namespace}", facts.name),
            Self::Other(_) => root,
        }
    }

    fn fields(&self, snapshot: &Snapshot) -> Vec<String> {
        let fields = ServerField::ALL.iter().map(|field| self.value(snapshot, *field));
        fields.chain([NOTHING.to_owned()]).collect()
    }

    fn value(&self, snapshot: &Snapshot, field: ServerField) -> String {
        match field {
            ServerField::Name => self.name(),
            ServerField::Uid => match self {
                Self::Named { facts, .. } => or_nothing(facts.uid),
                Self::Other(server) => server.uid.to_string(),
            },
            ServerField::Pid => or_nothing(self.process().and_then(|server| server.pid)),
            ServerField::Status => self.status(snapshot).to_owned(),
            ServerField::PipeDirectory => self.directory(snapshot, DEFAULT_NAMESPACE),
            ServerField::AllowedDevices => {
                let given = match self {
                    Self::Named { facts, .. } => facts.devices.clone(),
                    Self::Other(server) => server.gpus.iter().map(Gpu::to_string).collect(),
                };
                harmless(&given.join(" "))
            }
        }
    }

    fn spaces(&self) -> Vec<Space> {
        match self {
            Self::Named { facts, .. } => {
                let space = |space: &NamespaceFacts| Space {
                    name: space.name.clone(),
                    memory: space.memory_bytes,
                    percentage: Some(space.thread_percentage),
                    priority: Some(space.priority),
                };
                facts.namespaces.iter().map(space).collect()
            }
            // What its processes were told is for the second interface's commands to say.
            Self::Other(_) => {
                vec![Space { name: DEFAULT_NAMESPACE.to_owned(), memory: None, percentage: None, priority: None }]
            }
        }
    }

    fn space_value(&self, snapshot: &Snapshot, space: &Space, field: NamespaceField) -> String {
        match field {
            NamespaceField::Name => space.name.clone(),
            NamespaceField::Server => self.name(),
            NamespaceField::ServerStatus => self.status(snapshot).to_owned(),
            NamespaceField::PinnedMemoryLimit => or_nothing(space.memory.map(|bytes| shown_memory(MemLimit(bytes)))),
            NamespaceField::ActiveThreadPercentage => or_nothing(space.percentage.map(|share| format!("{share:.2}"))),
            NamespaceField::ClientPriority => or_nothing(space.priority),
            NamespaceField::PipeDirectory => self.directory(snapshot, &space.name),
        }
    }
}

/// The name of a server that nobody has named; of one that somebody has, that.
fn name(server: &ServerFacts) -> String {
    let ServerFacts { uid, epoch, domain, entrance, .. } = server;
    match entrance {
        Some(entrance) => entrance.server.clone(),
        None if takes_newcomers(server) && *domain == format!("user {uid}") => format!("uid_{uid}"),
        None => format!("uid_{uid}_{}", epoch.0),
    }
}

fn server_of<'a>(snapshot: &'a Snapshot, client: &ClientFacts) -> Option<&'a ServerFacts> {
    let pid: Pid = client.server?;
    snapshot.servers.iter().find(|server| server.pid == Some(pid))
}

fn status(phase: ServerPhase) -> &'static str {
    match phase {
        ServerPhase::Initializing => "Initializing",
        ServerPhase::Active => "Ready",
        ServerPhase::Standby => "Standby",
        ServerPhase::Draining => "Draining",
        ServerPhase::Fault => "Fault",
        ServerPhase::Ending => "Ending",
    }
}

fn client_value(snapshot: &Snapshot, client: &ClientFacts, field: ClientField) -> String {
    let of_gpus = |value: &dyn Fn(&GpuFacts) -> Option<String>| {
        let known = |gpu: &Gpu| snapshot.gpus.iter().find(|known| known.uuid == gpu.uuid());
        let values = client.gpus.iter().flatten().map(|gpu| or_nothing(known(gpu).and_then(value)));
        harmless(&values.collect::<Vec<_>>().join(" "))
    };
    match field {
        ClientField::Pid => client.process.pid.to_string(),
        ClientField::Server => or_nothing(server_of(snapshot, client).map(name)),
        ClientField::Device => of_gpus(&|gpu| Some(gpu.index.to_string())),
        // As `device_query` and the driver's own tools have it, with the function, which is always 0.
        ClientField::PciId => of_gpus(&|gpu| gpu.bus.as_ref().map(|bus| format!("{bus}.0"))),
        ClientField::LinuxNamespace => or_nothing(client.pid_namespace),
        ClientField::Namespace => {
            let entrance = server_of(snapshot, client).and_then(|server| server.entrance.as_ref());
            entrance.map_or(DEFAULT_NAMESPACE, |entrance| &entrance.namespace).to_owned()
        }
        ClientField::Command => harmless(&client.identity.command),
    }
}

/// A table as wide as it is, or values with commas between them. The one value that may have a comma itself, a command
/// line, is the last one of its row.
pub(crate) fn listed(columns: &[&str], rows: Vec<Vec<String>>, format: Format) -> Vec<String> {
    let mut lines = if format.csv {
        let header = columns.iter().map(|&column| column.to_owned()).collect();
        std::iter::once(header).chain(rows).map(|row: Vec<String>| row.join(",")).collect()
    } else {
        let heading: Vec<String> = columns.iter().map(|column| column.replace('-', " ").to_uppercase()).collect();
        aligned(&heading.iter().map(String::as_str).collect::<Vec<_>>(), &rows, Form::Wide)
    };
    if !format.header {
        lines.remove(0);
    }
    lines
}

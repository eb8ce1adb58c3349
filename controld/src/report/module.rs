//! `server list`, `server get`, `client list` and `client get` of release 615's third interface.
//!
//! Nobody names a server here: the one that takes a user's newcomers who have nothing else in common is `uid_UID`, as 615
//! calls a user's own, and any other has the number of its start behind that, `uid_1000_7`. So a server that gets no client
//! any more leaves its name to the one in its place.
//!
//! The order of the columns and the status `Ready` are the manual's; the words for what a server does else are ours, since
//! the manual has none.

use super::Viewer;
use super::client::client_not_found;
use super::table::aligned;
use super::text::{NOTHING, harmless, or_nothing};
use crate::core::picture::{ClientFacts, ClientPhase, ServerFacts, ServerPhase, Snapshot};
use crate::core::{Gpu, Pid};
use remps_proto::admin::Form;
use remps_proto::admin::module::{ClientField, DEFAULT_NAMESPACE, Format, Query, ServerField};
use remps_proto::admin::report::usage;

/// The columns, as the manual names them.
const SERVERS: [&str; 7] = ["name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids"];
const CLIENTS: [&str; 5] = ["pid", "server", "device", "namespace", "cmd"];

/// The answer to a question of the third interface.
///
/// # Errors
/// What is answered where what is named does not exist, or not for this viewer.
pub(crate) fn module(snapshot: &Snapshot, viewer: Viewer, query: &Query) -> Result<Vec<String>, Vec<String>> {
    let servers = snapshot.servers.iter().filter(|server| viewer.may_see(server.uid));
    let found = |wanted: &String| {
        let mut seen = snapshot.servers.iter().filter(|server| viewer.may_see(server.uid));
        seen.find(|server| name(server) == *wanted).ok_or_else(|| vec![format!("Server {wanted} not found")])
    };
    match query {
        Query::Help(module) => Ok(vec![usage(*module)]),
        Query::Servers { name: None, format } => {
            Ok(listed(&SERVERS, servers.map(|server| server_row(snapshot, server)).collect(), *format))
        }
        Query::Servers { name: Some(wanted), format } => {
            Ok(listed(&SERVERS, vec![server_row(snapshot, found(wanted)?)], *format))
        }
        Query::Server { name: wanted, field } => Ok(vec![server_value(snapshot, found(wanted)?, *field)]),
        Query::Clients { server, format } => {
            let only = server.as_ref().map(found).transpose()?.map(|server| server.pid);
            let clients = active(snapshot, viewer).filter(|client| only.is_none_or(|pid| client.server == pid));
            let row = |client| ClientField::ALL.iter().map(|field| client_value(snapshot, client, *field)).collect();
            Ok(listed(&CLIENTS, clients.map(row).collect(), *format))
        }
        Query::Client { pid, field } => {
            let client = active(snapshot, viewer).find(|client| client.process.pid == *pid);
            let client = client.ok_or_else(|| client_not_found(*pid))?;
            Ok(vec![client_value(snapshot, client, *field)])
        }
    }
}

/// The clients that are on a server, of those that somebody may see.
fn active(snapshot: &Snapshot, viewer: Viewer) -> impl Iterator<Item = &ClientFacts> {
    let is_active = |client: &&ClientFacts| client.server.is_some() && client.phase != ClientPhase::Gone;
    snapshot.clients.iter().filter(move |client| viewer.may_see(client.uid)).filter(is_active)
}

fn name(server: &ServerFacts) -> String {
    let ServerFacts { uid, epoch, phase, domain, .. } = server;
    let is_newcomers = matches!(phase, ServerPhase::Initializing | ServerPhase::Active);
    if is_newcomers && *domain == format!("user {uid}") {
        format!("uid_{uid}")
    } else {
        format!("uid_{uid}_{}", epoch.0)
    }
}

fn name_of(snapshot: &Snapshot, pid: Pid) -> String {
    or_nothing(snapshot.servers.iter().find(|server| server.pid == Some(pid)).map(name))
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

fn server_row(snapshot: &Snapshot, server: &ServerFacts) -> Vec<String> {
    let fields = ServerField::ALL.iter().map(|field| server_value(snapshot, server, *field));
    fields.chain([NOTHING.to_owned()]).collect()
}

fn server_value(snapshot: &Snapshot, server: &ServerFacts, field: ServerField) -> String {
    match field {
        ServerField::Name => name(server),
        ServerField::Uid => server.uid.to_string(),
        ServerField::Pid => or_nothing(server.pid),
        ServerField::Status => status(server.phase).to_owned(),
        ServerField::PipeDirectory => harmless(&snapshot.daemon.pipe_directory),
        ServerField::AllowedDevices => harmless(&server.gpus.iter().map(Gpu::to_string).collect::<Vec<_>>().join(" ")),
    }
}

fn client_value(snapshot: &Snapshot, client: &ClientFacts, field: ClientField) -> String {
    match field {
        ClientField::Pid => client.process.pid.to_string(),
        ClientField::Server => client.server.map_or_else(|| NOTHING.to_owned(), |pid| name_of(snapshot, pid)),
        ClientField::Device => {
            let number = |gpu: &Gpu| snapshot.gpus.iter().find(|known| known.uuid == gpu.uuid());
            let numbers = client.gpus.iter().flatten().map(|gpu| or_nothing(number(gpu).map(|known| known.index)));
            harmless(&numbers.collect::<Vec<_>>().join(" "))
        }
        ClientField::Namespace => DEFAULT_NAMESPACE.to_owned(),
        ClientField::Command => harmless(&client.identity.command),
    }
}

/// A table as wide as it is, or values with commas between them. The one value that may have a comma itself, a command
/// line, is the last one of its row.
fn listed(columns: &[&str], rows: Vec<Vec<String>>, format: Format) -> Vec<String> {
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

//! What is in which column of which table.

use super::gather::{Client, Domain, Seen, Server, Verdict};
use crate::report::text::{NOTHING, harmless, mebibytes, or_nothing, span};
use core::cmp::Ordering;
use core::time::Duration;
use std::collections::BTreeMap;

/// A table of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Fault domains.
    Domains,
    /// Servers.
    Servers,
    /// Clients.
    Clients,
}

impl Kind {
    /// All, from top to bottom.
    pub(super) const ALL: [Self; 3] = [Self::Domains, Self::Servers, Self::Clients];

    /// Its columns.
    pub(super) const fn columns(self) -> &'static [Column] {
        match self {
            Self::Domains => &DOMAINS,
            Self::Servers => &SERVERS,
            Self::Clients => &CLIENTS,
        }
    }

    /// What it has rows of.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Domains => "domains",
            Self::Servers => "servers",
            Self::Clients => "clients",
        }
    }
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub name: &'static str,
    /// Whether its values stand at the right.
    pub is_number: bool,
    /// How wide it becomes at the most; the last one takes what is left.
    pub most: usize,
    /// Where not all have room, the one with the highest number goes first; 0 stays.
    pub goes: u8,
}

const fn column(name: &'static str, is_number: bool, most: usize, goes: u8) -> Column {
    Column { name, is_number, most, goes }
}

const DOMAINS: [Column; 8] = [
    column("USER", false, 10, 5),
    column("STATE", false, 20, 0),
    column("SERVER", true, 8, 3),
    column("STANDBY", true, 8, 4),
    column("CLIENTS", true, 9, 0),
    column("WAITING", true, 7, 2),
    column("VERDICT", false, 18, 1),
    column("DOMAIN", false, usize::MAX, 0),
];
const SERVERS: [Column; 9] = [
    column("PID", true, 8, 0),
    column("USER", false, 10, 5),
    column("GPU", true, 8, 4),
    column("GPU-MEM", true, 11, 2),
    column("%THR", true, 5, 3),
    column("CLIENTS", true, 7, 0),
    column("STATE", false, 12, 0),
    column("TIME", true, 8, 6),
    column("DOMAIN", false, usize::MAX, 0),
];
const CLIENTS: [Column; 11] = [
    column("PID", true, 8, 0),
    column("USER", false, 10, 4),
    column("GPU", true, 8, 6),
    column("GPU-MEM", true, 11, 2),
    column("%THR", true, 5, 3),
    column("STATE", false, 9, 0),
    column("SERVER", true, 8, 8),
    column("SPARE", false, 9, 7),
    column("VERDICT", true, 8, 1),
    column("DOMAIN", false, 14, 5),
    column("COMMAND", false, usize::MAX, 0),
];

/// What a cell is sorted by. What is not known comes last in either order.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum By {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// Nothing is known.
    Nothing,
}

impl By {
    /// Which comes first.
    pub(super) fn order(&self, other: &Self, is_reversed: bool) -> Ordering {
        let order = match (self, other) {
            (Self::Nothing, Self::Nothing) => Ordering::Equal,
            (Self::Nothing, _) => return Ordering::Greater,
            (_, Self::Nothing) => return Ordering::Less,
            (Self::Number(one), Self::Number(two)) => one.total_cmp(two),
            (Self::Text(one), Self::Text(two)) => one.cmp(two),
            (Self::Number(_), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(_)) => Ordering::Greater,
        };
        if is_reversed { order.reverse() } else { order }
    }
}

/// How the state of a row is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// All is well.
    Good,
    /// It is on its way.
    Pending,
    /// It is lost.
    Bad,
}

/// A cell: what it shows, and what it is sorted by.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub text: String,
    pub by: By,
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Tells it from others of its table, now and at the next look.
    pub id: String,
    pub cells: Vec<Cell>,
    pub tone: Tone,
}

fn word(text: &str) -> Cell {
    Cell { text: harmless(text), by: if text.is_empty() { By::Nothing } else { By::Text(text.to_lowercase()) } }
}

#[expect(clippy::cast_precision_loss, reason = "numbers are only compared, and are far below 2^52")]
fn number(value: Option<u64>) -> Cell {
    Cell { text: or_nothing(value), by: value.map_or(By::Nothing, |value| By::Number(value as f64)) }
}

fn memory(bytes: Option<u64>) -> Cell {
    Cell { text: or_nothing(bytes.map(mebibytes)).replace(' ', ""), ..number(bytes) }
}

fn percent(share: Option<f64>) -> Cell {
    // Two digits behind the point are more than a share of threads has.
    let text = share.map(|share| format!("{share:.1}").trim_end_matches(".0").to_owned());
    Cell { text: or_nothing(text), by: share.map_or(By::Nothing, By::Number) }
}

/// GPUs by their numbers, where those are known, else by the beginning of their names.
fn gpus(seen: &Seen, uuids: &[String]) -> Cell {
    let name = |uuid: &String| {
        let (gpu, instance) = uuid.split_once('/').map_or((uuid.as_str(), None), |(gpu, rest)| (gpu, Some(rest)));
        let index = seen.gpus.iter().find(|known| known.uuid == gpu).map(|known| known.index.to_string());
        let name = index.unwrap_or_else(|| gpu.strip_prefix("GPU-").unwrap_or(gpu).chars().take(6).collect());
        instance.map_or(name.clone(), |_| format!("{name}/MIG"))
    };
    let names: Vec<String> = uuids.iter().map(name).collect();
    let only = if let [gpu] = seen.gpus.as_slice() { Some(gpu.index.to_string()) } else { None };
    // A machine with one GPU is not told for each server which one it has.
    let text = if names.is_empty() { only.unwrap_or_default() } else { names.join(",") };
    word(&text)
}

fn tone(phase: &str) -> Tone {
    match phase {
        "lost" | "fault" | "broken" => Tone::Bad,
        "live" | "active" | "serving" | "standby" | "idle" => Tone::Good,
        _ => Tone::Pending,
    }
}

impl Seen {
    /// How a user is shown.
    pub(super) fn user(&self, uid: u32) -> String {
        self.users.get(&uid).map_or_else(|| uid.to_string(), |name| harmless(name))
    }

    /// The rows of a table, in the daemon's order.
    pub(super) fn rows(&self, kind: Kind) -> Vec<Row> {
        match kind {
            Kind::Domains => {
                let mut latest = BTreeMap::new();
                for verdict in self.verdicts.iter().rev() {
                    latest.insert(verdict.domain.as_str(), verdict);
                }
                self.domains.iter().map(|domain| self.domain(domain, latest.get(domain.name.as_str()))).collect()
            }
            Kind::Servers => self.servers.iter().map(|server| self.server(server)).collect(),
            Kind::Clients => {
                let gpus: BTreeMap<u32, &[String]> =
                    self.servers.iter().filter_map(|server| Some((server.pid?, server.gpus.as_slice()))).collect();
                self.clients.iter().map(|client| self.client(client, &gpus)).collect()
            }
        }
    }

    fn domain(&self, domain: &Domain, verdict: Option<&&Verdict>) -> Row {
        let state = if domain.quarantined { format!("{}, quarantine", domain.phase) } else { domain.phase.clone() };
        let most = domain.max_clients.map(|most| format!("/{most}")).unwrap_or_default();
        let clients = number(Some(domain.clients as u64));
        let verdict = verdict.map_or_else(
            || number(None),
            |verdict| {
                let whom = verdict.culprit.as_ref().map(|culprit| format!(": {}", culprit.pid)).unwrap_or_default();
                Cell { text: format!("{}{whom}", verdict.number), ..number(Some(verdict.number)) }
            },
        );
        let cells = vec![
            word(&self.user(domain.uid)),
            word(&state),
            number(domain.server.map(u64::from)),
            number(domain.standby.map(u64::from)),
            Cell { text: format!("{}{most}", clients.text), ..clients },
            number(Some(domain.waiting as u64)),
            verdict,
            word(&domain.name),
        ];
        Row { id: domain.name.clone(), cells, tone: tone(&domain.phase) }
    }

    fn server(&self, server: &Server) -> Row {
        let ready = server.ready_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let cells = vec![
            number(server.pid.map(u64::from)),
            word(&self.user(server.uid)),
            gpus(self, &server.gpus),
            memory(server.memory_bytes),
            percent(server.threads),
            number(Some(server.clients as u64)),
            word(&server.phase),
            Cell {
                text: ready.map_or_else(|| NOTHING.to_owned(), span),
                by: server.ready_s.map_or(By::Nothing, By::Number),
            },
            word(&server.domain),
        ];
        Row { id: or_nothing(server.pid), cells, tone: tone(&server.phase) }
    }

    fn client(&self, client: &Client, of_servers: &BTreeMap<u32, &[String]>) -> Row {
        let of_server = client.server.and_then(|pid| of_servers.get(&pid).copied()).unwrap_or_default();
        let spare = client.spare.as_ref().map(|spare| match (spare.ready, spare.behind) {
            (false, _) => "making".to_owned(),
            (true, 0) => "ready".to_owned(),
            (true, behind) => format!("{behind} behind"),
        });
        let gpus = if client.server.is_none() && client.gpus.is_none() {
            word("")
        } else {
            gpus(self, client.gpus.as_deref().unwrap_or(of_server))
        };
        let own_pid = Some(client.process.pid).filter(|pid| *pid != 0);
        let cells = vec![
            number(own_pid.map(u64::from)),
            word(&self.user(client.uid)),
            gpus,
            memory(client.memory_bytes),
            percent(client.threads),
            word(&client.phase),
            number(client.server.map(u64::from)),
            word(&spare.unwrap_or_default()),
            number(client.verdicts.last().copied()),
            word(&client.domain),
            word(&client.identity.command),
        ];
        let id = own_pid.map(|pid| pid.to_string()).unwrap_or_default();
        Row { id, cells, tone: tone(&client.phase) }
    }
}

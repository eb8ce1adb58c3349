//! What the daemon knows of its clients, asked with the commands that every release and the vendor's daemon have.

use crate::ui::{self, Answer, Unanswered};
use std::path::Path;
use std::time::Duration;

/// How long one answer may take, which takes some 10 ms, or as long as a busy server takes to look up.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long a termination may take: the daemon waits 5 s for the server, and may end that then.
const TERMINATION_LIMIT: Duration = Duration::from_secs(10);
/// Words of a row of `ps` before the command, of which there may be none.
const PS_WORDS: usize = 5;
/// What `terminate_client` answers when it is done.
const TERMINATED: &str = "0";

/// A client, by the daemon's pids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Client {
    /// Its process.
    pub(super) pid: u32,
    pub(super) server: u32,
    /// The inode of its pid namespace, where the daemon could read it.
    pub(super) namespace: Option<u64>,
}

/// All clients of a daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Clients {
    /// Each process once for each of its servers.
    pub(super) all: Vec<Client>,
    /// The daemon that has answered, as this process sees it; 0 when it can't.
    pub(super) speaker: u32,
}

/// Why a client could not be terminated.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TerminateError {
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    #[error("the daemon refuses to terminate it: {0}")]
    Refused(String),
}

impl Clients {
    /// Asks for servers, their clients and, for the namespaces, the table of `ps`.
    ///
    /// # Errors
    /// When no daemon answers.
    pub(super) fn ask(pipe_dir: &Path) -> Result<Self, Unanswered> {
        let Answer { text: servers, speaker } = ui::ask(pipe_dir, "get_server_list", ANSWER_LIMIT)?;
        let table = ui::ask(pipe_dir, "ps", ANSWER_LIMIT)?.text;
        let mut all = parse_table(&table);
        // `ps` lists contexts: a client that has none yet, or none any more, is in its server's list alone.
        for server in numbers(&servers) {
            let listed = ui::ask(pipe_dir, &format!("get_client_list {server}"), ANSWER_LIMIT)?.text;
            for pid in numbers(&listed) {
                if !all.iter().any(|client| client.pid == pid && client.server == server) {
                    all.push(Client { pid, server, namespace: None });
                }
            }
        }
        Ok(Self { all, speaker })
    }

    /// The client with this pid, as the daemon counts.
    pub(super) fn find(&self, pid: u32) -> Option<&Client> {
        self.all.iter().find(|client| client.pid == pid)
    }
}

/// Ends a client's work. The process lives on and gets `CUDA_ERROR_MPS_CLIENT_TERMINATED`.
///
/// # Errors
/// When no daemon answers, or it refuses. One that has left meanwhile is no error.
pub(super) fn terminate(pipe_dir: &Path, client: &Client) -> Result<(), TerminateError> {
    let Client { pid, server, .. } = client;
    let answer = ui::ask(pipe_dir, &format!("terminate_client {server} {pid}"), TERMINATION_LIMIT)?.text;
    if answer.trim() == TERMINATED {
        return Ok(());
    }
    let listed = ui::ask(pipe_dir, &format!("get_client_list {server}"), ANSWER_LIMIT)?.text;
    if numbers(&listed).any(|listed| listed == *pid) {
        let reason: Vec<&str> = answer.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        return Err(TerminateError::Refused(reason.join("; ")));
    }
    Ok(())
}

/// Lines that are a number; what a daemon says otherwise, such as `Server 7 not found`, is none.
fn numbers(text: &str) -> impl Iterator<Item = u32> {
    text.lines().filter_map(|line| line.trim().parse().ok())
}

/// The rows of `ps`, one for each process and server.
pub(super) fn parse_table(table: &str) -> Vec<Client> {
    let mut clients: Vec<Client> = Vec::new();
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().take(PS_WORDS).collect();
        let [pid, _context, server, _device, namespace] = words.as_slice() else { continue };
        let (Ok(pid), Ok(server)) = (pid.parse(), server.parse()) else { continue };
        if !clients.iter().any(|client| client.pid == pid && client.server == server) {
            clients.push(Client { pid, server, namespace: namespace.parse().ok() });
        }
    }
    clients
}

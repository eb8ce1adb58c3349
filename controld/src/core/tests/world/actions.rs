//! What can happen in the world.

/// What the operators of the world type; `{S}` is a server's pid, `{C}` a client's.
pub(in crate::core::tests) const COMMANDS: &[&str] = &[
    "get_server_list",
    "get_server_status {S}",
    "get_client_list {S}",
    "ps",
    "ps -p {S}",
    "get_device_client_list",
    "device_query",
    "set_default_active_thread_percentage 40",
    "set_default_device_pinned_mem_limit 0 1G",
    "set_default_client_priority 1",
    "set_active_thread_percentage {S} 50",
    "get_device_pinned_mem_limit {S} 0",
    "set_device_pinned_mem_limit {S} 0 2G",
    "terminate_client {S} {C}",
    "shutdown_server {S}",
    "shutdown_server {S} -f",
    "start_server -uid 1000",
    "start_server -uid 0",
    "status",
    "nonsense",
];

/// What root changes.
pub(in crate::core::tests) const CHANGES: &[&str] = &[
    "server create a",
    "server create b --uid=1000",
    "server create --uid=1000",
    "server create c --allowed-devices=1",
    "server create d --allowed-devices=7",
    "namespace create n --server=a",
    "namespace create m --server=a",
    "namespace create n --server=b",
    "namespace set n --server=a --active-thread-percentage=30 --pinned-memory-limit=1G",
    "server set a --pinned-memory-limit=2G --client-priority=1",
    "server set b --uid=1001",
    "namespace delete n --server=a",
    "namespace delete n --server=a --force",
    "namespace delete m --server=a --force",
    "server delete a",
    "server delete a --force",
    "server delete b --force",
    "server delete uid_1000 --force",
    "server list",
    "namespace list",
    "device list",
];

#[derive(Debug, Clone)]
pub(in crate::core::tests) enum Action {
    ClientArrives {
        uid: u32,
        slot: u32,
    },
    /// The same by the socket of a namespace, if there is one.
    ClientComesTo {
        uid: u32,
        slot: u32,
        entrance: usize,
    },
    /// Root changes named servers and namespaces.
    Names(usize),
    OpeningWorks(bool),
    /// A thin daemon joins.
    Joins {
        claim: usize,
        is_same_place: bool,
    },
    ThinDies(usize),
    ThinLeaves(usize),
    /// Somebody types something in its directory.
    ThinIsTold {
        index: usize,
        line: usize,
    },
    /// Changes of named servers are kept on disk from now on.
    Keeps,
    ClientFinishes(usize),
    ProcessEnds(usize),
    ServerHello(usize),
    /// A server takes in a client that it was told of.
    ServerGreets(usize),
    ServerDies {
        index: usize,
        status: i32,
    },
    SpawningWorks(bool),
    ServerAnswers(usize),
    ServerIsSilent(usize),
    /// The driver has told all that had come when it was asked to.
    CatchesUp(usize),
    Command {
        uid: u32,
        command: usize,
    },
    TimePasses(u64),
    /// A client's tools queue has a fault: its server is lost, and so are all of its clients.
    MemoryFault(usize),
    /// A server is lost, and says something in its log, right or wrong about who.
    Exception {
        server: usize,
        named: usize,
    },
    /// A client says how far it is with going on after a fault, right or wrong.
    RecoveryStands {
        index: usize,
        stage: u32,
    },
    /// Somebody writes records in a server's name, of a fault that there was not or of another one's doing, as many as he
    /// likes: the first names this process, the next ones others.
    ForgedRecords {
        server: usize,
        named: Option<u32>,
        count: u16,
    },
    /// The patched module has isolated a fault.
    IsolatedFault(usize),
    /// It tells that an address space is there, or gone.
    AddressSpace {
        index: usize,
        there: bool,
    },
    /// A client dies in the middle of its work.
    SuddenDeath(usize),
    /// The daemon is killed, and a successor takes over.
    Restart,
}

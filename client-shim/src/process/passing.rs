//! Descriptors that another process of the same user asks for: how memory and events are shared by IPC handles.
//!
//! A process that has given out a handle listens at an abstract socket whose name nobody can guess and the handle says.
//! Whoever connects asks for one thing by its number, one packet, and is given its descriptor, one packet. The
//! kernel says whose process either end is; another user's gets nothing, and is not asked. A thread answers, one peer
//! after the other, each within [`PATIENCE`]; a forked child has no part in it.
use std::{
    io::{self, Read as _},
    os::fd::RawFd,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, setsockopt,
            socket, sockopt,
        },
        time::{TimeVal, TimeValLike},
    },
    unistd::geteuid,
};

use super::{
    descriptors::Held,
    glibc,
    packets::{self, borrowed},
};

/// How long a peer may take for its packet, and a process for its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks for a peer while the process may have no more descriptors.
const WITHOUT_ROOM: Duration = Duration::from_millis(10);
/// Peers that may wait.
const WAITING: i32 = 64;

/// What nobody can guess of a socket's name.
pub(crate) type Secret = [u8; 16];

/// Finds something by its number, as a copy of its descriptor.
type Find = fn(u64) -> Option<Held>;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A piece of memory.
    Memory,
    /// What belongs to events: the numbers from [`EVENTS`] on.
    Events,
}

/// The first number of what belongs to events. No piece of memory has one that high.
pub(crate) const EVENTS: u64 = 1 << 63;

static MEMORY: OnceLock<Find> = OnceLock::new();
static OF_EVENTS: OnceLock<Find> = OnceLock::new();

/// This process's own, once it listens.
static OWN: Mutex<Option<Secret>> = Mutex::new(None);

impl Kind {
    const fn of(number: u64) -> Self {
        if number < EVENTS { Self::Memory } else { Self::Events }
    }

    const fn finder(self) -> &'static OnceLock<Find> {
        match self {
            Self::Memory => &MEMORY,
            Self::Events => &OF_EVENTS,
        }
    }
}

fn found(number: u64) -> Option<Held> {
    Kind::of(number).finder().get().and_then(|find| find(number))
}

fn own() -> MutexGuard<'static, Option<Secret>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name_of(secret: Secret) -> String {
    secret.iter().fold("remps-ipc-".to_owned(), |name, byte| name + &format!("{byte:02x}"))
}

fn address_of(secret: Secret) -> io::Result<UnixAddr> {
    Ok(UnixAddr::new_abstract(name_of(secret).as_bytes())?)
}

/// Whether a secret is this process's own.
pub(crate) fn is_own(secret: Secret) -> bool {
    *own() == Some(secret)
}

/// Answers peers from now on, by what is found of this kind; what its socket is called. The first finder stays.
pub(crate) fn listening(kind: Kind, find: Find) -> io::Result<Secret> {
    let _first = kind.finder().get_or_init(|| find);
    let mut own = own();
    if let Some(own) = *own {
        return Ok(own);
    }
    let mut secret = Secret::default();
    std::fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let door = open(SockFlag::SOCK_NONBLOCK)?;
    let number = door.number().ok_or(Errno::EBADF)?;
    bind(number, &address_of(secret)?)?;
    listen(&borrowed(number), Backlog::new(WAITING)?)?;
    if !glibc::detached_thread(Box::new(move || serve(&door))) {
        return Err(io::Error::other("no thread could be started"));
    }
    *own = Some(secret);
    Ok(secret)
}

/// A socket among our descriptors: one that a forked child closes.
fn open(how: SockFlag) -> io::Result<Held> {
    Held::made(|| socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC | how, None))
}

/// Nothing that is sent here, and no connection, is waited for longer than that.
fn limit(socket: RawFd) -> io::Result<()> {
    let limit = TimeVal::seconds(i64::try_from(PATIENCE.as_secs()).unwrap_or(1));
    Ok(setsockopt(&borrowed(socket), sockopt::SendTimeout, &limit)?)
}

/// Whether the other end is this user's.
fn is_mine(socket: RawFd) -> io::Result<bool> {
    Ok(getsockopt(&borrowed(socket), sockopt::PeerCredentials)?.uid() == geteuid().as_raw())
}

fn serve(door: &Held) {
    while let Some(number) = door.number() {
        match packets::accept(number) {
            // Who goes away, asks for nothing or says nothing is done with.
            Ok(peer) => drop(answer(&peer)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::ECONNABORTED) => {}
                // Without descriptors to spare there is nothing to give; the next one may have more luck.
                None | Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    thread::park_timeout(WITHOUT_ROOM);
                }
                Some(_) => return,
            },
        }
    }
}

fn answer(peer: &Held) -> io::Result<()> {
    let peer = peer.number().ok_or(Errno::EBADF)?;
    limit(peer)?;
    if !is_mine(peer)? {
        return Ok(());
    }
    let (asked, _) = receive(peer)?;
    let found = found(asked);
    let number = found.as_ref().and_then(Held::number);
    packets::send(peer, &u64::from(number.is_some()).to_le_bytes(), number)
}

/// Asks the process that has this socket for what has this number.
pub(crate) fn ask(secret: Secret, piece: u64) -> io::Result<Held> {
    let peer = open(SockFlag::empty())?;
    let number = peer.number().ok_or(Errno::EBADF)?;
    // A handle that somebody has made up may name a socket at which nobody takes anybody in.
    limit(number)?;
    connect(number, &address_of(secret)?)?;
    if !is_mine(number)? {
        return Err(io::Error::other("another user's process has the socket"));
    }
    packets::send(number, &piece.to_le_bytes(), None)?;
    receive(number)?.1.ok_or_else(|| io::Error::other("the memory is there no longer"))
}

fn receive(socket: RawFd) -> io::Result<(u64, Option<Held>)> {
    let mut word = [0; 8];
    let packet = packets::receive(socket, &mut word, Instant::now() + PATIENCE)?;
    let is_whole = packet.length == word.len() && !packet.is_cut;
    if is_whole { Ok((u64::from_le_bytes(word), packet.descriptor)) } else { Err(Errno::EBADMSG.into()) }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::Write as _,
        os::{
            fd::IntoRawFd,
            linux::net::SocketAddrExt,
            unix::net::{SocketAddr, UnixStream},
        },
    };

    use super::{EVENTS, Held, Kind, SockFlag, ask, borrowed, is_own, listening, name_of};

    fn find(piece: u64) -> Option<Held> {
        (piece == 7).then(|| Held::for_the_vault(File::open("/proc/self/comm").unwrap().into_raw_fd()).unwrap())
    }

    #[test]
    fn a_socket_at_which_nobody_is_taken_in_is_waited_for_only_so_long() {
        // Names are the whole machine's, on which this may run twice at a time.
        let secret = u128::from(std::process::id()).to_ne_bytes();
        let door = super::open(SockFlag::empty()).unwrap();
        super::bind(door.number().unwrap(), &super::address_of(secret).unwrap()).unwrap();
        super::listen(&borrowed(door.number().unwrap()), super::Backlog::new(0).unwrap()).unwrap();
        // The only place where one waits is taken.
        let first = super::open(SockFlag::empty()).unwrap();
        super::connect(first.number().unwrap(), &super::address_of(secret).unwrap()).unwrap();
        let begun = super::Instant::now();
        assert!(ask(secret, 7).is_err());
        assert!(begun.elapsed() >= super::PATIENCE, "it is waited for");
    }

    #[test]
    fn a_descriptor_is_given_to_whoever_knows_the_name_and_the_number() {
        let secret = listening(Kind::Memory, find).expect("it listens");
        assert_eq!(listening(Kind::Memory, find).expect("it listens already"), secret);
        assert!(ask(secret, EVENTS + 7).is_err(), "nothing of events is found yet");
        assert_eq!(listening(Kind::Events, |number| find(number - EVENTS)).expect("for events too"), secret);
        assert!(ask(secret, EVENTS + 7).is_ok() && ask(secret, EVENTS).is_err());
        assert!(is_own(secret) && !is_own([0; 16]));
        let given = ask(secret, 7).expect("it is there");
        let mut given = File::from(borrowed(given.number().unwrap()).try_clone_to_owned().unwrap());
        assert!(std::io::read_to_string(&mut given).unwrap().len() > 1);
        assert!(given.write_all(b"x").is_err(), "it is the very file, opened for reading");
        assert_eq!(ask(secret, 8).unwrap_err().to_string(), "the memory is there no longer");
        assert!(ask([0; 16], 7).is_err(), "nobody listens");
        // Who comes by another kind of socket is refused by the kernel, and who leaves at once keeps nobody waiting.
        let address = SocketAddr::from_abstract_name(name_of(secret)).unwrap();
        assert!(UnixStream::connect_addr(&address).is_err());
        drop(super::open(SockFlag::empty()).unwrap());
        assert!(ask(secret, 7).is_ok());
    }
}

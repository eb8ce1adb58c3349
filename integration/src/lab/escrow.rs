//! The preload library's side of the vault, spoken by hand: asks the daemon, and knows its memory again.
//!
//! Memory is a memory file, as the simulated driver's is, filled with words that follow from a seed, so that it is known
//! to be the same to the bit.

use super::client::Connection;
use remps_proto::shim::{Answer, Ask, Capabilities, Failure, FromShim, Region, SOCKET_NAME, ToShim, VERSION, Welcome};
use sim_wire::memory_file::memory_file;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A daemon with this variable takes memory files for the driver's memory.
pub const TAKES_MEMORY_FILES: (&str, &str) = ("MPS_TEST_VAULT_MEMFD", "1");
/// Bytes of a region: the driver's granularity.
pub const REGION_BYTES: usize = 2 << 20;
/// The simulated GPU.
const GPU: &str = "GPU-5e90f0d2-1111-2222-3333-444455556666";

/// Memory with words that follow from a seed.
///
/// # Panics
/// When there is no memory to be had.
#[must_use]
pub fn memory(seed: u64) -> File {
    let mut file = memory_file("nvidia-vmm").expect("a memory file");
    file.write_all(&words(seed)).expect("memory");
    file
}

fn words(seed: u64) -> Vec<u8> {
    (0..REGION_BYTES as u64 / 8).flat_map(|at| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at).to_le_bytes()).collect()
}

/// Whether memory is that of a seed, to the bit.
#[must_use]
pub fn is_intact(memory: OwnedFd, seed: u64) -> bool {
    let (mut file, mut bytes) = (File::from(memory), Vec::new());
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
    read.is_ok() && bytes == words(seed)
}

/// A region of this key and name, as an escrow describes it.
#[must_use]
pub fn region(key: u64, name: &str) -> Region {
    Region {
        key,
        name: name.to_owned(),
        gpu: GPU.to_owned(),
        bytes: REGION_BYTES as u64,
        address: 0x7000_0000_0000 + key * REGION_BYTES as u64,
        handle_type: 1,
        ..Region::default()
    }
}

/// An answer with its descriptor.
pub type Told = (Answer, Option<OwnedFd>);

/// A connection to the vault.
#[derive(Debug)]
pub struct Shim {
    connection: Connection,
    requests: u64,
    news: VecDeque<Answer>,
}

impl Shim {
    /// Connects without a word.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn silent(pipe_dir: &Path) -> io::Result<Self> {
        Ok(Self { connection: Connection::open(&pipe_dir.join(SOCKET_NAME))?, requests: 0, news: VecDeque::new() })
    }

    /// Connects and says hello.
    ///
    /// # Errors
    /// When the daemon does not answer with a welcome.
    pub fn greeted(pipe_dir: &Path) -> io::Result<(Self, Welcome)> {
        let mut shim = Self::silent(pipe_dir)?;
        let hello = Ask::Hello { version: VERSION, capabilities: Capabilities::VAULT };
        match shim.ask(hello, None)?.pop() {
            Some((Answer::Welcome(welcome), None)) => Ok((shim, welcome)),
            other => Err(io::Error::other(format!("no welcome but {other:?}"))),
        }
    }

    /// The bare connection.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Asks, and waits for all that is answered.
    ///
    /// # Errors
    /// When the daemon closes the connection or says something else.
    pub fn ask(&mut self, ask: Ask, descriptor: Option<BorrowedFd<'_>>) -> io::Result<Vec<Told>> {
        let request = self.begin(ask, descriptor)?;
        self.answers(request)
    }

    /// Asks, and does not wait; the number of the request.
    ///
    /// # Errors
    /// When the daemon has closed the connection.
    pub fn begin(&mut self, ask: Ask, descriptor: Option<BorrowedFd<'_>>) -> io::Result<u64> {
        self.requests += 1;
        let packet = FromShim { request: self.requests, ask }.encode().map_err(io::Error::other)?;
        self.connection.send_with(&packet, descriptor.as_slice())?;
        Ok(self.requests)
    }

    /// What nobody has asked for, in order.
    ///
    /// # Errors
    /// When the daemon closes the connection, or answers a request.
    pub fn news(&mut self) -> io::Result<Answer> {
        match self.news.pop_front() {
            Some(news) => Ok(news),
            None => match self.packet()? {
                (0, (news, None)) => Ok(news),
                other => Err(io::Error::other(format!("no news but {other:?}"))),
            },
        }
    }

    /// Whether something has come before the last answer that nobody has asked for and nobody has read.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    fn packet(&self) -> io::Result<(u64, Told)> {
        let mut packet = self.connection.receive()?;
        if packet.bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let ToShim { request, answer } = ToShim::decode(&packet.bytes).map_err(io::Error::other)?;
        Ok((request, (answer, packet.descriptors.pop())))
    }

    /// Reads answers up to the last.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn answers(&mut self, request: u64) -> io::Result<Vec<Told>> {
        let mut all = Vec::new();
        loop {
            let (answered, (answer, descriptor)) = self.packet()?;
            if answered == 0 && matches!(answer, Answer::Epoch { .. }) {
                self.news.push_back(answer);
                continue;
            }
            if answered != request {
                return Err(io::Error::other(format!("answer {answered} to request {request}: {answer:?}")));
            }
            let is_last = answer.is_last();
            all.push((answer, descriptor));
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Why a request is refused.
    ///
    /// # Panics
    /// When it is not.
    pub fn refused(&mut self, ask: Ask, descriptor: Option<BorrowedFd<'_>>) -> Failure {
        match self.ask(ask, descriptor).expect("an answer").pop() {
            Some((Answer::Failed(failure), None)) => failure,
            other => panic!("not refused but {other:?}"),
        }
    }

    /// Has a region kept.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn escrow(&mut self, key: u64, name: &str, seed: u64) -> io::Result<Answer> {
        let memory = memory(seed);
        let mut told = self.ask(Ask::Escrow(region(key, name)), Some(memory.as_fd()))?;
        told.pop().map(|(answer, _)| answer).ok_or_else(|| io::Error::other("no answer"))
    }
}

/// A program that asks until it is answered, as the library does: the daemon may die between doing and answering.
#[derive(Debug)]
pub struct Patient {
    pipe_dir: PathBuf,
    shim: Option<Shim>,
    limit: Duration,
}

impl Patient {
    /// One that gives up after a time.
    #[must_use]
    pub fn new(pipe_dir: &Path, limit: Duration) -> Self {
        Self { pipe_dir: pipe_dir.to_owned(), shim: None, limit }
    }

    /// Asks, again after every lost connection.
    ///
    /// # Errors
    /// The last one, when the time is over.
    pub fn ask(&mut self, ask: &Ask, descriptor: Option<BorrowedFd<'_>>) -> io::Result<Vec<Told>> {
        let deadline = Instant::now() + self.limit;
        loop {
            match self.try_once(ask, descriptor) {
                Ok(told) => return Ok(told),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => self.shim = None,
            }
            super::watch::wait_a_little(&self.pipe_dir);
        }
    }

    fn try_once(&mut self, ask: &Ask, descriptor: Option<BorrowedFd<'_>>) -> io::Result<Vec<Told>> {
        if self.shim.is_none() {
            self.shim = Some(Shim::greeted(&self.pipe_dir)?.0);
        }
        match &mut self.shim {
            Some(shim) => shim.ask(ask.clone(), descriptor),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

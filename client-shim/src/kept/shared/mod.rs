//! Events shared between processes: `cuIpcGetEventHandle`, `cuIpcOpenEventHandle`, and what is done with such events.
//!
//! The driver's own way ends with the driver's copy on either side. So an event that is exported has a place in a page of
//! memory which both processes map and have registered with the driver ([`slot`]), so that it is one of the things that a
//! fresh copy is given again:
//!
//! | a call | is |
//! |---|---|
//! | a record, by who has made the event | the driver's record, and behind it three writes of the record's number, by the stream: in a page that no other process has, in the shared one, and in another one of the first kind |
//! | a wait by a stream of who has opened it | the stream's wait for the number of the last record |
//! | a question, or a wait of the host | a look at the page |
//! | what else has to do with an event of another process, or records one beside a stream's order | refused, by name |
//!
//! A handle says where its process can be asked for the page ([`passing`](crate::process::passing)). That process is
//! watched as long as its events are in use ([`watch`]), by a pipe that hangs up at its end.
//!
//! **What was lost.** A record whose number had not come when the context died may be behind lost work. The owner's
//! recovery says in the page which records those are, and only then writes their numbers, so that nobody waits for ever.
//! Who has opened the event looks, when a call of its own says that work is done, whether what it had waited for is among
//! them, and the program has an error then in each thread, once ([`told`]), even where its own context never died. The same
//! becomes of waits when the owner ends. What is asked of a lost record itself fails until the event is recorded again.
//!
//! **Chains.** A process that waits for others' events and records some of its own does not know at the record whether what
//! it goes on with will be lost. Then the record is *unsettled* until it knows, and who waits for that record believes it
//! then only ([`watch`] settles).
//!
//! Programs that have given such an event away, or opened one, go the long way through each call from then on, as after a
//! recovery; all others have one flag that is false. An event that was only made for others is the driver's alone until it
//! is given away: then what was recorded last is recorded in the page, too. What is refused since no page would hear of it,
//! a record by a graph, by a launch, for a context, is refused from its making on.
//!
//! **Lies.** Who can write the page is a process of the same user that was given it: those who have opened an event may wait
//! for long by it, or be told of losses, or of none. Nothing that stands there is an address or a length here, the owner
//! believes nothing of it, and who waits is let go at the owner's end by what he has noted himself.

mod events;
mod handle;
mod loss;
mod owner;
mod peer;
mod slot;
mod told;
mod watch;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::{AtomicBool, Ordering},
};

use super::keeping::{Room, is_on};
use crate::{
    cuda::{gate, result::CUresult},
    process::{descriptors::Held, passing::Secret},
};
use owner::{Exported, OwnPage};
use peer::{Imported, Owner};
use slot::Wait;

pub(crate) use events::{Kind, ended, ended_context, kind, made};
pub(crate) use loss::{given_up, recovered};
pub(crate) use owner::{export, record};
pub(crate) use peer::{ask, open, wait};
pub(crate) use told::{is_to_be_awaited, judged, owed};

/// Bits of what `cuEventCreate` is given.
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

/// What a peer is told of data that will never be what it was to be: what the driver says where something outside it has
/// failed. The owner's own error is told where that is known.
const EXTERNAL: CUresult = CUresult(911);

/// An event by which processes wait for each other.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// For other processes, but given to none.
    Made,
    Exported(Exported),
    Imported(Imported),
}

/// All that is known of such events. No call of the driver is made while its lock is held.
#[derive(Debug, Default)]
struct Shared {
    /// By the program's names.
    events: BTreeMap<usize, Event>,
    own: Vec<OwnPage>,
    /// Events that were given away so far.
    exported: u64,
    /// Others' pages: where they are, and their files.
    opened: BTreeMap<(Secret, u64), (usize, Held)>,
    owners: BTreeMap<Secret, Owner>,
    /// What streams of this process wait for, or were to wait for, and is not known to have come.
    pending: Vec<Wait>,
    /// By the word that they wait for: up to which number streams of this process were ever to wait. That the page says that
    /// it has come, or is lost, frees no stream.
    awaited: BTreeMap<u64, Wait>,
    /// So many of them are looked at before the next one comes.
    many: usize,
    /// Records of own events that are not to be believed yet.
    unsettled: VecDeque<watch::Unsettled>,
}

static SHARED: Room<Shared> = Room::new();

fn shared<T>(work: impl FnOnce(&mut Shared) -> T) -> T {
    SHARED.with(work)
}

/// Whether there ever was such an event, made here or another process's.
static MAY_BE: AtomicBool = AtomicBool::new(false);

/// Whether an event may be one for other processes, or of another one.
#[inline(always)]
pub(crate) fn may_be() -> bool {
    MAY_BE.load(Ordering::Relaxed) && is_on()
}

/// There is one from now on.
fn is_made_now() {
    MAY_BE.store(true, Ordering::Release);
}

/// Whether one was ever given away or opened.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Whether an event was ever given to other processes, or one of another was opened.
#[inline(always)]
pub(crate) fn is_used() -> bool {
    IS_USED.load(Ordering::Relaxed) && is_on()
}

/// One is from now on, and every call takes the long way.
fn is_used_now() {
    is_made_now();
    IS_USED.store(true, Ordering::Release);
    gate::looks_at_each_call();
}

/// Whether a page of such events begins there.
pub(crate) fn is_page(start: usize) -> bool {
    is_used()
        && shared(|shared| {
            let own = shared.own.iter().flat_map(OwnPage::starts);
            let mut all = own.chain(shared.opened.values().map(|(page, _)| *page));
            all.any(|page| page == start)
        })
}

//! Which channel belongs to which client, in both directions.
//!
//! A channel is a way to the GPU. Today the daemon knows a client's contexts, one for each connection on the control
//! socket; the patched module adds the hardware channels, with their time-slice group and subcontext. Both are rows of
//! one table. Its indices are private and change in the same few functions as the table, so what [`Channels::owner`]
//! and [`Channels::channels_of`] say can't differ.
//!
//! Bounded: [`MAX_CHANNELS`] rows in all and [`MAX_CHANNELS_OF_PROCESS`] of one process; what does not fit is counted.
//!
//! | what happened | call |
//! |---|---|
//! | a client's connection was dispatched to a server | [`add`](Channels::add) a [`Channel::Context`] |
//! | a connection is over | [`remove`](Channels::remove) it |
//! | a process has ended | [`remove_process`](Channels::remove_process) |
//! | the module says that a channel is there, or no longer | `add`, `remove` a [`Channel::Hardware`] |
//! | the module says that an address space is gone | [`remove_va_space`](Channels::remove_va_space) |
//! | the module begins a snapshot, or is gone | [`forget_hardware`](Channels::forget_hardware) |

#[cfg(test)]
mod tests;

use crate::core::evidence::ProcessKey;
use crate::core::ids::{ConnectionId, Pid, ServerEpoch};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of the table. A GPU has at most 4,096 channels on each of its runlists, and MPS has room for 60 clients on one.
pub(super) const MAX_CHANNELS: usize = 65_536;
/// Rows of one process.
pub(super) const MAX_CHANNELS_OF_PROCESS: usize = 4096;

/// A hardware channel's name: no other living channel of the machine has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct HardwareChannel {
    /// The GPU, as `GPU-…`; empty when the module did not say.
    pub gpu: String,
    /// The runlist, which numbers its channels by itself.
    pub runlist: Option<u32>,
    /// The channel's number.
    pub channel: u32,
}

/// What the module tells of a hardware channel besides its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct HardwareFacts {
    /// The client's address space, by the module's number.
    pub va_space: u64,
    /// The time-slice group.
    pub tsg: Option<u32>,
    /// The subcontext, which tells the clients of one group apart.
    pub subcontext: Option<u32>,
    /// The channel's instance block, by which the hardware names it.
    pub instance: u64,
}

/// A channel's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Channel {
    /// A context, by its connection on the control socket.
    Context(ConnectionId),
    /// A hardware channel.
    Hardware(HardwareChannel),
}

/// What is known of a channel besides its name and owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Facts {
    /// Of a context: the server that has it.
    Context(ServerEpoch),
    /// Of a hardware channel.
    Hardware(HardwareFacts),
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Whose it is.
    pub process: ProcessKey,
    /// Its name.
    pub channel: Channel,
    pub facts: Facts,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    pid: Pid,
    facts: Facts,
}

/// A process with channels. It may have made thousands, and whatever is done for the next one must not go through them.
#[derive(Debug, Default)]
struct Owner {
    /// 0 while nobody has said it.
    start_time: u64,
    channels: BTreeSet<Channel>,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    entries: BTreeMap<Channel, Entry>,
    of_process: BTreeMap<Pid, Owner>,
    of_va_space: BTreeMap<u64, BTreeSet<Channel>>,
    refused: u64,
}

impl Channels {
    /// Notes a channel. One that is there already gets this owner and these facts: the witness of the older ones
    /// missed its end.
    ///
    /// A process with the same pid and another start time is an earlier one, and everything of it is dropped; one whose
    /// start time is not known is the one that has channels already. `false` when there is no room, or when a context's name comes with a hardware channel's facts or the other way round.
    pub(crate) fn add(&mut self, process: ProcessKey, channel: Channel, facts: Facts) -> bool {
        let fits = matches!(
            (&channel, &facts),
            (Channel::Context(_), Facts::Context(_)) | (Channel::Hardware(_), Facts::Hardware(_))
        );
        if !fits {
            return false;
        }
        self.drop_predecessor(process);
        self.remove(&channel);
        let of_process = self.of_process.get(&process.pid).map_or(0, |owner| owner.channels.len());
        if self.entries.len() >= MAX_CHANNELS || of_process >= MAX_CHANNELS_OF_PROCESS {
            self.refused += 1;
            return false;
        }
        let owner = self.of_process.entry(process.pid).or_default();
        owner.start_time = owner.start_time.max(process.start_time);
        owner.channels.insert(channel.clone());
        if let Facts::Hardware(facts) = &facts {
            self.of_va_space.entry(facts.va_space).or_default().insert(channel.clone());
        }
        self.entries.insert(channel, Entry { pid: process.pid, facts });
        true
    }

    /// Drops the rows of an earlier process with this pid.
    fn drop_predecessor(&mut self, process: ProcessKey) {
        let known = self.of_process.get(&process.pid).map_or(0, |owner| owner.start_time);
        if known != 0 && process.start_time != 0 && known != process.start_time {
            self.remove_process(process.pid);
        }
    }

    /// Forgets a channel, and says whose it was.
    pub(crate) fn remove(&mut self, channel: &Channel) -> Option<ProcessKey> {
        let Entry { pid, facts } = self.entries.remove(channel)?;
        if let Facts::Hardware(facts) = facts
            && let Some(channels) = self.of_va_space.get_mut(&facts.va_space)
        {
            channels.remove(channel);
            if channels.is_empty() {
                self.of_va_space.remove(&facts.va_space);
            }
        }
        let owner = self.of_process.get_mut(&pid)?;
        let process = ProcessKey { pid, start_time: owner.start_time };
        owner.channels.remove(channel);
        if owner.channels.is_empty() {
            self.of_process.remove(&pid);
        }
        Some(process)
    }

    /// Forgets everything of a process that has ended, and says how much that was. The hardware channels of one that
    /// died in the middle of its work live a little longer; the module tells of their end, which is then no news.
    pub(crate) fn remove_process(&mut self, pid: Pid) -> usize {
        let channels = self.of_process.get(&pid).map(|owner| owner.channels.clone()).unwrap_or_default();
        channels.iter().filter(|channel| self.remove(channel).is_some()).count()
    }

    /// Forgets the hardware channels of an address space that is gone, and says how many there were.
    pub(crate) fn remove_va_space(&mut self, va_space: u64) -> usize {
        let channels = self.of_va_space.get(&va_space).cloned().unwrap_or_default();
        channels.iter().filter(|channel| self.remove(channel).is_some()).count()
    }

    /// Forgets all hardware channels: the module's whole state follows, or the module is gone.
    pub(crate) fn forget_hardware(&mut self) {
        for va_space in self.of_va_space.keys().copied().collect::<Vec<_>>() {
            self.remove_va_space(va_space);
        }
    }

    /// The channels of a process, contexts first.
    pub(crate) fn channels_of(&self, pid: Pid) -> impl Iterator<Item = &Channel> {
        self.of_process.get(&pid).into_iter().flat_map(|owner| &owner.channels)
    }

    /// The rows of a process, or all of them: by pid, contexts before hardware channels.
    pub(crate) fn rows(&self, pid: Option<Pid>) -> impl Iterator<Item = Row> {
        let pids = match pid {
            Some(pid) => self.of_process.range(pid..=pid),
            None => self.of_process.range(..),
        };
        pids.flat_map(|(&pid, owner)| {
            let process = ProcessKey { pid, start_time: owner.start_time };
            owner.channels.iter().map(move |channel| (process, channel))
        })
        .filter_map(|(process, channel)| {
            let facts = self.entries.get(channel)?.facts;
            Some(Row { process, channel: channel.clone(), facts })
        })
    }
}

//! A dead copy of the driver is cut off from the GPU and from its server.
//!
//! Its descriptors become one that is never ready, and what it has mapped of files becomes plain memory: its threads
//! still write there, so nothing can just be unmapped (`recovery-findings` 4). With its files closed the kernel frees
//! what it had on the GPU, and its server hears that it has gone. What others have of the GPU, EGL or Vulkan, stays.
//!
//! It is done beside a program that runs ([`burial`](super::burial)), so what is the dead copy's is looked at again for each
//! descriptor and range, under the locks that are held by whoever opens, closes, maps or unmaps for a copy.

use crate::cuda::{
    belongings::Belongings,
    resources::{self, Owner},
    socket_name::Exchanged,
};
use crate::process::{
    maps::{self, Range},
    silent::{Place, Silent},
};

/// What the driver's files are called.
const DEVICES: &str = "/dev/nvidia";

/// What was cut off.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// Descriptors, which are there still.
    pub(super) descriptors: Vec<Place>,
    /// Mappings.
    pub(super) mappings: u32,
}

/// What the copy that lives has mapped.
#[derive(Debug)]
pub(super) enum Mapped {
    /// It has taken note of it here.
    Noted(Owner),
    /// Nobody has: all that is mapped of the GPU's files before there is another copy.
    Seen(Vec<Range>),
}

impl Mapped {
    pub(super) fn now() -> Self {
        resources::noting().map_or_else(|| Self::Seen(seen()), Self::Noted)
    }

    /// The copy that has taken note.
    pub(super) fn owner(&self) -> Option<Owner> {
        match self {
            Self::Noted(owner) => Some(*owner),
            Self::Seen(_) => None,
        }
    }

    /// Puts plain memory where it still is, but for ranges that are another copy's; how many.
    fn overlay(&self, is_anothers: impl Fn((usize, usize)) -> bool) -> u32 {
        let bounds = |range: Range| Some((usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?));
        match self {
            Self::Noted(owner) => owner.overlay_files(is_anothers),
            Self::Seen(before) => {
                let same = seen().into_iter().filter(|of| before.contains(of)).filter_map(bounds);
                let own = same.map(|(start, end)| (start, end - start)).filter(|range| !is_anothers(*range));
                own.map(|(start, size)| u32::from(resources::is_overlaid(start, size))).sum()
            }
        }
    }
}

fn seen() -> Vec<Range> {
    maps::read().unwrap_or_default().into_iter().filter(|range| range.path().starts_with(DEVICES)).collect()
}

/// Cuts off a copy that the program has never gone on with.
pub(super) fn perform(dead: &Belongings, mapped: &Mapped) -> Cut {
    let mut cut = silence(dead, mapped.owner(), &[]);
    cut.mappings = mapped.overlay(|_| false);
    cut
}

/// The first half: nothing comes to a copy or from it any more.
pub(super) fn silence(dead: &Belongings, owner: Option<Owner>, listeners: &[Exchanged]) -> Cut {
    if let Some(owner) = owner {
        owner.dies();
    }
    let mut cut = Cut::default();
    if let Some(silent) = Silent::new() {
        let mut exchange = |number| cut.descriptors.extend(silent.takes_the_place(number));
        dead.each(&mut exchange);
        listeners.iter().filter_map(Exchanged::number).for_each(exchange);
    }
    cut
}

/// The second half: plain memory lies where its files were mapped; in how many places. What lies in one of the ranges
/// `kept`, address and size, is the other copy's by now.
pub(super) fn overlay(mapped: &Mapped, kept: &[(u64, u64)]) -> u32 {
    mapped.overlay(|range| kept.iter().any(|other| meets(range, *other)))
}

/// Whether two ranges have an address in common: each by where it begins, and its bytes.
fn meets((start, size): (usize, usize), (base, length): (u64, u64)) -> bool {
    let ends = |start: u64, size: u64| start.saturating_add(size);
    let (start, size) = (u64::try_from(start).unwrap_or(u64::MAX), u64::try_from(size).unwrap_or(u64::MAX));
    start < ends(base, length) && base < ends(start, size)
}

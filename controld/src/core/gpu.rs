//! What a GPU is called, and which of them a fault and a client concern.
//!
//! A GPU is known by its UUID. Where it is cut into MIG instances, one of them is named beside it: by the UUID that CUDA
//! has for it, or by the number of the GPU instance that a line of the kernel has. Two names that are not the same may
//! still mean the same instance, so what counts is whether they are *certainly* two ([`Gpu::is_apart_from`]).

mod mode;

pub(crate) use mode::{ComputeMode, ManagedMode, ModeChange, ModeOutcome, ModeStage};

use core::fmt;
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A MIG instance of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Instance {
    /// By its UUID, as `MIG-…`.
    Uuid(Arc<str>),
    /// By the number of its GPU instance, which several compute instances share.
    Number(u32),
}

/// A GPU, or one MIG instance of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Gpu {
    uuid: Arc<str>,
    instance: Option<Instance>,
}

/// Some GPUs.
pub(crate) type GpuSet = BTreeSet<Gpu>;

impl Gpu {
    /// The GPU of this UUID, as `GPU-…`.
    pub(crate) fn new(uuid: &str) -> Self {
        Self { uuid: uuid.into(), instance: None }
    }

    /// The one that is written so, as [`Display`](fmt::Display) writes it.
    pub(crate) fn parse(text: &str) -> Self {
        let (uuid, instance) = text.split_once('/').map_or((text, None), |(uuid, rest)| (uuid, Some(rest)));
        let numbered = |rest: &str| rest.strip_prefix("gi")?.parse().ok().map(Instance::Number);
        let instance = instance.map(|rest| numbered(rest).unwrap_or_else(|| Instance::Uuid(rest.into())));
        Self { uuid: uuid.into(), instance }
    }

    /// One instance of it.
    #[must_use]
    pub(crate) fn with_instance(self, instance: Instance) -> Self {
        Self { instance: Some(instance), ..self }
    }

    /// The UUID of the whole GPU.
    pub(crate) fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The MIG instance, where one is meant: its UUID, or `gi` and a number.
    pub(crate) fn instance(&self) -> Option<String> {
        self.instance.as_ref().map(|instance| match instance {
            Instance::Uuid(uuid) => uuid.to_string(),
            Instance::Number(number) => format!("gi{number}"),
        })
    }

    /// The number of the GPU instance, where it is known.
    pub(crate) const fn instance_number(&self) -> Option<u32> {
        match self.instance {
            Some(Instance::Number(number)) => Some(number),
            Some(Instance::Uuid(_)) | None => None,
        }
    }

    /// What `CUDA_VISIBLE_DEVICES` calls it; `None` where only the number of the instance is known.
    pub(crate) fn visible_name(&self) -> Option<&str> {
        match &self.instance {
            None => Some(&self.uuid),
            Some(Instance::Uuid(uuid)) => Some(uuid),
            Some(Instance::Number(_)) => None,
        }
    }

    /// Whether the two are certainly not the same, and neither is a part of the other.
    pub(crate) fn is_apart_from(&self, other: &Self) -> bool {
        if self.uuid != other.uuid {
            return true;
        }
        match (&self.instance, &other.instance) {
            (Some(Instance::Uuid(own)), Some(Instance::Uuid(other))) => own != other,
            (Some(Instance::Number(own)), Some(Instance::Number(other))) => own != other,
            _ => false,
        }
    }
}

/// Whether nothing of the one is anything of the other.
pub(super) fn are_apart(some: &GpuSet, others: &GpuSet) -> bool {
    some.iter().all(|one| others.iter().all(|other| one.is_apart_from(other)))
}

/// `GPU-…`, and with an instance `GPU-…/MIG-…`.
impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uuid)?;
        match self.instance() {
            Some(instance) => write!(f, "/{instance}"),
            None => Ok(()),
        }
    }
}

impl Serialize for Gpu {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Contexts of one process that are told apart; with more, nobody knows where all are.
const MOST_CONTEXTS: usize = 256;

/// On which GPUs a client is known to have contexts. What nobody knows is all of them.
///
/// Measured on two H200s with 580: the UVM driver has, from `cuInit` on, every GPU that the program sees, whether it has
/// contexts there or not. A server lists the devices with the contexts on each, by numbers that it gives to no later one of
/// the process (and a snapshot has one context of each process, which is why that is not asked for). So the first is all that
/// a client can have contexts on, and the second tells where they are; but it may be older than the latest context, or of
/// a server that does it otherwise, and is believed to be whole only when it has named as many contexts as there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Whereabouts {
    /// The GPUs that the UVM driver has in its address spaces.
    pub(super) spaces: Option<GpuSet>,
    /// The contexts that its server has ever listed, by their numbers in the process.
    pub(super) named: BTreeSet<u32>,
    /// The GPUs of those that it listed last; `None` when one of them has a GPU that nobody knows.
    pub(super) listed: Option<GpuSet>,
    /// GPUs on which a witness that can't be wrong has met it.
    pub(super) met: GpuSet,
    /// It was known to be elsewhere when a fault spoilt a GPU for the others of its server, or came there afterwards; or
    /// its server has got over the fault and still has it.
    pub(super) is_spared: bool,
}

impl Whereabouts {
    /// Its server lists these contexts of it, and no others: the number of each in the process, and its GPU.
    pub(super) fn is_listed(&mut self, contexts: &[(u32, Option<Gpu>)]) {
        for (number, _) in contexts {
            if self.named.len() < MOST_CONTEXTS {
                self.named.insert(*number);
            }
        }
        self.listed = contexts.iter().map(|(_, gpu)| gpu.clone()).collect();
    }

    /// Where it can have contexts when it has made so many of them on its server; `None` when nobody knows.
    pub(super) fn places(&self, made: Option<usize>) -> Option<GpuSet> {
        let is_whole = made.is_some_and(|made| self.named.len() >= made);
        let own = match made {
            Some(0) => Some(GpuSet::new()),
            _ if is_whole => self.listed.clone(),
            _ => None,
        };
        own.or_else(|| self.spaces.clone()).map(|own| own.union(&self.met).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mig(uuid: &str) -> Gpu {
        Gpu::new("GPU-a").with_instance(Instance::Uuid(uuid.into()))
    }

    #[test]
    fn only_what_is_certainly_not_the_same_is_apart() {
        let (whole, other, numbered) =
            (Gpu::new("GPU-a"), Gpu::new("GPU-b"), Gpu::new("GPU-a").with_instance(Instance::Number(5)));
        assert!(whole.is_apart_from(&other) && mig("MIG-1").is_apart_from(&mig("MIG-2")));
        assert!(!whole.is_apart_from(&whole) && !whole.is_apart_from(&mig("MIG-1")));
        assert!(!numbered.is_apart_from(&mig("MIG-1")), "nobody knows which number that is");
        assert!(numbered.is_apart_from(&Gpu::new("GPU-a").with_instance(Instance::Number(6))));
        for gpu in [&whole, &numbered, &mig("MIG-1")] {
            assert_eq!(Gpu::parse(&gpu.to_string()), *gpu);
        }
        assert_eq!((mig("MIG-1").to_string(), numbered.to_string()), ("GPU-a/MIG-1".into(), "GPU-a/gi5".into()));
    }

    #[test]
    fn a_list_is_whole_when_it_has_named_as_many_contexts_as_there_are_and_else_every_gpu_seen_counts() {
        let set = |names: &[&str]| names.iter().map(|name| Gpu::new(name)).collect::<GpuSet>();
        let on = |number: u32, name: &str| (number, Some(Gpu::new(name)));
        let mut own = Whereabouts::default();
        assert_eq!((own.places(Some(0)), own.places(Some(1)), own.places(None)), (Some(set(&[])), None, None));
        own.spaces = Some(set(&["GPU-a", "GPU-b"]));
        assert_eq!((own.places(Some(0)), own.places(Some(1))), (Some(set(&[])), Some(set(&["GPU-a", "GPU-b"]))));
        own.is_listed(&[on(1, "GPU-b")]);
        assert_eq!(own.places(Some(1)), Some(set(&["GPU-b"])));
        // Another is made, or has just been.
        assert_eq!(own.places(Some(2)), Some(set(&["GPU-a", "GPU-b"])));
        assert_eq!(own.places(None), Some(set(&["GPU-a", "GPU-b"])), "an earlier daemon has not said how many");
        // The first is given up, and the list has the other one.
        own.is_listed(&[on(2, "GPU-a")]);
        assert_eq!(own.places(Some(2)), Some(set(&["GPU-a"])));
        own.met = set(&["GPU-c"]);
        assert_eq!(own.places(Some(2)), Some(set(&["GPU-a", "GPU-c"])));
        own.is_listed(&[(3, None)]);
        own.spaces = None;
        assert_eq!(own.places(Some(3)), None, "on a GPU that nobody knows");
    }
}

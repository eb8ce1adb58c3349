//! What a GPU is called, and which of them a fault and a client concern.
//!
//! A GPU is known by its UUID. Where it is cut into MIG instances, one of them is named beside it: by the UUID that CUDA
//! has for it, or by the number of the GPU instance that a line of the kernel has. Two names that are not the same may
//! still mean the same instance, so what counts is whether they are *certainly* two ([`Gpu::is_apart_from`]).

use core::fmt;
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A MIG instance of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Instance {
    /// By its UUID, as `MIG-…`.
    Uuid(Arc<str>),
    /// By the number of its GPU instance, which several compute instances share.
    Number(u32),
}

/// A GPU, or one MIG instance of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gpu {
    uuid: Arc<str>,
    instance: Option<Instance>,
}

/// Some GPUs.
pub type GpuSet = BTreeSet<Gpu>;

impl Gpu {
    /// The GPU of this UUID, as `GPU-…`.
    #[must_use]
    pub fn new(uuid: &str) -> Self {
        Self { uuid: uuid.into(), instance: None }
    }

    /// The one that is written so, as [`Display`](fmt::Display) writes it.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let (uuid, instance) = text.split_once('/').map_or((text, None), |(uuid, rest)| (uuid, Some(rest)));
        let numbered = |rest: &str| rest.strip_prefix("gi")?.parse().ok().map(Instance::Number);
        let instance = instance.map(|rest| numbered(rest).unwrap_or_else(|| Instance::Uuid(rest.into())));
        Self { uuid: uuid.into(), instance }
    }

    /// One instance of it.
    #[must_use]
    pub fn with_instance(self, instance: Instance) -> Self {
        Self { instance: Some(instance), ..self }
    }

    /// The UUID of the whole GPU.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The MIG instance, where one is meant: its UUID, or `gi` and a number.
    #[must_use]
    pub fn instance(&self) -> Option<String> {
        self.instance.as_ref().map(|instance| match instance {
            Instance::Uuid(uuid) => uuid.to_string(),
            Instance::Number(number) => format!("gi{number}"),
        })
    }

    /// What `CUDA_VISIBLE_DEVICES` calls it; `None` where only the number of the instance is known.
    #[must_use]
    pub fn visible_name(&self) -> Option<&str> {
        match &self.instance {
            None => Some(&self.uuid),
            Some(Instance::Uuid(uuid)) => Some(uuid),
            Some(Instance::Number(_)) => None,
        }
    }

    /// Whether the two are certainly not the same, and neither is a part of the other.
    #[must_use]
    pub fn is_apart_from(&self, other: &Self) -> bool {
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

/// On which GPUs a client is known to have contexts. What nobody knows is all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Whereabouts {
    /// The GPUs that the UVM driver has in its address spaces: all that it can have contexts on.
    pub(super) spaces: Option<GpuSet>,
    /// Those that its server lists contexts of it on.
    pub(super) contexts: Option<GpuSet>,
    /// It was known to be elsewhere when a fault spoilt a GPU for the others of its server, or came there afterwards.
    pub(super) is_spared: bool,
}

impl Whereabouts {
    /// A GPU that one list lacks counts as not used, since UVM's may have more than there are contexts on. A list can lack
    /// one that is used, though: of a program on two GPUs of an H200 machine one list had one (OBSERVED.md, "On two GPUs").
    pub(super) fn are_apart_from(&self, gpus: &GpuSet) -> bool {
        [&self.spaces, &self.contexts].into_iter().flatten().any(|known| are_apart(known, gpus))
    }

    /// The shortest list that anybody has; `None` when nobody knows.
    pub(super) fn known(&self) -> Option<&GpuSet> {
        [&self.spaces, &self.contexts].into_iter().flatten().min_by_key(|gpus| gpus.len())
    }

    /// It makes another context, of which nobody knows where.
    pub(super) fn forget(&mut self) {
        self.spaces = None;
        self.contexts = None;
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
    fn one_witness_that_knows_is_enough_and_none_is_all_gpus() {
        let set = |names: &[&str]| names.iter().map(|name| Gpu::new(name)).collect::<GpuSet>();
        let faulty = set(&["GPU-a"]);
        let mut own = Whereabouts::default();
        assert!(!own.are_apart_from(&faulty), "unknown is all");
        own.spaces = Some(set(&["GPU-a", "GPU-b"]));
        assert!(!own.are_apart_from(&faulty));
        own.contexts = Some(set(&["GPU-b"]));
        assert!(own.are_apart_from(&faulty) && !own.are_apart_from(&set(&["GPU-b"])));
        assert_eq!(own.known(), Some(&set(&["GPU-b"])));
        own.forget();
        assert!(!own.are_apart_from(&faulty));
    }
}

//! Who a client is.

use super::ids::Pid;
use super::place::Place;
use serde::Serialize;
use std::sync::Arc;

/// What a Kubernetes cluster calls a container, as dcgm-exporter's labels have it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct PodNames {
    pub namespace: String,
    /// The pod's name.
    pub pod_name: String,
    /// The container's name in its pod.
    pub container_name: String,
}

/// A share of a GPU's threads in percent, above 0 and up to 100.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Threads(f64);

impl Threads {
    /// This share, if it is one.
    pub(crate) fn new(percent: f64) -> Option<Self> {
        (percent > 0.0 && percent <= 100.0).then_some(Self(percent))
    }

    /// In percent.
    pub(crate) const fn percent(self) -> f64 {
        self.0
    }
}

// A share is never NaN.
impl Eq for Threads {}

/// Which process one is that has no pid here: two numbers that no other such process has as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HiddenId(pub(crate) [u64; 2]);

/// What one is known by that has no pid here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// Which process it is.
    pub id: HiddenId,
    /// Its pid in the `/proc` of another namespace, where it was found there.
    pub seen_as: Option<Pid>,
}

/// What is known of a client's process besides its pid: read from `/proc` when it came, what the kernel tells at once, and
/// the rest as soon as it could be read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Identity {
    /// When it was started, in clock ticks since boot; 0 when that could not be read.
    pub start_time: u64,
    /// Its cgroup (version 2), as `/kubepods.slice/…`; empty when that could not be read.
    pub cgroup: String,
    /// The container, if the cgroup names one.
    pub container: Option<String>,
    /// The pod's UID, if the cgroup names one.
    pub pod: Option<String>,
    /// What its cluster calls it, if that is known.
    #[serde(skip)]
    pub names: Option<Box<PodNames>>,
    /// `MPS_DOMAIN` of its environment.
    pub label: Option<String>,
    /// `CUDA_VISIBLE_DEVICES` of its environment, which it can have made up.
    pub visible: Option<String>,
    /// `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` of its environment, where that is a share in percent.
    pub threads: Option<Threads>,
    /// Its command line, cut at 256 bytes; its name in brackets when the line is empty.
    pub command: String,
    /// The first word of its command line, as `ps` shows it; empty when that could not be read.
    pub program: String,
    /// Where it stands.
    #[serde(skip)]
    pub place: Place,
    /// Which process it is, where it has no pid here and can be told from others. In a box, since few have it and many are
    /// remembered.
    #[serde(skip)]
    pub elsewhere: Option<Box<Elsewhere>>,
    /// Whether it is still being read, and this is only what the kernel tells at once.
    #[serde(skip)]
    pub awaits_more: bool,
}

impl Identity {
    /// More is known of a process of this pid: if it is the same one, and not a later one that has its pid.
    pub(crate) fn complete(known: &mut Arc<Self>, more: &Arc<Self>) {
        if known.start_time == more.start_time || known.start_time == 0 {
            *known = Arc::new(more.completing(known));
        }
    }

    /// What was read, and what was known before where nothing could be read, as of a process that had ended by then.
    pub(super) fn completing(&self, known: &Self) -> Self {
        let mut whole = self.clone();
        if whole.cgroup.is_empty() {
            whole.cgroup.clone_from(&known.cgroup);
            whole.container = whole.container.or_else(|| known.container.clone());
            whole.pod = whole.pod.or_else(|| known.pod.clone());
        }
        if whole.names.is_none() && whole.container == known.container {
            whole.names.clone_from(&known.names);
        }
        // The kernel's name for it is in brackets.
        if whole.command.is_empty() || whole.command.starts_with('[') && !known.command.is_empty() {
            whole.command.clone_from(&known.command);
        }
        if whole.program.is_empty() {
            whole.program.clone_from(&known.program);
        }
        if whole.place == Place::default() {
            whole.place.clone_from(&known.place);
        }
        whole.label = whole.label.or_else(|| known.label.clone());
        whole.visible = whole.visible.or_else(|| known.visible.clone());
        whole.threads = whole.threads.or(known.threads);
        whole.elsewhere = whole.elsewhere.or_else(|| known.elsewhere.clone());
        whole
    }
}

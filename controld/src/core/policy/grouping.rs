//! Which clients are one fault domain.

/// What clients must have in common to share a server.
///
/// The user always counts as well, since a server runs as the user of its clients, except where one server serves all
/// users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Grouping {
    /// The user and nothing else, as with the vendor's daemon.
    Uid,
    /// The pod, container, job or unit that the cgroup names; see [`cgroup_unit`].
    Cgroup,
    /// `MPS_DOMAIN` of the environment; those without one are a group, too.
    Label,
    /// Nothing: every process is a domain of its own.
    Client,
}

/// The leading part of a cgroup's path (version 2) that names what an operator would call one workload.
///
/// It ends with the first component that is, as these write them:
///
/// | component | who makes it |
/// |---|---|
/// | `kubepods-burstable-pod1234….slice`, `pod1234…` below `kubepods` | kubelet: the pod, so its containers share |
/// | `job_4711` | Slurm: the job, so its steps and tasks share |
/// | 64 hexadecimal digits | Docker and containerd with the cgroupfs driver: the container |
/// | `….scope`, `….service` | systemd: a container, a service or a session |
///
/// The two that only enclose others are passed over: `slurmstepd.scope`, `user@1000.service`. A path without any such
/// component is its own unit.
pub(crate) fn cgroup_unit(path: &str) -> &str {
    let mut below_pods = false;
    let mut start = 0;
    for component in path.split('/') {
        let end = start + component.len();
        start = end + 1;
        if component.is_empty() {
            continue;
        }
        below_pods |= component.starts_with("kubepods");
        if names_a_unit(component, below_pods) {
            return &path[..end];
        }
    }
    path.trim_end_matches('/')
}

fn names_a_unit(component: &str, below_pods: bool) -> bool {
    const CONTAINER_ID_DIGITS: usize = 64;
    let is_pod = below_pods && (component.starts_with("pod") || component.contains("-pod"));
    let is_job = component
        .strip_prefix("job_")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    let is_container = component.len() == CONTAINER_ID_DIGITS && component.bytes().all(|byte| byte.is_ascii_hexdigit());
    let encloses = component == "slurmstepd.scope" || component.starts_with("user@");
    let is_systemd = !encloses && (component.ends_with(".scope") || component.ends_with(".service"));
    is_pod || is_job || is_container || is_systemd
}

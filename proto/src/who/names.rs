//! The container, the pod and the job that a cgroup path names.
//!
//! | who made it | path |
//! |---|---|
//! | Kubernetes, systemd driver | `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope` |
//! | Kubernetes, cgroupfs driver | `/kubepods/burstable/podUID/ID` |
//! | Kubernetes in Docker (kind) | `/docker/ID/kubelet/kubepods/…`, `/kubelet.slice/kubelet-kubepods.slice/…` |
//! | containerd without delegation | `/system.slice/containerd.service/kubepods-burstable-podUID.slice:cri-containerd:ID` |
//! | Docker, Podman, CRI-O | `/docker/ID`, `/system.slice/docker-ID.scope`, `…/libpod-ID.scope/container`, `…/crio-ID` |
//! | Amazon ECS | `/ecs/TASK/ID`, on Fargate `/ecs/TASK/TASK-NUMBER` |
//! | LXC, systemd-nspawn | `/lxc.payload.NAME/…`, `/lxc/NAME`, `/machine.slice/machine-NAME.scope` |
//! | Slurm | `/slurm/uid_N/job_N/step_N/task_N`, `/system.slice/slurmstepd.scope/job_N/step_N/user/task_N` |
//!
//! An identifier is 64 hexadecimal digits; the innermost one counts, since a container may run in a container. A pod's
//! UID is written with dashes, whatever the driver made of them. Names below a cgroup that was delegated to a user are
//! the user's choice, so these names are for the operator to read. What must hold against a hostile user goes by uid and
//! by [`Reach`]: the path down to the name, which nobody can make in a place that is not his.

/// Digits of a container's identifier.
const ID_DIGITS: usize = 64;
/// Digits of a task's identifier on Fargate.
const FARGATE_DIGITS: usize = 32;
/// What a job of Slurm is called by.
const SLURM: &str = "slurm:";
/// Longest name taken over.
const MAX_NAME: usize = 128;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// The container's identifier or name; a job step of Slurm as `slurm:JOB.STEP`.
    pub container: Option<String>,
    /// The pod's UID.
    pub pod: Option<String>,
}

impl Names {
    /// Reads a cgroup path.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let container = parts.iter().rev().find_map(|part| container_id(part)).map(str::to_owned);
        let container = container.or_else(|| fargate(&parts)).or_else(|| slurm(&parts)).or_else(|| machine(&parts));
        Self { container, pod: parts.iter().rev().find_map(|part| pod(part, path)) }
    }

    /// Whether the path names anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.container.is_none() && self.pod.is_none()
    }
}

/// The paths down to the container and to the pod that a cgroup path names; empty where it names none.
///
/// A job of Slurm is none: it keeps no process of a user from another of his.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reach {
    /// Down to the container.
    pub container: String,
    /// Down to the pod.
    pub pod: String,
}

impl Reach {
    /// Reads a cgroup path.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let Names { container, pod } = Names::of(path);
        let down_to = |names: &dyn Fn(&str) -> bool| {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]).filter(|at| *at > 0);
            ends.map(|end| &path[..end]).find(|part| names(part)).unwrap_or(path).to_owned()
        };
        let is_container = |container: &String| !container.starts_with(SLURM);
        let to_container = container
            .filter(is_container)
            .map(|container| down_to(&|part| Names::of(part).container.is_some_and(|found| found == container)));
        let to_pod = pod.map(|pod| {
            let path = down_to(&|part| Names::of(part).pod.is_some_and(|found| found == pod));
            // Where nothing is delegated, pod and container are one part.
            path.split_once(".slice:").map_or(path.clone(), |(before, _)| format!("{before}.slice"))
        });
        Self { container: to_container.unwrap_or_default(), pod: to_pod.unwrap_or_default() }
    }
}

fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `ID`, `docker-ID.scope`, `crio-ID`, `slice:cri-containerd:ID`; not a container's monitor, `crio-conmon-ID.scope`.
fn container_id(part: &str) -> Option<&str> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let (before, id) = match name.rfind(['-', ':']) {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => ("", name),
    };
    (is_hexadecimal(id, ID_DIGITS) && !before.ends_with("conmon")).then_some(id)
}

/// `podUID` or `…-podUID.slice`, below something of Kubernetes.
fn pod(part: &str, path: &str) -> Option<String> {
    if !path.contains("kubepods") {
        return None;
    }
    let part = part.split_once(".slice").map_or(part, |(before, _)| before);
    let uid = part.strip_prefix("pod").or_else(|| part.rsplit_once("-pod").map(|(_, uid)| uid))?;
    let is_uid = uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    // `kubepods` itself, and the slices of the classes of service, are no pods.
    let is_real = is_uid && uid.bytes().any(|byte| byte.is_ascii_digit()) && uid.len() <= MAX_NAME;
    is_real.then(|| uid.replace('_', "-"))
}

fn fargate(parts: &[&str]) -> Option<String> {
    let [.., "ecs", task, container] = parts else { return None };
    let number = container.strip_prefix(task)?.strip_prefix('-')?;
    let is_fargate = is_hexadecimal(task, FARGATE_DIGITS) && number.bytes().all(|byte| byte.is_ascii_digit());
    is_fargate.then(|| (*container).to_owned())
}

fn slurm(parts: &[&str]) -> Option<String> {
    // With several daemons on a node the first part carries the node's name: `slurm_NODE`, `NODE_slurmstepd.scope`.
    let is_slurms = |part: &str| part == "slurm" || part.starts_with("slurm_") || part.ends_with("slurmstepd.scope");
    let root = parts.iter().position(|part| is_slurms(part))?;
    let named = |prefix: &str| {
        let name = parts[root..].iter().find_map(|part| part.strip_prefix(prefix))?;
        let is_plain = !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(|b| b.is_ascii_alphanumeric());
        is_plain.then_some(name)
    };
    let job = named("job_")?;
    Some(named("step_").map_or_else(|| format!("{SLURM}{job}"), |step| format!("{SLURM}{job}.{step}")))
}

/// A container that has a name and no identifier.
fn machine(parts: &[&str]) -> Option<String> {
    let name = parts.iter().enumerate().rev().find_map(|(at, part)| {
        if at > 0 && parts[at - 1] == "lxc" {
            return Some((*part).to_owned());
        }
        if let Some(name) = part.strip_prefix("lxc.payload.") {
            return Some(name.to_owned());
        }
        // systemd writes a dash in a name as `\x2d`.
        part.strip_prefix("machine-")?.strip_suffix(".scope").map(|name| name.replace("\\x2d", "-"))
    })?;
    let is_plain = !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control);
    is_plain.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "aaefb9d8feed2d453b543f6d928cede7a4dbefa6a0ae7c9b990dd234c56e93b9";
    const OTHER: &str = "2403ccfe427f1dc7b6120dccb9ac58c2f8456950380d587a9f33ea7f00dd303d";
    const UID: &str = "2fc932ce-fdcc-454b-97bd-aadfdeb4c340";

    #[track_caller]
    fn check(path: &str, container: Option<&str>, pod: Option<&str>) {
        let path =
            path.replace("ID", ID).replace("OTHER", OTHER).replace("POD", "2fc932ce_fdcc_454b_97bd_aadfdeb4c340");
        let names = Names { container: container.map(str::to_owned), pod: pod.map(str::to_owned) };
        assert_eq!(Names::of(&path), names, "{path}");
    }

    #[test]
    fn kubernetes_pods_and_containers_are_found_with_both_drivers() {
        let both = [
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podPOD.slice/cri-containerd-ID.scope",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podPOD.slice/docker-ID.scope",
            "/kubepods.slice/kubepods-podPOD.slice/crio-ID.scope",
            "/kubepods.slice/kubepods-podPOD.slice/crio-ID.scope/container",
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podPOD.slice/cri-containerd-ID.scope",
            "/system.slice/containerd.service/kubepods-burstable-podPOD.slice:cri-containerd:ID",
        ];
        for path in both {
            check(path, Some(ID), Some(UID));
        }
        check(&format!("/kubepods/burstable/pod{UID}/ID"), Some(ID), Some(UID));
        check(&format!("/kubepods/pod{UID}/ID"), Some(ID), Some(UID));
        check(&format!("/docker/OTHER/kubelet/kubepods/besteffort/pod{UID}/ID"), Some(ID), Some(UID));
        // A static pod's UID is a hash.
        let path =
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podd1a2b3c4d5e6f708192a3b4c5d6e7f80.slice";
        check(path, None, Some("d1a2b3c4d5e6f708192a3b4c5d6e7f80"));
    }

    #[test]
    fn engines_without_kubernetes_are_found() {
        check("/docker/ID", Some(ID), None);
        check("/system.slice/docker-ID.scope", Some(ID), None);
        check("/machine.slice/libpod-ID.scope/container", Some(ID), None);
        check("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container", Some(ID), None);
        check("/libpod_parent/libpod-ID", Some(ID), None);
        check("/ecs/55091c13-b8cf-4801-b527-f4601742204d/ID", Some(ID), None);
        let task = "c5d6e7f8091a2b3c4d5e6f708192a3b4";
        check(&format!("/ecs/{task}/{task}-1234567890"), Some(&format!("{task}-1234567890")), None);
        check("/lxc.payload.web/system.slice/x.service", Some("web"), None);
        check("/lxc/web", Some("web"), None);
        check("/machine.slice/machine-my\\x2dbox.scope/payload", Some("my-box"), None);
    }

    #[test]
    fn a_slurm_step_is_named_as_slurm_names_it() {
        check("/slurm/uid_1000/job_123/step_0/task_0", Some("slurm:123.0"), None);
        check("/slurm_node7/uid_1000/job_123/step_0", Some("slurm:123.0"), None);
        check("/system.slice/slurmstepd.scope/job_123/step_batch/user/task_0", Some("slurm:123.batch"), None);
        check("/system.slice/node1_slurmstepd.scope/job_5/step_0/user/task_special", Some("slurm:5.0"), None);
        check("/slurm/uid_1000/job_123", Some("slurm:123"), None);
    }

    #[test]
    fn what_is_no_container_is_not_taken_for_one() {
        for path in [
            "/",
            "",
            "/user.slice/user-1000.slice/session-3.scope",
            "/system.slice/nvidia-cuda-mps.service",
            "/kubepods.slice/kubepods-burstable.slice",
            "/kubepods/burstable",
            "/kubepods.slice/crio-conmon-ID.scope",
            "/system.slice/podcast-1.service",
            "/a-podPOD.slice",
            "/ecs/x/y",
        ] {
            check(path, None, None);
        }
    }

    #[track_caller]
    fn reaches(path: &str, container: &str, pod: &str) {
        let real = |text: &str| text.replace("ID", ID).replace("POD", "2fc932ce_fdcc_454b_97bd_aadfdeb4c340");
        let reach = Reach { container: real(container), pod: real(pod) };
        assert_eq!(Reach::of(&real(path)), reach, "{path}");
    }

    #[test]
    fn a_container_reaches_as_far_as_the_part_that_names_it_and_a_pod_as_its_own() {
        let slice = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podPOD.slice";
        let scope = format!("{slice}/cri-containerd-ID.scope");
        reaches(&scope, &scope, slice);
        reaches(&format!("{scope}/system.slice/worker.service"), &scope, slice);
        reaches(
            "/../../kubepods-podPOD.slice/crio-ID",
            "/../../kubepods-podPOD.slice/crio-ID",
            "/../../kubepods-podPOD.slice",
        );
        let merged = "/system.slice/containerd.service/kubepods-podPOD.slice";
        reaches(&format!("{merged}:cri-containerd:ID"), &format!("{merged}:cri-containerd:ID"), merged);
        reaches("/docker/ID", "/docker/ID", "");
        reaches("/lxc.payload.web/init.scope", "/lxc.payload.web", "");
        reaches("/ecs/TASK/ID", "/ecs/TASK/ID", "");
        reaches("/user.slice/user-1000.slice/session-2.scope", "", "");
        reaches("", "", "");
    }

    #[test]
    fn a_name_made_below_ones_own_cgroup_is_another_place() {
        let forged = Reach::of(&format!("/user.slice/user-1000.slice/user@1000.service/docker-{ID}.scope"));
        assert_ne!(forged.container, Reach::of(&format!("/system.slice/docker-{ID}.scope")).container);
        assert!(!forged.container.is_empty());
    }

    #[test]
    fn a_job_of_a_batch_system_is_no_container() {
        let path = "/slurm/uid_1000/job_7/step_0/task_1";
        assert!(Names::of(path).container.is_some());
        assert_eq!(Reach::of(path), Reach::default());
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "\\PC{0,80}", parts in prop::collection::vec("(kubepods|pod|-pod|ecs|slurm|job_|lxc|machine-|[a-f0-9]{64}|[:._\\-/a-z0-9]{0,8})", 0..8)) {
            let _ = Names::of(&path);
            let _ = Names::of(&parts.join("/"));
        }
    }
}

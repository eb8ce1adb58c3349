//! Which policy and which group a client gets.

use super::{DomainMatch, DomainPolicies, DomainPolicy, GroupPolicy, Policy, cgroup_unit};

const POD: &str = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod6b1f.slice";
const CONTAINER: &str = "/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope";

fn with_limit(limit: usize) -> DomainPolicy {
    let group = GroupPolicy { max_clients: Some(limit), ..GroupPolicy::default() };
    DomainPolicy { group, ..DomainPolicy::default() }
}

#[test]
fn the_containers_of_a_pod_are_one_group() {
    assert_eq!(cgroup_unit(&format!("{POD}{CONTAINER}")), POD);
    assert_eq!(cgroup_unit(&format!("{POD}/cri-containerd-ff.scope/inner")), POD);
    let cgroupfs = "/kubepods/besteffort/pod0a1b-2c/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    assert_eq!(cgroup_unit(cgroupfs), "/kubepods/besteffort/pod0a1b-2c");
}

#[test]
fn containers_jobs_and_units_are_groups() {
    let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let rows = [
        (format!("/system.slice/docker-{id}.scope/init"), format!("/system.slice/docker-{id}.scope")),
        (format!("/docker/{id}/sub"), format!("/docker/{id}")),
        ("/system.slice/slurmstepd.scope/job_7/step_0/user".into(), "/system.slice/slurmstepd.scope/job_7".into()),
        ("/system.slice/train.service".into(), "/system.slice/train.service".into()),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope".into(),
            "/user.slice/user-1000.slice/user@1000.service/app.slice/run-7.scope".into(),
        ),
        ("/user.slice/user-1000.slice/session-2.scope".into(), "/user.slice/user-1000.slice/session-2.scope".into()),
        // Nothing that is known: the whole path.
        ("/a/podium/job_x".into(), "/a/podium/job_x".into()),
        (String::new(), String::new()),
        ("/".into(), String::new()),
    ];
    for (path, unit) in rows {
        assert_eq!(cgroup_unit(&path), unit, "of {path}");
    }
}

#[test]
fn the_first_override_that_fits_everything_it_names_counts() {
    let overrides = vec![
        (DomainMatch { uid: Some(7), label: Some("a".into()), cgroup: None }, with_limit(1)),
        (DomainMatch { uid: Some(7), ..DomainMatch::default() }, with_limit(2)),
        (DomainMatch { cgroup: Some("/kubepods.slice/".into()), ..DomainMatch::default() }, with_limit(3)),
    ];
    let policy =
        Policy { domains: DomainPolicies { default: DomainPolicy::default(), overrides }, ..Policy::default() };
    let limit = |uid, label, cgroup| policy.for_domain(uid, label, cgroup).group.max_clients;
    assert_eq!(limit(7, Some("a"), "/x"), Some(1));
    assert_eq!(limit(7, Some("b"), "/kubepods.slice/p"), Some(2));
    assert_eq!(limit(8, None, "/kubepods.slice"), Some(3));
    assert_eq!(limit(8, None, "/kubepods.slice/p"), Some(3));
    assert_eq!(limit(8, None, "/kubepods.slices/p"), None);
    assert_eq!(limit(8, Some("a"), ""), None);
}

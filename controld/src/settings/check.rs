//! Values that have the right type and still make no sense.

use super::cluster::host_and_port;
use super::faults::Faults;
use super::file::{Cluster, ConfigFile};
use super::parse::OVERRIDES;
use super::replay;
use crate::core::{DomainMatch, DomainPolicy, FaultPolicy, GpuPolicy, GroupPolicy, Grouping, Sharing};
use remps_proto::who::{MAX_LABEL, is_label};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// A look at the GPUs is a process that loads the management library, which takes some tens of milliseconds.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(200);
/// What a listening address on this machine's file system begins with.
pub(crate) const UNIX_PREFIX: &str = "unix:";
/// A Unix socket's path has room for this many bytes and the final zero.
const LONGEST_SOCKET_PATH: usize = 107;
/// A node's name is that of a host.
const LONGEST_NODE: usize = 253;

pub(super) fn check(file: &ConfigFile, faults: &mut Faults) {
    let policy = &file.policy;
    check_domain(["domains", "faults"], &policy.domains.default, policy.sharing, faults);
    check_gpu(&policy.gpus, faults);
    check_path("witness.kmsg", &file.witness.kmsg, faults);
    check_path("witness.notices", &file.witness.notices, faults);
    check_path("witness.gpus", &file.witness.gpus, faults);
    check_path("witness.proc", &file.witness.proc, faults);
    if file.observe.journal && file.observe.journal_size_mib == 0 {
        faults.add("observe.journal_size_mib", "a journal has at least 1 MiB; journal = false leaves it out");
    }
    if let Err(what) = check_listen(&file.observe.listen) {
        faults.add("observe.listen", what);
    }
    if file.state_directory != super::AUTOMATIC {
        check_path("state_directory", &file.state_directory, faults);
    }
    check_cluster(&file.cluster, faults);
    let overrides = &policy.domains.overrides;
    for (index, (matching, own)) in overrides.iter().enumerate() {
        let name = format!("{OVERRIDES}[{}]", index + 1);
        check_match(&name, matching, &overrides[..index], faults);
        let first = faults.count();
        check_domain([&name, &name], own, policy.sharing, faults);
        faults.drop_inherited(first);
    }
    replay::check(file, faults);
}

fn check_gpu(gpu: &GpuPolicy, faults: &mut Faults) {
    if gpu.ends_strangers() && !gpu.manages() {
        faults.add("gpu.strangers", "strangers are looked for with compute_mode = \"manage\" only");
    }
    check_path("gpu.records", &gpu.records, faults);
    if gpu.interval < SHORTEST_INTERVAL {
        let (interval, shortest) = (gpu.interval.as_secs_f64(), SHORTEST_INTERVAL.as_secs_f64());
        faults.add("gpu.interval", format!("{interval} is less than {shortest} seconds"));
    }
}

/// What may differ from domain to domain; `names` are those of its two tables.
fn check_domain(names: [&str; 2], own: &DomainPolicy, sharing: Sharing, faults: &mut Faults) {
    check_group(names[0], &own.group, sharing, faults);
    check_faults(names[1], &own.faults, faults);
}

fn check_group(name: &str, group: &GroupPolicy, sharing: Sharing, faults: &mut Faults) {
    if sharing == Sharing::Single && group.by != Grouping::Uid {
        faults.add(&format!("{name}.by"), "sharing = \"single\" has one server at a time, so only \"uid\" fits it");
    }
    if group.shared_by.is_some() && group.max_clients.is_some() {
        let what = "where limits are shared one more client is refused, so max_clients can't begin another domain";
        faults.add(&format!("{name}.shared_by"), what);
    }
    if sharing == Sharing::Single && group.standby {
        faults.add(&format!("{name}.standby"), "sharing = \"single\" has one server at a time, so there is no standby");
    }
}

fn check_faults(name: &str, values: &FaultPolicy, faults: &mut Faults) {
    let counts = values.quarantine_after != 0 || values.refuse_after != 0;
    if counts && values.quarantine_window.is_zero() {
        let what = "faults that count for 0 seconds are never counted; 0 for quarantine_after and refuse_after says so";
        faults.add(&format!("{name}.quarantine_window"), what);
    }
    if values.refuse_after != 0 && values.refuse_for.is_zero() {
        faults.add(&format!("{name}.refuse_for"), "to refuse for 0 seconds is not to refuse; say refuse_after = 0");
    }
}

fn check_match(name: &str, matching: &DomainMatch, earlier: &[(DomainMatch, DomainPolicy)], faults: &mut Faults) {
    if *matching == Default::default() {
        faults.add(name, "names no clients: give uid, label or cgroup");
    } else if let Some(first) = earlier.iter().position(|(other, _)| other == matching) {
        faults.add(name, format!("is never looked at: {OVERRIDES}[{}] is for the same clients", first + 1));
    }
    if matching.label.as_ref().is_some_and(|label| !is_label(label)) {
        faults.add(&format!("{name}.label"), format!("must have 1 to {MAX_LABEL} bytes and no control characters"));
    }
    if matching.cgroup.as_ref().is_some_and(|cgroup| !cgroup.starts_with('/')) {
        faults.add(&format!("{name}.cgroup"), "must be the path of a cgroup of version 2, which begins with /");
    } else if matching.cgroup.as_ref().is_some_and(|cgroup| cgroup.chars().any(char::is_control)) {
        faults.add(&format!("{name}.cgroup"), "must have no control characters");
    }
}

fn check_path(key: &str, path: &str, faults: &mut Faults) {
    if !path.is_empty() && !Path::new(path).is_absolute() {
        faults.add(key, format!("\"{path}\" must begin with /, or be empty"));
    }
}

fn check_cluster(cluster: &Cluster, faults: &mut Faults) {
    for (key, path) in [("token", &cluster.token), ("ca", &cluster.ca)] {
        if cluster.events && path.is_empty() {
            faults.add(&format!("cluster.{key}"), "the API server can't be asked without");
        }
        check_path(&format!("cluster.{key}"), path, faults);
    }
    check_path("cluster.containers", &cluster.containers, faults);
    if !cluster.api_server.is_empty() && host_and_port(&cluster.api_server).is_none() {
        faults
            .add("cluster.api_server", format!("\"{}\" is not https://host or https://host:port", cluster.api_server));
    }
    match cluster.nvsentinel.strip_prefix(UNIX_PREFIX) {
        Some(path) if path.starts_with('/') && path.len() <= LONGEST_SOCKET_PATH => {}
        None if cluster.nvsentinel.is_empty() => {}
        Some(_) | None => {
            faults.add("cluster.nvsentinel", format!("\"{}\" is not {UNIX_PREFIX}/path", cluster.nvsentinel));
        }
    }
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if cluster.node.len() > LONGEST_NODE || !cluster.node.bytes().all(is_name) {
        faults.add("cluster.node", format!("\"{}\" is no name of a node", cluster.node));
    }
}

/// Whether metrics can be served there without being open to the network.
fn check_listen(listen: &str) -> Result<(), String> {
    if listen.is_empty() {
        return Ok(());
    }
    if let Some(path) = listen.strip_prefix(UNIX_PREFIX) {
        return match path.len() {
            _ if !path.starts_with('/') => Err(format!("\"{path}\" must begin with /")),
            0..=LONGEST_SOCKET_PATH => Ok(()),
            length => Err(format!("a socket's path has at most {LONGEST_SOCKET_PATH} bytes, and this has {length}")),
        };
    }
    match listen.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(()),
        Ok(address) => Err(format!("{} is open to the network; only loopback addresses are served", address.ip())),
        Err(_) => Err(format!("\"{listen}\" is neither {UNIX_PREFIX}/path nor 127.0.0.1:port")),
    }
}

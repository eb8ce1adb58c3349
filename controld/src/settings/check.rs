//! Values that have the right type and still make no sense.

use super::file::{ConfigFile, Domains, GpuTable, Override};
use super::parse::{Faults, OVERRIDES};
use crate::core::{ComputeModeAction, Grouping, Sharing, StrangerAction};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// A look at the GPUs is a process that loads the management library, which takes some tens of milliseconds.
const SHORTEST_INTERVAL: f64 = 0.2;
/// A label is shown in logs, metrics and answers.
const LONGEST_LABEL: usize = 128;
/// What a listening address on this machine's file system begins with.
pub(crate) const UNIX_PREFIX: &str = "unix:";
/// A Unix socket's path has room for this many bytes and the final zero.
const LONGEST_SOCKET_PATH: usize = 107;

pub(super) fn check(file: &ConfigFile, faults: &mut Faults) {
    check_top(file, faults);
    check_domains("domains", &file.domains, file.sharing, faults);
    check_faults("faults", &file.faults, faults);
    let funerals = &file.funerals;
    check_seconds("funerals.hold_timeout", funerals.hold_timeout, faults);
    if funerals.endless_hold != f64::INFINITY {
        check_seconds("funerals.endless_hold", funerals.endless_hold, faults);
    }
    check_seconds("vault.ttl", file.vault.ttl, faults);
    check_gpu(&file.gpu, faults);
    check_path("witness.kmsg", &file.witness.kmsg, faults);
    check_path("witness.notices", &file.witness.notices, faults);
    check_path("witness.gpus", &file.witness.gpus, faults);
    if file.observe.journal && file.observe.journal_size_mib == 0 {
        faults.add("observe.journal_size_mib", "a journal has at least 1 MiB; journal = false leaves it out");
    }
    if let Err(what) = check_listen(&file.observe.listen) {
        faults.add("observe.listen", what);
    }
    for (index, entry) in file.overrides.iter().enumerate() {
        check_override(&format!("{OVERRIDES}[{}]", index + 1), entry, &file.overrides[..index], file.sharing, faults);
    }
}

fn check_gpu(gpu: &GpuTable, faults: &mut Faults) {
    if gpu.strangers == StrangerAction::End && gpu.compute_mode == ComputeModeAction::Leave {
        faults.add("gpu.strangers", "strangers are looked for with compute_mode = \"manage\" only");
    }
    check_seconds("gpu.interval", gpu.interval, faults);
    check_path("gpu.records", &gpu.records, faults);
    if gpu.interval < SHORTEST_INTERVAL {
        faults.add("gpu.interval", format!("{} is less than {SHORTEST_INTERVAL} seconds", gpu.interval));
    }
}

fn check_top(file: &ConfigFile, faults: &mut Faults) {
    for (key, value) in [
        ("drain_timeout", file.drain_timeout),
        ("kill_timeout", file.kill_timeout),
        ("start_timeout", file.start_timeout),
        ("idle_timeout", file.idle_timeout),
        ("successor_wait", file.successor_wait),
    ] {
        check_seconds(key, value, faults);
    }
}

fn check_domains(name: &str, domains: &Domains, sharing: Sharing, faults: &mut Faults) {
    if sharing == Sharing::Single && domains.by != Grouping::Uid {
        faults.add(&format!("{name}.by"), "sharing = \"single\" has one server at a time, so only \"uid\" fits it");
    }
    if sharing == Sharing::Single && domains.standby {
        faults.add(&format!("{name}.standby"), "sharing = \"single\" has one server at a time, so there is no standby");
    }
}

fn check_faults(name: &str, values: &super::file::Faults, faults: &mut Faults) {
    for (key, value) in [
        ("victims_timeout", values.victims_timeout),
        ("quarantine_window", values.quarantine_window),
        ("refuse_for", values.refuse_for),
    ] {
        check_seconds(&format!("{name}.{key}"), value, faults);
    }
    let counts = values.quarantine_after != 0 || values.refuse_after != 0;
    if counts && values.quarantine_window == 0.0 {
        let what = "faults that count for 0 seconds are never counted; 0 for quarantine_after and refuse_after says so";
        faults.add(&format!("{name}.quarantine_window"), what);
    }
    if values.refuse_after != 0 && values.refuse_for == 0.0 {
        faults.add(&format!("{name}.refuse_for"), "to refuse for 0 seconds is not to refuse; say refuse_after = 0");
    }
}

fn check_override(name: &str, entry: &Override, earlier: &[Override], sharing: Sharing, faults: &mut Faults) {
    let matching = &entry.matching;
    if *matching == Default::default() {
        faults.add(name, "names no clients: give uid, label or cgroup");
    } else if let Some(first) = earlier.iter().position(|other| other.matching == *matching) {
        faults.add(name, format!("is never looked at: {OVERRIDES}[{}] is for the same clients", first + 1));
    }
    if let Some(label) = &matching.label {
        let sound = !label.is_empty() && label.len() <= LONGEST_LABEL && !label.chars().any(char::is_control);
        if !sound {
            let what = format!("must have 1 to {LONGEST_LABEL} bytes and no control characters");
            faults.add(&format!("{name}.label"), what);
        }
    }
    if matching.cgroup.as_ref().is_some_and(|cgroup| !cgroup.starts_with('/')) {
        faults.add(&format!("{name}.cgroup"), "must be the path of a cgroup of version 2, which begins with /");
    }
    let first = faults.count();
    check_domains(name, &entry.domains, sharing, faults);
    check_faults(name, &entry.faults, faults);
    faults.drop_inherited(first);
}

fn check_seconds(key: &str, value: f64, faults: &mut Faults) {
    if Duration::try_from_secs_f64(value).is_err() {
        faults.add(key, format!("{value} is no number of seconds"));
    }
}

fn check_path(key: &str, path: &str, faults: &mut Faults) {
    if !path.is_empty() && !Path::new(path).is_absolute() {
        faults.add(key, format!("\"{path}\" must begin with /, or be empty"));
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

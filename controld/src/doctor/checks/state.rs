//! Where named servers outlive the daemon.

use crate::doctor::Outcome;
use crate::doctor::machine::{Daemon, Machine, read};
use crate::io::state_folder::{NAME, StateError, StateFolder};
use crate::settings::servers_file::Plan;
use crate::settings::{AUTOMATIC, state_file};
use remps_proto::admin::limits::DeviceKey;
use std::io::ErrorKind;
use std::path::PathBuf;

/// What it costs when nothing can be read or written there.
const COSTS: &str = "the servers, namespaces and limits of before are not there, and none can be made or changed";

pub(super) fn state_directory(machine: &Machine) -> Outcome {
    let Some(path) = path(machine) else {
        return Outcome::ok("none: named servers and limits end with quit");
    };
    let shown = path.display();
    let text = match StateFolder::look_into(&path) {
        Ok(Some(text)) => text,
        Ok(None) => return Outcome::ok(format!("{shown}: nothing kept yet")),
        Err(StateError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            let is_running = matches!(machine.daemon, Daemon::Answers { .. } | Daemon::Silent(_));
            let has_parent = path.parent().is_some_and(std::path::Path::is_dir);
            return match (is_running, has_parent) {
                (false, true) => Outcome::ok(format!("{shown}: made when the daemon starts")),
                _ => Outcome::problem(
                    format!("{shown} is missing"),
                    COSTS,
                    "make it or mount it, root's or the daemon's own, and start the daemon anew",
                ),
            };
        }
        Err(StateError::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            return Outcome::unknown(format!("{shown}: {source}"));
        }
        Err(error) => {
            let advice = "give it to root or the daemon's user alone (chown, chmod go-w), as a plain file in a \
                          directory, and start the daemon anew";
            return Outcome::problem(error.to_string(), COSTS, advice);
        }
    };
    match state_file::read(&text) {
        Ok((plan, _)) => of_plan(machine, &path.join(NAME).display().to_string(), &plan),
        Err(error) => Outcome::problem(
            format!("{}: {error}", path.join(NAME).display()),
            COSTS,
            "mend it or move it away, and start the daemon anew; a copy of a good one can be put back while none runs",
        ),
    }
}

/// The directory that the daemon has, or would have from here.
fn path(machine: &Machine) -> Option<PathBuf> {
    let configured = machine.config.as_ref().map_or(AUTOMATIC, |config| config.state_directory.as_str());
    let path = match configured {
        AUTOMATIC => {
            let environment = read(&machine.judged().join("environ")).unwrap_or_default();
            let all = environment.split('\0').find_map(|entry| entry.strip_prefix("STATE_DIRECTORY="))?;
            PathBuf::from(all.split(':').next()?)
        }
        path => PathBuf::from(path),
    };
    path.is_absolute().then_some(path)
}

fn of_plan(machine: &Machine, shown: &str, plan: &Plan) -> Outcome {
    let is_there = |device: &DeviceKey| {
        let (DeviceKey::Uuid(uuid), Ok(gpus)) = (device, &machine.look) else { return true };
        // MIG instances are not among those that are looked at.
        !uuid.starts_with("GPU-") || gpus.iter().any(|gpu| gpu.uuid.starts_with(uuid.as_str()))
    };
    let lost = plan.iter().find_map(|(name, server)| Some((name, server.devices.iter().find(|it| !is_there(it))?)));
    match lost {
        Some((name, device)) => Outcome::warning(
            format!("{shown} has the server {name} on {device}, which is not there"),
            "that server stays kept and is not made, and its clients find no socket",
            "bring the GPU back, or take the server out of the file while no daemon runs",
        ),
        None => Outcome::ok(format!("named servers in {shown}: {}", plan.len())),
    }
}

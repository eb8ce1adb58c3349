//! The text in which named servers outlive the daemon: a file of servers ([`servers_file`](super::servers_file)), between
//! a first line with the version and a last one without which it is not whole.
//!
//! So an operator can read it and give it to the option `-a`, and it is read as strictly as that.

use super::faults::ConfigFault;
use super::servers_file::{Plan, VERSION, parse};
use remps_proto::admin::limits::MemLimit;
use remps_proto::admin::module::{DEFAULT_NAMESPACE, Limits};
use std::fmt::Write as _;

/// The first line, with the version of this file.
const FIRST: &str = "# named servers of the MPS control daemon, version 1";
/// What first lines of other versions begin with, too.
const ANY_VERSION: &str = "# named servers of the MPS control daemon, version ";
/// The last line.
const LAST: &str = "# end";

/// Why a text is not believed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoState {
    /// It is no such text.
    #[error("it does not begin as a file of kept servers")]
    Other,
    /// A later daemon's.
    #[error("it is of another version of this program: \"{0}\"")]
    Version(String),
    /// Its end is missing.
    #[error("its end is missing")]
    Torn,
    /// It says what it must not.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<ConfigFault>),
}

/// Reads it.
///
/// # Errors
/// [`NoState`]; then nothing of it is believed.
pub(crate) fn read(text: &str) -> Result<Plan, NoState> {
    let first = text.lines().next().unwrap_or_default();
    match first {
        FIRST => {}
        other if other.starts_with(ANY_VERSION) => return Err(NoState::Version(first.to_owned())),
        _ => return Err(NoState::Other),
    }
    if !text.ends_with(&format!("\n{LAST}\n")) {
        return Err(NoState::Torn);
    }
    parse(text, None).map_err(NoState::Invalid)
}

/// Writes it.
pub(crate) fn written(plan: &Plan) -> String {
    let mut text =
        format!("{FIRST}\n# The daemon writes it; change it while none runs.\nschema_version = \"{VERSION}\"\n");
    let mut line = |line: String| writeln!(text, "{line}").expect("a String takes every text");
    for (name, server) in plan {
        line(format!("\n[servers.{name}]"));
        if let Some(uid) = server.uid {
            line(format!("uid = {uid}"));
        }
        if !server.devices.is_empty() {
            let devices: Vec<String> = server.devices.iter().map(ToString::to_string).collect();
            line(format!("allowed_devices = \"{}\"", devices.join(",")));
        }
        let own = server.namespaces.get(DEFAULT_NAMESPACE).copied().unwrap_or_default();
        limits(own).into_iter().for_each(&mut line);
        for (space, said) in server.namespaces.iter().filter(|(space, _)| *space != DEFAULT_NAMESPACE) {
            line(format!("[servers.{name}.namespaces.{space}]"));
            limits(*said).into_iter().for_each(&mut line);
        }
    }
    line(format!("\n{LAST}"));
    text
}

fn limits(said: Limits) -> Vec<String> {
    let memory =
        said.memory.map(|MemLimit(bytes)| if bytes == 0 { "0".to_owned() } else { format!("{}K", bytes >> 10) });
    let memory = memory.map(|size| format!("pinned_memory_limit = \"{size}\""));
    let percentage = said.percentage.map(|share| format!("active_thread_percentage = \"{}\"", share.get()));
    let priority = said.priority.map(|priority| format!("client_priority = \"{}\"", priority.get()));
    [memory, percentage, priority].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::servers_file::PlannedServer;
    use proptest::prelude::*;
    use remps_proto::admin::limits::{DeviceKey, Percentage, Priority};

    fn any_limits() -> impl Strategy<Value = Limits> {
        let memory = proptest::option::of((0_u64..1 << 40).prop_map(|kibibytes| MemLimit(kibibytes << 10)));
        let percentage = proptest::option::of((1.0_f64..=100.0).prop_map(|share| Percentage::new(share).unwrap()));
        let priority = proptest::option::of(prop_oneof![Just("0"), Just("1")]);
        (memory, percentage, priority).prop_map(|(memory, percentage, priority)| {
            let priority = priority.map(|text| Priority::parse(text.as_bytes()).unwrap());
            Limits { memory, percentage, priority }
        })
    }

    fn any_plan() -> impl Strategy<Value = Plan> {
        let device = prop_oneof![Just("GPU-1"), Just("MIG-ab-2")].prop_map(|uuid| DeviceKey::Uuid(uuid.to_owned()));
        let spaces = proptest::collection::btree_map("[a-z0-9_]{1,4}", any_limits(), 0..4);
        let server = (proptest::option::of(0..u32::MAX), proptest::option::of(device), spaces, any_limits());
        let server = server.prop_map(|(uid, device, mut namespaces, own)| {
            namespaces.insert(DEFAULT_NAMESPACE.to_owned(), own);
            PlannedServer { uid, devices: device.into_iter().collect(), namespaces }
        });
        proptest::collection::btree_map("[a-z0-9_]{1,4}", server, 0..4)
    }

    proptest! {
        #[test]
        fn what_is_kept_is_read_again_whole_and_a_torn_file_never(plan in any_plan(), cut in any::<prop::sample::Index>()) {
            let text = written(&plan);
            prop_assert_eq!(read(&text).map_err(|error| error.to_string()), Ok(plan));
            let torn = &text[..cut.index(text.len())];
            prop_assert!(read(torn).is_err());
        }
    }

    #[test]
    fn what_is_not_ours_or_of_another_version_or_has_more_in_it_is_told_apart() {
        let good = written(&Plan::new());
        let said = |text: &str| read(text).expect_err(text).to_string();
        assert_eq!(said(""), "it does not begin as a file of kept servers");
        assert_eq!(said("schema_version = \"1.0\"\n# end\n"), "it does not begin as a file of kept servers");
        assert_eq!(
            said(&good.replace("version 1\n", "version 2\n")),
            "it is of another version of this program: \"# named servers of the MPS control daemon, version 2\""
        );
        assert_eq!(said(good.trim_end()), "its end is missing");
        let more = good.replace("\n# end", "\n[servers.a]\nlimit = 1\n# end");
        assert!(said(&more).contains("servers.a.limit: no such key"), "{}", said(&more));
    }
}

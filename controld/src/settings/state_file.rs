//! The text in which named servers and default limits outlive the daemon: a file of servers
//! ([`servers_file`](super::servers_file)), between a first line with the version and a last one without which it is not
//! whole.
//!
//! So an operator can read it and give it to the option `-a`, and it is read as strictly as that. What commands have said
//! with `set_default_…` is no part of that schema, and stands in a line that is a comment there:
//! `# defaults threads=50 priority=1 memory=0:1073741824`, with as many limits as there are, and `memory=none` where
//! commands have taken all away.

use super::faults::ConfigFault;
use super::servers_file::{Plan, VERSION, parse};
use crate::core::KeptDefaults;
use remps_proto::admin::defaults::Defaults;
use remps_proto::admin::limits::{DeviceKey, MemLimit, Percentage, Priority};
use remps_proto::admin::module::{DEFAULT_NAMESPACE, Limits};
use std::fmt::Write as _;

/// The first line, with the version of this file.
const FIRST: &str = "# named servers of the MPS control daemon, version 1";
/// What first lines of other versions begin with, too.
const ANY_VERSION: &str = "# named servers of the MPS control daemon, version ";
/// The last line.
const LAST: &str = "# end";
/// What the line of defaults begins with.
const DEFAULTS: &str = "# defaults ";
const THREADS: &str = "threads=";
const PRIORITY: &str = "priority=";
const MEMORY: &str = "memory=";
/// Commands have said that there is no limit.
const NONE: &str = "none";

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
    /// Its line of defaults is none.
    #[error("\"{0}\" is not understood")]
    Defaults(String),
    /// It says what it must not.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<ConfigFault>),
}

/// Reads it.
///
/// # Errors
/// [`NoState`]; then nothing of it is believed.
pub(crate) fn read(text: &str) -> Result<(Plan, KeptDefaults), NoState> {
    let first = text.lines().next().unwrap_or_default();
    match first {
        FIRST => {}
        other if other.starts_with(ANY_VERSION) => return Err(NoState::Version(first.to_owned())),
        _ => return Err(NoState::Other),
    }
    if !text.ends_with(&format!("\n{LAST}\n")) {
        return Err(NoState::Torn);
    }
    let plan = parse(text, None).map_err(NoState::Invalid)?;
    // Only at the head, where nothing can be the text of a value.
    let head = text.lines().take_while(|line| line.starts_with('#'));
    let mut lines = head.filter(|line| line.starts_with(DEFAULTS.trim_end()));
    let Some(line) = lines.next() else { return Ok((plan, KeptDefaults::default())) };
    let defaults = line.strip_prefix(DEFAULTS).filter(|_| lines.next().is_none()).and_then(defaults);
    Ok((plan, defaults.ok_or_else(|| NoState::Defaults(line.to_owned()))?))
}

/// Reads what commands have said; `None` when anything in it is not understood, since less than all limits is none to go
/// by.
fn defaults(words: &str) -> Option<KeptDefaults> {
    let mut read = KeptDefaults::default();
    for word in words.split_ascii_whitespace() {
        if let Some(share) = word.strip_prefix(THREADS) {
            read.percentage = Some(Percentage::new(share.parse().ok()?).ok()?);
        } else if let Some(level) = word.strip_prefix(PRIORITY) {
            read.priority = Some(Priority::parse(level.as_bytes()).ok()?);
        } else {
            let said = word.strip_prefix(MEMORY)?;
            let limits = read.limits.get_or_insert_default();
            if said != NONE {
                let (device, bytes) = said.rsplit_once(':')?;
                let limit = MemLimit(bytes.parse().ok()?);
                limits.push((DeviceKey::parse(device.as_bytes()).ok()?, limit));
                if limit.is_none() || limits.len() > Defaults::MAX_LIMITS {
                    return None;
                }
            }
        }
    }
    Some(read)
}

fn defaults_written(said: &KeptDefaults) -> Option<String> {
    let KeptDefaults { percentage, priority, limits } = said;
    let mut words = Vec::new();
    words.extend(percentage.map(|share| format!("{THREADS}{}", share.get())));
    words.extend(priority.map(|priority| format!("{PRIORITY}{}", priority.get())));
    match limits.as_deref() {
        Some([]) => words.push(format!("{MEMORY}{NONE}")),
        limits => words
            .extend(limits.into_iter().flatten().map(|(device, MemLimit(bytes))| format!("{MEMORY}{device}:{bytes}"))),
    }
    (!words.is_empty()).then(|| format!("{DEFAULTS}{}", words.join(" ")))
}

/// Writes it.
pub(crate) fn written(plan: &Plan, defaults: &KeptDefaults) -> String {
    let mut text = format!("{FIRST}\n# The daemon writes it; change it while none runs.\n");
    text.extend(defaults_written(defaults).map(|line| line + "\n"));
    text.push_str(&format!("schema_version = \"{VERSION}\"\n"));
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

    fn any_defaults() -> impl Strategy<Value = KeptDefaults> {
        let percentage = proptest::option::of((0.01_f64..=100.0).prop_map(|share| Percentage::new(share).unwrap()));
        let priority = proptest::option::of(prop_oneof![Just("0"), Just("1")]);
        let device = prop_oneof![Just("0"), Just("31"), Just("GPU-ab-1"), Just("MIG-2")];
        let limit = (device, 1..u64::MAX)
            .prop_map(|(device, bytes)| (DeviceKey::parse(device.as_bytes()).unwrap(), MemLimit(bytes)));
        let limits = proptest::option::of(proptest::collection::vec(limit, 0..3));
        (percentage, priority, limits).prop_map(|(percentage, priority, limits)| {
            let priority = priority.map(|text| Priority::parse(text.as_bytes()).unwrap());
            KeptDefaults { percentage, priority, limits }
        })
    }

    proptest! {
        #[test]
        fn what_is_kept_is_read_again_whole_and_a_torn_file_never(
            plan in any_plan(),
            defaults in any_defaults(),
            cut in any::<prop::sample::Index>(),
        ) {
            let text = written(&plan, &defaults);
            prop_assert_eq!(parse(&text, None).map_err(|_| ()), Ok(plan.clone()), "the option takes it, too");
            prop_assert_eq!(read(&text).map_err(|error| error.to_string()), Ok((plan, defaults)));
            let torn = &text[..cut.index(text.len())];
            prop_assert!(read(torn).is_err());
        }
    }

    #[test]
    fn what_is_not_ours_or_of_another_version_or_has_more_in_it_is_told_apart() {
        let good = written(&Plan::new(), &KeptDefaults::default());
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

    #[test]
    fn defaults_that_are_not_understood_are_no_defaults_and_no_servers() {
        let good = written(&Plan::new(), &KeptDefaults::default());
        let with = |lines: &str| good.replacen("schema_version", &format!("{lines}\nschema_version"), 1);
        let (_, read_back) = read(&with("# defaults threads=12.5 memory=none")).unwrap();
        let wanted = KeptDefaults { percentage: Percentage::new(12.5).ok(), priority: None, limits: Some(Vec::new()) };
        assert_eq!(read_back, wanted);
        for odd in [
            "# defaults threads=0",
            "# defaults threads=101",
            "# defaults threads=NaN",
            "# defaults priority=7",
            "# defaults memory=0:0",
            "# defaults memory=0:-1",
            "# defaults memory=::1",
            "# defaults shares=1",
            "# defaults_later threads=5",
            "# defaults threads=5\n# defaults threads=6",
        ] {
            assert!(read(&with(odd)).expect_err(odd).to_string().ends_with("is not understood"), "{odd}");
        }
        let many: String = (0..=Defaults::MAX_LIMITS).map(|number| format!(" memory=GPU-{number}:1")).collect();
        assert!(read(&with(&format!("# defaults{many}"))).is_err());
    }
}

//! The manual's schema is understood, and whatever is wrong is told.

use super::*;
use crate::settings::{SettingsError, read_servers};
use proptest::prelude::*;
use remps_proto::admin::limits::{MemLimit, Percentage, Priority};

fn faults(text: &str) -> Vec<String> {
    let text = format!("schema_version = \"1.0\"\n{text}");
    parse(&text, Some(580)).expect_err(&text).iter().map(ToString::to_string).collect()
}

/// Every key of the manual's schema (docs.nvidia.com, MPS 615, mpsv3-interface) that a server of any driver has.
#[test]
fn the_manuals_schema_is_understood() {
    let text = r#"
        schema_version = "1.0"
        [servers.training]
        allowed_devices = "0,GPU-74d43ed3"
        pinned_memory_limit = "8G"
        active_thread_percentage = "50"
        client_priority = "0"
        uid = 1000
        locality_domains = false
        [servers.training.namespaces.jobs]
        active_thread_percentage = 30
        [servers.training.namespaces.default]
        pinned_memory_limit = "4G"
        [[servers.training.devices]]
        uuid = "GPU-74d43ed3"
        [servers.other]
        [features.memacct]
        enabled = false
        audit_log = true
        [features.context-share]
        enabled = false
        default_socket = "on"
    "#;
    let plan = parse(text, None).unwrap();
    let share = |value| Percentage::new(value).ok();
    let own = Limits { memory: Some(MemLimit(4 << 30)), percentage: share(50.0), priority: Some(Priority::Normal) };
    let training = PlannedServer {
        uid: Some(1000),
        devices: vec![DeviceKey::Ordinal(0), DeviceKey::Uuid("GPU-74d43ed3".to_owned())],
        namespaces: BTreeMap::from([
            ("default".to_owned(), own),
            ("jobs".to_owned(), Limits { percentage: share(30.0), ..Limits::default() }),
        ]),
    };
    assert_eq!(plan["training"], training);
    let bare = BTreeMap::from([("default".to_owned(), Limits::default())]);
    assert_eq!(plan["other"], PlannedServer { namespaces: bare, ..PlannedServer::default() });
}

#[test]
fn whatever_is_wrong_is_told_with_its_line_and_what_may_be_meant() {
    assert_eq!(
        faults("[servers.a]\nactive_thread_percent = \"50\"\nuid = -1\n[servers.a.namespaces.n]\nuid = 7\n[server.b]"),
        [
            "line 3: servers.a.active_thread_percent: no such key; did you mean active_thread_percentage?",
            "line 4: servers.a.uid: must be a user's number",
            "line 6: servers.a.namespaces.n.uid: no such key; there are pinned_memory_limit, \
             active_thread_percentage, client_priority",
            "line 7: server: no such key; did you mean servers?",
        ]
    );
    for (text, fault) in [
        ("[servers.A]", "line 2: servers.A: a name has 1 to 64 lower-case letters, digits and underscores"),
        ("servers = 1", "line 2: servers: must be a table"),
        (
            "[servers.a]\nallowed_devices = \"x\"",
            "line 3: servers.a.allowed_devices: must be ordinals and UUIDs, none of them twice",
        ),
        (
            "[servers.a]\npinned_memory_limit = 4096",
            "line 3: servers.a.pinned_memory_limit: must be a size as \"4G\", in K, M or G",
        ),
        (
            "[servers.a]\nlocality_domains = true",
            "line 3: servers.a.locality_domains: locality_domains = true needs driver >= 595, this one is 580",
        ),
        (
            "[features.memacct]\nenabled = true",
            "line 3: features.memacct.enabled: memacct needs driver >= 615, this one is 580",
        ),
        ("[[servers.a.devices]]\nuuid = \"0\"", "line 3: servers.a.devices[1].uuid: must be a device's UUID"),
        (
            "[[servers.a.devices]]\nuuid = \"GPU-1\"\n[[servers.a.devices.sm_partitions]]\nname = \"n\"\nchunks = 2",
            "line 4: servers.a.devices[1].sm_partitions[1]: an SM partition needs driver >= 595, this one is 580",
        ),
    ] {
        assert_eq!(faults(text), [fault], "{text}");
    }
    let version = parse("", None).unwrap_err();
    assert_eq!(version[0].to_string(), "schema_version: is missing; it must be \"1.0\"");
    assert!(parse("schema_version = \"1.0", None).is_err());
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.toml");
    std::fs::write(&path, "#".repeat(2 << 20)).unwrap();
    assert!(matches!(read_servers(&path, None), Err(SettingsError::Read { .. })));
}

proptest! {
    #[test]
    fn no_text_panics(text in "(schema_version|servers|\\[|\\]|\\.|=|\"|1|a|uid|namespaces|devices|\n| |true|\\{|\\}|,){0,40}") {
        let _ = parse(&text, Some(580));
        let _ = parse(&format!("schema_version = \"1.0\"\n{text}"), None);
    }
}

//! What the environment and the file make, and what is said of a bad one.

mod listing;
mod manual;
mod programs;
mod retired;

use super::*;
use crate::core::{ComputeModeAction, CulpritAction, GpuPolicy, Grouping, StrangerAction, VictimAction};
use remps_proto::admin::defaults::Defaults;
use std::collections::BTreeMap;
use std::time::Duration;

fn settings(pairs: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let pairs: BTreeMap<String, OsString> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
    Settings::read(|name| pairs.get(name).cloned())
}

fn with_file(text: &str) -> Result<Settings, SettingsError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, text).expect("written");
    settings(&[("MPS_CONTROL_CONFIG", path.to_str().expect("ascii"))])
}

fn faults_of(text: &str) -> Vec<ConfigFault> {
    match with_file(text) {
        Err(SettingsError::Invalid { faults, .. }) => faults,
        other => panic!("{text:?} gives {other:?}"),
    }
}

/// The one fault of a text: its line, its key and a part of what is said.
#[track_caller]
fn assert_fault(text: &str, line: usize, key: &str, says: &str) {
    let faults = faults_of(text);
    let [fault] = faults.as_slice() else { panic!("{text:?} has not one fault: {faults:#?}") };
    assert_eq!((fault.line, fault.key.as_str()), (Some(line), key), "{fault}");
    assert!(fault.what.contains(says), "{fault}");
}

#[test]
fn an_empty_environment_gives_the_vendors_defaults() {
    let settings = settings(&[]).expect("no file is no error");
    assert_eq!(settings.pipe_directory, Path::new("/tmp/nvidia-mps"));
    assert_eq!(settings.log_directory, Path::new("/var/log/nvidia-mps"));
    assert_eq!(settings.defaults, Defaults::default());
    assert_eq!(settings.policy(false), Policy::default());
    assert_eq!(settings.policy(true).sharing, Sharing::MultiUser);
}

#[test]
fn limits_come_from_the_vendors_variables() {
    let settings = settings(&[
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "33.3"),
        ("CUDA_MPS_CLIENT_PRIORITY", "1"),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G,x=2G"),
    ])
    .expect("no file is no error");
    assert_eq!(settings.defaults.percentage().get().to_string(), "33.3");
    assert_eq!(settings.defaults.priority().get(), 1);
    assert_eq!(settings.defaults.limits().len(), 1);
    assert_eq!(settings.remarks.len(), 1, "the bad entry is remarked, the good one kept: {:?}", settings.remarks);
}

#[test]
fn the_vendors_single_server_rule_is_one_key() {
    let settings = with_file("sharing = \"single\"\nidle_timeout = 0\ndrain_timeout = 2.5\n").expect("sound");
    let policy = settings.policy(false);
    assert_eq!((policy.sharing, policy.idle_timeout), (Sharing::Single, None));
    assert_eq!(policy.drain_timeout, Duration::from_millis(2500));
}

#[test]
fn every_table_reaches_the_policy() {
    let settings = with_file(
        "[domains]\nby = \"cgroup\"\nmax_clients = 8\nstandby = true\n\
         [faults]\nculprit = \"terminate\"\nvictims = \"terminate\"\nquarantine_after = 0\nrefuse_after = 5\n\
         refuse_for = 1.5\n\
         [funerals]\nhold_timeout = 3\nendless_hold = inf\n\
         [gpu]\ncompute_mode = \"manage\"\nstrangers = \"end\"\ninterval = 0.5\n",
    )
    .expect("sound");
    let policy = settings.policy(false);
    assert_eq!(policy.grouping().by, Grouping::Cgroup);
    let domain = policy.for_domain(7, None, "");
    assert_eq!((domain.group.max_clients, domain.group.standby), (Some(8), true));
    let faults = &domain.faults;
    assert_eq!((faults.culprit, faults.victims), (CulpritAction::Terminate, VictimAction::Terminate));
    assert_eq!((faults.quarantine_after, faults.refuse_after), (0, 5));
    assert_eq!(faults.refuse_for, Duration::from_millis(1500));
    assert_eq!(policy.funerals.hold_timeout, Duration::from_secs(3));
    assert_eq!(policy.funerals.endless_hold, None);
    let gpus = GpuPolicy {
        compute_mode: ComputeModeAction::Manage,
        strangers: StrangerAction::End,
        interval: Duration::from_millis(500),
        ..GpuPolicy::default()
    };
    assert_eq!(policy.gpus, gpus);
    assert_eq!(with_file("").expect("sound").policy(false).gpus, GpuPolicy::default(), "left alone, told of");
}

#[test]
fn a_dead_clients_memory_can_be_kept_for_the_others_for_a_time_for_ever_or_not_at_all() {
    let hold =
        |value: &str| with_file(&format!("[funerals]\nendless_hold = {value}\n")).map(|s| s.policy(false).funerals);
    assert_eq!(hold("2").expect("sound").endless_hold, Some(Duration::from_secs(2)));
    assert_eq!(hold("inf").expect("sound").endless_hold, None);
    assert_eq!(hold("0").expect("sound").endless_hold, Some(Duration::ZERO));
    assert_fault("[funerals]\nendless_hold = -inf\n", 2, "funerals.endless_hold", "no number of seconds");
    assert_fault("[funerals]\nhold_timeout = inf\n", 2, "funerals.hold_timeout", "no number of seconds");
}

#[test]
fn an_override_changes_what_it_names_and_takes_the_rest_from_the_tables() {
    let settings = with_file(
        "[[domain]]\nuid = 7\nlabel = \"batch\"\nculprit = \"terminate\"\nmax_clients = 1\n\
         [[domain]]\ncgroup = \"/kubepods.slice\"\nstandby = true\n\
         [domains]\nmax_clients = 16\n[faults]\nvictims_timeout = 9\n",
    )
    .expect("sound");
    let policy = settings.policy(false);
    let batch = policy.for_domain(7, Some("batch"), "/");
    assert_eq!(
        (batch.group.max_clients, batch.faults.culprit, batch.group.standby),
        (Some(1), CulpritAction::Terminate, false)
    );
    assert_eq!(batch.faults.victims_timeout, Duration::from_secs(9));
    let pod = policy.for_domain(0, None, "/kubepods.slice/pod1");
    assert_eq!((pod.group.max_clients, pod.faults.culprit, pod.group.standby), (Some(16), CulpritAction::Report, true));
    assert_eq!(policy.for_domain(7, None, "/").group.max_clients, Some(16));
}

#[test]
fn a_key_that_had_another_name_once_is_understood_by_it() {
    let text = "[[domain]]\nuid = 7\ndrain_timeout = 4\n[faults]\ndrain_timeout = 9\n";
    let settings = with_file(text).expect("sound");
    let policy = settings.policy(false);
    assert_eq!(policy.for_domain(0, None, "/").faults.victims_timeout, Duration::from_secs(9));
    assert_eq!(policy.for_domain(7, None, "/").faults.victims_timeout, Duration::from_secs(4));
    assert_eq!(policy.drain_timeout, Policy::default().drain_timeout, "the daemon's own is another one");
    assert_eq!(settings.source.lines.get("faults.victims_timeout"), Some(5));
    let both = "[faults]\nvictims_timeout = 1\ndrain_timeout = 9\n";
    assert_fault(both, 3, "faults.drain_timeout", "the former name of victims_timeout");
    assert_fault("[faults]\ndrain_timeout = -1\n", 2, "faults.victims_timeout", "seconds");
}

#[test]
fn a_key_that_does_not_exist_is_an_error_that_names_those_that_do() {
    assert_fault("sharin = \"single\"\n", 1, "sharin", "sharing");
    assert_fault("\n[fault]\nculprit = \"report\"\n", 2, "fault", "faults");
    assert_fault("[faults]\n\nculprits = \"report\"\n", 3, "faults.culprits", "no such key; did you mean culprit?");
    assert_fault("[faults]\nzzz = 1\n", 2, "faults.zzz", "there are culprit, ");
    assert_fault("[[domain]]\nuid = 1\nby = \"uid\"\n", 3, "domain[1].by", "max_clients");
}

#[test]
fn a_value_of_the_wrong_type_is_an_error_that_says_which_fit() {
    assert_fault("sharing = \"all\"\n", 1, "sharing", "`per-user`");
    assert_fault("sharing = 1\n", 1, "sharing", "integer `1`, expected a string");
    assert_fault("[domains]\nby = \"user\"\n", 2, "domains.by", "`uid`");
    assert_fault("[domains]\nmax_clients = 2\nshared_by = 2\n", 3, "domains.shared_by", "max_clients");
    assert_fault("[domains]\nmax_clients = -1\n", 2, "domains.max_clients", "-1");
    assert_fault("[faults]\nrefuse_for = \"1s\"\n", 2, "faults.refuse_for", "string");
    assert_fault("[faults]\nrefuse_for = \"1s\"\n", 2, "faults.refuse_for", "expected a number");
    assert_fault("[domains]\nmax_clients = 1.5\n", 2, "domains.max_clients", "expected a whole number from 0 on");
    assert_fault("faults = 1\n", 1, "faults", "[faults]");
    assert_fault("[domain]\nuid = 1\n", 1, "domain", "[[domain]]");
    assert_fault("[[domain]]\nuid = -1\nlabel = \"x\"\n", 2, "domain[1].uid", "no user id");
    assert_fault("[[domain]]\nuid = 1\nlabel = 1\n", 3, "domain[1].label", "text");
}

#[test]
fn a_value_that_makes_no_sense_is_an_error_that_says_why() {
    assert_fault("drain_timeout = -1\n", 1, "drain_timeout", "no number of seconds");
    assert_fault("[funerals]\nhold_timeout = nan\n", 2, "funerals.hold_timeout", "NaN");
    assert_fault("[faults]\nquarantine_window = 0\n", 2, "faults.quarantine_window", "never counted");
    assert_fault("[faults]\nrefuse_after = 1\nrefuse_for = 0\n", 3, "faults.refuse_for", "refuse_after = 0");
    assert_fault("sharing = \"single\"\n[domains]\nby = \"label\"\n", 3, "domains.by", "one server at a time");
    assert_fault("[witness]\nkmsg = \"kmsg\"\n", 2, "witness.kmsg", "must begin with /");
    assert_fault("[replay]\nburial_hold = -1\n", 2, "replay.burial_hold", "no number of seconds");
    assert_fault("[gpu]\ncompute_mode = \"set\"\n", 2, "gpu.compute_mode", "`manage`");
    assert_fault("[gpu]\nstrangers = \"end\"\n", 2, "gpu.strangers", "compute_mode = \"manage\" only");
    assert_fault("[gpu]\ninterval = 0.1\n", 2, "gpu.interval", "less than 0.2");
    assert_fault("[observe]\njournal_size_mib = 0\n", 2, "observe.journal_size_mib", "1 MiB");
}

#[test]
fn metrics_are_served_on_this_machine_only() {
    for sound in ["", "unix:/run/m.sock", "127.0.0.1:9400", "[::1]:9400", "127.3.2.1:1"] {
        with_file(&format!("[observe]\nlisten = \"{sound}\"\n")).expect(sound);
    }
    let long = format!("unix:/{}", "a".repeat(107));
    for (listen, says) in [
        ("0.0.0.0:9400", "open to the network"),
        ("[::]:1", "open to the network"),
        ("9400", "neither"),
        ("unix:m", "begin with /"),
        (&long, "107"),
    ] {
        assert_fault(&format!("[observe]\nlisten = \"{listen}\"\n"), 2, "observe.listen", says);
    }
}

#[test]
fn an_override_must_be_for_somebody_and_for_somebody_else_than_those_before_it() {
    assert_fault("[[domain]]\nstandby = true\n", 1, "domain[1]", "names no clients");
    assert_fault("[[domain]]\nuid = 1\n[[domain]]\nuid = 1\n", 3, "domain[2]", "domain[1]");
    assert_fault("[[domain]]\ncgroup = \"kubepods\"\n", 2, "domain[1].cgroup", "begins with /");
    assert_fault("[[domain]]\ncgroup = \"/a\\tb\"\n", 2, "domain[1].cgroup", "control characters");
    assert_fault("[[domain]]\nlabel = \"a\\nb\"\n", 2, "domain[1].label", "control characters");
    assert_fault("[[domain]]\nuid = 1\nculprit = \"kill\"\n", 3, "domain[1].culprit", "`report`");
}

#[test]
fn what_an_override_only_inherits_is_told_once() {
    assert_fault("[faults]\nvictims_timeout = -1\n[[domain]]\nuid = 1\n", 2, "faults.victims_timeout", "seconds");
    // What becomes wrong by the override is the override's, at its first line.
    assert_fault("[faults]\nrefuse_for = 0\n[[domain]]\nuid = 1\nrefuse_after = 2\n", 3, "domain[1].refuse_for", "0");
}

#[test]
fn all_errors_are_told_and_not_the_first_alone() {
    let faults = faults_of("sharing = 1\nbogus = 2\n[faults]\nculprit = 3\nrefuse_for = -4\n[[domain]]\n");
    let keys: Vec<_> = faults.iter().map(|fault| (fault.line, fault.key.as_str())).collect();
    let want = [
        (Some(1), "sharing"),
        (Some(2), "bogus"),
        (Some(4), "faults.culprit"),
        (Some(5), "faults.refuse_for"),
        (Some(6), "domain[1]"),
    ];
    assert_eq!(keys, want);
    let syntax = faults_of("sharing = \n= 2\n");
    assert_eq!(syntax.iter().map(|fault| fault.line).collect::<Vec<_>>(), [Some(1), Some(2)], "{syntax:?}");
    let many: String = (0..200).map(|number| format!("bogus{number} = 1\n")).collect();
    let many = faults_of(&many);
    assert_eq!(many.last().map(ToString::to_string).as_deref(), Some("and 150 more errors"));
}

#[test]
fn an_error_begins_with_the_file_and_the_line_like_a_compilers() {
    let error = with_file("\nsharin = 1\n").expect_err("a bad key").to_string();
    assert!(error.contains("c.toml: line 2: sharin: no such key"), "{error}");
}

#[test]
fn a_file_that_is_missing_or_no_file_of_ours_is_an_error() {
    assert!(matches!(settings(&[("MPS_CONTROL_CONFIG", "/nowhere.toml")]), Err(SettingsError::Read { .. })));
    assert!(matches!(settings(&[("MPS_CONTROL_CONFIG", "/")]), Err(SettingsError::Read { .. })));
    let endless = settings(&[("MPS_CONTROL_CONFIG", "/dev/zero")]).expect_err("no end").to_string();
    assert!(endless.contains("larger than"), "{endless}");
}

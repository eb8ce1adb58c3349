//! Values that commands set.

use integration::lab::Lab;
use integration::lab::process::Process;
use integration::under_test::{for_each, only_ours, subjects};
use nix::unistd::Uid;
use std::path::Path;

#[test]
fn ct_03_a_percentage_is_echoed_and_an_invalid_one_changes_nothing() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        for (value, want) in [
            ("33", "33.0\n"),
            ("0", "33.0\n"),
            ("101", "33.0\n"),
            ("abc", "33.0\n"),
            ("nan", "33.0\n"),
            ("", "33.0\n"),
            ("66.666", "66.7\n"),
            ("0x20", "32.0\n"),
            ("1e1", "10.0\n"),
            ("50%", "50.0\n"),
        ] {
            let answer = lab.ask(&format!("set_default_active_thread_percentage {value}\n"));
            assert_eq!(answer, want, "{subject}: {value:?}");
        }
    });
}

#[test]
fn ct_03_defaults_can_come_from_the_environment() {
    for_each(subjects(), |subject| {
        let lab =
            Lab::new(subject).with("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "42").with("CUDA_MPS_CLIENT_PRIORITY", "1");
        lab.start(&[]);
        let answer = lab.ask("get_default_active_thread_percentage\nget_default_client_priority\n");
        assert_eq!(answer, "42.0\n1\n", "{subject}");
    });
}

#[test]
fn ct_04_a_memory_limit_is_shown_in_whole_g_or_m() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        for (value, want) in [
            ("4096M", "4G\n"),
            ("1044M", "1G\n"),
            ("900M", "900M\n"),
            ("8GB", "8G\n"),
            ("9mb", "9M\n"),
            ("10", "10M\n"),
            ("0G", ""),
        ] {
            let line =
                format!("set_default_device_pinned_mem_limit 0 {value}\nget_default_device_pinned_mem_limit 0\n");
            assert_eq!(lab.ask(&line), want, "{subject}: {value:?}");
        }
        for ordinal in [31, 1] {
            let line = format!(
                "set_default_device_pinned_mem_limit {ordinal} 3G\nget_default_device_pinned_mem_limit {ordinal}\n"
            );
            assert_eq!(lab.ask(&line), "3G\n", "{subject}: {ordinal}");
        }
        let line = "set_default_device_pinned_mem_limit 32 3G\nget_default_device_pinned_mem_limit 32\n";
        assert_eq!(lab.ask(line), "", "{subject}");
    });
}

#[test]
fn ct_04_a_limit_that_would_be_misread_is_refused() {
    for_each(only_ours(), |subject| {
        let lab = Lab::new(subject);
        lab.start(&[]);
        assert_eq!(lab.ask("set_default_device_pinned_mem_limit 0 5G\n"), "");
        for value in ["10K", "1.5G", "-1G", "x", "0x2G", "", "99999999999999G"] {
            let line =
                format!("set_default_device_pinned_mem_limit 0 {value}\nget_default_device_pinned_mem_limit 0\n");
            assert_eq!(lab.ask(&line), "5G\n", "{subject}: {value:?}");
        }
    });
}

#[test]
fn ct_04_a_server_gets_the_limits_of_ordinals_and_uuids() {
    for_each(only_ours(), |subject| {
        let lab = Lab::new(subject);
        let server = Path::new(env!("CARGO_BIN_EXE_nvidia-cuda-mps-server"));
        let path = lab.bin_dir(&[("nvidia-cuda-mps-server", server)]);
        let mut lab = lab.with("PATH", path);
        lab.start_foreground(&[]);
        let uuid = "GPU-74d43ed3-cdf7-e667-3644-bf5b4f46ed65";
        let set = format!(
            "set_default_device_pinned_mem_limit 0 1G\nset_default_device_pinned_mem_limit {uuid} 2G\n\
             get_default_device_pinned_mem_limit {uuid}\nstart_server -uid {}\n",
            Uid::effective()
        );
        assert_eq!(lab.ask(&set), "2G\n", "{subject}");
        let process: &Process = lab.foreground().expect("it runs");
        // The server tells its log which limit it took.
        assert!(waits_for(process, "pinned memory limit"), "{subject}:\n{}", process.output());
        assert_eq!(lab.ask("quit\n"), "");
    });
}

fn waits_for(process: &Process, text: &str) -> bool {
    let nowhere = Path::new("/nonexistent");
    integration::lab::watch::became_true(nowhere, nowhere, integration::lab::LIMIT, || process.output().contains(text))
}

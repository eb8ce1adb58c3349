//! What the daemon may do, and what the kernel can.

use super::{DAEMON, Made};
use crate::doctor::Severity::{Note, Ok as Fine, Problem, Warning};

const FIRST: [u64; 2] = [4_026_531_836, 4_026_531_837];
const NO_CAPABILITIES: &str = "0000000000000000";

#[test]
fn a_daemon_that_may_not_look_into_clients_is_told_what_that_costs() {
    let made = Made::sound();
    made.process(DAEMON, NO_CAPABILITIES, FIRST);
    made.assert("ptrace", Warning, "any client");
    made.file("proc/sys/kernel/yama/ptrace_scope", "0\n");
    made.assert("ptrace", Warning, "of other users");
    assert!(made.finding("ptrace").costs.contains("culprits"));
    made.process(DAEMON, super::ALL_CAPABILITIES, FIRST);
    made.assert("ptrace", Fine, "CAP_SYS_PTRACE");
    made.file("proc/sys/kernel/yama/ptrace_scope", "3\n");
    made.assert("ptrace", Warning, "nobody");
}

#[test]
fn without_a_daemon_the_rights_of_the_call_are_judged() {
    let mut made = Made::sound();
    made.machine.daemon_pid = None;
    made.file("proc/self/status", "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n");
    made.assert("user", Warning, "a daemon started from here is user 1000");
    made.assert("kill", Warning, "a daemon started from here lacks CAP_KILL");
    made.assert("mount-namespace", Note, "no daemon");
}

#[test]
fn the_kernels_messages_need_a_right_only_where_they_are_restricted() {
    let mut made = Made::sound();
    made.process(DAEMON, NO_CAPABILITIES, FIRST);
    made.assert("kmsg", Warning, "CAP_SYSLOG");
    made.file("proc/sys/kernel/dmesg_restrict", "0\n");
    made.assert("kmsg", Fine, "off");
    made.remove("dev/kmsg");
    made.assert("kmsg", Warning, "missing");
    made.machine.config.as_mut().unwrap().witness.kmsg.clear();
    made.assert("kmsg", Note, "empty");
}

#[test]
fn namespaces_of_its_own_keep_the_daemon_from_knowing_who_is_who() {
    let mut made = Made::sound();
    made.process(DAEMON, super::ALL_CAPABILITIES, [4_026_532_100, 4_026_532_101]);
    made.assert("pid-namespace", Warning, "4026532100");
    made.assert("user-namespace", Warning, "4026532101");
    assert!(made.finding("pid-namespace").advice.contains("witness.proc"));
    made.machine.config.as_mut().unwrap().witness.proc = "/host/proc".to_owned();
    made.assert("pid-namespace", Problem, "/host/proc");
    made.file("host/proc/self/fdinfo/0", "");
    made.assert("pid-namespace", Warning, "known by /host/proc");
    assert!(made.finding("pid-namespace").costs.contains("placed, named and listed"));
    made.remove(&format!("proc/{DAEMON}/ns/pid"));
    made.assert("pid-namespace", Note, "not known");
}

#[test]
fn limits_are_given_in_clients() {
    let made = Made::sound();
    let limits = |files: &str, locked: &str| {
        let text = format!("Max open files            256   {files}   files\nMax locked memory   {locked}  x  bytes\n");
        made.file(&format!("proc/{DAEMON}/limits"), &text.replace("  x  ", &format!("  {locked}  ")));
    };
    limits("4096", "65536");
    made.assert("open-files", Warning, "some 512 clients");
    made.assert("locked-memory", Note, "64 KiB");
    limits("unlimited", "unlimited");
    made.assert("open-files", Fine, "unlimited");
    made.assert("locked-memory", Fine, "unlimited");
    limits("16384", "8388608");
    made.file(&format!("proc/{DAEMON}/fd/7"), "");
    made.assert("open-files", Fine, "1 in use");
}

#[test]
fn an_old_kernel_is_said_to_lack_what_it_lacks() {
    let made = Made::sound();
    for (release, severity, says) in [
        ("5.4.0-150-generic", Warning, "pidfd_getfd"),
        ("5.6.0", Note, "SO_PEERPIDFD"),
        ("6.5.13", Note, "exit status"),
        ("6.14.9-arch1", Note, "exit status"),
        ("6.15.0-rc1", Fine, "6.15.0-rc1"),
        ("7.0.1", Fine, "7.0.1"),
        ("", Note, "not known"),
        ("six", Note, "not known"),
    ] {
        made.file("proc/sys/kernel/osrelease", release);
        made.assert("kernel", severity, says);
    }
}

#[test]
fn a_driver_that_is_missing_or_two_of_them_are_problems() {
    let made = Made::sound();
    made.assert("driver", Fine, "580.159.04, open kernel module");
    made.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue\n");
    made.assert("driver", Fine, "proprietary");
    made.assert("library", Problem, "against module 550.163.01");
    made.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.10  Tue\n");
    made.assert("driver", Warning, "does not know");
    assert!(made.finding("driver").costs.contains("release 535"));
    made.remove("proc/driver/nvidia/version");
    made.assert("driver", Problem, "not loaded");
    made.assert("library", Note, "no module to compare");
    made.remove("lib/libcuda.so.1");
    made.assert("library", Warning, "none of the usual folders");
}

#[test]
fn the_patched_module_is_described_by_what_it_does_now() {
    let made = Made::sound();
    let (parameter, device) = ("sys/module/nvidia_uvm/parameters/uvm_mps_mode", "dev/nvidia-uvm-mps");
    made.assert("patched-module", Fine, "isolates");
    made.file(device, "1\n");
    made.assert("patched-module", Warning, "though loaded to isolate");
    made.file(parameter, "1\n");
    for (text, severity, says) in [
        ("1\n", Note, "observes"),
        ("2\n", Fine, "isolates"),
        ("0\n", Note, "off"),
        ("9\n", Note, "its mode is 9"),
        ("closed\n", Note, "loaded with uvm_mps_mode=1"),
    ] {
        made.file(device, text);
        made.assert("patched-module", severity, says);
    }
    made.remove(device);
    made.assert("patched-module", Warning, "missing here");
    made.file(parameter, "0\n");
    made.assert("patched-module", Note, "off");
    made.remove(parameter);
    made.assert("patched-module", Note, "not installed");
}

#[test]
fn a_module_that_was_to_be_patched_and_is_not_is_a_warning() {
    let made = Made::sound();
    made.remove("sys/module/nvidia_uvm/parameters/uvm_mps_mode");
    made.file("etc/dkms/framework.conf", "# sign_file=\n");
    made.assert("patched-module", Note, "not installed");
    made.file(
        "etc/dkms/nvidia-current-open.conf",
        "PRE_BUILD=\"../../../../../../../../../../../usr/lib/nvidia-uvm-mps/dkms/prebuild\"\n",
    );
    made.assert("patched-module", Warning, "nvidia-current-open is to be built with it");
}

//! What is taken for a client's descriptors, and what is not.

use super::*;
use crate::sys::pidfd;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// `/dev/null` as a stand-in: its major number is 1 and its minor 3.
const DEVICES: &str =
    "Character devices:\n  1 mem\n  5 /dev/tty\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  7 nvidia-uvm\n";

#[test]
fn the_major_number_is_that_of_the_character_device() {
    assert_eq!(find_major(DEVICES), Some(511));
    assert_eq!(find_major(&DEVICES.replace("511 nvidia-uvm\n", "")), None);
    assert_eq!(find_major("Character devices:\n511 nvidia-uvm-tools\n"), None);
    assert_eq!(find_major(""), None);
}

#[test]
fn what_is_given_must_be_the_drivers() {
    let (mut reader, writer) = io::pipe().unwrap();
    drop(Given::prove(writer.into()).expect_err("it is a pipe's"));
    // Nobody has kept it, or this would not end.
    assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
}

#[test]
fn the_right_to_look_is_a_bit_of_the_effective_capabilities() {
    let status = |mask: &str| format!("Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{mask}\nCapBnd:\t0\n");
    assert!(has_capability(&status("0000000000080000"), CAP_SYS_PTRACE));
    assert!(!has_capability(&status("000001fffff7ffff"), CAP_SYS_PTRACE));
    assert!(!has_capability("", CAP_SYS_PTRACE) && !has_capability(&status("x"), CAP_SYS_PTRACE));
}

#[test]
fn names_are_a_filter_and_no_more() {
    let is_uvm = |name: &[u8]| ends_like(name, NAME_END);
    assert!(is_uvm(b"/dev/nvidia-uvm") && is_uvm(b"/nvidia-uvm (deleted)"));
    assert!(!is_uvm(b"/dev/nvidia-uvm-tools") && !is_uvm(b"/dev/nvidia0") && !is_uvm(b"pipe:[1]"));
}

/// `/dev/full` as a stand-in for a GPU, which no other test opens: its major number is 1 and its minor 7.
#[test]
fn a_device_is_open_where_it_was_opened_and_not_where_it_is_only_referred_to() {
    let own = Pid::this();
    let process = pidfd::open(own).unwrap();
    let has = |device, end: &[u8]| has_open(own, process.as_fd(), device, end).unwrap();
    let referred = File::options().read(true).custom_flags(libc::O_PATH).open("/dev/full").unwrap();
    assert!(!has((1, 7), b"full"), "it is referred to: {referred:?}");
    let opened = File::open("/dev/full").unwrap();
    assert!(has((1, 7), b"full") && !has((1, 7), b"null") && !has((1, 3), b"full"), "{opened:?}");
}

#[test]
fn a_file_of_the_right_name_that_is_no_such_device_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let _decoy = File::create(folder.path().join("nvidia-uvm")).unwrap();
    let fifo = folder.path().join("fifo-nvidia-uvm");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
    let _fifo = File::options().read(true).write(true).open(&fifo).unwrap();
    let own = Pid::this();
    let process = pidfd::open(own).unwrap();
    let found = take(&Registry::default(), 511, own, process.as_fd()).unwrap();
    assert_eq!(found.found.len(), 0);
    assert!(found.looked_at >= 5, "{}", found.looked_at);
}

#[test]
fn a_file_that_was_swapped_in_is_not_kept() {
    let (mut reader, writer) = io::pipe().unwrap();
    let own = Pid::this();
    let process = pidfd::open(own).unwrap();
    let taken = copy(&Registry::default(), 511, own, process.as_fd(), writer.as_raw_fd()).unwrap();
    assert!(taken.is_none());
    drop(writer);
    // The copy is closed too, or this would not end.
    assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
}

#[test]
fn a_process_that_has_ended_is_said_to_be_gone() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let process = pidfd::open(pid).unwrap();
    child.wait().unwrap();
    let error = take(&Registry::default(), 511, pid, process.as_fd()).unwrap_err();
    assert!(matches!(error, AttachError::Gone), "{error}");
}

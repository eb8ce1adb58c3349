//! The mirror against the C header, and records as bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;

/// `name numbers…` as the C program prints them, or why it cannot be built here.
fn c_layout() -> Result<BTreeMap<String, Vec<u64>>, String> {
    let patch = Path::new(env!("CARGO_MANIFEST_DIR")).join("../uvm-patch");
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let program = dir.path().join("abi");
    let cc = Command::new("cc")
        .arg("-I")
        .arg(patch.join("uapi"))
        .arg(patch.join("core/test/abi_test.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .map_err(|e| format!("no C compiler: {e}"))?;
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    let output = Command::new(&program).output().expect("the program was just built");
    let text = String::from_utf8(output.stdout).expect("it prints ASCII");
    Ok(text
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().expect("a name").to_owned();
            (name, words.map(|n| n.parse().expect("a number")).collect())
        })
        .collect())
}

#[test]
fn every_offset_size_and_number_is_that_of_the_c_header() {
    let c = match c_layout() {
        Ok(c) => c,
        Err(reason) => {
            println!("Skipped({reason})");
            return;
        }
    };
    let head = [("magic", 0, 4), ("version", 4, 2), ("size", 6, 2)];
    for (name, at, size) in head.iter().chain(LAYOUT) {
        let name = if *name == "kind" { "type" } else { name };
        assert_eq!(c[&format!("record.{name}")], [*at as u64, *size as u64], "{name}");
    }
    assert_eq!(c.keys().filter(|k| k.starts_with("record.")).count(), head.len() + LAYOUT.len());
    assert_eq!(LAYOUT.iter().map(|f| f.2).sum::<usize>() + 8, RECORD_SIZE, "no padding");

    let number = |name: &str| c[&format!("UVM_MPS_{name}")][0];
    assert_eq!(number("MAGIC"), u64::from(MAGIC));
    assert_eq!(number("ABI_VERSION"), u64::from(ABI_VERSION));
    assert_eq!(number("RECORD_SIZE"), RECORD_SIZE as u64);
    assert_eq!(number("UNKNOWN"), u64::from(UNKNOWN));
    assert_eq!(number("NEVER"), u64::from(NEVER));
    let flags = ["REPLAYABLE", "SUBCONTEXT", "KILL_SENT", "SNAPSHOT", "CONDEMNED", "HELD"];
    let ours = [flag::REPLAYABLE, flag::SUBCONTEXT, flag::KILL_SENT, flag::SNAPSHOT, flag::CONDEMNED, flag::HELD];
    for (name, value) in flags.iter().zip(ours) {
        assert_eq!(number(&format!("F_{name}")), u64::from(value), "{name}");
    }
    for ((bit, _), name) in untried::ALL.iter().zip(["DRIVER", "FORMAT", "GPUS", "MIG", "HMM"]) {
        assert_eq!(number(&format!("UNTRIED_{name}")), u64::from(*bit), "{name}");
    }
    let (mut types, mut verdicts, mut sinks, mut modes) = (0, 0, 0, 0);
    for n in 0..=u8::MAX {
        if let Some(name) = NoticeType(n.into()).name() {
            assert_eq!(number(name), u64::from(n));
            types += 1;
        }
        if let Some(name) = Verdict(n).name() {
            assert_eq!(number(name), u64::from(n));
            verdicts += 1;
        }
        if let Some(name) = Sink(n).name() {
            assert_eq!(number(&format!("SINK_{name}")), u64::from(n));
            sinks += 1;
        }
        if let Some(name) = Mode(n.into()).name() {
            assert_eq!(number(name), u64::from(n));
            modes += 1;
        }
    }
    assert_eq!((types, verdicts, sinks, modes), (13, 9, 6, 3));
}

fn sample() -> Notice {
    let mut bytes = [0; RECORD_SIZE];
    for (n, byte) in (0u8..).zip(&mut bytes) {
        *byte = n;
    }
    Notice::read(&bytes)
}

#[test]
fn a_record_reads_back_what_was_written() {
    let notice = sample();
    assert_eq!(Notice::decode(&notice.encode()), Ok(notice));
    assert_eq!(notice.seq, 0x0f0e_0d0c_0b0a_0908);
    assert_eq!(notice.flags, 0x7f7e_7d7c);
}

#[test]
fn a_gpu_has_the_name_that_nvidias_tools_print() {
    let mut notice = sample();
    notice.gpu_uuid = [0; 16];
    assert_eq!(notice.gpu(), None);
    notice.gpu_uuid = 0x3d6d_a830_3ec1_ba21_50e0_3be1_2cfc_8eca_u128.to_be_bytes();
    assert_eq!(notice.gpu().as_deref(), Some("GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca"));
}

#[test]
fn a_fault_type_is_readable_and_a_later_one_is_a_number() {
    assert_eq!(FaultType::INVALID_PTE.text(), "invalid PTE");
    assert_eq!(FaultType::VA_LIMIT_VIOLATION.text(), "VA limit violation");
    assert_eq!(FaultType::UNBOUND_INST_BLOCK.text(), "unbound instance block");
    assert_eq!(FaultType(200).text(), "fault type 200");
}

#[test]
fn foreign_short_and_newer_bytes_are_told_apart() {
    let good = sample().encode();
    assert_eq!(Notice::decode(&good[..127]), Err(NoticeError::Short(127)));
    let mut bytes = good;
    bytes[0] ^= 1;
    assert_eq!(Notice::decode(&bytes), Err(NoticeError::Magic(MAGIC ^ 1)));
    let mut bytes = good;
    bytes[4] = 2;
    assert_eq!(Notice::decode(&bytes), Err(NoticeError::Version(2, 128)));
    let mut bytes = good;
    bytes[6] = 136;
    assert_eq!(Notice::decode(&bytes), Err(NoticeError::Version(1, 136)));
}

#[test]
fn one_read_gives_its_records_in_order_and_names_a_torn_end() {
    let mut first = sample();
    first.seq = 1;
    let mut second = sample();
    second.seq = 2;
    let mut bytes = [first.encode(), second.encode()].concat();
    bytes.extend([0; 5]);
    let all: Vec<_> = records(&bytes).collect();
    assert_eq!(all, [Ok(first), Ok(second), Err(NoticeError::Short(5))]);
}

#[test]
fn a_harmless_verdict_is_one_of_two() {
    let harmless: Vec<_> = (0..=u8::MAX).map(Verdict).filter(|v| v.is_harmless()).collect();
    assert_eq!(harmless, [Verdict::ISOLATED, Verdict::REPEAT]);
}

proptest! {
    #[test]
    fn any_bytes_decode_to_what_encodes_back_or_to_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..300), real: bool) {
        if real && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(&sample().encode()[..8]);
        }
        match Notice::decode(&bytes) {
            Ok(notice) => prop_assert_eq!(&notice.encode()[..], &bytes[..RECORD_SIZE]),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

//! What the daemon says of devices and their partitions, read by the rules of those who parse it, with the simulated
//! driver for the device probe.
//!
//! The rules are written anew from what the parsers of NVIDIA's Isaac ROS GPU partitioning and of sglang-omni look at:
//! standard error must be empty and the status 0; `Binary version: ` is followed by a number; the third line of `lspart`
//! is the device, its second and fourth word are free chunks and SMs; a fourth line that begins with `GPU-` is a
//! partition; `Failed` in the answer to `sm_partition add` is a failure, else its second word is `<uuid>/<id>`.

use integration::lab::Lab;
use integration::lab::golden::rows;
use integration::lab::process::Finished;
use integration::sim::Sim;
use integration::under_test::{Skipped, Subject, theirs};
use remps_proto::admin::Personality;

/// The simulated GPU has as many SMs as an H200.
const MULTIPROCESSORS: u32 = 132;
/// Eight to a chunk on Hopper; what is left over is in no chunk.
const CHUNKS: u32 = 16;
/// The oldest version that Isaac ROS takes.
const OLDEST_VERSION: u32 = 13010;

/// A bench whose daemon finds the simulated driver.
fn bench(personality: Personality, variables: &[(&str, &str)]) -> Lab {
    let sim = Sim::new(&Subject::ours(personality), variables);
    let library_dir = sim.lab.dir().join("lib");
    sim.lab.with("LD_LIBRARY_PATH", library_dir)
}

/// The rule of all calls: status 0 and a silent standard error.
fn answer(finished: &Finished) -> String {
    assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{finished:?}");
    finished.stdout_text()
}

/// Version as Isaac ROS reads it.
fn isaac_version(text: &str) -> Option<u32> {
    text.split("Binary version: ").nth(1)?.lines().next()?.trim().trim_end_matches('.').parse().ok()
}

/// Free chunks and SMs as Isaac ROS reads them of an unpartitioned device.
fn isaac_free(lspart: &str) -> Option<(u32, u32)> {
    let lines: Vec<&str> = lspart.lines().collect();
    let is_configured = lines.get(3).is_some_and(|line| line.starts_with("GPU-"));
    if is_configured || lines.len() > 4 {
        return None;
    }
    let words: Vec<&str> = lines.get(2)?.split_whitespace().collect();
    Some((words.get(1)?.parse().ok()?, words.get(3)?.parse().ok()?))
}

/// The id of a new partition as both read it.
fn partition_id(added: &str) -> Option<&str> {
    if added.contains("Failed") {
        return None;
    }
    added.split_whitespace().nth(1)?.split_once('/').map(|(_, id)| id)
}

#[test]
fn ct_23_the_parsers_rules_read_what_the_vendors_program_says() {
    // Texts of the vendor's release 595 as its users' parsers have them; the rules below mean something only if they
    // read these.
    assert_eq!(isaac_version("CUDA MPS Control for Linux/Unix/QNX. Binary version: 13020\nCopyright\n"), Some(13020));
    let free = "GPU  Free  Used  Free  Used\n     Chunks  Chunks  SMs  SMs\nGPU-74d43ed3  7  0  60  0\n";
    assert_eq!(isaac_free(free), Some((7, 60)));
    assert_eq!(isaac_free(&format!("{free}GPU-74d43ed3  Jx  7  56  Yes\n")), None);
    assert_eq!(partition_id("Partition GPU-74d43ed3/Jx created\n"), Some("Jx"));
    let failed =
        "Failed to fulfill the requested SM partition of 99 chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION";
    assert_eq!(partition_id(failed), None);
}

#[test]
fn ct_23_a_device_without_partitions_is_read_as_wholly_free() {
    if theirs() {
        return Skipped("the vendor's daemon of 595 needs a GPU".to_owned()).report();
    }
    let lab = bench(Personality::V595, &[]);
    let version = isaac_version(&answer(&lab.run(&["-v"], b"")));
    assert!(version.is_some_and(|version| version >= OLDEST_VERSION), "{version:?}");
    // As Isaac ROS starts it.
    lab.start(&["-s", "-q"]);
    let as_argument = answer(&lab.run(&["lspart"], b""));
    assert_eq!(isaac_free(&as_argument), Some((CHUNKS, MULTIPROCESSORS)), "{as_argument}");
    assert!(as_argument.lines().nth(2).is_some_and(|line| line.starts_with("GPU-5e900000 ")), "{as_argument}");
    // As sglang-omni asks, by standard input.
    assert_eq!(answer(&lab.run(&[], b"lspart")), as_argument);
}

#[test]
fn ct_23_a_partition_that_cannot_be_made_is_read_as_a_failure_and_changes_nothing() {
    if theirs() {
        return Skipped("the vendor's daemon of 595 needs a GPU".to_owned()).report();
    }
    let lab = bench(Personality::V595, &[]);
    lab.start(&["-S"]);
    let before = answer(&lab.run(&["lspart"], b""));
    // One argument with blanks in it is how it is called.
    let added = answer(&lab.run(&["sm_partition add GPU-5e900000 7"], b""));
    assert_eq!(partition_id(&added), None, "{added}");
    assert!(added.starts_with("Failed to fulfill the requested SM partition of 7 chunks, error "), "{added}");
    answer(&lab.run(&["sm_partition rm GPU-5e900000 Jx"], b""));
    assert_eq!(answer(&lab.run(&["lspart"], b"")), before);
}

#[test]
fn who_asks_for_static_partitions_is_told_that_none_are_made() {
    const TOLD: &str = "partitions: -S has no effect: no SM partition is made, and clients share all SMs";
    if theirs() {
        return Skipped("an answer of ours".to_owned()).report();
    }
    for release in [Personality::V580, Personality::V595] {
        for option in ["-S", "-s", "--static-partitioning"] {
            let lab = bench(release, &[]);
            assert_eq!(answer(&lab.run(&["-d", option], b"")), "", "who takes text for a failure goes on");
            let log = lab.log("control.log");
            assert!(log.lines().any(|line| line.contains(&format!("Warning: {TOLD}"))), "{release} {option}: {log}");
            let status = lab.ask("status --wide\n");
            let (_, degraded) = status.split_once("\nDegraded:\n").unwrap_or_else(|| panic!("{release}: {status}"));
            assert!(degraded.lines().any(|line| line.trim().starts_with(TOLD)), "{release} {option}: {status}");
        }
        let lab = bench(release, &[]);
        lab.start(&[]);
        assert!(!lab.ask("status --wide\n").contains(TOLD), "{release}: nobody has asked");
    }
}

#[test]
fn every_device_has_its_line_in_lspart() {
    if theirs() {
        return Skipped("the vendor's daemon of 595 needs a GPU".to_owned()).report();
    }
    let lab = bench(Personality::V595, &[("MPS_SIM_DEVICES", "3")]);
    lab.start(&[]);
    let listed = lab.ask("lspart\n");
    let devices: Vec<&str> = listed.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(devices, ["GPU-5e900000"; 3], "{listed}");
}

#[test]
fn device_query_answers_as_580_does_on_the_same_card() {
    // UUIDs differ from card to card; the columns are wide enough for all of them.
    const SIMULATED: &str = "GPU-5e900000-6d70-732d-7369-6d0000000000";
    if theirs() {
        return Skipped("the vendor's daemon of 580 needs a GPU".to_owned()).report();
    }
    let golden = include_str!("../../goldens/580.txt");
    let lab = bench(Personality::V580, &[]);
    lab.start(&[]);
    let mut compared = 0;
    for row in rows(golden).into_iter().filter(|row| row.command.starts_with("device_query")) {
        let expected = String::from_utf8(row.stdout).expect("the answer is text");
        let expected = match expected.split_once("GPU-") {
            Some((before, rest)) => format!("{before}{SIMULATED}{}", &rest[SIMULATED.len() - "GPU-".len()..]),
            None => expected,
        };
        assert_eq!(lab.ask(&format!("{}\n", row.command)), expected, "{}", row.command);
        compared += 1;
    }
    assert_eq!(compared, 3, "the golden file has the table, a server's and the CSV form");
}

//! Xid lines of NVIDIA's driver.
//!
//! `NVRM: Xid (PCI:0000:3b:00): 31, pid=649, name=python3, Ch 00000012, intr 00000000. MMU Fault: …`, as
//! `kernel_rc.c` of NVIDIA's open modules prints it. In front of the closing parenthesis a MIG device has `GPU-I:05` and
//! `GPU-CI:01`, both decimal. Without a channel 535 and 550 have `pid='<unknown>', name=<unknown>`; later releases leave both out.
//! Before 450 there was no pid, before 510 no name, and before 360 no `PCI:`.
//!
//! The name is the process's own choice and may look like what follows it. So the channel is taken from the last place
//! in the line that speaks of one, where the driver writes after the name; it is a hint, as everything of a line is. The
//! pid is the creator's of the channel that the hardware named, which under MPS is any of the time-slice group: a
//! bystander's in 11 of 11 memory faults on an H200, and the server's for an exception.

use crate::core::XidClass;

/// One Xid line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Xid {
    pub number: u32,
    /// Whom it concerns.
    pub class: XidClass,
    /// The GPU's address on the bus, as `0000:3b:00`.
    pub bus: String,
    /// The MIG GPU instance, by its number.
    pub instance: Option<u32>,
    /// The process it names, in the initial PID namespace.
    pub pid: Option<u32>,
    /// The channel it names.
    pub channel: Option<u32>,
    /// The line after the number.
    pub text: String,
}

/// Whom an Xid concerns, by NVIDIA's catalogue
/// (<https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html>) and the names in `nverror.h` of the open
/// modules, 595.
///
/// The applications' are the six that NVIDIA's device plugin for Kubernetes does not count against a GPU.
pub(super) const fn class_of(number: u32) -> XidClass {
    match number {
        // SM and engine exceptions, MMU fault, reset channel, its clean-up, video decoder, context switch timeout.
        13 | 31 | 43 | 45 | 68 | 109 => XidClass::Application,
        // ECC, page and row retirement, interrupt storms of ECC, containment, DRAM, SRAM, channel and memory repair.
        48 | 58 | 63 | 64 | 92 | 94 | 95 | 140 | 156 | 157 | 160 | 161 | 168 | 171 | 172 | 175 => XidClass::Memory,
        // NVLink and its parts, translation and privilege errors of the other side, chip-to-chip links.
        74 | 108 | 121 | 136 | 137 | 144..=150 | 155 | 166 | 170 | 173 => XidClass::Link,
        // Bus interface, fallen off the bus, fatal time-out of PCI Express.
        18 | 79 | 167 => XidClass::Bus,
        _ => XidClass::Other,
    }
}

const HEAD: &str = "NVRM: Xid (";
/// What comes before the number of a MIG GPU instance.
const INSTANCE: &str = "GPU-I:";
/// Digits that a domain, a bus and a device have at most.
const MOST_BUS_DIGITS: usize = 8;

impl Xid {
    /// Reads a line of the kernel; `None` when it is not an Xid's.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (place, rest) = line.strip_prefix(HEAD)?.split_once("): ")?;
        let mut words = place.strip_prefix("PCI:").unwrap_or(place).split(' ');
        let bus = words.next()?;
        let instance = words.find_map(|word| word.strip_prefix(INSTANCE)?.parse().ok());
        if !is_bus_address(bus) {
            return None;
        }
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = rest[..digits].parse().ok()?;
        let text = rest[digits..].trim_start_matches([',', ' ']);
        if digits < rest.len() && !rest[digits..].starts_with([',', ' ']) {
            return None;
        }
        Some(Self {
            number,
            class: class_of(number),
            bus: bus.to_owned(),
            instance,
            pid: pid(text),
            channel: channel(text),
            text: text.to_owned(),
        })
    }
}

fn is_bus_address(text: &str) -> bool {
    let mut parts = 0;
    text.split(':').all(|part| {
        parts += 1;
        (1..=MOST_BUS_DIGITS).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    }) && (2..=3).contains(&parts)
}

fn pid(text: &str) -> Option<u32> {
    let number = text.strip_prefix("pid=")?;
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse().ok()
}

/// The number after the last word that announces a channel. It has eight hexadecimal digits, or four after `ChID`.
fn channel(text: &str) -> Option<u32> {
    ["Ch ", "ChID ", "Channel ID ", "channel 0x"]
        .iter()
        .filter_map(|word| {
            let at = text.rfind(word)?;
            // A word of its own, not the end of another one.
            if text[..at].ends_with(|c: char| c.is_alphanumeric()) {
                return None;
            }
            let number = &text[at + word.len()..];
            let end = number.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(number.len());
            Some((at, u32::from_str_radix(&number[..end], 16).ok()?))
        })
        .max_by_key(|(at, _)| *at)
        .map(|(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Expected = (u32, XidClass, &'static str, Option<u32>, Option<u32>);

    /// Lines from public reports, 300 to 610.
    const LINES: &[(&str, Expected)] = &[
        (
            "NVRM: Xid (PCI:0000:0a:00): 31, pid=13332, name=cuda_plot_k32_v, Ch 00000010, intr 00000000. MMU Fault: \
             ENGINE CE2 HUBCLIENT_CE0 faulted @ 0x7f29_5b8c9000. Fault is of type FAULT_PRIV_VIOLATION ACCESS_TYPE_VIRT_READ",
            (31, XidClass::Application, "0000:0a:00", Some(13332), Some(0x10)),
        ),
        // These four are of an H200 with 580.159.04 under MPS: a bystander, the server, and nobody.
        (
            "NVRM: Xid (PCI:0000:00:06): 31, pid=791, name=mps-bystander, channel 0x0000000e, intr 00000000. MMU Fault: \
             ENGINE GRAPHICS GPC1 GPCCLIENT_T1_4 faulted @ 0x0_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
            (31, XidClass::Application, "0000:00:06", Some(791), Some(0xe)),
        ),
        (
            "NVRM: Xid (PCI:0000:00:06): 43, pid=840, name=nvidia-cuda-mps, channel 0x0000000a",
            (43, XidClass::Application, "0000:00:06", Some(840), Some(0xa)),
        ),
        (
            "NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): Misaligned Address",
            (13, XidClass::Application, "0000:00:06", None, None),
        ),
        (
            "NVRM: Xid (PCI:0000:00:06): 13, Graphics Exception: ESR 0x517730=0x503000f 0x517734=0x0 0x517728=0x1f81fb60",
            (13, XidClass::Application, "0000:00:06", None, None),
        ),
        (
            "NVRM: Xid (PCI:0000:c1:00): 31, pid=12890, Ch 0000003b, intr 00000000. MMU Fault: ENGINE HOST0",
            (31, XidClass::Application, "0000:c1:00", Some(12890), Some(0x3b)),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 31, Ch 0000005a, intr 10000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_1",
            (31, XidClass::Application, "0000:01:00", None, Some(0x5a)),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 13, Graphics Exception: ChID 0052, Class 00000000, Offset 00001b0c, Data 1",
            (13, XidClass::Application, "0000:01:00", None, Some(0x52)),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000052 intr 02000000",
            (32, XidClass::Other, "0000:01:00", None, Some(0x52)),
        ),
        (
            "NVRM: Xid (PCI:0000:0a:00): 45, pid='<unknown>', name=<unknown>, Ch 00000008",
            (45, XidClass::Application, "0000:0a:00", None, Some(8)),
        ),
        (
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
            (45, XidClass::Application, "0000:dc:00", Some(1_818_990), Some(1)),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
            (94, XidClass::Memory, "0000:01:00", Some(7194), None),
        ),
        (
            "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:01): 13, pid=7, name=x, Graphics SM Warp Exception on (GPC 0)",
            (13, XidClass::Application, "0000:01:00", Some(7), None),
        ),
        (
            "NVRM: Xid (PCI:0000:9b:00): 119, pid=4071838, name=python, Timeout after 45s of waiting for RPC response",
            (119, XidClass::Other, "0000:9b:00", Some(4_071_838), None),
        ),
        (
            "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
            (63, XidClass::Memory, "0000:10:1c", Some(1896), None),
        ),
        ("NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.", (79, XidClass::Bus, "0000:65:00", None, None)),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", (14, XidClass::Other, "0000:03:00", None, None)),
        ("NVRM: Xid (PCI:0000:83:00): 48", (48, XidClass::Memory, "0000:83:00", None, None)),
    ];

    #[test]
    fn lines_of_every_branch_are_understood() {
        for (line, (number, class, bus, pid, channel)) in LINES {
            let xid = Xid::parse(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((xid.number, xid.class, xid.bus.as_str()), (*number, *class, *bus), "{line}");
            assert_eq!((xid.pid, xid.channel), (*pid, *channel), "{line}");
            assert!(line.ends_with(&xid.text));
        }
    }

    #[test]
    fn a_mig_instance_is_named_beside_the_bus() {
        let instances: Vec<_> = LINES.iter().filter_map(|(line, _)| Xid::parse(line).unwrap().instance).collect();
        assert_eq!(instances, [5, 5]);
    }

    #[test]
    fn a_process_cannot_name_itself_into_another_channel_or_number() {
        let line = "NVRM: Xid (PCI:0000:3b:00): 31, pid=649, name=x, Ch 00000099, Ch 00000012, intr 00000000.";
        assert_eq!(Xid::parse(line).unwrap().channel, Some(0x12));
        assert_eq!(Xid::parse(line).unwrap().pid, Some(649));
    }

    #[test]
    fn other_lines_of_the_driver_are_left_alone() {
        for line in [
            "NVRM: GPU at PCI:0000:01:00: GPU-8a47641b-dff6-f09f-618c-c3eb58fb430d",
            "NVRM: Xid (PCI:0000:01:00: 31",
            "NVRM: Xid (PCI:0000:01:00): x",
            "NVRM: Xid (PCI:0000:01:00): 31x",
            "NVRM: Xid (PCI:../../etc): 31, x",
            "NVRM: Xid (PCI:0000:01:00): 99999999999999, x",
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32",
            "a program said NVRM: Xid (PCI:0000:01:00): 31, pid=1",
        ] {
            assert_eq!(Xid::parse(line), None, "{line}");
        }
    }

    #[test]
    fn the_device_plugins_six_are_the_applications() {
        let applications: Vec<u32> = (0..1000).filter(|n| class_of(*n) == XidClass::Application).collect();
        assert_eq!(applications, [13, 31, 43, 45, 68, 109]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,120}", rest in "\\PC{0,80}", number: u32) {
            let _ = Xid::parse(&text);
            if let Some(xid) = Xid::parse(&format!("NVRM: Xid (PCI:0000:3b:00): {number}, {rest}")) {
                prop_assert_eq!(xid.number, number);
            }
        }

        #[test]
        fn a_line_cut_anywhere_does_not_panic(line in 0..LINES.len(), at: prop::sample::Index) {
            let (line, _) = LINES[line];
            let _ = Xid::parse(&line[..at.index(line.len())]);
        }
    }
}

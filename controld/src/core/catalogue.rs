//! What each Xid is called, how grave it is and what helps, for those who read that in events.
//!
//! Names and remedies are those of NVIDIA's catalogue ("Immediate Action" of
//! <https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html>, sheet `Catalog`, as of 2025-10); the severity
//! is that of Flyte's package `gpufault` (`catalog.go` of <https://github.com/flyteorg/flyte/pull/7879>), which charges a
//! program with what is `user` and the platform with what is `critical`. A number that is not here has no name of its own,
//! is a warning, and somebody should look at it: a new driver's fault is told all the same.

use serde::Serialize;

/// How grave a fault is, and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    /// Neither the program's doing nor the end of the GPU.
    Warn,
    /// The program's doing; the GPU is sound when it has gone.
    User,
    /// The GPU can't be used until somebody has done something.
    Critical,
}

impl Severity {
    /// As Flyte writes it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::User => "user",
            Self::Critical => "critical",
        }
    }
}

/// What helps at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Remedy {
    /// Nothing is to be done.
    Ignore,
    /// The program is started again.
    RestartApp,
    /// The GPU is reset.
    ResetGpu,
    /// The virtual machine is started again.
    RestartVm,
    /// The machine is.
    RestartBm,
    /// A person has to look.
    ContactSupport,
}

/// Numbers with their names and what helps; the catalogue's workflows, which need a person or other lines, are
/// [`Remedy::ContactSupport`].
#[rustfmt::skip]
const KNOWN: &[(u32, &str, Remedy)] = {
    use Remedy::{ContactSupport, Ignore, ResetGpu, RestartApp, RestartBm, RestartVm};
    &[
        (8, "GPU stopped processing", RestartApp),
        (11, "Invalid or corrupted push buffer stream", RestartApp),
        (13, "Graphics Engine Exception", RestartApp),
        (25, "Invalid or illegal push buffer stream", RestartApp),
        (31, "GPU memory page fault", RestartApp),
        (32, "Invalid or corrupted push buffer stream", RestartApp),
        (37, "Driver firmware error", Ignore),
        (38, "Driver firmware error", Ignore),
        (39, "Copy Engine Exception", RestartApp),
        (40, "Copy Engine Exception", RestartApp),
        (41, "Copy Engine Exception", RestartApp),
        // The catalogue says IGNORE: whatever made it necessary has a line of its own.
        (43, "GPU stopped processing", RestartApp),
        (44, "Graphics Engine fault during context switch", Ignore),
        (45, "Preemptive cleanup, due to previous errors", RestartApp),
        (46, "GPU stopped processing", ResetGpu),
        (48, "Double Bit ECC Error", ContactSupport),
        (60, "Video processor exception", RestartApp),
        (62, "Internal micro-controller halt", ResetGpu),
        (63, "GPU memory remapping event", Ignore),
        (64, "GPU memory remapping failure", ResetGpu),
        (66, "Illegal access by driver", Ignore),
        (67, "Illegal access by driver", Ignore),
        (68, "NVDEC0 Exception", RestartApp),
        (69, "Graphics Engine class error", RestartApp),
        (74, "NVLINK Error", ContactSupport),
        (79, "GPU has fallen off the bus", RestartBm),
        (80, "Corrupted data sent to GPU", RestartApp),
        (92, "High single-bit ECC error rate", Ignore),
        (93, "Non-fatal violation of provisioned InfoROM wear limit", Ignore),
        (94, "Contained memory error", RestartApp),
        (95, "Uncontained memory error", ResetGpu),
        (109, "Context Switch Timeout Error", ResetGpu),
        (110, "Security Fault Error", ResetGpu),
        (119, "GSP RPC Timeout", ResetGpu),
        (120, "GSP Error", ResetGpu),
        (121, "C2C Error", Ignore),
        (136, "Link Training Failed", ResetGpu),
        (137, "NVLink Privilege Error", Ignore),
        (140, "ECC Unrecovered Error", ResetGpu),
        (141, "CUDA Fast Path Error", Ignore),
        (143, "GPU Initialization Error", ResetGpu),
        (144, "NVLINK: SAW Error", ContactSupport),
        (145, "NVLINK: RLW Error", ContactSupport),
        (146, "NVLINK: TLW Error", ContactSupport),
        (147, "NVLINK: TREX Error", ContactSupport),
        (148, "NVLINK: NVLPW_CTRL Error", ContactSupport),
        (149, "NVLINK: NETIR Error", ContactSupport),
        (150, "NVLINK: MSE Error", ContactSupport),
        (151, "Key rotation Error", RestartVm),
        (154, "GPU Recovery Action Changed", ContactSupport),
        (155, "NVLINK: SW Defined Error", ResetGpu),
        (156, "Resource Retirement Event", ResetGpu),
        (157, "Resource Retirement Failure", Ignore),
        (158, "GPU Fatal Timeout", ResetGpu),
        (160, "Channel Retirement Event", Ignore),
        (161, "Channel Retirement Failure", Ignore),
        (167, "PCIE_FATAL_TIMEOUT", ContactSupport),
        (171, "Uncorrectable DRAM error", ContactSupport),
        (172, "Uncorrectable SRAM error", ContactSupport),
    ]
};

fn known(number: u32) -> Option<&'static (u32, &'static str, Remedy)> {
    KNOWN.binary_search_by_key(&number, |row| row.0).ok().map(|at| &KNOWN[at])
}

/// What an Xid is called.
pub(crate) fn name(number: u32) -> String {
    known(number).map_or_else(|| format!("Xid {number}"), |row| row.1.to_owned())
}

/// What helps against it.
pub(crate) fn remedy(number: u32) -> Remedy {
    known(number).map_or(Remedy::ContactSupport, |row| row.2)
}

/// How grave it is.
pub(crate) const fn severity(number: u32) -> Severity {
    match number {
        13 | 31 | 43 | 45 => Severity::User,
        48 | 62 | 63 | 64 | 74 | 79 | 94 | 95 | 109 | 119 | 120 | 140 => Severity::Critical,
        _ => Severity::Warn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_the_catalogue_is_there_once_and_in_order() {
        assert!(KNOWN.is_sorted_by(|one, other| one.0 < other.0));
    }

    #[test]
    fn what_programs_do_asks_for_nothing_but_another_start_and_hardware_is_what_it_is() {
        for number in [13, 31, 43, 45] {
            assert_eq!((severity(number), remedy(number)), (Severity::User, Remedy::RestartApp), "{number}");
        }
        for (number, helps) in [(48, Remedy::ContactSupport), (79, Remedy::RestartBm), (95, Remedy::ResetGpu)] {
            assert_eq!((severity(number), remedy(number)), (Severity::Critical, helps), "{number}");
        }
        assert_eq!(name(79), "GPU has fallen off the bus");
        assert_eq!((name(4242), severity(4242)), ("Xid 4242".to_owned(), Severity::Warn));
        assert_eq!(remedy(4242), Remedy::ContactSupport);
    }
}

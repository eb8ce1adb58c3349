//! A fresh copy of the driver that fails or ends at a step of what it is asked to do.

use super::{finished, reason, replaying};
use integration::sim::{Sim, error_of, find_event};
use integration::under_test::once;

/// What the fresh copy of the driver is asked to do before it has a context, and what then, one after the other.
const BEFORE_CONTEXTS: [&str; 2] = ["cuInit", "cuDevicePrimaryCtxRetain"];
const STEPS: [&str; 18] = [
    "cuCtxSetCurrent",
    "cuMemAddressReserve",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuStreamCreateWithPriority",
    "cuEventCreate",
    "cuMemHostRegister_v2",
    "cuMemHostGetDevicePointer_v2",
    "cuLibraryLoadData",
    "cuModuleGetGlobal_v2",
    "cuLibraryGetGlobal",
    "cuMemcpyHtoD_v2",
    "cuGraphCreate",
    "cuGraphAddKernelNode_v2",
    "cuGraphAddDependencies_v2",
    "cuGraphInstantiateWithFlags",
];

#[test]
fn a_fresh_copy_that_fails_leaves_the_program_with_the_error_it_had() {
    once(|subject| {
        for step in STEPS {
            let sim = Sim::new(subject, &[("MPS_SIM_FAIL_AT", &format!("2:{step}"))]);
            let refused =
                finished(&mut replaying(&sim, &["--faults", "trap", "--light", "--pinned", "--variable", "--graph"]));
            assert_eq!(error_of(&refused), Some(719), "{subject}: {step}: {refused:?}");
            let name = step.trim_end_matches("_v2").trim_end_matches("WithPriority");
            let name = name.replace("GetDevicePointer", "Register").replace("WithFlags", "");
            assert!(reason(&refused).contains(&format!("{name} answers 999")), "{subject}: {step}: {refused:?}");
        }
    });
}

/// Where its server meets a fault meanwhile the driver may answer 999, and whatever else it answers the dead copy had a context.
#[test]
fn a_fresh_copy_that_gets_no_context_gives_way_to_another_one() {
    once(|subject| {
        for (step, code) in BEFORE_CONTEXTS.into_iter().flat_map(|step| [999, 304, 100, 46].map(|code| (step, code))) {
            let sim = Sim::new(subject, &[("MPS_SIM_FAIL_AT", &format!("2:{step}:1:{code}"))]);
            let gone_on = finished(&mut replaying(&sim, &["--faults", "trap", "--light", "--pinned"]));
            assert_eq!(error_of(&gone_on), None, "{subject}: {step}: {code}: {gone_on:?}");
            let end = find_event(&gone_on.stdout_text(), "end").expect("it ends");
            assert_eq!(end["is_intact"], true, "{subject}: {step}: {end}");
            assert_eq!(end["last"]["begun_again"], 1, "{subject}: {step}: {end}");
            let said = gone_on.stderr_text();
            let wanted = format!("was hit itself, {step} answers {code}: begun again, copy 2 of 8");
            assert!(said.contains(&wanted), "{subject}: {step}: {said}");
        }
    });
}

/// What is not waited for in vain.
#[test]
fn a_fresh_copy_for_which_memory_is_short_or_the_gpu_is_damaged_is_the_last() {
    once(|subject| {
        for code in [2, 214] {
            let sim = Sim::new(subject, &[("MPS_SIM_FAIL_AT", &format!("2:cuDevicePrimaryCtxRetain:1:{code}"))]);
            let refused = finished(&mut replaying(&sim, &["--faults", "trap", "--light", "--pinned"]));
            assert_eq!(error_of(&refused), Some(719), "{subject}: {code}: {refused:?}");
            assert_eq!(reason(&refused), format!("719: cuDevicePrimaryCtxRetain answers {code}"), "{subject}");
        }
    });
}

#[test]
fn killed_at_any_step_a_program_leaves_its_neighbours_unharmed() {
    once(|subject| {
        let sim = Sim::started(subject, &[]);
        for step in ["cuInit", "cuDevicePrimaryCtxRetain", "cuMemMap", "cuModuleLoadData"] {
            let mut probe = replaying(&sim, &["--faults", "trap", "--light"]);
            probe.env("MPS_SIM_END_AT", format!("2:{step}"));
            let killed = finished(&mut probe);
            assert_eq!(killed.signal, Some(9), "{subject}: {step}: {killed:?}");
            assert_eq!(error_of(&sim.run("mps-first-alloc", &[])), None, "{subject}: {step}: the next one is served");
        }
    });
}

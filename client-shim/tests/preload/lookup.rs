//! Every way to the driver's functions leads through the library, and none of them changes what a program sees.

use crate::lab::{Lab, Ran, library, run};

/// What every program with the stand-in driver prints after one good `cuInit`.
const ONE_CALL: &str = "cuInit 0 calls 1\n";

/// Runs `lookup <way>` with lines asked for.
fn look_up(way: &str) -> Ran {
    let lab = Lab::new();
    let lookup = lab.lookup();
    let plain = run(lab.plain(&lookup).arg(way));
    let preloaded = run(lab.preloaded(&lookup).arg(way).env("MPS_SHIM_LOG", "1"));
    assert_eq!(preloaded.stdout, plain.stdout, "the program cannot tell");
    assert_eq!(plain.stderr, "");
    preloaded
}

#[test]
fn a_program_linked_to_the_driver_reaches_the_hook() {
    let lab = Lab::new();
    let direct = lab.compile("direct.c", "direct", &["-l:libcuda.so.1"]);
    let ran = run(lab.preloaded(direct).env("MPS_SHIM_LOG", "1"));
    assert_eq!(ran.stdout, "cuInit 0 1 calls 2\n", "arguments and results pass through");
    assert!(ran.said(&["cuInit: reached"]), "{ran:?}");
    assert!(ran.said(&["cuInit: passed on: MPS_SHIM_REQUIRE is not set"]), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 2, "each line once: {ran:?}");
}

#[test]
fn a_library_opened_privately_reaches_the_hook() {
    let lab = Lab::new();
    let plugin = lab.compile("plugin.c", "libplugin.so", &["-shared", "-fPIC", "-l:libcuda.so.1"]);
    let host = lab.compile("plugin_host.c", "plugin_host", &[]);
    let ran = run(lab.preloaded(host).arg(plugin).env("MPS_SHIM_LOG", "1"));
    assert_eq!(ran.stdout, "cuInit 0\n");
    assert!(ran.said(&["cuInit: reached"]), "{ran:?}");
}

#[test]
fn a_library_that_loads_the_driver_in_a_stub_of_its_own_still_works() {
    let lab = Lab::new();
    let plugin = lab.compile("stub_plugin.c", "libstub.so", &["-shared", "-fPIC"]);
    let host = lab.compile("plugin_host.c", "plugin_host", &[]);
    let ran = run(lab.preloaded(&host).arg(&plugin).env("MPS_SHIM_LOG", "1"));
    assert_eq!(ran.stdout, "cuInit 0\n");
    assert!(ran.said(&["cuInit: reached"]), "{ran:?}");
    let ran = run(lab.preloaded(&host).arg(&plugin).env("MPS_SHIM_REQUIRE", "1"));
    assert_eq!(ran.stdout, "cuInit 805\n");
}

#[test]
fn a_function_of_the_same_name_in_another_library_is_left_alone() {
    let lab = Lab::new();
    let lookup = lab.lookup();
    let stub = lab.compile("stub_plugin.c", "libstub.so", &["-shared", "-fPIC"]);
    let ran = run(lab.preloaded(lookup).arg("two-copies").arg(stub).env("MPS_SHIM_LOG", "1"));
    // The stub finds the driver by itself, and the hook with it.
    assert_eq!(ran.stdout, "cuInit 0 calls 1\ncuInit 0\n");
    assert!(ran.said(&["cuInit: passed on: found in a library that is not the driver"]), "{ran:?}");
}

#[test]
fn dlsym_on_the_drivers_handle_reaches_the_hook() {
    let ran = look_up("dlsym");
    assert_eq!(ran.stdout, ONE_CALL);
    assert!(ran.said(&["cuInit: found by dlsym"]), "{ran:?}");
    assert!(ran.said(&["cuInit: reached"]), "{ran:?}");
}

#[test]
fn dlsym_in_the_programs_search_order_reaches_the_hook() {
    for way in ["default", "program"] {
        let ran = look_up(way);
        assert_eq!(ran.stdout, ONE_CALL, "{way}");
        assert!(ran.said(&["cuInit: reached"]), "{way}: {ran:?}");
    }
}

#[test]
fn both_lookups_of_the_driver_reach_the_hook() {
    for way in ["v1", "v2", "v1-v1", "v1-v2"] {
        let ran = look_up(way);
        assert_eq!(ran.stdout, ONE_CALL, "{way}");
        assert!(ran.said(&["cuInit: found by cuGetProcAddress"]), "{way}: {ran:?}");
        assert!(ran.said(&["cuInit: reached"]), "{way}: {ran:?}");
    }
}

#[test]
fn dlsym_asked_for_by_dlsym_reaches_the_hook() {
    let ran = look_up("dlsym-dlsym");
    assert_eq!(ran.stdout, ONE_CALL);
    assert!(ran.said(&["cuInit: reached"]), "{ran:?}");
}

#[test]
fn the_runtimes_lookup_gives_out_what_the_runtime_was_given() {
    let lab = Lab::new();
    let lookup = lab.lookup();
    let runtime = lab.compile("runtime.c", "libcudart.so", &["-shared", "-fPIC"]);
    let ran = run(lab.preloaded(lookup).arg("runtime").arg(runtime).env("MPS_SHIM_LOG", "1"));
    assert_eq!(ran.stdout, ONE_CALL);
    assert!(ran.said(&["cuInit: reached"]), "{ran:?}");
}

#[test]
fn the_lookup_handed_out_by_the_old_lookup_is_the_one_for_its_version() {
    let new = look_up("v1-v2");
    assert!(new.said(&["cuGetProcAddress_v2: found by cuGetProcAddress"]), "{new:?}");
    assert!(new.said(&["cuGetProcAddress_v2: reached"]), "{new:?}");
    let old = look_up("v1-v1");
    assert!(old.said(&["cuGetProcAddress: found by cuGetProcAddress"]), "{old:?}");
    assert!(!old.said(&["cuGetProcAddress_v2"]), "{old:?}");
}

#[test]
fn dlvsym_finds_none_of_the_drivers_functions_as_they_have_no_versions() {
    let ran = look_up("dlvsym");
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("dlvsym missing\n", ""));
}

#[test]
fn a_function_that_the_driver_lacks_stays_missing() {
    let ran = look_up("missing");
    assert_eq!(ran.stdout, "missing 500 0 1 dlerror\n");
    assert!(ran.said(&["cuGetProcAddress_v2: passed on: the driver has no such function"]), "{ran:?}");
}

#[test]
fn a_function_that_is_not_hooked_keeps_the_drivers_address() {
    let ran = look_up("unhooked");
    assert_eq!(ran.stdout, "unhooked same 13000\n");
    assert!(ran.said(&["cuGetProcAddress: passed on: the function asked for is not hooked"]), "{ran:?}");
}

/// Runs `lookup <way>` with so much to be kept, and with recoveries or without.
fn look_up_keeping(way: &str, keep: &str, replay: &str) -> Ran {
    let lab = Lab::new();
    let lookup = lab.lookup();
    let plain = run(lab.plain(&lookup).arg(way));
    let mut command = lab.preloaded(&lookup);
    command.arg(way).env("MPS_SHIM_LOG", "1").env("MPS_SHIM_KEEP", keep).env("MPS_SHIM_REPLAY", replay);
    let preloaded = run(&mut command);
    assert_eq!(preloaded.stdout, plain.stdout, "the program cannot tell");
    preloaded
}

#[test]
fn where_programs_are_recovered_every_function_is_found_in_the_library() {
    let ran = look_up_keeping("unhooked", "state", "in-place");
    assert_eq!(ran.stdout, "unhooked same 13000\n");
    assert!(ran.said(&["cuDriverGetVersion: found by dlsym"]), "{ran:?}");
    assert!(ran.said(&["cuDriverGetVersion: found by cuGetProcAddress"]), "{ran:?}");
    let missing = look_up_keeping("missing", "state", "in-place");
    assert_eq!(missing.stdout, "missing 500 0 1 dlerror\n");
}

#[test]
fn a_function_of_which_nothing_is_noted_keeps_the_drivers_address_where_nothing_is_recovered() {
    for keep in ["memory", "state"] {
        let ran = look_up_keeping("unhooked", keep, "");
        assert_eq!(ran.stdout, "unhooked same 13000\n");
        assert!(ran.said(&["cuGetProcAddress: passed on: the function asked for is not hooked"]), "{ran:?}");
        assert!(!ran.said(&["cuDriverGetVersion"]), "{ran:?}");
    }
}

#[test]
fn the_variant_for_a_default_stream_of_each_thread_is_a_function_of_its_own() {
    let ran = look_up_keeping("per-thread", "state", "in-place");
    assert_eq!(ran.stdout, "per-thread 600 0 same\n");
    assert!(ran.said(&["cuStreamQuery: found by cuGetProcAddress"]), "{ran:?}");
    assert!(ran.said(&["cuStreamQuery_ptsz: found by cuGetProcAddress"]), "{ran:?}");
}

#[test]
fn a_misspelt_wish_is_complained_of_and_changes_nothing() {
    let lab = Lab::new();
    let ran = run(lab.preloaded(lab.lookup()).arg("unhooked").env("MPS_SHIM_KEEP", "memry").env("MPS_SHIM_LOG", "1"));
    assert_eq!(ran.stdout, "unhooked same 13000\n");
    assert!(ran.said(&["MPS_SHIM_KEEP is not \"memory\" or \"state\" but \"memry\": nothing is kept"]), "{ran:?}");
    assert!(!ran.said(&["cuDriverGetVersion: found"]), "{ran:?}");
}

#[test]
fn a_driver_that_was_closed_and_opened_again_still_answers() {
    let ran = look_up("reopened");
    assert_eq!(ran.stdout, ONE_CALL);
    assert!(ran.said(&["cuInit: reached"]), "{ran:?}");
}

#[test]
fn a_second_copy_of_the_driver_is_left_alone() {
    let lab = Lab::new();
    let lookup = lab.lookup();
    let copy = lab.path("libcuda.so.copy");
    std::fs::copy(lab.path("libcuda.so.1"), &copy).unwrap();
    let ran = run(lab.preloaded(lookup).arg("two-copies").arg(copy).env("MPS_SHIM_LOG", "1"));
    // Each copy was called once: a call meant for one never went to the other.
    assert_eq!(ran.stdout, "cuInit 0 calls 1\ncuInit 0 calls 1\n");
    assert!(ran.said(&["cuInit: passed on: found in a second driver library"]), "{ran:?}");
}

#[test]
fn another_preloaded_wrapper_works_on_either_side() {
    let lab = Lab::new();
    let wrapper = lab.compile("wrapper.c", "libwrapper.so", &["-shared", "-fPIC"]);
    let direct = lab.compile("direct.c", "direct", &["-l:libcuda.so.1"]);
    for order in [[library(), wrapper.as_path()], [wrapper.as_path(), library()]] {
        let list = order.map(|library| library.to_str().unwrap()).join(":");
        let ran = run(lab.plain(&direct).env("LD_PRELOAD", &list).env("MPS_SHIM_LOG", "1"));
        assert_eq!(ran.stdout, "wrapped wrapped cuInit 0 1 calls 2\n", "{list}");
        assert!(ran.said(&["cuInit: reached"]), "{list}: {ran:?}");
    }
}

#[test]
fn python_reaches_the_hook_through_ctypes() {
    let lab = Lab::new();
    let script = "import ctypes; d = ctypes.CDLL('libcuda.so.1'); print('cuInit', d.cuInit(0), d.fake_init_calls())";
    let ran = run(lab.preloaded("python3").args(["-c", script]).env("MPS_SHIM_LOG", "1"));
    assert_eq!(ran.stdout, "cuInit 0 1\n");
    assert!(ran.said(&["cuInit: found by dlsym"]), "{ran:?}");
    assert!(ran.said(&["cuInit: reached"]), "{ran:?}");
}

#[test]
fn threads_that_start_cuda_at_once_all_reach_the_driver() {
    let lab = Lab::new();
    let threads = lab.compile("threads.c", "threads", &[]);
    let ran = run(lab.preloaded(threads).env("MPS_SHIM_LOG", "1"));
    assert_eq!(ran.stdout, "failed 0 calls 16\n");
    let reached = ran.stderr.lines().filter(|line| line.ends_with("cuInit: reached")).count();
    assert_eq!(reached, 1, "one line for all threads: {ran:?}");
}

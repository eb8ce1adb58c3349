//! Programs that have nothing to do with CUDA run as if the library were not there, whatever its settings are.

use std::{fs, process::Command};

use crate::lab::{Lab, library, run};

/// Runs the command twice, with and without the library, and compares all output. Every setting is switched on: none
/// of them may matter before a CUDA function is asked for.
fn runs_the_same(lab: &Lab, program: &str, arguments: &[&str]) {
    let plain = run(lab.plain(program).args(arguments));
    let mut command = lab.preloaded(program);
    let preloaded = run(command.args(arguments).env("MPS_SHIM_REQUIRE", "30").env("MPS_SHIM_LOG", "1"));
    assert_eq!(preloaded.stdout, plain.stdout, "{program} {arguments:?}");
    assert_eq!(preloaded.stderr, plain.stderr, "{program} {arguments:?}");
}

#[test]
fn shells_and_their_many_children_run_the_same() {
    let lab = Lab::new();
    runs_the_same(&lab, "sh", &["-c", "ls / | sort | head -3; echo done"]);
    runs_the_same(&lab, "bash", &["-c", "for i in $(seq 60); do (echo $i | cat) & wait; done"]);
}

#[test]
fn python_with_its_extension_modules_and_forked_workers_runs_the_same() {
    let lab = Lab::new();
    runs_the_same(&lab, "python3", &["-c", "import ssl, json, ctypes; print(ctypes.CDLL(None).abs(-3))"]);
    let pool = "import multiprocessing as m\n\
                if __name__ == '__main__':\n with m.get_context('fork').Pool(4) as p: print(p.map(abs, range(-9, 0)))";
    runs_the_same(&lab, "python3", &["-c", pool]);
}

#[test]
fn cargo_runs_the_same() {
    runs_the_same(&Lab::new(), env!("CARGO"), &["--version"]);
}

#[test]
fn a_library_that_looks_up_its_own_next_symbol_finds_it() {
    let lab = Lab::new();
    lab.compile("answer.c", "libinner.so", &["-shared", "-fPIC"]);
    lab.compile("answer_next.c", "libmiddle.so", &["-shared", "-fPIC"]);
    lab.compile("answer_next.c", "libouter.so", &["-shared", "-fPIC"]);
    let program = lab.compile("answer_main.c", "answer", &["-Wl,--no-as-needed", "-louter", "-lmiddle", "-linner"]);
    let ran = run(&mut lab.preloaded(program));
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("answer 21\n", ""));
}

#[test]
fn threads_end_the_same_however_they_were_begun() {
    let lab = Lab::new();
    let program = lab.compile("ends.c", "ends", &["-pthread"]);
    runs_the_same(&lab, program.to_str().expect("a plain name"), &[]);
}

#[test]
fn threads_are_begun_by_other_libraries_functions_too_wherever_they_stand() {
    let lab = Lab::new();
    let before = lab.compile("create_next.c", "libbefore.so", &["-shared", "-fPIC", "-DLETTER=\"b\""]);
    let after = lab.compile("create_next.c", "libafter.so", &["-shared", "-fPIC", "-DLETTER=\"a\""]);
    let program = lab.compile("ends.c", "ends", &["-pthread"]);
    let preload = [before, library().to_path_buf(), after].map(|path| path.display().to_string()).join(":");
    let ran = run(lab.preloaded(program).env("LD_PRELOAD", preload));
    let linked = ran.stdout.lines().next().unwrap_or_default();
    assert!(linked.starts_with("babababalinked: returned 3, left with 4, cancelled 1, detached"), "{ran:?}");
}

#[test]
fn without_a_driver_nothing_is_found_and_a_weak_reference_gets_the_stubs_answer() {
    let lab = Lab::new();
    let program = lab.compile("without_driver.c", "without_driver", &[]);
    // Keeps the loader from finding a driver that the machine may have.
    fs::write(lab.path("libcuda.so.1"), "no library").unwrap();
    let plain = run(&mut lab.plain(&program));
    assert_eq!(plain.stdout, "default missing dlerror program missing\n");
    let ran = run(lab.preloaded(&program).env("MPS_SHIM_REQUIRE", "30"));
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("default missing dlerror program missing weak 34\n", ""));
}

/// The lines of `objdump -T` on the library.
fn dynamic_symbols() -> Vec<String> {
    let output = Command::new("objdump").arg("-T").arg(library()).output().expect("objdump runs");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn nothing_newer_than_glibc_2_17_is_asked_for() {
    const FLOOR: [u32; 3] = [2, 17, 0];
    let symbols = dynamic_symbols();
    let versions = symbols.iter().filter_map(|line| {
        let version = line.split("GLIBC_").nth(1)?.split([')', ' ']).next()?;
        let mut numbers = [0; 3];
        for (number, text) in numbers.iter_mut().zip(version.split('.')) {
            *number = text.parse().expect("a version is made of numbers");
        }
        Some((numbers, line))
    });
    let mut asked_for = 0;
    for (version, line) in versions {
        assert!(version <= FLOOR, "{line}");
        asked_for += 1;
    }
    assert!(asked_for > 10, "objdump's output was understood");
}

#[test]
fn only_the_drivers_functions_and_those_of_the_library_are_exported() {
    let exported: Vec<_> = dynamic_symbols()
        .iter()
        .filter(|line| line.contains(".text") && !line.contains("*UND*"))
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect();
    let mut others: Vec<_> = exported.iter().filter(|name| !name.starts_with("cu")).collect();
    others.sort();
    let shim = ["in_doubt", "last_recovery", "regions", "rest"].map(|name| format!("mps_shim_{name}"));
    let state = ["adopt", "commit", "discard", "find", "last_recovery", "register", "restore", "text", "unregister"];
    let state = state.iter().chain(&["wait_for_activation"]).map(|name| format!("mps_state_{name}"));
    let ours: Vec<String> =
        ["dlsym".to_owned()].into_iter().chain(shim).chain(state).chain(["pthread_create".to_owned()]).collect();
    assert_eq!(others, ours.iter().collect::<Vec<_>>());
    for name in ["cuInit", "cuGetProcAddress", "cuGetProcAddress_v2", "cuMemAlloc_v2", "cuStreamQuery_ptsz"] {
        assert!(exported.iter().any(|exported| exported == name), "{name}");
    }
}

//! Each row as it stands in NVIDIA's headers, and each export of the driver in a row or left alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

use super::{TEXTS, all, left_alone};

/// Functions of newer releases than cudarc's newest bindings, with their argument types, from `cuda.h` of CUDA 13.5.
const NEWER: [(&str, &str); 2] = [
    ("cuFabricCpyBatchAsync", "usize,*mutCUDA_FABRIC_COPY_BATCH_OP,c_ulonglong,CUstream"),
    ("cuTensorMapSetAllocationClass", "*mutCUtensorMap,c_uint,*mutc_uint"),
];

/// Functions of headers of which cudarc has no bindings, with their argument types, from `cudaEGL.h`, `cudaGL.h` and
/// `cudaVDPAU.h` of CUDA 13.0, where `EGLImageKHR` is a pointer and the names of OpenGL's and VDPAU's objects are `unsigned int`.
const OF_GRAPHICS: [(&str, &str); 5] = [
    ("cuGraphicsEGLRegisterImage", "*mutCUgraphicsResource,*mutc_void,c_uint"),
    ("cuGraphicsGLRegisterBuffer", "*mutCUgraphicsResource,c_uint,c_uint"),
    ("cuGraphicsGLRegisterImage", "*mutCUgraphicsResource,c_uint,c_uint,c_uint"),
    ("cuGraphicsVDPAURegisterOutputSurface", "*mutCUgraphicsResource,c_uint,c_uint"),
    ("cuGraphicsVDPAURegisterVideoSurface", "*mutCUgraphicsResource,c_uint,c_uint"),
];

/// The types of `(name: type, ..)` by the header's names, without paths in front of them and without spaces.
fn types_of(arguments: &str) -> String {
    let plain = arguments.replace("::core::ffi::", "").replace(char::is_whitespace, "");
    let plain = plain.replace("PARAMS_v1", "PARAMS").replace("Params_filled", "Params").replace("ptr_listed", "ptr");
    let plain = plain.replace("Node_made", "Node");
    let typed = plain.trim_matches(['(', ')']).split(',').filter_map(|argument| argument.split_once(':'));
    typed.map(|(_, of)| of).collect::<Vec<_>>().join(",")
}

/// Every function that cudarc's bindings, [`NEWER`] or [`OF_GRAPHICS`] declare, in the header of whichever release: name and argument
/// types.
fn declared() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    let cudarc = packages.iter().find(|package| package["name"] == "cudarc").expect("a dependency of the tests");
    let manifest = Path::new(cudarc["manifest_path"].as_str().expect("a path"));
    let source = manifest.with_file_name("src").join("driver/sys/mod.rs");
    let source = std::fs::read_to_string(source).expect("cudarc's bindings are where they were");
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for line in source.lines() {
        let Some((name, rest)) = line.strip_prefix("pub unsafe fn ").and_then(|rest| rest.split_once('(')) else {
            continue;
        };
        if let Some((arguments, _)) = rest.split_once(") -> CUresult {") {
            found.entry(name.to_owned()).or_default().insert(types_of(arguments));
        }
    }
    assert!(found.len() > 500, "cudarc's bindings were understood");
    for (name, types) in NEWER.into_iter().chain(OF_GRAPHICS) {
        assert!(!found.contains_key(name), "cudarc has {name} now");
        found.entry(name.to_owned()).or_default().insert(types.to_owned());
    }
    found
}

fn ours() -> BTreeMap<&'static str, &'static str> {
    TEXTS.concat().into_iter().collect()
}

#[test]
fn every_function_of_the_api_is_in_a_class() {
    let ours = ours();
    let in_no_class: Vec<_> = declared().into_keys().filter(|name| !ours.contains_key(name.as_str())).collect();
    assert!(in_no_class.is_empty(), "{in_no_class:?}");
    assert_eq!(ours.len(), all().count(), "each in one class alone");
}

#[test]
fn every_line_is_as_in_the_header_of_some_release() {
    let declared = declared();
    for (name, arguments) in ours() {
        let base = name.trim_end_matches("_ptds").trim_end_matches("_ptsz");
        // The functions that a release has replaced keep their arguments in those of the same name here.
        let known = declared.get(base).or_else(|| declared.get(&format!("{base}_v2"))).expect(name);
        assert!(known.contains(&types_of(arguments)), "{name}: {} is none of {known:?}", types_of(arguments));
    }
}

#[test]
fn a_list_of_nodes_stands_beside_one_count() {
    for (name, arguments) in ours() {
        if arguments.contains("*const CUgraphNode,") && !arguments.contains("*mut *const CUgraphNode") {
            assert_eq!(arguments.matches(": usize").count(), 1, "{name}");
        }
    }
}

#[test]
fn the_first_count_is_that_of_a_list_of_addresses_or_copies() {
    for (name, arguments) in ours() {
        // The number that comes first, by its name; a single copy comes without one.
        let plain = arguments.replace(char::is_whitespace, "");
        let before = plain.split_once(":usize").map(|(before, _)| before);
        let first = before.and_then(|before| before.rsplit([',', '(']).next());
        if plain.contains("CUdeviceptr_listed") {
            assert_eq!(first, Some("count"), "{name}: {plain}");
        }
        if plain.contains("CUDA_MEMCPY3D_BATCH_OP") {
            assert!(matches!(first, Some("num_ops") | None), "{name}: {plain}");
        }
    }
}

#[test]
fn what_is_left_alone_is_not_hooked() {
    let ours = ours();
    let lists = [left_alone::OUTDATED, left_alone::PICTURES, left_alone::INTERNAL, left_alone::ON_OTHERS];
    for name in lists.concat() {
        assert!(!ours.contains_key(name), "{name}");
    }
}

/// `MPS_SHIM_REAL_DRIVER` is the path of one of NVIDIA's driver libraries, of whichever release.
#[test]
fn every_export_of_a_real_driver_is_hooked_or_left_alone() {
    let Some(driver) = std::env::var_os("MPS_SHIM_REAL_DRIVER") else {
        let reason = b"Skipped(MPS_SHIM_REAL_DRIVER names no driver)\n";
        std::io::Write::write_all(&mut std::io::stderr(), reason).expect("standard error is open");
        return;
    };
    let output = Command::new("objdump").arg("-T").arg(driver).output().expect("objdump runs");
    let symbols = String::from_utf8(output.stdout).expect("names are ASCII");
    let exported = symbols.lines().filter(|line| line.contains(".text") && !line.contains("*UND*"));
    let ours = ours();
    let lists = [left_alone::OUTDATED, left_alone::PICTURES, left_alone::INTERNAL, left_alone::ON_OTHERS].concat();
    let known = |name: &str| ours.contains_key(name) || lists.contains(&name);
    let names: Vec<_> = exported.filter_map(|line| line.split_whitespace().last()).collect();
    assert!(names.contains(&"cuInit"), "it is a driver");
    let unknown: Vec<_> = names.into_iter().filter(|name| name.starts_with("cu") && !known(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

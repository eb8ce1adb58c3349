//! What is asked for twice has one handle, as NVIDIA's driver has it (OBSERVED.md).

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

#[test]
fn functions_and_kernels_that_are_asked_for_twice_have_one_handle() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    command.arg(folder.join("tests/sim/handles.py")).arg(integration::sim::library());
    command.arg(folder.join("src/programs/kernels.ptx")).env_clear().env("PATH", "/usr/bin:/bin");
    let done = command.env("CUDA_MPS_PIPE_DIRECTORY", "/nowhere").output().expect("Python is there");
    let said = String::from_utf8_lossy(&done.stderr);
    let seen: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let wanted = json!({
        "functions": true,
        "of two names": false,
        "kernels": true,
        "functions of kernels": true,
        "modules of a library": true,
        "its module's and its kernel's": true,
    });
    assert_eq!(seen, wanted);
}

//! Writes the message types from the `.proto` files and compares them with what is committed.
//!
//! The build itself needs neither `protoc` nor a build script. After an edit of a `.proto` file run this test: it
//! updates the committed file and fails once, so that the change is seen and committed.

use std::fs;
use std::path::Path;

/// Folder, file and package of everything that is generated.
const SOURCES: &[(&str, &str, &str)] = &[
    ("src/holder", "holder.proto", "remps.holder.v1"),
    ("src/sentinel", "health_event.proto", "datamodels"),
    ("src/shim", "shim.proto", "remps.shim.v1"),
];

#[test]
fn generated_messages_are_those_of_the_proto_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (folder, file, package) in SOURCES {
        let folder = root.join(folder);
        let made = tempfile::tempdir().unwrap();
        let descriptors = protox::compile([folder.join(file)], [&folder]).unwrap();
        prost_build::Config::new().out_dir(made.path()).compile_fds(descriptors).unwrap();

        let name = format!("{package}.rs");
        let fresh = fs::read_to_string(made.path().join(&name)).unwrap();
        let committed = folder.join("gen").join(&name);
        if fs::read_to_string(&committed).unwrap_or_default() != fresh {
            fs::create_dir_all(folder.join("gen")).unwrap();
            fs::write(&committed, fresh).unwrap();
            panic!("{} was not what {file} says; it is now: commit it", committed.display());
        }
    }
}

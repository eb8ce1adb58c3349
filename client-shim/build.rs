//! Link arguments that keep the library loadable on glibc 2.17, whatever glibc it is built on.
//!
//! The linker binds a reference to the newest version of a symbol that the build machine has. `src/process/glibc.rs` takes the
//! strong references back to their old versions; what is left is said here.

/// Functions that std refers to weakly and does without when they are missing; all are newer than glibc 2.17. A weak
/// reference still records the version it was linked against, and an old loader refuses the library for that, so they
/// are declared missing.
const NEWER_AND_OPTIONAL: [&str; 4] = ["__cxa_thread_atexit_impl", "copy_file_range", "gettid", "statx"];

/// Before glibc 2.34 these held the `dl*` and `pthread_key_*` functions; since then they are empty, and still shipped.
const FORMERLY_SEPARATE: [&str; 2] = ["libdl.so.2", "libpthread.so.0"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Where other programs are built for old machines by ziglang, whose linker has no such arguments, this library is built
    // along with them and thrown away: the one of a release has a linker of its own (tools/build-release).
    if std::env::var("RUSTC_LINKER").is_ok_and(|linker| linker.contains("zigcc")) {
        return;
    }
    for symbol in NEWER_AND_OPTIONAL {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--defsym={symbol}=0");
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,--no-as-needed");
    for library in FORMERLY_SEPARATE {
        println!("cargo::rustc-cdylib-link-arg=-l:{library}");
    }
    // Entry points of the library stay in the program's tables for good.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

//! Gives the library the name that programs ask the loader for.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rerun-if-changed=build.rs");
    // Its own calls of what it exports stay its own, as the real library's do: they are no calls of the program's.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}

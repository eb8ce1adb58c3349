//! `nvidia-cuda-mps-control`: the daemon and its command line, one binary.

fn main() -> std::process::ExitCode {
    remps_controld::run_program()
}

//! What keeps a daemon from starting where it is, told in words that say what to do, and nothing left behind.

use integration::lab::place::{where_possible, within};
use integration::lab::process::Finished;
use integration::lab::stage::Stage;

/// A mount namespace, as a container or a chroot has its own mounts.
const MOUNTS: &[&str] = &["unshare", "--mount"];
const NO_PROC: &str = r#"mount -t tmpfs none /proc && exec "$0" "$@""#;
/// A pipe directory without room for a byte, of a file system that has inodes for as many files as there may be; what is
/// left there after the start is told behind what the start says.
fn full(files: u32) -> String {
    format!(
        r#"mkdir "$CUDA_MPS_PIPE_DIRECTORY" && cd "$CUDA_MPS_PIPE_DIRECTORY" &&
        mount -t tmpfs -o mode=755,size=4k,nr_inodes={} none . && cd "$PWD" && head -c 8192 /dev/zero >filler 2>/dev/null
        "$0" "$@"; status=$?; ls -A; exit $status"#,
        // The directory itself and what fills it.
        files + 2
    )
}

/// What a start of the daemon says to whom, in a place that this script makes first.
fn start_within(stage: &Stage, script: &str, option: &str) -> Finished {
    let place = [MOUNTS, &["sh", "-c", script]].concat();
    stage.lab().finish(&mut within(&place, &stage.lab().command(&[option])), b"")
}

#[test]
fn a_daemon_that_has_no_proc_says_that_it_is_to_be_mounted() {
    where_possible(&[MOUNTS], |stage| {
        for option in ["-d", "-f"] {
            let said = start_within(stage, NO_PROC, option);
            assert_eq!((said.code, said.stdout_text().as_str()), (Some(1), ""), "{said:?}");
            let text = said.stderr_text();
            assert!(
                text.starts_with("/proc is not mounted here") && text.contains("mount -t proc proc /proc"),
                "{text}"
            );
            assert!(!stage.pipe_dir().exists());
        }
    });
}

#[test]
fn a_full_file_system_is_told_with_the_file_that_had_no_room_and_none_is_left_there() {
    where_possible(&[MOUNTS], |stage| {
        // Room for the lock alone, for the holder's socket too, and for as many as a daemon makes.
        for (files, file) in [
            (0, "control_lock"),
            (1, ".nvidia-cuda-mps-control.holder"),
            (2, "log"),
            (3, "control_privileged"),
            (100, "nvidia-cuda-mps-control.pid"),
        ] {
            let said = start_within(stage, &full(files), "-d");
            assert_eq!((said.code, said.stdout_text().as_str()), (Some(1), "filler\n"), "{file}: {said:?}");
            let (path, text) = (stage.pipe_dir().join(file), said.stderr_text());
            assert!(text.contains(&format!(" {}: No space left on device", path.display())), "{file}: {text}");
            std::fs::remove_dir(stage.pipe_dir()).expect("what was mounted there is gone");
        }
    });
}

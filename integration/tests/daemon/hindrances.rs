//! What keeps a daemon from starting where it is, told in words that say what to do, and nothing left behind.

use integration::lab::place::{where_possible, within};
use integration::lab::process::Finished;
use integration::lab::stage::Stage;

/// A mount namespace, as a container or a chroot has its own mounts.
const MOUNTS: &[&str] = &["unshare", "--mount"];
const NO_PROC: &str = r#"mount -t tmpfs none /proc && exec "$0" "$@""#;

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

//! What Kubernetes' projects do with the program, call for call, as their sources have it:
//!
//! - NVIDIA/k8s-device-plugin at 1b826acc, `cmd/mps-control-daemon/mps/daemon.go`: `Start` (92–148), `AssertHealthy` (204),
//!   `EchoPipeToControl` (210–235), `Stop` (161–185);
//! - NVIDIA/k8s-dra-driver-gpu at 22407113, `templates/mps-control-daemon.tmpl.yaml`: lines 30–57 of a claim's pod;
//! - kubernetes-sigs/dra-driver-nvidia-gpu at 9ece3c90, the same file: lines 34–65, which know a driver's root without a shell.
//!
//! Nothing of theirs is repeated but the calls.

use integration::lab::Lab;
use integration::lab::process::{Finished, run};
use integration::lab::{LIMIT, watch};
use integration::under_test::{Subject, for_each, subjects};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The program as the plugin calls it: with two variables and nothing else, not even a `PATH` (lines 84–89, 113, 216).
fn plugins(lab: &Lab, arguments: &[&str], stdin: &str) -> Finished {
    let mut command = Command::new(&lab.subject().control);
    command.args(arguments).env_clear();
    command.env("CUDA_MPS_PIPE_DIRECTORY", lab.pipe_dir()).env("CUDA_MPS_LOG_DIRECTORY", lab.log_dir());
    lab.finish(&mut command, stdin.as_bytes())
}

#[test]
fn ct_29_the_device_plugin_starts_sets_limits_probes_and_stops() {
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        // Lines 99 and 108: it makes both folders itself.
        fs::create_dir(lab.pipe_dir())
            .and_then(|()| fs::create_dir(lab.log_dir()))
            .expect("the bench's folder is ours");
        // Its standard error is nobody's there (line 113).
        assert_eq!(plugins(&lab, &["-d"], "").code, Some(0), "{subject}");
        let echo = |line: &str| {
            // Line 222: without a line end.
            let done = plugins(&lab, &[], line);
            assert_eq!((done.code, done.stderr_text().as_str()), (Some(0), ""), "{subject}: {line}");
            done.stdout_text()
        };
        // Line 120: by the GPU's index, once a GPU, in MiB.
        assert_eq!(echo("set_default_device_pinned_mem_limit 0 8192M"), "", "{subject}");
        // Line 126: a whole number, and the answer is not looked at.
        assert_eq!(echo("set_default_active_thread_percentage 10"), "10.0\n", "{subject}");
        assert_eq!(echo("get_default_device_pinned_mem_limit 0"), "8G\n", "{subject}: it is kept");
        // Line 138: what tails the log needs it.
        assert!(lab.log_dir().join("control.log").exists(), "{subject}");
        // Line 205: the readiness of the plugin, again and again.
        for _ in 0..3 {
            assert_eq!(echo("get_default_active_thread_percentage"), "10.0\n", "{subject}");
        }
        // Line 162; whoever has stopped it removes the logs at once (182).
        let daemon = lab.running_daemon();
        assert_eq!(echo("quit"), "", "{subject}");
        lab.wait_gone(daemon);
        fs::remove_dir_all(lab.log_dir()).expect("nobody writes there any more");
        // Line 205 fails then, as the plugin's restart wants it.
        assert_ne!(plugins(&lab, &[], "get_default_active_thread_percentage").code, Some(0), "{subject}");
        // Another start in the same folders, as after a restart of the plugin.
        fs::create_dir(lab.log_dir()).expect("the bench's folder is ours");
        assert_eq!(plugins(&lab, &["-d"], "").code, Some(0), "{subject}");
        assert_eq!(echo("get_default_active_thread_percentage"), "100.0\n", "{subject}: a quit forgets the limits");
    });
}

/// A folder whose program of that name is the subject's, as the driver's root has it in `PATH`.
fn root(lab: &Lab, subject: &Subject) -> PathBuf {
    lab.bin_dir(&[("nvidia-cuda-mps-control", &subject.control)])
}

#[test]
fn ct_29_a_claim_of_the_dra_driver_comes_up_by_its_shell() {
    const GPU: &str = "GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca";
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        let path = format!("{}:/usr/bin:/bin", root(&lab, subject).display());
        fs::create_dir(lab.log_dir()).expect("the bench's folder is ours");
        let (log, up) = (lab.log_dir().join("control.log"), lab.log_dir().join("startup.log"));
        // Lines 47–57, with the shell that the pod has (40); `set -e` ends the pod with the first that fails.
        let run_in = "sh -c";
        let script = format!(
            "set -e\nrm -f {up}\n\
             {run_in} \"nvidia-cuda-mps-control -d\"\n\
             {run_in} \"echo set_default_active_thread_percentage 50 | nvidia-cuda-mps-control\"\n\
             {run_in} \"echo set_default_device_pinned_mem_limit {GPU} 10240M | nvidia-cuda-mps-control\"\n\
             echo up > {up}\ntail -n +1 {log}\n",
            up = up.display(),
            log = log.display(),
        );
        let mut pod = Command::new("sh");
        pod.args(["-c", &script]).env_clear().env("PATH", path).env("CUDA_VISIBLE_DEVICES", GPU);
        pod.env("CUDA_MPS_PIPE_DIRECTORY", lab.pipe_dir()).env("CUDA_MPS_LOG_DIRECTORY", lab.log_dir());
        let done = run(&mut pod, b"", LIMIT).unwrap_or_else(|error| panic!("{subject}: {error}"));
        assert_eq!(done.code, Some(0), "{subject}: {done:?}");
        assert!(up.exists(), "{subject}: line 55, which the startup probe reads (58)");
        assert!(done.stdout_text().starts_with("50.0\n"), "{subject}: {}", done.stdout_text());
        watch::wait_for(lab.dir(), lab.log_dir(), LIMIT, "the log", || log.exists());
        assert_eq!(lab.ask("get_default_active_thread_percentage\n"), "50.0\n", "{subject}");
        if subject.ours {
            // Release 535 forgets the limit of a GPU that it has not seen; ours has it for the server that will.
            assert_eq!(lab.ask(&format!("get_default_device_pinned_mem_limit {GPU}\n")), "10G\n", "{subject}");
        }
    });
}

#[test]
fn ct_29_a_claim_comes_up_by_the_pods_shell_where_the_drivers_root_has_none() {
    const GPU: &str = "GPU-3d6da830-3ec1-ba21-50e0-3be12cfc8eca";
    for_each(subjects(), |subject| {
        let lab = Lab::new(subject);
        // As on a node of Google's: the programs are there, and the two folders are mounted below it.
        let driver = lab.dir().join("driver-root");
        let (pipe, log) = (driver.join("tmp/nvidia-mps"), driver.join("var/log/nvidia-mps"));
        for folder in [&driver.join("usr"), &pipe, &log] {
            fs::create_dir_all(folder).expect("the bench's folder is ours");
        }
        fs::rename(root(&lab, subject), driver.join("usr/bin")).expect("both are of one file system");
        let script = format!(
            "set -e\nrm -f {log}/startup.log\n\
             if [ -x {driver}/bin/sh ] || [ -x {driver}/usr/bin/sh ]; then exit 99; fi\n\
             export PATH=\"{driver}/usr/bin:{driver}/bin:{driver}/usr/local/bin:$PATH\"\n\
             export LD_LIBRARY_PATH=\"{driver}/lib64:{driver}/lib:{driver}/usr/lib64:{driver}/usr/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\"\n\
             export CUDA_MPS_PIPE_DIRECTORY={pipe}\nexport CUDA_MPS_LOG_DIRECTORY={log}\n\
             RUN=\"sh -c\"\n\
             $RUN \"nvidia-cuda-mps-control -d\"\n\
             $RUN \"echo set_default_active_thread_percentage 50 | nvidia-cuda-mps-control\"\n\
             $RUN \"echo set_default_device_pinned_mem_limit {GPU} 10240M | nvidia-cuda-mps-control\"\n\
             echo \"startup complete\" > {log}/startup.log\n\
             tail -n +1 {log}/control.log\n",
            driver = driver.display(),
            pipe = pipe.display(),
            log = log.display(),
        );
        let mut pod = Command::new("sh");
        pod.args(["-c", &script]).env_clear().env("PATH", "/usr/bin:/bin").env("CUDA_VISIBLE_DEVICES", GPU);
        let done = run(&mut pod, b"", LIMIT).unwrap_or_else(|error| panic!("{subject}: {error}"));
        assert_eq!(done.code, Some(0), "{subject}: {done:?}");
        assert!(done.stdout_text().starts_with("50.0\n"), "{subject}: {}", done.stdout_text());
        // The startup probe reads it.
        assert_eq!(
            fs::read_to_string(log.join("startup.log")).expect("it is there"),
            "startup complete\n",
            "{subject}"
        );
        watch::wait_for(lab.dir(), &log, LIMIT, "the log", || log.join("control.log").exists());
        // A client of the claim has the folder elsewhere, and nothing else.
        let asks = |line: &str| {
            let mut command = Command::new(&subject.control);
            command.env_clear().env("CUDA_MPS_PIPE_DIRECTORY", &pipe).env("CUDA_MPS_LOG_DIRECTORY", &log);
            lab.finish(&mut command, line.as_bytes()).stdout_text()
        };
        assert_eq!(asks("get_default_active_thread_percentage\n"), "50.0\n", "{subject}");
        if subject.ours {
            assert_eq!(asks(&format!("get_default_device_pinned_mem_limit {GPU}\n")), "10G\n", "{subject}");
        }
        assert_eq!(asks("quit\n"), "", "{subject}");
    });
}

"""What is packed, without root and network: scripts, unit, tarball, hooks of Slurm, the link to the daemon's folder.

usage: python3 -B -m unittest packaging/tests/test_files.py (some seconds)
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
UNIT = PACKAGING / "systemd/nvidia-cuda-mps-control.service"
# What `systemd-analyze security` gives the unit at most, in tenths; more is a hardening that was lost.
EXPOSURE = 53


def run(*words, **options) -> subprocess.CompletedProcess[str]:
    """A program's end, with both its outputs in one."""
    return subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)


class Files(unittest.TestCase):
    """In a folder of each test's own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="remps-packaging-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def need(self, program: str) -> None:
        """A program of the system, or the test is skipped, aloud."""
        if not shutil.which(program):
            print(f"{self.id()}: Skipped({program} is missing)", flush=True)
            self.skipTest(f"{program} is missing")

    def script(self, name: str, text: str) -> pathlib.Path:
        """A program of this name in the folder `bin`."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def said(self) -> list[str]:
        """What the scripts have noted in the file `said`."""
        path = self.folder / "said"
        return path.read_text().splitlines() if path.exists() else []

    def dist(self) -> pathlib.Path:
        """A release whose program knows the completions alone, which are tested beside the program."""
        dist = self.folder / "dist"
        dist.mkdir()
        shutil.copy(self.script("control", 'echo "completions of $2"'), dist / "nvidia-cuda-mps-control")
        (dist / "libmps_client_shim.so").write_bytes(b"library")
        return dist

    def test_scripts_are_clean(self) -> None:
        self.need("shellcheck")
        listed = run("git", "-C", ROOT, "ls-files", "-z", "packaging").stdout.split("\0")
        paths = [ROOT / name for name in listed if name]
        scripts = [path for path in paths if path.is_file() and re.match(rb"#!/bin/(ba)?sh|# shellcheck", path.read_bytes())]
        self.assertGreater(len(scripts), 10)
        done = run("shellcheck", "-x", *scripts, cwd=ROOT)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_the_unit_is_sound_and_hardened(self) -> None:
        self.need("systemd-analyze")
        root = self.folder / "root"
        self.assertEqual(run(PACKAGING / "stage", self.dist(), root).returncode, 0)
        for program in ("usr/bin/nvidia-modprobe", "bin/kill"):
            path = root / program
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)
        done = run("systemd-analyze", f"--root={root}", "--man=no", "verify", UNIT.name)
        # Units of the system, to which this one is attached, are not in the folder.
        said = [line for line in done.stdout.splitlines() if UNIT.name in line and "not found" not in line]
        self.assertEqual(said, [])
        done = run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", UNIT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_misspelt_setting_of_the_unit_is_found(self) -> None:
        """That the test before would see it."""
        self.need("systemd-analyze")
        root = self.folder / "root/usr/lib/systemd/system"
        root.mkdir(parents=True)
        (root / UNIT.name).write_text(UNIT.read_text().replace("WatchdogSec=", "WatchdogSeconds="))
        done = run("systemd-analyze", f"--root={self.folder / 'root'}", "--man=no", "verify", UNIT.name)
        self.assertIn("WatchdogSeconds", done.stdout)

    def test_the_tarball_has_everything_and_is_the_same_each_time(self) -> None:
        dist, files = self.dist(), []
        for name in ("a", "b"):
            done = run(PACKAGING / "tarball", "--dist", dist, "--out", self.folder / name,
                       env=dict(os.environ, SOURCE_DATE_EPOCH="1700000000"))
            self.assertEqual(done.returncode, 0, done.stdout)
            files.append(pathlib.Path(done.stdout.strip()))
        self.assertEqual(files[0].read_bytes(), files[1].read_bytes())
        with tarfile.open(files[0]) as archive:
            names = {member.name.split("/", 1)[-1]: member for member in archive.getmembers()}
            top = {member.name.split("/")[0] for member in archive.getmembers()}
            self.assertEqual(len(top), 1)
            for name in (
                "bin/nvidia-cuda-mps-control", "bin/mps-stop", "lib/libmps_client_shim.so", "LICENSE",
                "lib/systemd/system/nvidia-cuda-mps-control.service", "lib/tmpfiles.d/nvidia-cuda-mps-control.conf",
                "libexec/remps/default-directory", "libexec/remps/hand-over", "etc/nvidia-mps/mps-control.toml",
                "share/remps/slurm/prolog", "share/remps/slurm/epilog", "share/doc/remps/install.md",
                *(f"share/man/man{page.suffix[1:]}/{page.name}" for page in (ROOT / "man").iterdir()
                  if not page.name.startswith("uvm-")),
            ):
                self.assertIn(name, names)
            # Whatever there is for Kubernetes, which the documents name.
            for path in (PACKAGING / "kubernetes").rglob("*"):
                inner = path.relative_to(PACKAGING / "kubernetes")
                if path.is_file():
                    self.assertIn(f"share/doc/remps/{inner if path.suffix == '.md' else f'examples/{inner}'}", names)
            self.assertIn("share/remps/container/Dockerfile", names)
            for path in ("bin/nvidia-cuda-mps-control", "libexec/remps/hand-over", "share/remps/slurm/prolog",
                         "share/remps/container/entrypoint"):
                self.assertEqual(names[path].mode & 0o777, 0o755, path)
            # The completions are those of the very program that is packed.
            for shell, path in (
                ("bash", "share/bash-completion/completions/nvidia-cuda-mps-control"),
                ("zsh", "share/zsh/site-functions/_nvidia-cuda-mps-control"),
                ("fish", "share/fish/vendor_completions.d/nvidia-cuda-mps-control.fish"),
            ):
                packed = archive.extractfile(names[path]).read().decode()
                self.assertEqual(packed, run(dist / "nvidia-cuda-mps-control", "completions", shell).stdout)

    def test_a_purge_takes_the_logs_and_what_somebody_else_has_put_there_stays(self) -> None:
        text = (PACKAGING / "debian/postrm").read_text()
        for place in ("/var/", "/etc/"):
            text = text.replace(f" {place}", f" {self.folder}{place}")
        self.script("deb-systemd-helper", "exit 0")
        logs = self.folder / "var/log/nvidia-mps"
        files = ["control.log", "server.log", "events.jsonl", "events.jsonl.1", "training/server.log", "red/server.log"]
        for name in [*files, "red/notes", "notes/notes"]:
            (logs / name).parent.mkdir(parents=True, exist_ok=True)
            (logs / name).touch()
        for is_theirs, left in ((True, {*files, "red/notes", "notes/notes"} - {"events.jsonl", "events.jsonl.1"}),
                                (False, {"red/notes", "notes/notes"})):
            # The folder of logs is NVIDIA's package's, or nobody's.
            self.script("dpkg-query", f"exit {0 if is_theirs else 1}")
            done = run("sh", "-c", text, "postrm", "purge", env={"PATH": f"{self.folder}/bin:/usr/bin:/bin"})
            self.assertEqual((done.returncode, done.stdout), (0, ""))
            self.assertEqual({str(one.relative_to(logs)) for one in logs.rglob("*") if one.is_file()}, left)
        self.assertFalse((logs / "training").exists())
        shutil.rmtree(logs / "red")
        shutil.rmtree(logs / "notes")
        run("sh", "-c", text, "postrm", "purge", env={"PATH": f"{self.folder}/bin:/usr/bin:/bin"})
        self.assertFalse(logs.exists())

    def test_what_is_typed_twice_keeps_the_vendors_program(self) -> None:
        """The steps of the documents, in a folder in place of /usr/bin; the second time is an upgrade."""
        (self.folder / "dist").mkdir()
        for document in (ROOT / "docs/install.md", PACKAGING / "kubernetes/dra-driver.md"):
            text = document.read_text()
            (keep,) = re.findall(r"^ {4}(\[ -e \S*\.nvidia \] \|\|\n.*\n)", text, re.M)
            (put,) = re.findall(r"^ {4}(install -m 755 \S*nvidia-cuda-mps-control /usr/bin/\S+\n)", text, re.M)
            steps = (keep + put).replace("/usr/bin/", f"{self.folder}/").replace("target/dist/", "")
            (self.folder / "nvidia-cuda-mps-control").write_text("theirs")
            for ours in ("ours", "ours, newer"):
                (self.folder / "dist/nvidia-cuda-mps-control").write_text(ours)
                done = run("sh", "-c", steps, cwd=self.folder / "dist")
                self.assertEqual((done.returncode, done.stdout), (0, ""), document)
                self.assertEqual((self.folder / "nvidia-cuda-mps-control").read_text(), ours)
                self.assertEqual((self.folder / "nvidia-cuda-mps-control.nvidia").read_text(), "theirs")
            (self.folder / "nvidia-cuda-mps-control.nvidia").unlink()

    def hook(self, name: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """A hook of Slurm's, with the programs in the folder before those of the system."""
        environment = {"MPS_HOOK_PATH": f"{self.folder}/bin:/usr/bin:/bin", "MPS_HOOK_TRIES": "2",
                       "MPS_HOOK_ENVIRONMENT": f"{self.folder}/environment", **variables}
        return run("sh", PACKAGING / "slurm" / name, env=environment)

    def test_the_prolog_starts_the_daemon_for_jobs_with_gpus_alone(self) -> None:
        said, up = self.folder / "said", self.folder / "up"
        self.script("nvidia-cuda-mps-control", f'echo "control $*" >>{said}; [ -e {up} ]')
        self.script("systemctl", f'echo "systemctl $*" >>{said}; touch {up}')
        self.script("sleep", "exit 0")
        self.script("logger", f'echo "logger $*" >>{said}')
        self.assertEqual(self.hook("prolog", SLURM_JOB_ID="7").returncode, 0)
        self.assertEqual(self.said(), [])
        self.assertEqual(self.hook("prolog", SLURM_JOB_ID="7", SLURM_JOB_GPUS="0").returncode, 0)
        asked = "control status --exit-code"
        self.assertEqual(self.said(), [asked, "systemctl start nvidia-cuda-mps-control.service", asked])
        self.assertEqual(self.hook("prolog", SLURM_JOB_ID="7", SLURM_JOB_GPUS="0").returncode, 0)
        self.assertEqual(self.said()[3:], [asked], "nothing is started beside a daemon that serves")

        up.unlink()
        self.script("systemctl", "exit 0")
        self.assertEqual(self.hook("prolog", SLURM_JOB_ID="7", SLURM_JOB_GPUS="0").returncode, 1)
        self.assertIn("job 7: nvidia-cuda-mps-control admits no clients", self.said()[-1])
        self.script("systemctl", "exit 5")
        self.assertEqual(self.hook("prolog", SLURM_JOB_ID="7", SLURM_JOB_GPUS="0").returncode, 1)

    def test_the_epilog_ends_the_jobs_clients_in_either_cgroup_version(self) -> None:
        said, cgroups = self.folder / "said", self.folder / "cgroups"
        self.script("nvidia-cuda-mps-control", f'echo "$*" >>{said}; exit 1')
        self.script("logger", "exit 0")
        jobs = ["system.slice/slurmstepd.scope/job_7", "system.slice/n1_slurmstepd.scope/job_7", "pids/slurm/uid_5/job_7"]
        for other in ("system.slice/slurmstepd.scope/job_77", *jobs):
            (cgroups / other).mkdir(parents=True)
        run_for = lambda job: self.hook("epilog", MPS_HOOK_CGROUPS=str(cgroups), **job).returncode
        self.assertEqual(run_for({}), 0)
        self.assertEqual(run_for({"SLURM_JOB_ID": "../.."}), 0)
        self.assertEqual(run_for({"SLURM_JOB_ID": "8"}), 0)
        self.assertEqual(self.said(), [])
        # A client that can't be ended does not drain the node.
        self.assertEqual(run_for({"SLURM_JOB_ID": "7"}), 0)
        self.assertEqual(self.said(), [f"stop-client --cgroup {cgroups}/{job}" for job in jobs])

    def test_the_hooks_ask_the_units_daemon_and_wait_for_none_that_is_stopped(self) -> None:
        """Not whose daemon is in the folder where programs look that know nothing."""
        said, job = self.folder / "said", self.folder / "system.slice/slurmstepd.scope/job_7"
        job.mkdir(parents=True)
        self.script("nvidia-cuda-mps-control", f'echo "$CUDA_MPS_PIPE_DIRECTORY" >>{said}')
        self.script("systemctl", "exit 5")
        self.script("logger", f'echo "$*" >>{said}')
        variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0", "MPS_HOOK_CGROUPS": str(self.folder)}
        for text, directory in (
            (None, "/run/nvidia-mps"),
            ("MPS_LOG_LEVEL=debug\n#CUDA_MPS_PIPE_DIRECTORY=/no\n", "/run/nvidia-mps"),
            ("CUDA_MPS_PIPE_DIRECTORY=/no\nCUDA_MPS_PIPE_DIRECTORY=/srv/mps\nCUDA_MPS_LOG_DIRECTORY=/no\n", "/srv/mps"),
            ("CUDA_MPS_PIPE_DIRECTORY='/srv/two words' \n", "/srv/two words"),
        ):
            if text is not None:
                (self.folder / "environment").write_text(text)
            for hook in ("prolog", "epilog"):
                self.assertEqual(self.hook(hook, **variables).returncode, 0)
                self.assertEqual(self.said(), [directory], (hook, text))
                said.unlink()
        # A daemon that answers nobody: the job is not let in, and the epilog ends all the same.
        self.script("nvidia-cuda-mps-control", "exec tail -f /dev/null")
        self.assertEqual(self.hook("prolog", MPS_HOOK_LIMIT="0.1", **variables).returncode, 1)
        self.assertEqual(self.hook("epilog", MPS_HOOK_LIMIT="0.1", **variables).returncode, 0)
        self.assertEqual(self.said(), [f"-t mps-epilog job 7: clients in {job} could not all be ended"])

    def test_the_task_prolog_prints_what_slurm_reads(self) -> None:
        is_there = pathlib.Path("/run/nvidia-mps/control").is_socket()
        self.assertEqual(self.hook("task-prolog").stdout,
                         "export CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps\n" if is_there else "")
        (self.folder / "environment").write_text(f"CUDA_MPS_PIPE_DIRECTORY={self.folder}\n")
        self.assertEqual(self.hook("task-prolog").stdout, "", "nothing leads to where no daemon is")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{self.folder}/control")
            self.assertEqual(self.hook("task-prolog").stdout, f"export CUDA_MPS_PIPE_DIRECTORY={self.folder}\n")
            # What is printed would be in the task's environment over the job's own.
            self.assertEqual(self.hook("task-prolog", CUDA_MPS_PIPE_DIRECTORY="/tmp/jobs-own").stdout, "")

    def link(self, sockets: str = "") -> tuple[pathlib.Path, str]:
        """The default folder after the unit's step, and what that has said."""
        (self.folder / "sockets").write_text(sockets)
        default = self.folder / "default"
        done = run("sh", PACKAGING / "systemd/default-directory", env={
            "PATH": "/usr/bin:/bin", "MPS_DEFAULT_DIRECTORY": str(default), "MPS_SOCKETS": f"{self.folder}/sockets",
            "CUDA_MPS_PIPE_DIRECTORY": f"{self.folder}/run",
        })
        self.assertEqual(done.returncode, 0, "the daemon starts whatever is there")
        return default, done.stdout

    def test_the_default_folder_leads_to_the_daemons_and_nothing_in_use_is_touched(self) -> None:
        run_folder = str(self.folder / "run")
        default, said = self.link()
        self.assertEqual((os.readlink(default), said), (run_folder, ""))
        self.assertEqual(self.link()[1], "")
        # A link of ours to somewhere else.
        default.unlink()
        default.symlink_to("/nowhere")
        self.assertEqual((os.readlink(self.link()[0]), self.link()[1]), (run_folder, ""))
        # What a daemon of the vendor's has left.
        default.unlink()
        default.mkdir()
        for name in ("control_lock", "nvidia-cuda-mps-control.pid"):
            (default / name).touch()
        os.mkfifo(default / "log")
        # One that runs.
        listening = f"0000: 00000002 00000000 00010000 0005 01 4711 {default}/control\n"
        self.assertIn("is another daemon's, which runs", self.link(listening)[1])
        self.assertTrue((default / "control_lock").exists())
        self.assertEqual(self.link()[1], "")
        self.assertTrue(default.is_symlink())
        # Somebody's files.
        default.unlink()
        default.mkdir()
        (default / "thesis").touch()
        self.assertIn("is a folder with other files in it", self.link()[1])
        self.assertTrue((default / "thesis").exists())
        # What nobody's daemon makes, in a folder that everybody could write to.
        (default / "thesis").rename(default / "control")
        (default / "control").unlink()
        (default / "control").mkdir()
        self.assertIn("is a folder with other files in it", self.link()[1])
        shutil.rmtree(default)
        default.touch()
        self.assertIn("is no folder", self.link()[1])
        if os.geteuid() == 0:
            default.unlink()
            default.mkdir()
            os.chown(default, 65534, 65534)
            self.assertIn("is user 65534's", self.link()[1])

    def hand_over(self, systemctl: str, journal: str = "") -> subprocess.CompletedProcess[str]:
        """An upgrade's last step, with a daemon that is this test, where `systemctl reload` does this."""
        (self.folder / "pid").write_text(str(os.getpid()))
        (self.folder / "journal").write_text(journal)
        (self.folder / "run").mkdir(exist_ok=True)
        self.script("systemctl", f'''
            echo "$*" >>{self.folder}/said
            case "$*" in
                *ActiveState*) echo active ;;
                *MainPID*) cat {self.folder}/pid ;;
                reload*) {systemctl} ;;
            esac''')
        self.script("journalctl", f'case "$*" in *_PID={os.getpid()}*) cat {self.folder}/journal ;; esac')
        return run("sh", PACKAGING / "systemd/hand-over", env={
            "PATH": f"{self.folder}/bin:/usr/bin:/bin", "MPS_HAND_OVER_LIMIT": "1",
            "MPS_HAND_OVER_RUN": f"{self.folder}/run", "MPS_HAND_OVER_PREVIOUS": f"{self.folder}/previous",
        })

    def test_an_upgrade_that_the_daemon_refuses_is_told_with_its_reason(self) -> None:
        why = "A signal to hand over is refused, since servers would be lost: the state has 17 MiB, 16 are kept"
        done = self.hand_over(":", f"[2026-11-29 07:00:00.000 Control  4711] An earlier line\n"
                                   f"[2026-11-29 07:00:01.000 Control  4711] {why}\n"
                                   f"[2026-11-29 07:00:02.000 Control  4711] A later line\n")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("has not handed over to the new one, and serves on:\n", done.stdout)
        self.assertIn(f"remps: {why}\n", done.stdout)
        self.assertNotIn("does not start", done.stdout)
        # Nothing is left that would start another program than the installed one, and nothing was started.
        self.assertFalse((self.folder / "previous").exists() or any((self.folder / "run").iterdir()))
        self.assertFalse([line for line in self.said() if line.startswith("start")])
        self.assertIn("it does not say why", self.hand_over(":").stdout)

    def test_an_upgrade_that_is_taken_says_nothing_and_one_that_does_not_start_goes_back(self) -> None:
        done = self.hand_over(f"echo 4711 >{self.folder}/pid")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertFalse((self.folder / "previous").exists())
        done = self.hand_over(f"echo 0 >{self.folder}/pid")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("the new nvidia-cuda-mps-control does not start; the old one takes its clients back", done.stdout)
        self.assertTrue((self.folder / "previous/nvidia-cuda-mps-control").exists())
        [drop_in] = (self.folder / "run").glob("*/remps-previous.conf")
        self.assertIn(f"ExecStart={self.folder}/previous/nvidia-cuda-mps-control -f\n", drop_in.read_text())

    def test_the_program_of_rpm_comes_into_its_place_and_goes_again(self) -> None:
        place = self.folder / "control"
        beside = self.folder / "control.nvidia"
        ours = "/usr/libexec/remps/nvidia-cuda-mps-control"

        def swap(how: str) -> None:
            done = run("sh", PACKAGING / "rpm/swap", how, env={"PATH": "/usr/bin:/bin", "MPS_PLACE": str(place)})
            self.assertEqual((done.returncode, done.stdout), (0, ""))

        place.write_text("theirs")
        for _ in range(2):
            swap("in")
            self.assertEqual((os.readlink(place), beside.read_text()), (ours, "theirs"))
        # An update of their package renames its file over the link.
        place.unlink()
        place.write_text("newer")
        swap("in")
        self.assertEqual((os.readlink(place), beside.read_text()), (ours, "newer"))
        swap("out")
        self.assertEqual((place.read_text(), beside.exists()), ("newer", False))
        swap("out")
        self.assertEqual(place.read_text(), "newer")
        # Their package is removed, and the link with it.
        swap("in")
        place.unlink()
        swap("in")
        self.assertEqual((os.readlink(place), beside.exists()), (ours, False))
        swap("out")
        self.assertFalse(place.is_symlink())
        # The same, and ours goes before anybody has seen it.
        beside.write_text("theirs")
        swap("out")
        self.assertFalse(beside.exists())


if __name__ == "__main__":
    unittest.main()

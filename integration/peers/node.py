"""A node with simulated GPUs, on which pods are processes in roots of their own.

All of it lies in a mount namespace of its own and in one tmpfs there, which is gone with the namespace: nothing of the
machine is changed, and nothing is ever removed file by file below a root that has the machine's folders in it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import bench
from bench import CONTROL, LIMIT, SERVER, wait_for

# The namespace that the tests were started from.
OUTER = "REMPS_PEERS_OUTER_NAMESPACE"
GPUS = ["GPU-5e900000-6d70-732d-7369-6d0000000000", "GPU-5e900000-6d70-732d-7369-6d0000000001"]
MIB = 1 << 20
MEMORY_MIB = 80 * 1024
# A root has these of the machine's, and the others that pods need empty.
OF_THE_MACHINE = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "proc", "sys", "dev")
EMPTY = ("tmp", "run", "var/log/nvidia-mps", "var/lib/kubelet", "mps", "driver-root")
LIBRARIES = next((path for path in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64") if Path(path).is_dir()), "/usr/lib")
# As the vendor's, by the number of whose file the daemon learns the release.
DRIVER = "libcuda.so.580.159.04"
# What NVIDIA's program does to the simulated library's GPUs, of the root that it lies in.
NVIDIA_SMI = """#!/bin/sh
case "$1 $3 $4" in
    "-i -c EXCLUSIVE_PROCESS") mode=3 ;;
    "-i -c DEFAULT") mode=0 ;;
    *) echo "nvidia-smi: $*: not understood"; exit 2 ;;
esac
library=${{0%/usr/bin/*}}{libraries}
grep -qx "$2" "$library/gpus" || {{ echo "No devices were found"; exit 6; }}
echo "$mode" > "$library/$2.mode"
"""

NODE_PIPE = "/run/nvidia-mps"
OF_THE_NODE = {"CUDA_MPS_PIPE_DIRECTORY": NODE_PIPE, "CUDA_MPS_LOG_DIRECTORY": NODE_PIPE}
NODE_CONFIGURATION = """[join]
containers = true
[gpu]
compute_mode = "manage"
"""
JOINING = f"""#!/bin/sh
case "$1" in
    -d) exec /usr/bin/{CONTROL}.remps --join {NODE_PIPE} "$@" ;;
    *) exec /usr/bin/{CONTROL}.remps "$@" ;;
esac
"""
UNDER_TEST = f"{CONTROL}.installed"


def is_theirs():
    """Whether NVIDIA's own program is under test, as for `integration/src/under_test.rs`."""
    return os.environ.get("MPS_UNDER_TEST", "ours") == "theirs"


def control():
    """The program under test: of theirs that which MPS_THEIRS names, or what Debian ships for release 550."""
    if not is_theirs():
        return bench.PROGRAMS / CONTROL
    fetched = bench.PROGRAMS.parent / "vendor/550/usr/bin" / CONTROL
    return Path(os.environ.get("MPS_THEIRS", fetched))


def is_old():
    """Whether it is one before 580: it knows no `-M`, and forgets limits of GPUs by UUID."""
    return is_theirs() and "Binary version" not in subprocess.run([control(), "-v"], capture_output=True, text=True).stdout


def only_ours(test):
    return unittest.skipIf(is_theirs(), "Skipped(ours alone does it)")(test)


def namespace():
    return str(os.stat("/proc/self/ns/mnt").st_ino)


def enter():
    """Runs this program again in a mount namespace of its own. Returns there, or with the reason why it can't be had."""
    if os.environ.get(OUTER, namespace()) != namespace():
        return None
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if os.getuid() != 0:
        unshare[1:1] = ["--user", "--map-root-user"]
    tried = subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True)
    if tried.returncode != 0:
        return tried.stderr.strip()
    environment = {**os.environ, OUTER: namespace()}
    os.execvpe(unshare[0], [*unshare, sys.executable, "-B", *sys.argv], environment)


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


def put(path, text):
    """Writes a program."""
    path.write_text(text)
    path.chmod(0o755)


def bind(what, where):
    where.mkdir(parents=True, exist_ok=True)
    mount("--rbind", what, where)


def is_below(pid, root):
    """Whether a process has its root there; one that has ended has none, and another user's is not known."""
    try:
        own = Path(os.readlink(f"/proc/{pid}/root"))
    except OSError:
        return False
    return own == root or root in own.parents


class Node:
    """The node's root, and what runs on it."""

    def __init__(self, gpus=1):
        assert os.environ[OUTER] != namespace(), "mounts are made in a namespace of their own alone"
        self.folder = Path(tempfile.mkdtemp(prefix="peer", dir="/tmp"))
        mount("-t", "tmpfs", "tmpfs", self.folder)
        self.gpus = GPUS[:gpus]
        self.processes = []
        # By the driver's root, where its libraries are.
        self.libraries = {}
        self.root = self.make_root("node")
        for place in ("usr/bin", LIBRARIES.lstrip("/"), "etc"):
            self.overlay(place)
        self.install()

    def make_root(self, name):
        """A root with the machine's programs and nothing else."""
        root = self.folder / name
        root.mkdir()
        for top in OF_THE_MACHINE:
            here = Path("/", top)
            if here.is_symlink():
                (root / top).symlink_to(os.readlink(here))
            elif here.is_dir():
                bind(here, root / top)
        for empty in EMPTY:
            (root / empty).mkdir(parents=True)
        bind(bench.PROGRAMS, root / str(bench.PROGRAMS).lstrip("/"))
        return root

    def overlay(self, place):
        """Lets what is written to this folder of the node's root stay with the node."""
        upper, work = (self.folder / kind / place for kind in ("upper", "work"))
        for folder in (upper, work):
            folder.mkdir(parents=True)
        where = self.root / place
        options = f"lowerdir=/{place},upperdir={upper},workdir={work}"
        mount("-t", "overlay", "overlay", "-o", options, where)

    def install(self, root=None, libraries=LIBRARIES):
        """The driver below a root, with ours in its place, as an installation by hand has it."""
        root = root or self.root
        programs, place = root / "usr/bin", root / libraries.lstrip("/")
        for folder in (programs, place):
            folder.mkdir(parents=True, exist_ok=True)
        # Nothing of the peers' passes the simulation's variables on.
        devices = f"export MPS_SIM_DEVICES={len(self.gpus)}"
        shutil.copy(control(), programs / UNDER_TEST)
        put(programs / CONTROL, f'#!/bin/sh\n{devices}\nexec "${{0%/*}}/{UNDER_TEST}" "$@"\n')
        (programs / SERVER).unlink(missing_ok=True)
        (programs / SERVER).symlink_to(bench.PROGRAMS / SERVER)
        put(programs / "nvidia-smi", NVIDIA_SMI.format(libraries=libraries))
        for name, file in ((DRIVER, "deps/libcuda.so"), ("libnvidia-ml.so.1", "libnvml_sim.so")):
            shutil.copy(bench.PROGRAMS / file, place / name)
        (place / "libcuda.so.1").symlink_to(DRIVER)
        (place / "gpus").write_text("".join(f"{uuid}\n" for uuid in self.gpus))
        for uuid in self.gpus:
            (place / f"{uuid}.mode").write_text("0\n")
            (place / f"{uuid}.memory").write_text(f"{MEMORY_MIB * MIB} 0\n")
        self.libraries[root] = place

    def place(self, path):
        """What is this path on the node."""
        return self.root / path.lstrip("/")

    def mode(self, uuid, driver_root="/"):
        return int((self.libraries[self.place(driver_root)] / f"{uuid}.mode").read_text())

    def start_node_daemon(self):
        """A daemon of the node, and docs/kubernetes.md's script in place of ours, by which others join it."""
        configuration = self.root / "etc/nvidia-mps"
        configuration.mkdir(exist_ok=True)
        (configuration / "mps-control.toml").write_text(NODE_CONFIGURATION)
        programs = self.root / "usr/bin"
        (programs / CONTROL).rename(programs / f"{CONTROL}.remps")
        put(programs / CONTROL, JOINING)
        done = self.run(f"{CONTROL}.remps", "-d", environment=OF_THE_NODE)
        assert done.returncode == 0, done

    def of_the_node(self, line):
        """What the node's own daemon answers."""
        return self.ask(NODE_PIPE, line)

    def command(self, arguments, environment=None, root=None):
        """A command in a root, with these variables and a search path, and nothing else."""
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", **(environment or {})}
        words = [f"{name}={value}" for name, value in variables.items()]
        return ["chroot", str(root or self.root), "/usr/bin/env", "-i", *words, *map(str, arguments)]

    def run(self, *arguments, environment=None, root=None, stdin="", before=()):
        command = [*before, *self.command(arguments, environment, root)]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=LIMIT)

    def ask(self, pipe, line):
        """What the daemon of a pipe directory answers."""
        done = self.run(CONTROL, environment={"CUDA_MPS_PIPE_DIRECTORY": pipe}, stdin=f"{line}\n")
        assert (done.returncode, done.stderr) == (0, ""), f"{line}: {done}"
        return done.stdout.strip()

    def start(self, *arguments, environment=None, root=None, before=()):
        """A process, whose output is a file."""
        output = self.folder / f"output{len(self.processes)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [*before, *self.command(arguments, environment, root)],
                stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT,
            )
        process.told = output
        self.processes.append(process)
        return process

    def client(self, program, arguments, environment, event, before=()):
        """A client of the simulated driver, once it has said that this has happened."""
        environment = {"MPS_SIM_DEVICES": str(len(self.gpus)), **environment}
        client = self.start(bench.PROGRAMS / program, *arguments, environment=environment, before=before)
        self.wait(f"{event} of {program}", lambda: f'"{event}"' in client.told.read_text(), client)
        return client

    def wait(self, what, is_so, *processes):
        """Waits for a fact, and shows what these have said when it does not come."""
        try:
            wait_for(what, is_so)
        except AssertionError as error:
            said = "\n".join(process.told.read_text() for process in processes)
            raise AssertionError(f"{error}\n{said}") from None

    def close(self):
        for process in self.processes:
            process.stdin.close()
            process.kill()
        # What these have started, and what a test that failed has left.
        self.kill(self.folder)
        for process in self.processes:
            process.wait()
        subprocess.run(["umount", "--lazy", self.folder], check=True)
        # Never what is in it.
        self.folder.rmdir()

    def kill(self, root):
        """Kills every process whose root is this one or below it, and waits for their end."""
        def is_over():
            members = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_below(pid, root)]
            # Also those that have been started meanwhile.
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not members

        wait_for("the end of all in a root", is_over)

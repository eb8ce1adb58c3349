"""A Debian machine under systemd of its own, in a container of systemd-nspawn, for tests of packages.

It needs root, a Debian mirror in the machine's own package sources, mmdebstrap and systemd-nspawn. A root is made once
for each suite and kept under the target folder.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# Whatever takes longer has hung, on a busy machine too. In seconds.
LIMIT = 120
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = "systemd-sysv,dbus,procps,init-system-helpers"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Skipped(Exception):
    """Why a test can't run here."""


def mirror() -> str:
    """The Debian archive that this machine itself uses."""
    folder = pathlib.Path("/etc/apt")
    files = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))]
    for path in files:
        text = path.read_text() if path.is_file() else ""
        for address in re.findall(r"https?://\S+/debian/?(?=\s)", text + "\n"):
            if "security" not in address:
                return address
    raise Skipped("this machine has no Debian package sources")


def require(*programs: str) -> None:
    """Says what is missing for a machine."""
    if os.geteuid() != 0:
        raise Skipped("only root may make a machine")
    for program in programs:
        if not shutil.which(program):
            raise Skipped(f"{program} is missing")


def root_of(suite: str) -> pathlib.Path:
    """The archive of a fresh root of a suite, made when it is not there yet."""
    require("mmdebstrap", "systemd-nspawn", "nsenter", "unshare")
    archive = TARGET / "packages" / f"root-{suite}.tar"
    if not archive.is_file():
        archive.parent.mkdir(parents=True, exist_ok=True)
        new = archive.with_suffix(".new.tar")
        source = f"deb [signed-by={KEYRING}] {mirror()} {suite} main"
        made = subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", suite, str(new), source],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        if made.returncode != 0:
            raise Skipped(f"no {suite} root: {made.stdout.strip().splitlines()[-1:]}")
        new.rename(archive)
    return archive


def vendor_package(suite: str) -> pathlib.Path:
    """NVIDIA's programs as Debian packs them, by apt with private lists."""
    folder = TARGET / "packages" / f"vendor-{suite}"
    known = sorted(folder.glob("nvidia-cuda-mps_*.deb"))
    if known:
        return known[-1]
    for name in ("lists/partial", "cache/archives/partial", "parts"):
        (folder / "apt" / name).mkdir(parents=True, exist_ok=True)
    source = f"deb [signed-by={KEYRING}] {mirror()} {suite} contrib non-free\n"
    (folder / "apt/sources.list").write_text(source)
    options = []
    for option in (
        f"Dir::Etc::SourceList={folder}/apt/sources.list", f"Dir::Etc::SourceParts={folder}/apt/parts",
        f"Dir::State::Lists={folder}/apt/lists", f"Dir::Cache={folder}/apt/cache", "APT::Sandbox::User=root",
        "Acquire::Retries=2",
    ):
        options += ["-o", option]
    for step in (["update"], ["download", "nvidia-cuda-mps"]):
        done = subprocess.run(["apt-get", "-qq", *options, *step], cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise Skipped(f"no nvidia-cuda-mps of {suite}: {done.stdout.strip().splitlines()[-1:]}")
    return sorted(folder.glob("nvidia-cuda-mps_*.deb"))[-1]


def wait_for(what: str, holds, limit: float = LIMIT):
    """Waits until `holds()` gives something true, which is returned."""
    deadline = time.monotonic() + limit
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(0.05)


class Machine:
    """A root that runs. To be used in a `with` statement."""

    def __init__(self, suite: str) -> None:
        archive = root_of(suite)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="remps-machine-", dir="/var/tmp"))
        self.root = self.folder / "root"
        self.root.mkdir()
        # Device files are systemd-nspawn's to make.
        subprocess.run(["tar", "-C", self.root, "--exclude=./dev/*", "-xf", archive], check=True)
        self.process: subprocess.Popen[bytes] | None = None
        self.leader = 0

    def __enter__(self) -> "Machine":
        # It keeps what belongs to it in /run, which must be no disk.
        start = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/nspawn && exec \"$@\""
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", start, "sh", "systemd-nspawn",
                   "--quiet", "--register=no", "--keep-unit", "--boot", "--console=pipe", "--private-network",
                   "--capability=CAP_SYSLOG", f"--machine=remps-{os.getpid()}", f"--directory={self.root}"]
        environment = dict(os.environ, SYSTEMD_NSPAWN_UNIFIED_HIERARCHY="1")
        with (self.folder / "console").open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            wait_for("a leader", self._find_leader, 30)
            wait_for("a running machine", lambda: self.try_run("systemctl is-system-running")[1].strip()
                     in ("running", "degraded"), 60)
        except AssertionError as error:
            console = (self.folder / "console").read_text(errors="replace")
            self.__exit__()
            raise Skipped(f"no machine starts under systemd-nspawn here: {error}: {console[-300:]}") from error
        return self

    def _find_leader(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError("systemd-nspawn has ended")
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        # The child lets the machine's first process go when it is ready, and is it from then on.
        for child in children:
            if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                self.leader = int(child)
        return self.leader != 0

    def __exit__(self, *_error) -> None:
        assert self.process is not None
        if self.leader:
            self.try_run("systemctl poweroff --force")
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, *words: str, environment: dict[str, str] | None = None) -> list[str]:
        """What runs a program in the machine, with an environment of its own."""
        variables = {"PATH": PATH, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", **(environment or {})}
        enter = ["nsenter", "--target", str(self.leader), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        return [*enter, "--", "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *words]

    def try_run(self, script: str, **environment: str) -> tuple[int, str]:
        """The status and the output of a shell script."""
        done = subprocess.run(self.command("sh", "-c", script, environment=environment), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=LIMIT)
        return done.returncode, done.stdout

    def run(self, script: str, **environment: str) -> str:
        """The output of a shell script, which must succeed."""
        status, text = self.try_run(script, **environment)
        if status != 0:
            raise AssertionError(f"{script}: status {status}\n{text}")
        return text.strip()

    def put(self, file: pathlib.Path, to: str) -> str:
        """Copies a file into the machine's root; its path there."""
        target = self.root / to.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
        return to

"""The Debian package in fresh Debian roots under systemd: installed over NVIDIA's, upgraded under clients, removed.

usage: python3 -B -m unittest -v packaging/tests/test_installed.py, as root, after
       cargo build --workspace --bins and tools/build-release (or REMPS_DIST=DIR)
The server and the clients are the simulated ones of the repository; the daemon, systemd, dpkg and NVIDIA's package are
real.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from machine import ROOT, TARGET, Machine, Skipped, vendor_package, wait_for  # noqa: E402

DIST = pathlib.Path(os.environ.get("REMPS_DIST", TARGET / "dist"))
PROGRAMS = TARGET / "debug"
UNIT = "nvidia-cuda-mps-control.service"
CONTROL = "/usr/bin/nvidia-cuda-mps-control"
# What dpkg, systemd and the test itself write, and what is no file of a package's.
NOT_COMPARED = (
    "var/lib/dpkg", "var/log", "var/cache", "var/lib/systemd", "var/lib/apt", "var/tmp", "etc/machine-id", "proc", "sys",
    "dev", "run", "tmp", "opt", "etc/ld.so.cache", "etc/.updated", "var/.updated", "root",
)


def build(version: str, out: pathlib.Path, dist: pathlib.Path = DIST) -> pathlib.Path:
    """Our package of a version."""
    if not (dist / "nvidia-cuda-mps-control").is_file():
        raise Skipped(f"{dist} has no release: run tools/build-release first")
    words = [ROOT / "packaging/debian/build", "--dist", dist, "--out", out, "--version", version]
    environment = dict(os.environ, DPKG_DEB_COMPRESSOR_TYPE="gzip")
    built = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return pathlib.Path(built.stdout.strip())


def broken(version: str, out: pathlib.Path) -> pathlib.Path:
    """A package whose daemon does not start, and is sound otherwise."""
    dist = out / "broken-dist"
    dist.mkdir()
    (dist / "libmps_client_shim.so").write_bytes((DIST / "libmps_client_shim.so").read_bytes())
    # The answers to all but the daemon's options come from the sound one; `strip` wants a real program.
    source = dist / "broken.c"
    source.write_text(
        "#include <stdio.h>\n#include <string.h>\n"
        'int main(int c, char **v) { if (c > 1 && !strcmp(v[1], "completions")) return 0;\n'
        ' fprintf(stderr, "the new program fails\\n"); return 1; }\n'
    )
    subprocess.run(["gcc", "-o", dist / "nvidia-cuda-mps-control", source], check=True)
    return build(version, out, dist)


def files(root: pathlib.Path) -> dict[str, str]:
    """Every file of a root with its mode and the hash of its content."""
    found = {}
    for folder, folders, names in os.walk(root):
        relative = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if os.path.normpath(f"{relative}/{name}") not in NOT_COMPARED]
        for name in [*names, *folders]:
            path = pathlib.Path(folder, name)
            key = os.path.normpath(f"{relative}/{name}")
            if key in NOT_COMPARED:
                continue
            status = path.lstat()
            content = ""
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            found[key] = f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {content}"
    return found


class Client:
    """A program on the simulated server, which finds the daemon where every program looks."""

    def __init__(self, machine: Machine) -> None:
        command = machine.command("/opt/sim/mps-lab-client")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("attached")

    def expect(self, line: str) -> None:
        said = self.process.stdout.readline().strip()
        if said != line:
            raise AssertionError(f"the client says {said!r} and not {line!r}")

    def ping(self) -> None:
        self.process.stdin.write("ping\n")
        self.process.stdin.flush()
        self.expect("pong")

    def leave(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        if self.process.wait(60) != 0:
            raise AssertionError("the client ended in error")


class Work:
    """A client that uses its connection without a pause, and newcomers one after the other, while something happens."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.stop = machine, threading.Event()
        self.failures: list[BaseException] = []
        self.pings = self.newcomers = 0
        self.threads = [threading.Thread(target=self._guard, args=[each]) for each in (self._ping, self._come)]

    def _guard(self, work) -> None:
        try:
            work()
        except BaseException as error:  # pylint: disable=broad-except
            self.failures.append(error)

    def _ping(self) -> None:
        client = Client(self.machine)
        while not self.stop.is_set():
            client.ping()
            self.pings += 1
            self.stop.wait(0.02)
        client.leave()

    def _come(self) -> None:
        while not self.stop.is_set():
            Client(self.machine).leave()
            self.newcomers += 1

    def __enter__(self) -> "Work":
        for thread in self.threads:
            thread.start()
        wait_for("work", lambda: self.failures or (self.pings and self.newcomers))
        return self

    def __exit__(self, *_error) -> None:
        before = self.newcomers
        try:
            wait_for("a newcomer afterwards", lambda: self.failures or self.newcomers > before + 1)
        finally:
            self.stop.set()
            for thread in self.threads:
                thread.join()
        if self.failures:
            raise self.failures[0]


class Installed(unittest.TestCase):
    """One machine a suite: each step goes on where the one before has left it."""

    def in_machine(self, suite: str) -> None:
        try:
            vendor = vendor_package(suite)
            with tempfile.TemporaryDirectory() as folder:
                out = pathlib.Path(folder)
                packages = {version: build(version, out) for version in ("0.1.0", "0.1.1", "0.1.3")}
                packages["0.1.2"] = broken("0.1.2", out)
                with Machine(suite) as self.machine:
                    self.steps(vendor, packages)
        except Skipped as skipped:
            print(f"packages in {suite}: Skipped({skipped})", flush=True)
            self.skipTest(str(skipped))

    def test_bookworm(self) -> None:
        self.in_machine("bookworm")

    def test_trixie(self) -> None:
        self.in_machine("trixie")

    def say(self, text: str) -> None:
        print(f"    {text}", flush=True)

    def pid(self) -> int:
        return int(self.machine.run(f"systemctl show -p MainPID --value {UNIT}"))

    def active(self) -> bool:
        return self.machine.try_run(f"systemctl is-active {UNIT}")[1].strip() == "active"

    def another_serves(self, old: int) -> None:
        wait_for("another daemon", lambda: self.active() and self.pid() not in (0, old))

    def running_program(self) -> str:
        return self.machine.run(f"sha256sum /proc/{self.pid()}/exe | cut -d' ' -f1")

    def hash_of(self, path: str) -> str:
        return self.machine.run(f"sha256sum {path} | cut -d' ' -f1")

    def steps(self, vendor: pathlib.Path, packages: dict[str, pathlib.Path]) -> None:
        machine = self.machine
        for name in ("nvidia-cuda-mps-server", "mps-lab-client"):
            if not (PROGRAMS / name).is_file():
                raise Skipped(f"{PROGRAMS / name} is missing: cargo build --workspace --bins")
            machine.put(PROGRAMS / name, f"/opt/sim/{name}")
        for version, file in packages.items():
            machine.put(file, f"/opt/{version}.deb")
        machine.put(vendor, "/opt/vendor.deb")
        clean = files(machine.root)

        self.ours_first_and_then_the_vendors_leaves_nothing(clean)
        machine.run("dpkg -i /opt/vendor.deb")
        with_vendor = files(machine.root)
        vendors = self.hash_of(CONTROL)

        self.it_takes_the_vendors_place_and_starts_nothing(vendors)
        self.programs_find_the_started_unit_where_they_always_look()
        self.a_reload_a_kill_and_a_hang_harm_no_client()
        self.an_upgrade_is_noticed_by_no_client()
        self.an_upgrade_that_does_not_start_leaves_the_old_program_serving()
        self.an_update_of_the_vendors_stays_beside(vendors)
        self.a_stop_drains_and_leaves_no_process()

        self.a_removal_leaves_every_file_as_before(vendors, with_vendor, clean)

    def a_removal_leaves_every_file_as_before(self, vendors: str, before: dict[str, str], clean: dict[str, str]) -> None:
        machine = self.machine
        machine.run("dpkg --remove remps")
        self.assertEqual(self.hash_of(CONTROL), vendors, "the vendor's program is back")
        self.assertEqual(machine.try_run("ls /tmp/nvidia-mps")[0], 2, "the link is gone")
        machine.run("rm -f /etc/nvidia-mps/environment; rm -rf /etc/systemd/system/*.service.d; dpkg --purge remps")
        self.assertEqual(files(machine.root), before)
        machine.run("dpkg --purge nvidia-cuda-mps")
        self.assertEqual(files(machine.root), clean)
        self.say("removed: every file as before, byte for byte")

    def ours_first_and_then_the_vendors_leaves_nothing(self, clean: dict[str, str]) -> None:
        """First ours, then the vendor's, which goes beside it; and neither is left."""
        machine = self.machine
        machine.run("dpkg -i /opt/0.1.0.deb")
        ours = self.hash_of(CONTROL)
        machine.run("dpkg -i /opt/vendor.deb")
        self.assertEqual(self.hash_of(CONTROL), ours)
        self.assertNotEqual(self.hash_of(f"{CONTROL}.nvidia"), ours)
        machine.run("dpkg --purge nvidia-cuda-mps && dpkg --purge remps")
        self.assertEqual(files(machine.root), clean)
        self.say("ours first, then the vendor's: diverted, and nothing is left")

    def it_takes_the_vendors_place_and_starts_nothing(self, vendors: str) -> None:
        machine = self.machine
        machine.run("dpkg -i /opt/0.1.0.deb")
        self.assertEqual(self.hash_of(f"{CONTROL}.nvidia"), vendors)
        self.assertIn("ReMPS", machine.run(f"{CONTROL} -v"))
        self.assertEqual(machine.try_run(f"systemctl is-enabled {UNIT}")[1].strip(), "disabled")
        self.assertFalse(self.active(), "nobody has asked for a daemon")
        self.assertEqual(machine.try_run(f"systemd-analyze verify --man=no {UNIT}"), (0, ""))
        self.say("installed over the vendor's: neither enabled nor started")

    def programs_find_the_started_unit_where_they_always_look(self) -> None:
        """From a folder that a daemon of the vendor's has left behind."""
        machine = self.machine
        machine.run("mkdir -m 777 /tmp/nvidia-mps && touch /tmp/nvidia-mps/control_lock && mkfifo /tmp/nvidia-mps/log")
        machine.run("echo MPS_SERVER_BINARY=/opt/sim/nvidia-cuda-mps-server >/etc/nvidia-mps/environment")
        machine.run(f"systemctl enable --now {UNIT}")
        self.assertTrue(self.active(), "it is ready when the start returns")
        self.assertEqual(machine.run("readlink /tmp/nvidia-mps"), "/run/nvidia-mps")
        self.assertEqual(machine.run("stat -c '%U %a' /run/nvidia-mps"), "root 755")
        self.assertEqual(machine.run("echo get_default_client_priority | nvidia-cuda-mps-control"), "0")
        machine.run("nvidia-cuda-mps-control status --exit-code")
        Client(machine).leave()
        # Nothing that is forgotten in /tmp is cleaned away while it is needed.
        machine.run("touch -h -d '-90 days' /tmp/nvidia-mps; systemd-tmpfiles --clean")
        Client(machine).leave()
        self.say("started: ready, found by programs that know nothing of /run")

    def a_reload_a_kill_and_a_hang_harm_no_client(self) -> None:
        machine = self.machine
        machine.run(f"mkdir -p /etc/systemd/system/{UNIT}.d")
        # What takes long in the unit, and is the same when it is short.
        machine.run(f"printf '[Service]\\nWatchdogSec=3s\\nTimeoutAbortSec=1s\\n' >/etc/systemd/system/{UNIT}.d/short.conf")
        machine.run("systemctl daemon-reload")
        for what, how in (
            ("reloaded", f"systemctl reload {UNIT}"),
            ("killed", "kill -KILL {pid}"),
            ("hangs", "kill -STOP {pid}"),
        ):
            old = self.pid()
            with Work(machine) as work:
                machine.run(how.format(pid=old))
                self.another_serves(old)
            self.say(f"{what}: {work.pings} pings and {work.newcomers} newcomers, all answered")
        log = machine.run(f"journalctl -u {UNIT} -o cat --no-pager")
        self.assertIn("Watchdog timeout", log)
        self.assertEqual(log.count("Watchdog timeout"), 1, "it is given in time otherwise")

    def an_upgrade_is_noticed_by_no_client(self) -> None:
        machine = self.machine
        old = self.pid()
        with Work(machine) as work:
            machine.run("dpkg -i /opt/0.1.1.deb")
            # The package has waited for the new daemon.
            self.assertTrue(self.active())
            self.assertNotEqual(self.pid(), old)
        self.assertEqual(self.running_program(), self.hash_of(CONTROL))
        self.assertNotEqual(machine.try_run("ls /usr/libexec/remps/previous")[0], 0)
        self.say(f"upgraded: {work.pings} pings and {work.newcomers} newcomers, all answered")

    def an_upgrade_that_does_not_start_leaves_the_old_program_serving(self) -> None:
        machine = self.machine
        sound = self.hash_of(CONTROL)
        with Work(machine) as work:
            status, text = machine.try_run("dpkg -i /opt/0.1.2.deb", MPS_HAND_OVER_LIMIT="3")
            self.assertNotEqual(status, 0, text)
            self.assertIn("the new program fails", text)
            self.assertTrue(self.active(), text)
        self.assertEqual(self.running_program(), sound, "the one from before the upgrade serves")
        self.assertNotEqual(self.hash_of(CONTROL), sound)
        with Work(machine):
            machine.run("dpkg -i /opt/0.1.3.deb")
        self.assertEqual(self.running_program(), self.hash_of(CONTROL))
        self.assertEqual(machine.try_run(f"ls /run/systemd/system/{UNIT}.d /usr/libexec/remps/previous")[0], 2)
        self.say(f"a failed upgrade: {work.pings} pings and {work.newcomers} newcomers, all answered by the old one")

    def an_update_of_the_vendors_stays_beside(self, vendors: str) -> None:
        ours = self.hash_of(CONTROL)
        self.machine.run("dpkg -i /opt/vendor.deb")
        self.assertEqual((self.hash_of(CONTROL), self.hash_of(f"{CONTROL}.nvidia")), (ours, vendors))

    def a_stop_drains_and_leaves_no_process(self) -> None:
        machine = self.machine
        client = Client(machine)
        machine.run(f"systemctl stop --no-block {UNIT}")
        wait_for("a drain", lambda: machine.run(f"systemctl show -p SubState --value {UNIT}") == "stop-sigterm")
        client.ping()
        client.leave()
        wait_for("the end", lambda: machine.run(f"systemctl show -p ActiveState --value {UNIT}") == "inactive")
        self.assertEqual(machine.try_run("pgrep mps-holder || pgrep nvidia-cuda"), (1, ""), "nothing is left")
        self.assertEqual(machine.run(f"systemctl show -p Result --value {UNIT}"), "success")
        machine.run(f"systemctl disable {UNIT}")
        self.say("stopped: the client could finish, and no process is left")


if __name__ == "__main__":
    unittest.main()

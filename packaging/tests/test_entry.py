"""The first process of the container, with a pretended daemon.

usage: python3 -B packaging/tests/test_entry.py (some seconds)

With the daemon itself and clients it is a test of `integration`, of which this one is the part that a daemon does not do.
"""

from __future__ import annotations

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from machine import ROOT, wait_for  # noqa: E402

CONTAINER = ROOT / "packaging/container"
# As a daemon that handles its signals, or ends as the file `end` says.
DAEMON = """#!/bin/sh
[ $# != 0 ] || exit 0
echo "$$ $*" >>"$FOLDER/started"
trap 'echo term >>"$FOLDER/heard"; exit 3' TERM
trap 'echo hup >>"$FOLDER/heard"' HUP
trap 'echo usr1 >>"$FOLDER/heard"; exit 0' USR1
if [ -e "$FOLDER/end" ]; then . "$FOLDER/end"; fi
touch "$FOLDER/ready"
while :; do sleep 0.05; done
"""


class Entry(unittest.TestCase):
    """In a folder of each test's own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="remps-entry-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.daemon = self.folder / "daemon"
        self.daemon.write_text(DAEMON)
        self.daemon.chmod(0o755)

    def leave_socket(self) -> None:
        """What a daemon leaves to the next one."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{self.folder}/control")

    def start(self, *words: str) -> subprocess.Popen[str]:
        (self.folder / "ready").unlink(missing_ok=True)
        environment = {"PATH": os.environ["PATH"], "FOLDER": str(self.folder), "CUDA_MPS_PIPE_DIRECTORY": str(self.folder),
                       "MPS_ENTRY_PROGRAM": str(self.daemon)}
        with (self.folder / "said").open("w") as said:
            # A shell cannot handle what is ignored when it begins, as SIGHUP below `nohup`.
            command = ["env", "--default-signal", "sh", CONTAINER / "entrypoint", *words]
            process = subprocess.Popen(command, env=environment,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said)
        self.addCleanup(process.kill)
        return process

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def ready(self) -> None:
        wait_for("the daemon", (self.folder / "ready").exists)

    def test_the_daemon_has_the_containers_arguments_and_signals(self) -> None:
        process = self.start("-a", "two words")
        self.ready()
        self.assertEqual([line.split(" ", 1)[1] for line in self.lines("started")], ["-f -a two words"])
        process.send_signal(signal.SIGHUP)
        wait_for("the signal", lambda: self.lines("heard") == ["hup"])
        # Also with a socket that is left the end that was asked for is the container's.
        self.leave_socket()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 3)
        self.assertEqual((self.lines("heard"), len(self.lines("started"))), (["hup", "term"], 1))

    def test_a_daemon_that_leaves_nothing_ends_the_container_with_its_status(self) -> None:
        for status in (0, 1):
            (self.folder / "end").write_text(f"exit {status}")
            self.assertEqual(self.start().wait(60), status)
        self.assertEqual((len(self.lines("started")), self.lines("said")), (2, []))
        self.daemon.unlink()
        self.assertEqual(self.start().wait(60), 127)

    def test_a_daemon_that_leaves_something_is_followed_by_another_one(self) -> None:
        self.leave_socket()
        process = self.start("-x")
        self.ready()
        (self.folder / "ready").unlink()
        os.kill(int(self.lines("started")[0].split()[0]), signal.SIGKILL)
        self.ready()
        (self.folder / "ready").unlink()
        # The hand-over to a program that was put in its place.
        process.send_signal(signal.SIGUSR1)
        self.ready()
        self.assertEqual([line.split(" ", 1)[1] for line in self.lines("started")], ["-f -x"] * 3)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 3)

    def test_daemons_that_end_one_after_the_other_end_the_container(self) -> None:
        self.leave_socket()
        (self.folder / "end").write_text("kill -KILL $$")
        self.assertEqual(self.start().wait(60), 128 + signal.SIGKILL)
        self.assertEqual(len(self.lines("started")), 6)
        self.assertIn("6 times in a row, now with status 137", self.lines("said")[-1])

    def test_the_image_starts_by_it_and_has_what_it_starts(self) -> None:
        image = (CONTAINER / "Dockerfile").read_text()
        copied = dict(re.findall(r"^COPY (\S+) (\S+)$", image, re.M))
        self.assertEqual(re.findall(r"^ENTRYPOINT (.*)$", image, re.M), [f'["{copied["entrypoint"]}"]'])
        self.assertIn("${MPS_ENTRY_PROGRAM:-" + copied["nvidia-cuda-mps-control"] + "}",
                      (CONTAINER / "entrypoint").read_text())
        self.assertTrue(os.access(CONTAINER / "entrypoint", os.X_OK))


if __name__ == "__main__":
    unittest.main()

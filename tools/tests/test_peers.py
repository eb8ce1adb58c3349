"""Tests that integration/peers/run says of each peer that can't be run why, and fails of none.

usage: python3 -B -m unittest discover -s tools/tests
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parents[2] / "integration/peers/run"
PEERS = ("--sglang-omni", "--gms", "--device-plugin", "--dra-driver")


class Peers(unittest.TestCase):
    def run_with(self, *arguments):
        done = subprocess.run([sys.executable, "-B", RUN, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Ran 0 tests", done.stderr)
        return done.stdout.splitlines()

    def test_who_is_not_named_is_skipped_by_name(self):
        self.assertEqual(self.run_with(), [f"Skipped(no {option})" for option in PEERS])

    def test_who_is_not_there_is_skipped_with_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = self.run_with(*(word for option in PEERS for word in (option, f"{folder}/none")))
        self.assertEqual(len(lines), len(PEERS), lines)
        for line in lines:
            self.assertRegex(line, rf"^Skipped\({folder}/none.* is no file\)$")

    def test_without_go_or_a_namespace_its_peers_are_skipped(self):
        with tempfile.TemporaryDirectory() as folder:
            main = pathlib.Path(folder, "cmd/mps-control-daemon/main.go")
            main.parent.mkdir(parents=True)
            main.touch()
            # The daemon need not have been built.
            pathlib.Path(folder, "nvidia-cuda-mps-control").touch()
            lines = self.run_with("--device-plugin", folder, "--go", f"{folder}/no-go", "--bin", folder)
        (line,) = [line for line in lines if "--device-plugin" in line]
        self.assertRegex(line, r"^Skipped\(--device-plugin: no (.*/no-go|mount namespace of its own: .+)\)$")

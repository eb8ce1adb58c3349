"""The rpm beside one of NVIDIA's: swap, update and removal of either, with the real rpm in a folder of its own.

usage: python3 -B -m unittest -v packaging/tests/test_rpm.py, as root, with rpm
The folder is a Debian root, because that is what can be had everywhere; rpm, its triggers and its database are real.
NVIDIA's package is a stand-in with the one file that matters, and the programs in ours are, too. No distribution of
rpm's has run it.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from machine import ROOT, Skipped, require, root_of  # noqa: E402

SPEC = """
Name: nvidia-driver-cuda
Version: {version}
Release: 1
Summary: stand-in
License: none
BuildArch: noarch
%description
stand-in
%install
mkdir -p %{{buildroot}}/usr/bin
echo "their program {version}" >%{{buildroot}}/usr/bin/nvidia-cuda-mps-control
chmod 755 %{{buildroot}}/usr/bin/nvidia-cuda-mps-control
%files
/usr/bin/nvidia-cuda-mps-control
"""


class Rpm(unittest.TestCase):
    """One root, step after step."""

    def setUp(self) -> None:
        try:
            require("rpm", "rpmbuild")
            archive = root_of("bookworm")
        except Skipped as skipped:
            print(f"rpm: Skipped({skipped})", flush=True)
            self.skipTest(str(skipped))
        folder = tempfile.TemporaryDirectory(prefix="remps-rpm-", dir="/var/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = self.folder / "root"
        self.root.mkdir()
        subprocess.run(["tar", "-C", self.root, "--exclude=./dev/*", "-xf", archive], check=True)
        (self.root / "dev/null").touch()

    def theirs(self, version: str) -> pathlib.Path:
        spec = self.folder / "theirs.spec"
        spec.write_text(SPEC.format(version=version))
        subprocess.run(["rpmbuild", "--quiet", "-bb", "--define", f"_topdir {self.folder}/top", "--define",
                        f"_rpmdir {self.folder}", "--define", "_build_name_fmt %%{NAME}-%%{VERSION}.rpm", spec],
                       check=True, stdout=subprocess.DEVNULL)
        return self.folder / f"nvidia-driver-cuda-{version}.rpm"

    def rpm(self, *words: str | pathlib.Path) -> None:
        done = subprocess.run(["rpm", "--root", self.root, "--nodeps", *words], text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        # Debian's says that it is no tool for Debian.
        said = [line for line in done.stdout.splitlines() if not line.startswith(("rpm: RPM should", "rpm: However"))]
        self.assertEqual((done.returncode, said), (0, []), words)

    def assert_place(self, is_ours: bool, theirs: str | None) -> None:
        """Who is at the program's place, and what of theirs is there or beside it."""
        place = self.root / "usr/bin/nvidia-cuda-mps-control"
        beside = place.with_name(place.name + ".nvidia")
        self.assertEqual(place.is_symlink(), is_ours)
        if is_ours:
            self.assertEqual(os.readlink(place), "/usr/libexec/remps/nvidia-cuda-mps-control")
        kept = beside if is_ours else place
        self.assertEqual(kept.read_text() if kept.exists() else None, theirs and f"their program {theirs}\n")
        if not is_ours:
            self.assertFalse(beside.exists())

    def test_ours_and_theirs_come_are_updated_and_go_in_every_order(self) -> None:
        ours, dist = [], self.folder / "dist"
        dist.mkdir()
        (dist / "nvidia-cuda-mps-control").write_text("#!/bin/sh\necho ours\n")
        (dist / "nvidia-cuda-mps-control").chmod(0o755)
        (dist / "libmps_client_shim.so").touch()
        for version in ("0.1.0", "0.1.1"):
            built = subprocess.run([ROOT / "packaging/rpm/build", "--dist", dist, "--out", self.folder, "--version",
                                    version], check=True, stdout=subprocess.PIPE, text=True)
            ours.append(pathlib.Path(built.stdout.strip()))
        old, new = self.theirs("580.1"), self.theirs("580.2")

        self.rpm("-i", old)
        self.assert_place(False, "580.1")
        self.rpm("-i", ours[0])
        self.assert_place(True, "580.1")
        self.rpm("-U", new)
        self.assert_place(True, "580.2")
        self.rpm("-U", ours[1])
        self.assert_place(True, "580.2")
        self.rpm("-e", "remps")
        self.assert_place(False, "580.2")

        self.rpm("-i", ours[1])
        self.rpm("-e", "nvidia-driver-cuda")
        self.assert_place(True, None)
        self.rpm("-i", new)
        self.assert_place(True, "580.2")
        self.rpm("-e", "remps", "nvidia-driver-cuda")
        self.assert_place(False, None)
        left = [path for path in self.root.glob("usr/**/*remps*")] + [path for path in self.root.glob("etc/nvidia-mps")]
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()

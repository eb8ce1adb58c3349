"""Tests of tools/check-named-paths with a made-up tree.

usage: python3 -B -m unittest discover -s tools/tests
"""

import importlib.machinery
import importlib.util
import pathlib
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "check-named-paths"
LOADER = importlib.machinery.SourceFileLoader("check_named_paths", str(TOOL))
check = importlib.util.module_from_spec(importlib.util.spec_from_loader(LOADER.name, LOADER))
LOADER.exec_module(check)

KNOWN = {"README.md", "docs", "docs/limits.md", "controld/src/core/faults/blame.rs", "controld/src/core", "goldens/535.txt"}


def missing(path, text):
    return check.missing(path, text, KNOWN, check.ends(KNOWN))


class NamedPaths(unittest.TestCase):
    def test_a_path_may_be_written_from_any_folder_on(self):
        text = "`core/faults/blame.rs`, `faults/blame`, `blame.rs`, `controld/src/core`, `src/core/`, `goldens/RELEASE.txt`, `goldens/*.txt`"
        self.assertEqual(missing("DESIGN.md", text), (7, []))

    def test_what_is_not_there_is_told(self):
        text = "`core/faults/announcement.rs` and `gone.rs` and `goldens/RELEASE.rs`, [a](docs/gone.md), [b](docs/limits.md#faults)"
        wrong = ["core/faults/announcement.rs", "gone.rs", "goldens/RELEASE.rs", "docs/gone.md"]
        self.assertEqual(missing("DESIGN.md", text), (5, wrong))

    def test_a_link_goes_from_its_own_page(self):
        self.assertEqual(missing("docs/limits.md", "[a](../README.md) [b](README.md) [c](https://x.org/y)"), (2, ["README.md"]))

    def test_machines_builds_and_options_are_nobodys(self):
        self.assertEqual(missing("README.md", "`/etc/nvidia-mps` `target/dist` `~/x` `--json` `a b/c`"), (0, []))

    def test_of_code_comments_are_read(self):
        text = '//! As in `blame.rs`, and not `gone.rs`.\nlet path = "`nowhere.rs`";\n'
        self.assertEqual(missing("controld/src/lib.rs", text), (2, ["gone.rs"]))


if __name__ == "__main__":
    unittest.main()

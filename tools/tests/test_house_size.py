"""Tests of what tools/house-size counts, on made-up sources.

usage: python3 -B -m unittest discover -s tools/tests
"""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "house-size"
LOADER = importlib.machinery.SourceFileLoader("house_size", str(TOOL))
house_size = importlib.util.module_from_spec(importlib.util.spec_from_loader("house_size", LOADER))
LOADER.exec_module(house_size)

SOURCE = """//! A header: unsafe { }.
/// The core.
pub(crate) struct Core {
    /// A field.
    policy: Policy,
    pub(super) servers: Servers,
}

struct CoreOther {
    no: u8,
}

impl Core {
    pub(crate) fn handle(&mut self) {
        fn inner() {}
    }

    async fn other(&self) {}
}

impl Default for Core {
    fn default() -> Self {}
}
"""


class HouseSize(unittest.TestCase):
    def test_fields_and_methods_are_those_of_the_structure_alone(self):
        self.assertEqual(house_size.members([SOURCE, "impl<T> Core {\n    fn more() {}\n}\n"], "Core"), (2, 3))

    def test_comments_and_blank_lines_are_no_code(self):
        self.assertEqual(house_size.code("//! a\n\n    // b\nlet c = 1; // d\n"), ["let c = 1; // d"])

    def test_without_a_commit_it_says_how_it_is_used(self):
        told = subprocess.run([TOOL], stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(told.returncode, 2)
        self.assertIn("usage: tools/house-size COMMIT", told.stderr)


if __name__ == "__main__":
    unittest.main()

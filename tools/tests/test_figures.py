"""Tests of tools/figures with folders of made-up reports.

usage: python3 -B -m unittest discover -s tools/tests
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "figures"
GPU = "NVIDIA H200, 580.159.04, 143771 MiB, Default"


def spread(median, count=3):
    return {"n": count, "min": median - 0.5, "median": median, "max": median + 0.5}


def measured(result, is_ok=True):
    return {"about": "What it is.", "ok": is_ok, "result": result, "seconds": 1.0}


class Figures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.page = self.folder / "FIGURES.md"

    def report(self, name, figures, checks=None):
        """A report in JSON with its page; its path."""
        machine = {"gpus": [GPU], "kernel": "6.18", "cores": 16, "date": name[:10]}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps({"machine": machine, "checks": checks or {}, "figures": figures}))
        path.with_suffix(".md").write_text("# Report\n")
        return path

    def run_tool(self, *options, **variables):
        return subprocess.run(
            [sys.executable, TOOL, *options, "--reports", self.folder],
            capture_output=True, text=True, env={**os.environ, **variables}, timeout=60,
        )

    def made(self):
        """The page, made anew."""
        done = self.run_tool()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return self.page.read_text()

    def section(self, name):
        """What the page says of one figure."""
        return self.made().split(f"### {name}\n", 1)[1].split("\n### ")[0].split("\n## ")[0]

    def refused(self, path, words):
        """Nothing is written, and the error has the path and the words."""
        for options in ((), ("--check",)):
            done = self.run_tool(*options)
            self.assertEqual(done.returncode, 2)
            self.assertIn(str(path), done.stderr)
            self.assertIn(words, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        self.assertFalse(self.page.exists())

    def test_a_page_that_is_what_the_reports_say_passes(self):
        self.report("2026-01-02-gpu", {"herd": measured({"ours": spread(5.0), "theirs": spread(4.0)})})
        self.made()
        done = self.run_tool("--check")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_stale_page_is_told_with_the_difference_and_left_as_it_is(self):
        self.report("2026-01-02-faults", {"idle_start": measured(spread(7.0))})
        self.made()
        stale = self.page.read_text().replace("7.000", "6.000")
        self.page.write_text(stale)
        done = self.run_tool("--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("-| all of it | ms | 3 | 6.500 / 6.000 / 7.500 |", done.stdout)
        self.assertIn("+| all of it | ms | 3 | 6.500 / 7.000 / 7.500 |", done.stdout)
        self.assertEqual(self.page.read_text(), stale)

    def test_a_page_that_is_missing_is_stale(self):
        self.report("2026-01-02-faults", {"idle_start": measured(spread(7.0))})
        self.assertEqual(self.run_tool("--check").returncode, 1)
        self.assertFalse(self.page.exists())

    def test_a_newer_report_with_one_figure_hides_no_others_of_an_older_one(self):
        older = {"idle_start": measured(spread(7.0)), "floor": measured({"wait, ms": spread(8.0)})}
        self.report("2026-01-02-faults", older)
        self.report("2026-01-03-faults", {"floor": measured({"wait, ms": spread(9.0)})})
        floor, start = self.section("floor"), self.section("idle_start")
        self.assertIn("| wait | ms | 3 | 8.500 / 9.000 / 9.500 |", floor)
        self.assertIn("[2026-01-03](2026-01-03-faults.md)", floor)
        self.assertNotIn("2026-01-02", floor)
        self.assertIn("6.500 / 7.000 / 7.500", start)
        self.assertIn("[2026-01-02](2026-01-02-faults.md)", start)

    def test_the_vendors_part_is_that_of_the_newest_report_that_has_it(self):
        self.report("2026-01-02-gpus", {"fault_on_one": measured({"ours, oob": {"a": 1}, "theirs, oob": {"a": 2}})})
        self.report("2026-01-02-gpus-both", {"fault_on_one": measured({"ours, oob": {"a": 3}})})
        section = self.section("fault_on_one")
        ours, theirs = section.split("[2026-01-02](2026-01-02-gpus.md), the vendor's alone:")
        self.assertIn("[2026-01-02, both](2026-01-02-gpus-both.md), ours alone:", ours)
        self.assertIn("| memory fault |  |  | a 3 |", ours)
        self.assertIn("| memory fault |  |  | a 2 |", theirs)
        self.assertNotIn("a 1", section)

    def test_a_figure_that_failed_is_shown_above_the_last_one_that_did_not(self):
        self.report("2026-01-02-faults", {"idle_start": measured(spread(7.0))})
        self.report("2026-01-03-faults", {"idle_start": measured("Failed: no server", is_ok=False)})
        section = self.section("idle_start")
        self.assertLess(section.index("**failed**: Failed: no server"), section.index("6.500 / 7.000 / 7.500"))

    def test_a_figure_of_many_parts_that_failed_has_a_line_for_each_with_what_was_tried(self):
        parts = {"one": {"idle": "unaware", "busy": "not tried"}, "two": {"idle": "failed"}}
        self.report("2026-01-02-faults", {"idle_start": measured(parts, is_ok=False)})
        section = self.section("idle_start")
        self.assertIn("**failed**:\n\n| what | seen |\n", section)
        self.assertIn("| one | idle unaware |\n| two | idle failed |\n", section)

    def test_a_figure_that_was_skipped_hides_no_earlier_one_and_is_no_failure(self):
        for skipped in ("Skipped(there is no PyTorch)", {"Skipped": "there is no PyTorch"}):
            with self.subTest(skipped):
                self.report("2026-01-02-faults", {"idle_start": measured(spread(7.0))})
                self.report("2026-01-03-faults", {"idle_start": measured(skipped)})
                section = self.section("idle_start")
                self.assertLess(section.index("not measured: Skipped"), section.index("6.500 / 7.000 / 7.500"))
                self.assertNotIn("failed", section)

    def test_of_one_day_the_report_called_first_is_the_oldest_and_one_with_another_word_the_newest(self):
        for name, value in (("", 2.0), ("-first", 1.0), ("-again", 3.0)):
            self.report(f"2026-01-02-faults{name}", {"idle_start": measured(spread(value))})
        section = self.section("idle_start")
        self.assertIn("2.500 / 3.000 / 3.500", section)
        self.assertNotIn("2.000", section)

    def test_of_one_day_the_report_called_last_is_the_newest(self):
        for name, value in (("-last", 4.0), ("-again", 3.0)):
            self.report(f"2026-01-02-faults{name}", {"idle_start": measured(spread(value))})
        section = self.section("idle_start")
        self.assertIn("3.500 / 4.000 / 4.500", section)
        self.assertNotIn("3.000", section)

    def test_two_reports_of_one_day_of_which_nobody_knows_the_newer_are_refused(self):
        path = self.report("2026-01-02-faults-again", {"idle_start": measured(spread(1.0))})
        self.report("2026-01-02-faults-twice", {"idle_start": measured(spread(2.0))})
        self.refused(path, "nobody can say which idle_start is the newer")

    def test_pairs_have_their_ratios_and_other_ranges_that_of_their_medians(self):
        pairs = {"ours": spread(5.0), "theirs": spread(4.0), "ratio": spread(1.25), "median ratio, 95 %": [1.2, 1.3]}
        apart = {"ours": {"wait, ms": spread(3.0)}, "theirs": {"wait, ms": spread(4.0, 2)}}
        self.report("2026-01-02-gpu", {"herd": measured(pairs), "other": measured(apart)})
        ratio = "0.750 / 1.250 / 1.750; the median within 1.200 and 1.300 (95 %)"
        self.assertIn(f"| 4.500 / 5.000 / 5.500 | 3 | 3.500 / 4.000 / 4.500 | {ratio} |", self.section("herd"))
        self.assertIn("| 2 | 3.500 / 4.000 / 4.500 | 0.750 (of the medians) |", self.section("other"))

    def test_checks_that_failed_are_told(self):
        check = {"about": "Whether it is so.", "ours": {"ok": False}, "theirs": {"ok": True}}
        self.report("2026-01-02-gpu", {"herd": measured(spread(1.0))}, {"golden": check})
        self.assertIn("| Whether it is so. (`golden`) | **failed** | passed |", self.made())

    def test_malformed_json_is_an_error_with_its_path(self):
        self.report("2026-01-02-gpu", {"herd": measured(spread(1.0))})
        path = self.report("2026-01-03-gpu", {})
        path.write_text('{"machine": ')
        self.refused(path, "line 1")

    def test_a_report_of_an_unknown_form_is_an_error_with_its_path(self):
        machine = {"gpus": [GPU], "kernel": "6.18", "cores": 16, "date": "2026-01-03"}
        wrong = {"n": 3, "min": "low", "median": 1.0, "max": 2.0}
        for content, words in (
            ([], "machine is missing"),
            ({"machine": machine}, "figures is missing"),
            ({"machine": {**machine, "date": "2026-01-02"}, "figures": {}}, "made on 2026-01-02"),
            ({"machine": machine, "figures": {"herd": 3}}, "herd is missing, or no table"),
            ({"machine": machine, "figures": {"herd": {"about": "What it is."}}}, "herd has no result"),
            ({"machine": machine, "figures": {"herd": measured(wrong)}}, "is no spread of numbers"),
            ({"machine": machine, "figures": {"herd": measured({"ours": 1, "ratio": 2})}}, "herd has a form"),
            ({"machine": {**machine, "gpus": ["one"]}, "figures": {"herd": measured(1)}}, "machine.gpus"),
            ({"machine": machine, "figures": {}, "checks": {"golden": {"about": "It."}}}, "ours is missing"),
        ):
            with self.subTest(words):
                path = self.report("2026-01-03-gpu", {})
                path.write_text(json.dumps(content))
                self.refused(path, words)

    def test_a_report_of_an_unknown_name_or_without_its_page_is_an_error_with_its_path(self):
        for name, words in (("2026-01-03-other", "no suite other"), ("notes", "the name is not DATE-SUITE")):
            with self.subTest(words):
                path = self.report(name, {})
                self.refused(path, words)
                path.unlink()
        path = self.report("2026-01-03-gpu", {})
        path.with_suffix(".md").unlink()
        self.refused(path, "there is no 2026-01-03-gpu.md")

    def test_the_same_reports_make_the_same_page_every_time(self):
        figures = {name: measured(spread(1.0)) for name in ("one", "other", "herd", "throughput", "another")}
        self.report("2026-01-02-gpu", figures)
        pages = set()
        for seed in ("1", "2", "3"):
            self.run_tool(PYTHONHASHSEED=seed)
            pages.add(self.page.read_text())
        self.assertEqual(len(pages), 1)


if __name__ == "__main__":
    unittest.main()

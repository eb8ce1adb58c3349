"""PyTorch's own tests of CUDA, as they are, with the preloaded library and without it: the same tests pass.

`--pytorch DIR` is a source tree of PyTorch, or as much of it as has `test/test_cuda.py`; Debian's source package `pytorch`
will do. Its release need not be that of the PyTorch which is installed: a test that fails without the library is counted
and not compared. They import `expecttest`, which may lie beside them.

For each way of the library every test runs twice without it and once with it, at the same time. Each is `PARTS` rows of
processes one after the other, each row with its share of the tests: where one dies or stands still, the test that it was in has that end, and the next process
goes on behind it; so it does where one ends by itself before its last test, as PyTorch's do after an error of CUDA's. A test that a run did not come to within `--seconds` is not tried. Tests whose first two runs differ are
not compared either, and since some measure what is free of the GPU, those that end otherwise with the library than without
run once more, alone, without it and with it. What is otherwise then is a failure; what is not is told with both ends.
"""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from bench import Failed
from replay import environment

PROGRAMS = []
FILES = ("test_cuda.py", "test_cuda_primary_ctx.py")
# Seconds for one test, and for the list of them.
TO_TEST, TO_LIST = 60, 120
# Rows of processes into which the tests of a file are cut for each way, to be through in minutes.
PARTS = 3
# So much of what is said at last of a test that ends otherwise goes into the report.
SAID = 800
WAYS = {"in-place": {}, "memory": {"MPS_SHIM_KEEP": "memory", "MPS_SHIM_REPLAY": ""}}
# As unittest says it with -v: the name at the beginning, the end after dots, perhaps on a later line.
BEGUN = re.compile(r"^(test\w+) \(__main__\.(\w+)")
ENDED = re.compile(r"(?:^|\.\.\. )(ok|FAIL|ERROR|skipped|expected failure|unexpected success)\b")
NOT_TRIED, DIED, STOOD = "not tried", "its process died", "stood still"
# Lists tests by their names, without running one.
LIST = """
import sys, unittest, runpy
sys.argv = [sys.argv[1]]
import torch.testing._internal.common_utils as common
common.run_tests = lambda *_, **__: None
names = runpy.run_path(sys.argv[0], run_name="__main__")
import __main__
for name, case in sorted(names.items()):
    if isinstance(case, type) and issubclass(case, unittest.TestCase) and case.__module__ in ("__main__", "<run_path>"):
        for test in unittest.defaultTestLoader.getTestCaseNames(case):
            print(f"test: {name}.{test}")
"""


def listed(folder, file):
    command = [sys.executable, "-c", LIST, file]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TO_LIST)
    names = [line.removeprefix("test: ") for line in done.stdout.splitlines() if line.startswith("test: ")]
    if not names:
        raise Failed(f"{file} names no tests: {done.stderr[-600:]}")
    return names


def one_process(folder, file, names, surroundings, log, end):
    """Runs tests until they are through, or the process dies, or one stands still; the ends, and where it stopped."""
    command = [sys.executable, file, "-v", *names]
    ends = {}
    with log.open("w+") as said:
        process = subprocess.Popen(command, cwd=folder, env=surroundings, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        size, grown = 0, time.monotonic()
        why = DIED
        while process.poll() is None:
            time.sleep(0.1)
            now = log.stat().st_size
            if now != size:
                size, grown = now, time.monotonic()
            is_late = time.monotonic() > end
            if is_late or time.monotonic() > grown + TO_TEST:
                why = NOT_TRIED if is_late else STOOD
                process.kill()
                process.wait()
        said.seek(0)
        lines = said.read().splitlines()
    at = None
    for line in lines:
        if found := BEGUN.search(line):
            at = f"{found[2]}.{found[1]}"
        if at and (found := ENDED.search(line)):
            ends[at], at = found[1], None
    if process.returncode < 0 and not at:
        # Between two tests: the next one, or the last one's end, which would have been named.
        at = next((name for name in names if name not in ends), None)
    return ends, at, why if at else "", lines[-4:]


def whole(folder, file, names, surroundings, log, end):
    """How each test ends, and the last words of processes that died."""
    left, ends, words = list(names), {}, {}
    while left and time.monotonic() < end:
        got, at, why, last = one_process(folder, file, left, surroundings, log, end)
        ends |= {name: how for name, how in got.items() if name in left}
        if at in left:
            ends[at], words[at] = why, last
        rest = [name for name in left if name not in ends]
        if not ends:
            raise Failed(f"no test of {file} ends: {last}")
        if len(rest) == len(left):
            break
        left = rest
    return {name: ends.get(name, NOT_TRIED) for name in names}, words


def parts(names):
    """The tests in `PARTS` shares of neighbours, none of them empty."""
    share = -(-len(names) // PARTS)
    return [names[at : at + share] for at in range(0, len(names), share)]


def releases(folder):
    """Of the PyTorch that is installed, and of the tests, where the tree says it."""
    installed = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    of_tests = folder / "version.txt"
    return {"PyTorch": installed.stdout.strip(), "its tests": of_tests.read_text().strip() if of_tests.exists() else "of an unknown release"}


def works(ours, library, quick, folder, seconds):
    """The suite: both files, with --quick only the smaller one."""

    def tests(way):
        if folder is None:
            return "Skipped(--pytorch does not say where PyTorch's sources are)"
        for module in ("torch", "expecttest"):
            if subprocess.run([sys.executable, "-c", f"import {module}"], cwd=folder / "test", capture_output=True).returncode != 0:
                return f"Skipped({module} cannot be imported)"
        end = time.monotonic() + seconds
        plain = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": "/nowhere", "OMP_NUM_THREADS": "4"}
        under = {**plain, **environment(library, "/nowhere")}
        under.pop("MPS_SHIM_REPORT")
        with_it = {key: value for key, value in {**under, **WAYS[way]}.items() if value}
        surroundings = {"without": plain, "without, again": plain, "with": with_it}
        files = FILES[-1:] if quick else FILES
        names = {file: listed(folder / "test", file) for file in files}
        jobs = [(file, way, part) for file in files for way in surroundings for part in range(len(parts(names[file])))]

        def run(job):
            file, way, part = job
            log = ours.root / f"{file}-{way.replace(' ', '-')}-{part}"
            return whole(folder / "test", file, parts(names[file])[part], surroundings[way], log, end)

        seen = {(file, way): ({}, {}) for file in files for way in surroundings}
        with ThreadPoolExecutor(len(jobs)) as pool:
            for (file, way, _), (ends, words) in zip(jobs, pool.map(run, jobs)):
                seen[file, way][0].update(ends)
                seen[file, way][1].update(words)

        def alone(file, name):
            """How a test ends without the library and with it, when no other one runs, and what was said at last."""
            log = ours.root / f"{file}-alone"
            ends = [whole(folder / "test", file, [name], surroundings[now], log, end)[0][name] for now in ("without", "with")]
            return *ends, log.read_text(errors="replace")[-SAID:]

        result, odd, once = releases(folder), [], []
        for file in files:
            (first, _), (second, _), (ends, words) = (seen[file, now] for now in surroundings)
            same = {name for name in names[file] if first[name] == second[name] != NOT_TRIED}
            tried = [name for name in same if ends[name] != NOT_TRIED]
            other = [name for name in tried if ends[name] != first[name]]
            result[f"{file}: tests"] = len(names[file])
            result[f"{file}: without the library"] = dict(Counter(first[name] for name in names[file]))
            result[f"{file}: with it"] = f"the same end {len(tried) - len(other)} of {len(tried)}, among them ok {sum(ends[n] == 'ok' == first[n] for n in tried)}"
            for name in sorted(other):
                what = f"{file}, {name}: {ends[name]} in place of {first[name]} {words.get(name, '')}"
                plainly, kept, said = alone(file, name)
                what += f"; alone {kept} in place of {plainly}"
                once.append(what) if plainly == kept != NOT_TRIED else odd.append(f"{what}: {said}")
        result["otherwise beside others, and the same alone"] = once
        if odd:
            raise Failed(f"{len(odd)} tests end otherwise", {**result, "otherwise": odd})
        return result

    return {f"pytorch_{way.replace('-', '_')}": lambda way=way: tests(way) for way in WAYS}

"""The checker on a real GPU: random CUDA programs under the preloaded library, undisturbed and with faults of their own,
without MPS, or of a neighbour under our daemon; no value that a call has returned as good may be wrong.

`mps-checker` has the rule and the programs. What it finds is printed by it as a program that shows it, in the result of
the check that failed; `mps-checker --program FILE` runs such a program again.
"""

import json
import os
import subprocess

from bench import Failed
from faults import NO_QUARANTINE, configured

PROGRAMS = ["mps-checker", "mps-aggressor"]
COUNTED = ("programs", "operations", "values", "recoveries", "clean", "errors")
# Seconds that one run may take beside those that it was given.
PATIENCE = 120


def environment(library, pipe):
    return {
        **os.environ,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "LD_PRELOAD": str(library),
        "MPS_SHIM_KEEP": "state",
        "MPS_SHIM_REPLAY": "in-place",
    }


def lines_of(done):
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def searched(ours, library, pipe, arguments, seconds):
    program = [str(ours.root / "mps-checker"), "--devices", "1", "--shrinkings", "0", "--seconds", str(seconds), *arguments]
    surroundings = environment(library, pipe)
    done = subprocess.run(program, capture_output=True, text=True, env=surroundings, timeout=seconds + PATIENCE)
    lines = lines_of(done)
    end = next((line for line in lines if line["event"] == "end"), None)
    found = [line for line in lines if line["event"] in ("counterexample", "error", "stuck")]
    if found or not end or done.returncode != 0:
        failed = Failed(f"{len(found)} found, status {done.returncode}: {[line.get('why') for line in found]}")
        failed.seen = found
        raise failed
    return {name: end[name] for name in COUNTED}


def own(ours, library, seconds, seed):
    """Random programs with faults of their own, without MPS."""
    arguments = ["--faults", "own", "--seed", str(seed), "--operations", "1000000000"]
    return searched(ours, library, "/nowhere", arguments, seconds)


def others(ours, library, seconds, seed):
    """Random programs beside a neighbour that does wrong, under our daemon."""
    with configured(ours, NO_QUARANTINE) as daemon:
        aggressor = ["--aggressor", str(ours.root / "mps-aggressor")]
        arguments = ["--faults", "neighbours", "--seed", str(seed), "--operations", "1000000000", *aggressor]
        return searched(ours, library, daemon.pipe, arguments, seconds)


def cases(ours, library):
    """The programs that are kept, beside a neighbour that does wrong: those for one GPU."""
    with configured(ours, NO_QUARANTINE) as daemon:
        program = [str(ours.root / "mps-checker"), "--cases", "--devices", "1", "--aggressor", str(ours.root / "mps-aggressor")]
        done = subprocess.run(program, capture_output=True, text=True, env=environment(library, daemon.pipe), timeout=280)
        lines = [line for line in lines_of(done) if line["event"] == "case"]
    again = [f"{line['name']}: {line['found'].get('why')}" for line in lines if line["found"]]
    if again or not lines:
        raise Failed(f"what was mended is back: {again}")
    return {line["name"]: "found" if line["found"] else "right" for line in lines}


def works(ours, library, quick):
    """The suite: half an hour of random programs; with --quick a minute."""
    seconds = 25 if quick else 900
    return {
        "cases": lambda: cases(ours, library),
        "own": lambda: own(ours, library, seconds, 1),
        "others": lambda: others(ours, library, seconds, 1_000_001),
    }

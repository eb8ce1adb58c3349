"""The checker on a real GPU: random CUDA programs under the preloaded library, undisturbed and with faults of their own,
without MPS, or of a neighbour under our daemon; no value that a call has returned as good may be wrong. With
`--replay spare` the programs beside a neighbour have spare copies of the driver.

`mps-checker` has the rule and the programs. What it finds is printed by it as a program that shows it, in the result of
the check that failed; `mps-checker --program FILE` runs such a program again.
"""

import json
import math
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import replay
from bench import Failed, Subject
from crowd import NO_QUARANTINE, configured

PROGRAMS = ["mps-checker", "mps-aggressor", "mps-ipc-probe"]
COUNTED = ("programs", "operations", "values", "recoveries", "clean", "errors")
# Seconds that one run may take beside those that it was given.
PATIENCE = 120
# Programs that share memory and an event: scenes in which each one's fault is the others' too, as on one server, and in
# which one of them lies to the others.
TOGETHER = ["without_faults", "recorded_before_it_was_exported", "owner_is_killed_when_it_is_done", "numbers_are_not_taken_back"]
TOGETHER += [f"at_random_together:{seed}" for seed in range(1, 7)]
HOSTILE = ["page_is_written_over", "records_are_made_up", "handles_are_made_up", "page_cannot_be_made_smaller", "another_user_has_nothing"]
# Daemons side by side, and the kept program that their clients play.
DAEMONS = 5
NO_CONTEXT = 401
CASE_BESIDE = "the end of a thread that has given work is a fault of its own"
# So many lines of what the programs have said on standard error go into the report of a run that found something.
SAID = 1000


def environment(library, pipe):
    return {
        **os.environ,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "LD_PRELOAD": str(library),
        "MPS_SHIM_KEEP": "state",
        "MPS_SHIM_REPLAY": replay.WAY,
    }


def said(done):
    """The end of what the programs have said on standard error, but for which functions they have."""
    return [line for line in done.stderr.splitlines() if not line.endswith((": reached", ": found by dlsym"))][-SAID:]


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
        failed.seen = [*found, *said(done)]
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
        program = [str(ours.root / "mps-checker"), "--cases", "--devices", "1", "--times", "3", "--aggressor", str(ours.root / "mps-aggressor")]
        done = subprocess.run(program, capture_output=True, text=True, env=environment(library, daemon.pipe), timeout=280)
        lines = [line for line in lines_of(done) if line["event"] == "case"]
    again = [f"{line['name']}: {line['found'].get('why')}" for line in lines if line["found"]]
    if again or not lines:
        raise Failed(f"what was mended is back: {again}")
    return {line["name"]: "found" if line["found"] else "right" for line in lines}


def newcomers(ours, library, daemon, until):
    """One short program after the other beside a neighbour that does wrong: how many there were, and how many of these a server gave no
    context, or their neighbour. More than two after the other fail the check, with what a program without the library gets, and one
    on the server after."""
    program = [str(ours.root / "mps-checker"), "--case", CASE_BESIDE, "--devices", "1", "--aggressor", str(ours.root / "mps-aggressor")]
    surroundings = environment(library, daemon.pipe)
    bare = {name: value for name, value in daemon.environment.items() if not name.startswith(("LD_PRELOAD", "MPS_SHIM"))}

    def played(surroundings):
        return subprocess.run(program, capture_output=True, text=True, env=surroundings, timeout=PATIENCE)

    count, refused, in_a_row, stuck = 0, 0, 0, None
    while time.monotonic() < until or in_a_row > 0:
        done = played(surroundings)
        count += 1
        found = [line for line in lines_of(done) if line["event"] in ("found", "error", "stuck")]
        is_right = done.returncode == 0 and not found
        has_no_context = any(line["event"] == "error" and line["code"] == NO_CONTEXT for line in found)
        if stuck and not has_no_context:
            failed = Failed(f"program {count - 1} stood still on a server that gives contexts")
            failed.seen = stuck
            raise failed
        if is_right:
            in_a_row = 0
            continue
        # A neighbour that gets no context does no wrong, and the program waits for that in vain. It has told nobody: the next one
        # is refused, too, and does.
        stuck = said(done) if any(line["event"] == "stuck" for line in found) else None
        is_refused = has_no_context or stuck is not None
        refused, in_a_row = refused + 1, in_a_row + 1
        if is_refused and in_a_row <= 2:
            continue
        failed = Failed(f"program {count}: status {done.returncode}: {found}")
        failed.seen = said(done)
        if is_refused:
            servers = daemon.servers()
            failed.seen.append(f"without the library: {lines_of(played(bare))}")
            for pid in servers:
                os.kill(pid, signal.SIGKILL)
            failed.seen.append(f"after servers {servers} were killed: {lines_of(played(surroundings))}")
        raise failed
    return count, refused


def side_by_side(ours, library, seconds):
    """Five daemons on one GPU, each with one short program after the other beside a neighbour that does wrong: each is right. Where a server
    gives no context (401) the daemon leaves it, and the next program but one has a context."""
    until = time.monotonic() + seconds

    def work(number):
        subject = Subject(f"beside{number}", Path(ours.control), ours.root)
        with configured(subject, NO_QUARANTINE) as daemon:
            return newcomers(subject, library, daemon, until)

    with ThreadPoolExecutor(DAEMONS) as pool:
        counts = list(pool.map(work, range(DAEMONS)))
    return {"daemons": DAEMONS, "programs": sum(of[0] for of in counts), "refused a context": sum(of[1] for of in counts)}


def waits(ours, library):
    """When copies from page-locked host memory to the device read that: at once or in their stream's order. Small ones do at once where
    their stream has nothing to do, whatever the default streams' order says: without the library, too."""
    program = [str(ours.root / "mps-checker"), "--waits", "--devices", "1"]
    with configured(ours, NO_QUARANTINE) as daemon:
        plain = {**daemon.environment, "CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}
        ways = {"without MPS": plain, "under our daemon": daemon.environment, "with the library": environment(library, daemon.pipe)}
        done = {way: subprocess.run(program, capture_output=True, text=True, env=of, timeout=PATIENCE) for way, of in ways.items()}
    table = {}
    for way, of in done.items():
        for line in lines_of(of):
            if line["event"] == "waits":
                table.setdefault(line["situation"], {})[way] = line["reads"]
    others = {way: of.returncode for way, of in done.items() if of.returncode != 0}
    if others or not table:
        raise Failed(f"otherwise than it is known: {others}", table)
    return table


def scenes(ours, library, pipe, wanted):
    program = [str(ours.root / "mps-ipc-probe"), "--events", *wanted]
    done = subprocess.run(program, capture_output=True, text=True, env=environment(library, pipe), timeout=280)
    found = {line["name"]: line["wrong"] or "right" for line in lines_of(done) if line["event"] == "scene"}
    if done.returncode != 0 or not found:
        failed = Failed(f"status {done.returncode}: {found}")
        failed.seen = said(done)
        raise failed
    return found


def shared(ours, library):
    """Programs that share memory and an event, which do wrong, are killed or lie to each other: all scenes without MPS, and those
    for one server under our daemon."""
    with configured(ours, NO_QUARANTINE) as daemon:
        # Those count the files of a program, to which a spare copy that is being made adds.
        hostile = [] if replay.WAY == "spare" else HOSTILE
        together = scenes(ours, library, daemon.pipe, TOGETHER + hostile)
    alone = {} if replay.WAY == "spare" else scenes(ours, library, "/nowhere", [])
    names = list(dict.fromkeys([*alone, *together]))
    return {name: {"without MPS": alone.get(name, "not played"), "under our daemon": together.get(name, "not played")} for name in names}


def works(ours, library, quick, seconds):
    """The suite: three quarters of an hour of random and short programs; with --quick a minute, with --seconds so many for each kind of fault."""
    seconds = int(seconds) if math.isfinite(seconds) else 25 if quick else 900
    copies = replay.with_copies()
    beside = {
        f"cases{copies}": lambda: cases(ours, library),
        f"others{copies}": lambda: others(ours, library, seconds, 1_000_001),
        f"shared{copies}": lambda: shared(ours, library),
        f"side_by_side{copies}": lambda: side_by_side(ours, library, seconds),
    }
    return beside if copies else {"waits": lambda: waits(ours, library), **beside, "own": lambda: own(ours, library, seconds, 1)}

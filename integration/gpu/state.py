"""State that outlives its program, on a real GPU: relaunch and standby, every byte compared, and what it costs.

A program `mps-heir` under the preloaded library has memory in the vault and commits; it comes to harm; its successor, started
again by `run` or waiting under `run --standby` in a domain of its own, adopts the memory at the same addresses, runs a kernel and
compares every byte. A successor that waits maps the memory as soon as it is told that its predecessor ends. Times are from the fault (the moment in which its kernel was launched, or the signal) to the end of
the successor's first kernel.
"""

import json
import os
import signal
import subprocess
import time

from bench import Client, Failed, until
from crowd import NO_QUARANTINE, configured
from figures import spread_to_p99

PROGRAMS = ["mps-heir", "mps-aggressor"]
# A kernel that does wrong, and the bystander of one.
FAULTS = ["oob", "trap"]
BY_LABEL = NO_QUARANTINE + '[domains]\nby = "label"\n'
MEBIBYTE = 1 << 20
RANGES = [("weights", 64 * MEBIBYTE, 3), ("cache", 5 * MEBIBYTE + 12, 5), ("small", 5000, 7)]


class Heir(Client):
    """`mps-heir`, told what to do by lines."""

    def __init__(self, daemon, library, name, wrapper=False, more=None, is_standby=False):
        variables = {} if wrapper else {"LD_PRELOAD": str(library), "MPS_SHIM_KEEP": "memory", "MPS_SHIM_NAME": name}
        self.environment = {**daemon.environment, **variables, **(more or {})}
        program = [str(daemon.subject.root / "mps-heir")]
        if wrapper:
            standby = ["--standby"] if is_standby else []
            program = [daemon.subject.control, "run", "--name", name, *standby, "--library", str(library), "--", *program]
        super().__init__(self, program)
        self.taken = 0
        daemon.clients.append(self)

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return time.monotonic()

    def next(self, event, seconds=30):
        """The next line of this event; others between are passed over."""
        def found():
            while self.taken < len(self.lines):
                self.taken += 1
                if self.lines[self.taken - 1]["event"] == event:
                    return self.lines[self.taken - 1]
            self.read(0.002)
            return None

        return until(found, seconds, event)

    def does(self, line, event, code=0):
        self.tell(line)
        answer = self.next(event)
        if answer.get("code", 0) != code:
            raise Failed(f"{line}: {answer}")
        return answer

    def fill(self, generation):
        for label, size, seed in RANGES:
            self.does(f"make {label} {size} {seed}", "made")
        return self.does(f"commit {generation} 20000", "committed")["ms"]


def intact(adopted, generation):
    """The recovery, when every byte is the same."""
    if adopted["code"] != 0 or not adopted["is_intact"] or adopted["recovery"]["generation"] != generation:
        raise Failed(f"not adopted as it was: {adopted}")
    if adopted["recovery"]["ranges"] != len(RANGES):
        raise Failed(f"ranges are missing: {adopted}")
    return adopted["recovery"]


def after(adopted, told, began):
    """Milliseconds from `began` to the end of the successor's first kernel."""
    return (told - began) * 1000 + adopted["first_kernel_ms"]


def steps(recovery, told, began):
    """Milliseconds from `began` to each step of a successor that was told to wait at `told`, in their order. Where it was not
    told of the end before it was given the memory, nothing was mapped ahead."""
    since = {
        "fault to told of the end, ms": recovery["offered_us"] or recovery["wait_us"],
        "fault to all mapped, ms": recovery["mapped_us"],
        "fault to the proof of rest, ms": recovery["wait_us"],
    }
    return {name: (told - began) * 1000 + us / 1000 for name, us in since.items()}


def harm(daemon, heir, way):
    """Brings the program to harm; when."""
    if way == "kill":
        began = time.monotonic()
        os.kill(heir.pid, signal.SIGKILL)
        return began
    if way in FAULTS:
        heir.tell(f"fault {way}")
        return heir.next("launched")["seen"]
    heir.tell("watch")
    culprit = daemon.client("mps-aggressor", way.removeprefix("neighbours "))
    began = culprit.wait("launched")["seen"]
    culprit.process.wait(20)
    return began


def summary(rows):
    """Spreads of what each repetition has measured."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {name: spread_to_p99(values) for name, values in columns.items()}


def relaunch(ours, library, way, times):
    """The program is started again, by `run` after a fault and by hand after `kill -9`, and adopts."""
    rows, rests = [], set()
    with configured(ours, NO_QUARANTINE) as daemon:
        for generation in range(1, times + 1):
            name = f"relaunch{generation}"
            heir = Heir(daemon, library, name, wrapper=way != "kill")
            heir.next("ready")
            heir.does("adopt 0", "adopted", code=1)
            commit_ms = heir.fill(generation)
            began = harm(daemon, heir, way)
            if way == "kill":
                heir.process.wait(20)
                heir = Heir(daemon, library, name)
            ready = heir.next("ready")
            told = heir.tell("adopt 60000")
            adopted = heir.next("adopted", 70)
            recovery = intact(adopted, generation)
            rests.add(recovery["rest"])
            rows.append({
                "fault to first kernel, ms": after(adopted, told, began),
                "fault to ready again, ms": (ready["seen"] - began) * 1000,
                "context, ms": ready["context_ms"],
                "wait for the predecessor's rest, ms": recovery["wait_us"] / 1000,
                "mapping, ms": recovery["map_us"] / 1000,
                "commit, ms": commit_ms,
            })
            heir.process.stdin.close()
            heir.process.wait(20)
        kept = daemon.ask("vault list --json")[1].strip()
        if kept:
            raise Failed(f"something is left in the vault: {kept}")
    return {**summary(rows), "bit-exact": f"{len(rows)} of {times}", "at rest (1 process, 2 server)": sorted(rests)}


def standby(ours, library, way, times):
    """A standby under `run --standby`, with a context in another domain, is activated, adopts, and runs a kernel."""
    rows, rests, aheads = [], set(), 0
    with configured(ours, BY_LABEL) as daemon:
        for generation in range(1, times + 1):
            name = f"standby{generation}"
            primary = Heir(daemon, library, name)
            primary.next("ready")
            primary.fill(generation)
            # One domain for all of them, or each would have a server of its own.
            other = Heir(daemon, library, name, wrapper=True, more={"MPS_DOMAIN": "standby"}, is_standby=True)
            other.next("ready")
            other.does("kernel", "worked")
            told = other.tell("wait 60000")
            began = harm(daemon, primary, way)
            adopted = other.next("adopted", 70)
            recovery = intact(adopted, generation)
            rests.add(recovery["rest"])
            rows.append({
                "fault to first kernel, ms": after(adopted, told, began),
                **steps(recovery, told, began),
                "mapping left to do then, ms": recovery["map_us"] / 1000,
            })
            aheads += recovery["offered_us"] > 0
            for heir in (other, primary):
                heir.process.stdin.close()
                heir.process.wait(20)
    return {
        **summary(rows),
        "bit-exact": f"{len(rows)} of {times}",
        "mapped ahead": f"{aheads} of {times}",
        "at rest (1 process, 2 server)": sorted(rests),
    }


def used_mib():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout)


def memory_cost(ours, library):
    """GPU memory in use with and without the vault, for one program of 1 GiB, and after its end."""
    used = {}
    with configured(ours, NO_QUARANTINE) as daemon:
        for name in ("", "cost"):
            heir = Heir(daemon, library, name)
            heir.next("ready")
            heir.tell(f"make weights {1 << 30} 1")
            heir.next("made")
            if name:
                heir.does("commit 1 20000", "committed")
            used["with the vault" if name else "without"] = used_mib()
            heir.process.kill()
            heir.process.wait()
            if not name:
                until(lambda: used_mib() < used["without"] - 1000, 10, "the memory's end")
        used["after kill -9, kept for a successor"] = used_mib()
        keeper = daemon.ask("vault list --json")[1]
        heir = Heir(daemon, library, "cost")
        heir.next("ready")
        heir.does("discard 20000", "discarded")
        used["with a successor that has discarded it"] = used_mib()
    cost = used["with the vault"] - used["without"]
    if not keeper or abs(cost) > 1:
        raise Failed(f"the vault costs {cost} MiB: {used}, {keeper}")
    return {"the vault's cost, MiB": cost, "in use, MiB": used}


def remap(ours, sizes):
    """Import, map and allow exported memory again: GiB in slabs of so many MiB."""
    results = {}
    for gib, slab in sizes:
        program = [str(ours.root / "mps-heir"), "remap", str(gib), str(slab)]
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}
        done = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=120)
        if done.returncode != 0:
            raise Failed(f"{gib} GiB in {slab} MiB: {done.stdout}")
        line = json.loads(done.stdout.splitlines()[-1])
        results[f"{gib} GiB in slabs of {slab} MiB"] = {
            key: line[key] for key in ("slabs", "total_ms", "import_ms", "map_ms", "access_ms", "reserve_ms", "make_ms")
        }
    return results


def works(ours, library, quick):
    """The suite; about three minutes, or 35 s with --quick. Standbys are activated 20 times after `kill -9` and `oob`."""
    times, fewer = (3, 1) if quick else (10, 3)
    repeated = {way: times if way in FAULTS else fewer for way in ["kill", *FAULTS, "neighbours oob", "neighbours trap"]}
    works = {}
    for way, count in repeated.items():
        work = lambda way=way, count=count: relaunch(ours, library, way, count)  # noqa: E731
        works[f"relaunch after {way}"] = work
    for way, count in {"kill": 3 if quick else 20, "oob": 3 if quick else 20, "trap": times}.items():
        works[f"standby after {way}"] = lambda way=way, count=count: standby(ours, library, way, count)
    works["memory_cost"] = lambda: memory_cost(ours, library)
    sizes = [(16, 2), (64, 32), (64, 256), (64, 1024)]
    works["remap"] = lambda: remap(ours, sizes)
    return works

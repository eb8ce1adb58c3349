"""Recovery in place on a real GPU: a program that has everything which can be made again is hit by faults, its own and a
neighbour's, again and again, and compares every byte after each; and PyTorch, where it can be imported.

`mps-replay-probe` runs under the preloaded library with pinned memory, variables, graphs and a library. What it is told
and what it finds is in its lines; a recovery that is refused fails the check with the library's reason.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gpus
import hangs
from bench import Client, Failed, until
from crowd import NO_QUARANTINE, configured, journal, last_seq
from figures import spread

PROGRAMS = ["mps-replay-probe", "mps-aggressor", "mps-memory-probe"]
KINDS = ["oob", "trap", "misaligned", "assert"]
# What one client does to all: an `assert` under MPS harms nobody else.
SHARED = [kind for kind in KINDS if kind != "assert"]
# What the program has: one thing after the other, so that a refusal names what it is for.
BELONGINGS = {
    "base": [],
    "pinned": ["--pinned"],
    "library": ["--library"],
    "graph": ["--graph"],
    "variable": ["--variable"],
    "all": ["--pinned", "--library", "--graph", "--variable"],
}
# What a process could run out of, how much more of it may be there at the end than after ten recoveries, and when it is
# told: neighbouring mappings count as one, and the heaps have lists of their own. Of the C library's heaps for threads there
# are as many as it makes at most, eight for each CPU.
GROWTH = {"descriptors": 0, "threads": 0, "libraries": 0, "mappings": 4, "resident_kib": 64 << 10}
ARENAS = 8 * os.cpu_count()
TOLD_AFTER = (10, 100, 1000)
# Seconds for which PyTorch does nothing before a fault that is to find it idle: the library reads variables after a tenth.
IDLE = 1
STEPS = ("unmap", "load", "init", "context", "map", "objects", "amputate")
# What the daemon did meanwhile, by the event that says how long it took, of which `{pid}` is the program.
BESIDE = {
    "the server's burial held back": ("burial-held", "held_ms", {}),
    "first sign to the server in its place": ("server-swapped", "after_ms", {}),
    "a connection's wait for the server": ("client-admitted", "waited_ms", {"pid": None}),
    "descriptors of the culprit held": ("funeral-ended", "held_ms", {"reason": "recovered"}),
}
# What else the daemon is told in the same run: a server that stands by need not be waited for.
STANDBY, NOT_HELD = "[domains]\nstandby = true\n", "[replay]\nburial_hold = 0\n"
TIMED = {"": "", ", not held back": NOT_HELD, ", with a standby": STANDBY, ", with a standby, not held back": STANDBY + NOT_HELD}


# What scenes answer on the simulated driver, and how many GPUs they need.
SCENES = Path(__file__).resolve().parent.parent / "goldens" / "scenes.json"


# As `MPS_SHIM_REPLAY` has it.
WAY = "in-place"


def with_copies():
    """What a figure is called behind its name."""
    return " with spare copies" if WAY == "spare" else ""


def environment(library, pipe):
    return {
        **os.environ,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "LD_PRELOAD": str(library),
        "MPS_SHIM_KEEP": "state",
        "MPS_SHIM_REPLAY": WAY,
        "MPS_SHIM_REPORT": "stderr",
    }


def times_of(recoveries):
    result = {"total, ms": spread([one["total_us"] / 1000 for one in recoveries])}
    for step in STEPS:
        result[f"{step}, ms"] = spread([one["steps_us"][step] / 1000 for one in recoveries])
    return result


def checked(lines, errors, count):
    """The recoveries, when there were so many and every byte was right."""
    refused = [line for line in errors.splitlines() if "not recovered" in line]
    end = next((line for line in lines if line["event"] == "end"), None)
    if refused or not end or not end["is_intact"] or end["recoveries"] != count:
        wrong = [line for line in lines if line["event"] in ("wrong", "error") or line.get("round")]
        came = sum(line["event"] in ("fault", "recovered") and line.get("is_recovered", True) for line in lines)
        raise Failed(f"after {came} recoveries of {count}: {refused or wrong or end}")
    return [line["recovery"] for line in lines if line["event"] in ("fault", "recovered")]


def check_growth(tenth, last, count):
    """Fails where a process has more after so many recoveries than after ten."""
    allowed = {**GROWTH, "arenas": max(0, ARENAS - tenth["arenas"])}
    grown = {name: last[name] - tenth[name] for name, most in allowed.items() if last[name] - tenth[name] > most}
    if grown:
        raise Failed(f"more after {count} recoveries than after ten: {grown}; {tenth}, then {last}")


def flat(lines):
    """What the process has after 10, 100 and 1,000 recoveries, if it is no more after the last one than after ten."""
    counts = [line["resources"] for line in lines if line["event"] in ("fault", "recovered")]
    if not counts or not counts[0]:
        return {}
    check_growth(counts[min(9, len(counts) - 1)], counts[-1], len(counts))
    numbers = sorted({number for number in TOLD_AFTER if number < len(counts)} | {len(counts)})
    return {f"after {number}": ", ".join(f"{name} {counts[number - 1][name]}" for name in (*GROWTH, "arenas")) for number in numbers}


def own(ours, library, arguments, kinds):
    """Faults of its own one after the other in one process, without MPS."""
    program = [str(ours.root / "mps-replay-probe"), "--faults", ",".join(kinds), *arguments]
    pipe = "/nowhere"
    done = subprocess.run(program, capture_output=True, text=True, env=environment(library, pipe), timeout=300 + len(kinds))
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    recoveries = checked(lines, done.stderr, len(kinds))
    told = [line for line in lines if line["event"] == "fault" and (line["answer"] == 0 or line["next"] != 0)]
    if told:
        raise Failed(f"told otherwise than once: {told[0]}")
    return {"recovered, bit-exact": f"{len(recoveries)} of {len(kinds)}", **times_of(recoveries), **flat(lines)}


def contexts(ours, library, count):
    """A fault of its own in a program with contexts on two GPUs, and in one with one, each in a process of its own, in turns and
    without MPS: how long the recovery's steps take that have to do with contexts.
    """
    if len(gpus.uuids()) < 2:
        return "Skipped(there is one GPU only)"
    ways = {"on two GPUs": ["--scene", "other-gpu"], "on one": ["--faults", "trap", "--light"]}
    steps = {name: {step: [] for step in ("init", "context")} for name in ways}
    for _ in range(count):
        for name, arguments in ways.items():
            program = [str(ours.root / "mps-replay-probe"), *arguments]
            done = subprocess.run(program, capture_output=True, text=True, env=environment(library, "/nowhere"), timeout=60)
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            recovery = next((line["recovery"] for line in lines if line["event"] in ("scene", "fault")), None)
            if done.returncode != 0 or not recovery or recovery["count"] != 1:
                raise Failed(f"{name}: status {done.returncode}: {lines[-1:]} {done.stderr[-300:]}")
            for step, all_of in steps[name].items():
                all_of.append(recovery["steps_us"][step] / 1000)
    return {f"{step} {name}, ms": spread(found) for name, of in steps.items() for step, found in of.items()}


def facts(ours, library):
    """What a program can find out about its memory and objects (`mps-memory-probe`), without MPS: the same with the library, in
    each of its ways, as without it.
    """
    ways = {"without it": {}, "memory": {"MPS_SHIM_KEEP": "memory"}, "state": {"MPS_SHIM_KEEP": "state"}, WAY: environment(library, "/nowhere")}
    told, aligned = {}, {}
    for name, settings in ways.items():
        surroundings = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": "/nowhere", **settings}
        if settings:
            surroundings["LD_PRELOAD"] = str(library)
        done = subprocess.run([str(ours.root / "mps-memory-probe")], capture_output=True, text=True, env=surroundings, timeout=120)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        told[name] = next((line for line in lines if line["event"] == "facts"), None)
        if not told[name]:
            raise Failed(f"{name}: status {done.returncode}, {lines[-1:]}: {done.stderr[-300:]}")
        for varying in ("pid", "t_ms"):
            told[name].pop(varying)
        aligned[name] = next(line for line in lines if line["event"] == "alignments")
    native = told.pop("without it")
    for name, line in told.items():
        differ = {key: [native[key], line[key]] for key in native if native[key] != line[key]}
        if differ:
            raise Failed(f"{name}: {differ}")
    zeros = {name: {size: bits for size, bits in line.items() if size.isdigit()} for name, line in aligned.items()}
    return {
        "the same with": ", ".join(told),
        "context, pool and handles of memory": json.dumps(native["belongs"]),
        **{f"zero bits of addresses by size, {name}": json.dumps(of) for name, of in zeros.items()},
    }


def scenes(ours, library, count):
    """Scenes of `mps-replay-probe` with faults of its own, each so often in processes of their own and without MPS: what each call
    answers is what it answers on the simulated driver.
    """
    done, there = {}, len(gpus.uuids())
    for name, scene in json.loads(SCENES.read_text()).items():
        if scene["devices"] > there:
            done[name] = f"Skipped(it needs {scene['devices']} GPUs)"
            continue
        for _ in range(count):
            program = [str(ours.root / "mps-replay-probe"), "--scene", name]
            ended = subprocess.run(program, capture_output=True, text=True, env=environment(library, "/nowhere"), timeout=120)
            lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
            heard = next((line["heard"] for line in lines if line["event"] == "scene"), None)
            if heard != scene["heard"]:
                raise Failed(f"{name}: status {ended.returncode}, {heard or lines[-1:]}, and not {scene['heard']}: {ended.stderr[-300:]}")
        done[name] = f"the same, {count} of {count}"
    return done


class Bystander(Client):
    """The probe beside a culprit, with what it says on standard error."""

    def __init__(self, daemon, library, arguments):
        self.environment = environment(library, daemon.pipe)
        self.errors = daemon.folder / f"errors{len(daemon.clients)}"
        command = ["sh", "-c", f'exec "$0" "$@" 2>{self.errors}', str(daemon.subject.root / "mps-replay-probe")]
        super().__init__(self, [*command, *arguments])
        daemon.clients.append(self)


def done_beside(daemon, seq, pid):
    """What the daemon did since event `seq` on account of the faults beside this program, in milliseconds."""
    events = [event for event in journal(daemon) if event["seq"] > seq]
    found = {}
    for name, (wanted, key, having) in BESIDE.items():
        own = [event for event in events if event["event"] == wanted]
        if "pid" in having:
            own = [event for event in own if event["process"]["pid"] == pid]
        if "reason" in having:
            own = [event for event in own if event["reason"] == having["reason"]]
        if own:
            found[f"{name}, ms"] = spread([event[key] for event in own])
    return found


def others(ours, library, arguments, kinds, settings=""):
    """Faults of a neighbour one after the other."""
    found = {}
    try:
        beside(ours, library, arguments, kinds, found, settings)
    except Exception as error:
        # An hour's result is not lost by what fails behind it.
        if found:
            error.result = {**found, "afterwards": f"{type(error).__name__}: {error}"}
        raise
    return found


def beside(ours, library, arguments, kinds, found, settings):
    """The same, with what was seen in `found` before the daemon ends."""
    with configured(ours, NO_QUARANTINE + settings) as daemon:
        probe = Bystander(daemon, library, ["--recoveries", str(len(kinds)), "--seconds", str(280 + 2 * len(kinds)), *arguments])
        probe.wait("ready", 60)
        seq = last_seq(daemon)
        for done, kind in enumerate(kinds):
            culprit = daemon.client("mps-aggressor", kind)
            culprit.process.wait(30)

            def recovered(done=done):
                probe.read(0.01)
                if probe.process.poll() is not None or probe.find("error"):
                    return True
                return sum(line["event"] == "recovered" for line in probe.lines) > done

            try:
                until(recovered, 30, f"a recovery from {kind}")
            except Failed as failed:
                servers = daemon.servers()
                around = [("culprit", culprit.pid), ("daemon", daemon.process.pid), *(("server", pid) for pid in servers)]
                where = hangs.told(probe, around)
                text = f"{failed}, after {done} of {len(kinds)}; {culprit.lines[-1:]}; servers: {servers}"
                raise Failed(f"{text}\n{where}") from failed
        probe.process.wait(60)
        while probe.read(0.05):
            pass
        recoveries = checked(probe.lines, probe.errors.read_text(), len(kinds))
        right = sum(line["is_told_right"] for line in probe.lines if line["event"] == "recovered")
        if right != len(kinds):
            raise Failed(f"told right {right} times of {len(kinds)}")
        found.update({"recovered, bit-exact": f"{len(recoveries)} of {len(kinds)}", **times_of(recoveries), **flat(probe.lines)})
        found.update(done_beside(daemon, seq, probe.pid))


# PyTorch with a captured graph and pinned memory. What it says of a recovery is at these places in `mps_shim_recovery`.
TORCH = """
import ctypes, json, struct, sys, torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda().eval()
host = torch.randn(64, 512).pin_memory()
given = host.cuda()
with torch.no_grad():
    for _ in range(3):
        model(given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = model(given)
    graph.replay()
    torch.cuda.synchronize()
    expected, weights = answer.cpu().clone(), [part.detach().cpu().clone() for part in model.parameters()]
ask = ctypes.CDLL(None).mps_shim_last_recovery
ask.restype = ctypes.c_uint64
seen = ctypes.create_string_buffer(1024)
print(json.dumps({"event": "ready"}), flush=True)
for line in sys.stdin:
    told = None
    for attempt in range(3):
        try:
            given.copy_(host, non_blocking=True)
            graph.replay()
            torch.cuda.synchronize()
            break
        except Exception as error:
            told = str(error).splitlines()[0]
    same = torch.equal(answer.cpu(), expected) and all(map(torch.equal, [p.detach().cpu() for p in model.parameters()], weights))
    count = ask(seen, 1024)
    last = {"total_us": struct.unpack_from("Q", seen, 56)[0], "way": struct.unpack_from("I", seen, 344)[0]}
    print(json.dumps({"event": "round", "told": told, "is_same": same, "recoveries": count, "recovery": last}), flush=True)
"""


def torch_round(program):
    program.process.stdin.write(b"go\n")
    program.process.stdin.flush()
    seen = sum(line["event"] == "round" for line in program.lines)

    def another():
        program.read(0.01)
        if program.process.poll() is not None:
            raise Failed(f"PyTorch ended with {program.process.returncode}")
        return sum(line["event"] == "round" for line in program.lines) > seen

    until(another, 60, "PyTorch's answer")
    return [line for line in program.lines if line["event"] == "round"][-1]


def pytorch(ours, library, kinds):
    """PyTorch with a captured graph and pinned memory, idle beside a culprit: the same answer, bit for bit, after each fault."""
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0:
        return "Skipped(PyTorch cannot be imported)"
    with configured(ours, NO_QUARANTINE) as daemon:
        program = Bystander.__new__(Bystander)
        program.environment = environment(library, daemon.pipe)
        program.errors = daemon.folder / "torch-errors"
        command = ["sh", "-c", f'exec "$0" -c "$1" 2>{program.errors}', sys.executable, TORCH]
        Client.__init__(program, program, command)
        daemon.clients.append(program)
        program.wait("ready", 120)
        first = torch_round(program)
        rounds, seconds = [], []
        for number, kind in enumerate(kinds, 1):
            time.sleep(IDLE)
            daemon.client("mps-aggressor", kind).process.wait(30)
            began = time.monotonic()
            rounds.append(torch_round(program))
            seconds.append((time.monotonic() - began) * 1000)
            if not rounds[-1]["is_same"] or rounds[-1]["recoveries"] != number:
                raise Failed(f"{rounds[-1]}: {program.errors.read_text()[-600:]}")
    unaware = sum(one["told"] is None for one in rounds)
    return {"recovered, bit-exact": len(rounds), "unaware": unaware, "same before": first["is_same"], "to the next answer, ms": spread(seconds)}


def works(ours, library, quick, times=None):
    """The suite: 30 faults of each kind beside a program that has everything, fewer where it has one thing, and a thousand of all
    kinds in one process, its own and a neighbour's, or `--times`, with what it has after 10, 100 and 1,000 of them; with --quick
    2 of each and 40, about two minutes.
    """
    count = 2 if quick else 30
    works = {}
    for name, arguments in BELONGINGS.items():
        few = KINDS * (min(count, 5) if name != "all" else count)
        works[f"own faults, {name}"] = lambda arguments=arguments, few=few: own(ours, library, arguments, few)
    works["facts"] = lambda: facts(ours, library)
    works["scenes"] = lambda: scenes(ours, library, min(count, 5))
    works["contexts"] = lambda: contexts(ours, library, min(count, 12))
    for name in ("base", "graph", "all"):
        few = ["oob", "trap"] * min(count, 10) if name != "all" else SHARED * count
        works[f"others faults, {name}"] = lambda name=name, few=few: others(ours, library, BELONGINGS[name], few)
    for name, settings in TIMED.items():
        few = ["oob", "trap"] * min(count, 10)
        works[f"others faults, timed{name}"] = lambda few=few, settings=settings: others(ours, library, [], few, settings)
    works["others faults, busy"] = lambda: others(ours, library, ["--busy", *BELONGINGS["all"]], ["oob", "trap"] * min(count, 10))
    many = times or (40 if quick else 1000)
    cycle = lambda kinds: (kinds * many)[:many]  # noqa: E731
    endless = ["--resources", *BELONGINGS["all"]]
    works["own faults, without end"] = lambda: own(ours, library, endless, cycle(KINDS))
    works["others faults, without end"] = lambda: others(ours, library, endless, cycle(SHARED))
    works["pytorch"] = lambda: pytorch(ours, library, ["oob", "trap"] * min(count, 25))
    return works

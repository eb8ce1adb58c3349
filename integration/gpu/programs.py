"""Other people's programs under the preloaded library on a real GPU: what each sees of faults of its own and of a neighbour's,
while it is idle and while it is at work; and PyTorch's profiler, with nothing going wrong.

The programs are in `guests/`: PyTorch, Transformers, CuPy, JAX, Triton and NCCL as they are installed, and small ones in
CUDA C++ in the manner of cuda-samples, which are compiled here by nvcc. Each makes what it needs, says `ready`, and then
does rounds as it is told; a round compares every value with the program's own undisturbed ones. Its own fault is a kernel
of `kernels.ptx` that is loaded through the driver's own interface, in the program's context and process.

| a cell says | of a program that |
|---|---|
| unaware | was recovered and has noticed nothing |
| told once | was recovered, and each of its threads had an error once at most |
| told of an earlier fault | was not reached by this one, and a thread begun since the last one had its error |
| unaware, but told of an earlier fault | was recovered and has lost nothing by it, and had the error of an earlier one, of which this thread had not heard |
| told N times | was recovered, and had an error N times before all was right: in as many threads or streams, or by its libraries |
| … (and before) | had an error in the thread that it began for its work, too, before the fault: that of an earlier one, of which the thread that began it had not heard |
| gives up | was recovered, and was not well again by itself after some tries, as its libraries keep the error |
| refused | was not recovered, for the reason that the library tells |
| not reached | has met no error: a failed assertion under MPS ends its own program alone |
| not tried | was refused or has given up before, with `--quick`, or for which there was no time, with `--seconds`, or whose neighbours come to another server since a culprit did not end |
| told, since | had an error though it was idle beside the culprit: what of it was lost, in the library's words |
| recoveries, ms | from the error's being noticed until the gate opens, by the library's clock: how many, and minimum / median / maximum, of those of the idle program and of the busy one, by the spare copy and without |
| its end | comes by itself when its input ends; a program may wait for work that was lost |

A refusal is no failure, if the library names the reason. A wrong value, another end, no answer, and a fault of its own
that a program is not told of are failures, and come with what the program has said on standard error.
"""

import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpus
import hangs
import replay
from bench import Failed
from crowd import NO_QUARANTINE, configured
from guest import EARLIER, SAID, SOON, TO_ANSWER, Program
from roster import ALL, GUESTS, KERNELS, NOT_UNDER_MPS, OPTIONS
from table import AT_ONCE, COLUMNS, CULPRIT, FAULTS, REACHING, SINCE, Table, each

PROGRAMS = ["mps-aggressor"]
TIMES = 20
# How many have a fault of their own at once on one GPU: the kernel's side makes contexts one after the other, and many at
# once wait for each other for tens of seconds.
AT_FAULT = 2
# Seconds for which a program waits for a recovery: what does not come by then does not come.
TO_REACH = 3
# Seconds for which a program does nothing before a fault that is to find it idle.
IDLE = 2
# The same where a spare copy of the driver is to have all of it: until the library says so, or for so long.
IDLE_WITH_SPARE = 12
# Seconds for the neighbour that does wrong to end by itself.
TO_END_OF_CULPRIT = 60

PROFILED = """
import json, torch
from torch.profiler import profile, ProfilerActivity
given = torch.randn(512, 512, device="cuda")
torch.relu(given @ given)
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
    for _ in range(10):
        torch.relu(given @ given)
    torch.cuda.synchronize()
names = {}
for event in seen.events():
    names[event.name] = names.get(event.name, 0) + 1
# How often the runtime is asked for what it keeps differs from run to run.
kernels = sorted(event.name for event in seen.events() if str(event.device_type).endswith("CUDA"))
print(json.dumps({"kernels": kernels, "launches": names.get("cudaLaunchKernel", 0), "operators": names.get("aten::mm", 0)}))
"""


class Suite:
    """What is there on this machine, found once."""

    def __init__(self, ours, library, is_quick, seconds, wanted, tell, times):
        self.ours, self.library, self.tell = ours, library, tell
        self.begun_at, self.seconds = time.monotonic(), seconds
        self.gpus = len(gpus.uuids())
        self.missing, self.is_quick = None, is_quick
        self.wanted = [name for name in ALL if not wanted or any(name.startswith(one) for one in wanted)]
        # With a time, as many as come in it.
        times = times or (1 if is_quick and math.isinf(seconds) else TIMES)
        # Those that may spoil the programs' server for the next ones come last.
        self.faults = REACHING * times + [fault for fault in FAULTS if fault not in REACHING for _ in range(times)]
        # A program's own spoil nobody's.
        self.own_faults = FAULTS * times
        self.to_answer = SOON if is_quick else TO_ANSWER
        self.lock, self.beginners = threading.Lock(), threading.Semaphore(AT_ONCE)
        self.turns = [threading.Semaphore(AT_FAULT) for _ in range(self.gpus)]
        self.begun = 0

    def is_late(self, share):
        """Whether this share of the time that there is has gone."""
        return time.monotonic() > self.begun_at + share * self.seconds

    def left(self, share):
        """How many seconds there are until then."""
        return max(1, self.begun_at + share * self.seconds - time.monotonic())

    def commands(self):
        """The command of each program that can run here; why the others cannot is in `missing`."""
        with self.lock:
            if self.missing is None:
                self.missing, self.found = {}, {}
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    for name, made in zip(self.wanted, pool.map(self.command, self.wanted)):
                        (self.missing if isinstance(made, str) else self.found)[name] = made
        return self.found

    def command(self, name):
        """The command, or `Skipped(reason)`."""
        guest = ALL[name]
        if isinstance(guest["file"], Path):
            return self.compiled(guest["file"])
        if self.gpus < guest["gpus"]:
            return f"Skipped(there is one GPU only, {guest['gpus']} are needed)"
        look = f"import importlib.util as u; exit(not u.find_spec('{guest['module']}'))"
        if subprocess.run([sys.executable, "-c", look]).returncode != 0:
            return f"Skipped({guest['module']} cannot be imported)"
        return [sys.executable, str(GUESTS / guest["file"]), str(KERNELS), guest["way"]]

    def compiled(self, source):
        if not shutil.which("nvcc"):
            return "Skipped(there is no nvcc)"
        program = self.ours.root / f"sample-{source.stem}"
        command = ["nvcc", "-O2", "-std=c++17", "-arch=native", "-o", str(program), str(source), *OPTIONS.get(source.stem, []), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{source.name} does not compile: {done.stderr[-SAID:]}")
        return [str(program), str(KERNELS)]


def culprits(suite):
    """Faults of each program's own, one after the other in one process, without MPS. One that was refused begins anew.

    Where there are several GPUs each program has one of them, but for those that take two.
    """
    table = Table(suite, "culprits")

    def one(name, gpu):
        program, is_over = None, False
        seen = {} if ALL[name].get("gpus", 1) > 1 else {"CUDA_VISIBLE_DEVICES": str(gpu)}
        for kind, is_busy in suite.own_faults:
            column = COLUMNS[kind, is_busy]
            if is_over or suite.is_late(1):
                table.is_not_tried(name, column)
                continue
            try:
                if program is None:
                    with suite.beginners:
                        program = Program(suite, suite.ours.root, name, more=seen)
                        program.begin(suite.left(1))
                with suite.turns[gpu]:
                    if is_busy:
                        rest = f"rest {TO_REACH} {program.recoveries}"
                        cell = program.cell(True, ("busy", "busy"), (f"wrong {kind}", "wrong"), (rest, "round"))
                    else:
                        cell = program.cell(True, (f"fault {kind}", "round"))
                table.put(name, column, cell)
                table.takes_in(name, is_busy, program.recovered_ms())
                goes_on = not cell.startswith(("refused", "gives up"))
            except Exception as error:  # noqa: BLE001 - one program does not stop the others
                table.fails(name, column, f"{type(error).__name__}: {error}")
                goes_on = False
            if program is not None and not goes_on:
                program.end()
                program, is_over = None, suite.is_quick
        if program is not None:
            table.leaves(name, program)

    # All at the same time, so that each has its share of the time that there is.
    with ThreadPoolExecutor(max(1, len(suite.commands()))) as pool:
        list(pool.map(one, suite.commands(), itertools.cycle(range(suite.gpus))))
    return table.result()


def wait_for_rest(programs):
    """Waits until the spare copies have all of programs that do nothing; one that is refused or has none has no say."""
    if replay.WAY == "spare":
        end = time.monotonic() + IDLE_WITH_SPARE
        while not all(program.is_level() for program in programs) and time.monotonic() < end:
            time.sleep(0.05)


def bystanders(suite, share):
    """The programs together as clients of one daemon, beside a culprit; one that was refused begins anew before the next fault."""
    table = Table(suite, "bystanders")
    with configured(suite.ours, NO_QUARANTINE) as daemon:
        programs = {}
        names = [name for name in suite.commands() if name not in NOT_UNDER_MPS]
        for name in set(suite.commands()) & set(NOT_UNDER_MPS):
            for kind in dict.fromkeys(COLUMNS[fault] for fault in suite.faults):
                table.put(name, kind, NOT_UNDER_MPS[name])

        def begin(name):
            program = Program(suite, daemon.folder, name, daemon.pipe)
            daemon.clients.append(program)
            program.begin(suite.left(0.7 * share))
            programs[name] = program

        over, is_apart = set(), False
        for kind, is_busy in suite.faults:
            column = COLUMNS[kind, is_busy]
            over = set(names) if suite.is_late(share) or is_apart else over
            for name in over:
                table.is_not_tried(name, column)
            if len(over) == len(names):
                continue
            each([name for name in names if name not in programs and name not in over], begin, table, column)
            wait_for_rest(programs.values())
            if is_busy:
                each(list(programs), lambda name: programs[name].ask("busy", "busy"), table, column, len(programs))
            else:
                time.sleep(IDLE)
            began = time.monotonic()
            culprit = daemon.client("mps-aggressor", kind)
            try:
                culprit.process.wait(TO_END_OF_CULPRIT)
            except subprocess.TimeoutExpired:
                # NVIDIA's driver and server alone have it in hand. It is killed, which is a fault for the others, too.
                print(*hangs.of_kernel(culprit.pid, CULPRIT), *daemon.picture(), sep="\n", file=sys.stderr, flush=True)
                culprit.end()
                table.put(CULPRIT, column, f"did not end in {TO_END_OF_CULPRIT} s and was killed")
                # The next culprit is on another server than these.
                is_apart = True

            def judged(name, is_busy=is_busy):
                program = programs[name]
                line = f"{'rest' if is_busy else 'round'} {TO_REACH} {program.recoveries}"
                return program.cell(False, (line, "round"))

            cells = each(list(programs), judged, table, column, len(programs))
            # One that has not answered would be waited for again at the next fault.
            for name in set(programs) - set(cells):
                if programs[name].process.poll() is None:
                    programs[name].hangs()
                    programs.pop(name).end()
                    over |= {name} if suite.is_quick else set()
            for name, cell in cells.items():
                lost = programs[name].lost() if cell.startswith("told") and not is_busy else ""
                if lost:
                    table.put(name, SINCE, f"{kind}: {lost}")
                elif cell.startswith("told") and not is_busy and cell != EARLIER:
                    cell = f"unaware, but {EARLIER}"
                table.put(name, column, cell)
                table.takes_in(name, is_busy, programs[name].recovered_ms())
                if cell.startswith(("refused", "gives up")):
                    programs.pop(name).end()
                    over |= {name} if suite.is_quick else set()
            print(f"{column}: {time.monotonic() - began:.1f} s with {len(programs)} programs", file=sys.stderr, flush=True)
            if kind in replay.SHARED and cells and set(cells.values()) <= {"not reached", EARLIER}:
                # They are on another server than newcomers, why the picture says. Others would not be reached either.
                print("nobody was reached:", *daemon.picture(), sep="\n", file=sys.stderr, flush=True)
                table.put(CULPRIT, column, "reached nobody, and all begin anew")
                for name in list(programs):
                    programs.pop(name).end()
            for name in [name for name in programs if programs[name].process.poll() is not None]:
                programs.pop(name)
                over |= {name} if suite.is_quick else set()
        each(list(programs), lambda name: table.leaves(name, programs[name]))
    return table.result()


def profiler(suite, times):
    """PyTorch's profiler in programs that nothing happens to: with the library in each of its ways, and without it."""
    ways = {
        "without": {},
        "memory": {"MPS_SHIM_KEEP": "memory"},
        "state": {"MPS_SHIM_KEEP": "state"},
        "in-place": {"MPS_SHIM_KEEP": "state", "MPS_SHIM_REPLAY": "in-place"},
    }

    def one(way_and_number):
        way = way_and_number[0]
        more = {"LD_PRELOAD": str(suite.library), **ways[way]} if ways[way] else {}
        run = [sys.executable, "-c", PROFILED]
        done = subprocess.run(run, env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": "/nowhere", **more}, capture_output=True, text=True, timeout=150)
        if done.returncode != 0:
            raise Failed(f"ended with {done.returncode}: {done.stderr[-500:]}")
        return json.loads(done.stdout.splitlines()[-1])

    counts = {way: times if way == "state" else max(1, times // 4) for way in ways}
    runs = each([(way, number) for way, count in counts.items() for number in range(count)], one)
    expected = runs["without", 0]
    odd = {key: seen for key, seen in runs.items() if seen != expected}
    if odd:
        raise Failed(f"{len(odd)} profiles of {len(runs)} have another shape: {list(odd.items())[0]} in place of {expected}")
    return {way: f"{count} of {count}, the same {len(expected['kernels'])} kernels" for way, count in counts.items()}


def works(ours, library, quick, seconds, only, wanted, tell, times=None):
    """The suite: 20 faults of each kind, or so many, idle and busy; with --quick one, or as many as come in the seconds there are, and none
    of a program that was refused. `tell` takes a table that is not whole yet."""
    suite = Suite(ours, library, quick, seconds, wanted, lambda figure, rows: tell(names[figure], rows), times)
    # A table of some programs, or of a machine with several GPUs, stands beside that of all on one.
    which = ([f"on {suite.gpus} GPUs"] if suite.gpus > 1 else []) + (wanted or [])
    some = f" ({', '.join(which)})" if which else ""
    names = {"bystanders": f"bystanders{replay.with_copies()}{some}", "culprits": f"culprits{some}"}
    share = 0.55 if not only or "culprits" in only else 1
    return {
        names["bystanders"]: lambda: bystanders(suite, share),
        names["culprits"]: lambda: culprits(suite),
        "profiler": lambda: profiler(suite, 4 if quick else 20),
    }

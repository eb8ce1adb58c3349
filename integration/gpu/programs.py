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
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hangs
import replay
from bench import Client, Failed, until
from faults import NO_QUARANTINE, configured
from replay import environment

PROGRAMS = ["mps-aggressor"]
HERE = Path(__file__).resolve().parent
GUESTS = HERE / "guests"
# Beside the sources in the repository, beside the programs where they were carried to a machine without them.
KERNELS = next((p for p in (HERE.parent / "src/programs/kernels.ptx", HERE.parent / "kernels.ptx") if p.exists()), Path("kernels.ptx"))
KINDS = ["oob", "trap", "misaligned", "assert"]
# Each kind while the program is idle and while it is at work, and the table's columns.
FAULTS = [(kind, is_busy) for is_busy in (False, True) for kind in KINDS]
# Those that reach a neighbour: a failed assertion ends its own program alone.
REACHING = [(kind, is_busy) for kind, is_busy in FAULTS if kind in replay.SHARED]
TIMES = 20
COLUMNS = {(kind, is_busy): f"{kind}, {'busy' if is_busy else 'idle'}" for kind, is_busy in FAULTS}
# How many programs begin at once: each takes a core or two and about 1 GiB.
AT_ONCE = max(1, 3 * (os.cpu_count() or 1) // 4)
# How many have a fault of their own at once on one GPU: the kernel's side makes contexts one after the other, and many at
# once wait for each other for tens of seconds.
AT_FAULT = 2
# Seconds for a program to be ready, compilers included, and for one answer; the latter with --quick, too.
TO_BEGIN, TO_ANSWER, SOON = 150, 90, 45
# Seconds between two reports of a table that is not whole yet.
BETWEEN_REPORTS = 5
# Seconds for which a program waits for a recovery: what does not come by then does not come.
TO_REACH = 3
# Seconds for which a program does nothing before a fault that is to find it idle.
IDLE = 2
# The same where a spare copy of the driver is to have all of it: until the library says so, or for so long.
IDLE_WITH_SPARE = 12
AT_REST = "the spare copy has all that the program has, which is at rest"
# A recovery in the library's words: how long it took, and in which way.
RECOVERED = re.compile(r": recovered .* in (\d+) us, number \d+( by the spare copy)?")
EARLIER = "told of an earlier fault"
# The neighbour that does wrong, which has a row where it did not end by itself, and the seconds that it has for that.
CULPRIT = "the culprit itself"
TO_END_OF_CULPRIT = 60
# Seconds for a program to end by itself, and the column that says whether it has.
TO_END, END = 20, "its end"
# The column that says what an idle bystander has lost, and the one with the recoveries of all its processes.
SINCE = "told, since"
RECOVERIES = "recoveries, ms"
# So much of what a failed program has said goes into the report.
SAID = 1500

ALLOCATORS = {"native": "backend:native", "expandable segments": "expandable_segments:True", "cudaMallocAsync": "backend:cudaMallocAsync"}


def in_python(file, way="", module="torch", gpus=1, **environment):
    return {"file": file, "way": way, "module": module, "gpus": gpus, "environment": environment}


# Each program: its file, what it is told, what must be there.
ALL = {
    "PyTorch training, eager": in_python("torch_training.py", "eager"),
    "PyTorch training, compiled": in_python("torch_training.py", "compiled"),
    "PyTorch training, AMP": in_python("torch_training.py", "amp"),
    "PyTorch inference, eager": in_python("torch_inference.py", "eager"),
    "PyTorch inference, compiled": in_python("torch_inference.py", "compiled"),
    "PyTorch inference, AMP": in_python("torch_inference.py", "amp"),
    "PyTorch inference, graph": in_python("torch_inference.py", "graph"),
    "PyTorch inference, profiler on": in_python("torch_inference.py", "profiled"),
    **{
        f"Llama of Transformers, {name}": in_python("llama.py", module="transformers", PYTORCH_CUDA_ALLOC_CONF=way, PYTORCH_ALLOC_CONF=way)
        for name, way in ALLOCATORS.items()
    },
    "PyTorch DataLoader workers": in_python("data_loader.py"),
    "torch.multiprocessing": in_python("shared_tensors.py"),
    "CuPy": in_python("cupy_arrays.py", "plain", "cupy"),
    "CuPy, FFT": in_python("cupy_arrays.py", "fft", "cupy"),
    "CuPy, asynchronous pool": in_python("cupy_arrays.py", "async", "cupy"),
    "JAX": in_python("jax_jit.py", module="jax"),
    "Triton": in_python("triton_kernel.py", module="triton"),
    "NCCL, one GPU": in_python("nccl.py", "1"),
    "NCCL, two GPUs": in_python("nccl.py", "2", gpus=2),
    **{f"CUDA C++, {path.stem}": {"file": path} for path in sorted((GUESTS / "samples").glob("*.cu"))},
}
# What nvcc needs besides, where a sample needs more than the usual.
OPTIONS = {"nested": ["-rdc=true", "-lcudadevrt"]}
# What the driver does not do under MPS (811), with the library or without it.
NOT_UNDER_MPS = {"CUDA C++, nested": "Skipped(the driver launches no kernels from kernels under MPS)"}

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

    def __init__(self, ours, library, is_quick, seconds, wanted, tell):
        self.ours, self.library, self.tell = ours, library, tell
        self.begun_at, self.seconds = time.monotonic(), seconds
        self.gpus = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())
        self.missing, self.is_quick = None, is_quick
        self.wanted = [name for name in ALL if not wanted or any(name.startswith(one) for one in wanted)]
        # With a time, as many as come in it.
        times = 1 if is_quick and math.isinf(seconds) else TIMES
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


class Program(Client):
    """A program with the library around it, and what it says on standard error."""

    def __init__(self, suite, folder, name, pipe="/nowhere", more=None):
        self.name, self.to_answer = name, suite.to_answer
        caches = {"TRITON_CACHE_DIR": str(suite.ours.root / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(suite.ours.root / "inductor")}
        few = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "2", "PYTHONDONTWRITEBYTECODE": "1"}
        few |= {"MPS_SHIM_LOG": "1"} if replay.WAY == "spare" else {}
        self.environment = {**environment(suite.library, pipe), **caches, **few, **ALL[name].get("environment", {}), **(more or {})}
        with suite.lock:
            suite.begun += 1
            number = suite.begun
        self.errors = folder / f"errors {number} {name}".replace(" ", "-").replace(",", "")
        command = suite.found[name]
        super().__init__(self, ["sh", "-c", f'exec "$0" "$@" 2>>{self.errors}', *command])
        self.recoveries = self.asked = 0

    def begin(self, seconds=TO_BEGIN):
        try:
            self.wait("ready", min(TO_BEGIN, seconds))
        except Failed as failed:
            raise Failed(f"{failed}: {self.said()}") from failed

    def ask(self, line, event):
        """Sends a line; the answer."""
        seen = sum(one["event"] == event for one in self.lines)
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

        def another():
            self.read(0.01)
            found = sum(one["event"] == event for one in self.lines) > seen
            if not found and self.process.poll() is not None:
                raise Failed(f"it ended with {self.process.returncode}: {self.said()}")
            return found

        try:
            until(another, self.to_answer, f"the answer to `{line}`")
        except Failed as failed:
            raise Failed(failed if self.process.poll() is not None else f"{failed}: {self.said()}") from failed
        return [one for one in self.lines if one["event"] == event][-1]

    def cell(self, is_own, *steps):
        """Asks for a round in one step or several; what came of it as a cell of the table. A program that is refused may end by
        itself."""
        try:
            for line, event in steps:
                found = self.ask(line, event)
        except Failed:
            if self.process.poll() is not None and self.reason():
                return f"refused: {self.reason()}"
            raise
        return self.judge(found, is_own)

    def judge(self, found, is_own):
        """One round as a cell of the table."""
        if found["wrong"]:
            raise Failed(f"{found['wrong']} wrong values: {found}: {self.said()}")
        before, self.recoveries = self.recoveries, found["recoveries"]
        if self.recoveries == before:
            if not found["told"] and not found["codes"]:
                if is_own or not found["is_same"]:
                    raise Failed(f"not told of a fault of its own, or not right: {found}: {self.said()}")
                return "not reached"
            reason = self.reason()
            return f"refused: {reason}" if reason or not found["is_same"] else EARLIER
        if not found["is_same"]:
            return f"gives up: {(found['told'] or ['without an error'])[-1]}{self.complaint()}"
        earlier = found.get("earlier", 0)
        told, codes = len(found["told"]) - earlier, len(found["codes"])
        # A busy program's culprit is a thread of its own: two threads are told once each.
        times = max(codes, told) if found["rounds"] > 1 else codes + told
        if is_own and times == 0:
            raise Failed(f"not told of a fault of its own: {found}: {self.said()}")
        cell = ["unaware", "told once"][times] if times < 2 else f"told {times} times"
        return f"{cell} (and before)" if earlier else cell

    def lost(self):
        """What the last recovery has lost, in the library's words."""
        lines = [line.split(": ", 1)[-1] for line in self.all_said().splitlines() if line.startswith("mps-client-shim[")]
        last = max((index for index, line in enumerate(lines) if line.startswith("recovered")), default=None)
        if last is None:
            return "nothing was told"
        streams = lines[last].split("streams with lost work: ")[-1].split(",")[0]
        anew = [line.split(": ", 1)[-1] for line in lines[last + 1 :] if line.startswith("modules begun anew")]
        return ", ".join(([f"streams with lost work: {streams}"] if streams != "0" else []) + [f"modules begun anew: {one}" for one in anew])

    def is_level(self):
        """Whether the spare copy has all of it as it is at rest since the last recovery."""
        lines = [line for line in self.all_said().splitlines() if "the spare copy has all" in line or RECOVERED.search(line)]
        return bool(lines) and lines[-1].endswith(AT_REST)

    def recovered_ms(self):
        """How long its recoveries since the last time took that this was asked, and whether a spare copy was gone on with."""
        found = [(bool(is_by_spare), int(took) / 1000) for took, is_by_spare in RECOVERED.findall(self.all_said())]
        asked, self.asked = self.asked, len(found)
        return found[asked:]

    def reason(self):
        refused = [line.split(": ", 2)[-1] for line in self.all_said().splitlines() if "not recovered" in line]
        return refused[-1] if refused else None

    def complaint(self):
        """What the library has last said that is neither a recovery nor a report, behind a semicolon."""
        lines = [line for line in self.all_said().splitlines() if line.startswith("mps-client-shim[") and ": recovered" not in line]
        return f"; the library says: {lines[-1].split(': ', 1)[-1]}" if lines else ""

    def hangs(self):
        """Tells where its threads are."""
        lines = hangs.of_kernel(self.pid, self.name)
        debugger = shutil.which("gdb") or shutil.which("cuda-gdb")
        if debugger:
            command = [debugger, "-batch", "-nx", "-p", str(self.pid), "-ex", "thread apply all bt 24"]
            try:
                lines += subprocess.run(command, capture_output=True, text=True, timeout=TO_END).stdout.splitlines()
            except subprocess.TimeoutExpired:
                lines.append(f"{debugger} does not end")
        print(f"{self.name} hangs:", *lines, sep="\n", file=sys.stderr, flush=True)

    def all_said(self):
        return self.errors.read_text(errors="replace") if self.errors.exists() else ""

    def said(self):
        """The end of what it has said, but for the report of what was kept."""
        return "\n".join(line[:400] for line in self.all_said().splitlines() if not line.startswith('{"pid"'))[-SAID:]


class Table:
    """Cells by program and fault; a cell that failed is told, and fails the figure when all is done."""

    def __init__(self, suite, figure):
        self.cells, self.failed, self.suite, self.figure = {}, [], suite, figure
        self.recovered = {}
        self.lock, self.told_at = threading.Lock(), time.monotonic()

    def put(self, name, kind, cell):
        print(f"{name}, {kind}: {cell}", file=sys.stderr, flush=True)
        with self.lock:
            self.cells.setdefault(name, {}).setdefault(kind, Counter())[cell] += 1
            self.tell()

    def tell(self):
        """Reports what there is so far: the machine may be taken away before the rest."""
        if time.monotonic() > self.told_at + BETWEEN_REPORTS:
            self.suite.tell(self.figure, self.rows())
            self.told_at = time.monotonic()

    def is_not_tried(self, name, kind):
        with self.lock:
            if not self.cells.setdefault(name, {}).get(kind):
                self.cells[name][kind] = Counter({"not tried": 1})

    def fails(self, name, kind, error):
        print(f"{name}, {kind}: FAILED: {error}", file=sys.stderr, flush=True)
        with self.lock:
            self.failed.append(f"{name}, {kind}: {error}")
            self.cells.setdefault(name, {}).setdefault(kind, Counter())["**failed**"] += 1
            self.tell()

    def leaves(self, name, program):
        """Lets a program that is well end by itself. One that waits for ever has lost work that its libraries wait for."""
        program.process.stdin.close()
        try:
            status = program.process.wait(TO_END)
        except subprocess.TimeoutExpired:
            program.hangs()
            program.process.kill()
            program.process.wait()
            return self.put(name, END, f"does not end in {TO_END} s")
        if status != 0:
            return self.fails(name, END, f"ended with {status}: {program.said()}")
        return self.put(name, END, "well")

    def takes_in(self, name, is_busy, recovered):
        """How long each recovery took, and whether it was by a spare copy."""
        with self.lock:
            for is_by_spare, took in recovered:
                self.recovered.setdefault(name, {}).setdefault((is_busy, is_by_spare), []).append(took)

    def recoveries_of(self, name):
        parts = []
        for (is_busy, is_by_spare), took in sorted(self.recovered.get(name, {}).items()):
            way = f"{'busy' if is_busy else 'idle'}, {'by the spare copy' if is_by_spare else 'without'}"
            parts.append(f"{way}: {len(took)}, {min(took):.3g} / {statistics.median(took):.3g} / {max(took):.3g}")
        return {RECOVERIES: "; ".join(parts)} if parts else {}

    def rows(self):
        def text(cells):
            return "; ".join(cell if count == 1 and len(cells) == 1 else f"{cell} ({count})" for cell, count in cells.most_common())

        rows = {}
        for name in (*ALL, CULPRIT):
            if name in self.cells:
                rows[name] = {kind: text(self.cells[name][kind]) for kind in (*COLUMNS.values(), END, SINCE) if kind in self.cells[name]}
                rows[name] |= self.recoveries_of(name)
            elif name in (self.suite.missing or {}):
                rows[name] = {kind: self.suite.missing[name] for kind in COLUMNS.values()}
        return rows

    def result(self):
        rows = self.rows()
        if self.failed:
            raise Failed("; ".join(self.failed), {**rows, "failures": dict(enumerate(self.failed, 1))})
        return rows


def each(names, work, table=None, kind="begins", at_once=AT_ONCE):
    """Does the same with every program, some at a time. What fails is told at the end, or put into the table."""
    with ThreadPoolExecutor(max(1, at_once)) as pool:
        done = {name: pool.submit(work, name) for name in names}
    result, failed = {}, []
    for name, future in done.items():
        error = future.exception()
        if error is None:
            result[name] = future.result()
        elif table is not None:
            table.fails(name, kind, f"{type(error).__name__}: {error}")
        else:
            failed.append(f"{name}: {type(error).__name__}: {error}")
    if failed:
        raise Failed("; ".join(failed) + f"; others: {result}")
    return result


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


def works(ours, library, quick, seconds, only, wanted, tell):
    """The suite: 20 faults of each kind, idle and busy; with --quick one, or as many as come in the seconds there are, and none
    of a program that was refused. `tell` takes a table that is not whole yet."""
    suite = Suite(ours, library, quick, seconds, wanted, lambda figure, rows: tell(names[figure], rows))
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

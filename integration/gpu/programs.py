"""Other people's programs under the preloaded library on a real GPU: what each answers before and after a fault, its own and
a neighbour's, and what the library says where it does not recover one; and PyTorch's profiler, with nothing going wrong.

Each program makes what it needs, says `ready`, and then does rounds as it is told; a round compares every value with the
first round's. Its own fault is a kernel of `kernels.ptx` that is loaded through the driver's own interface, in the
program's context and process. A program that is refused is no failure, if the library names the reason; a wrong
value, another end and no answer are.
"""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import Client, Failed, until
from faults import NO_QUARANTINE, configured
from replay import environment

PROGRAMS = ["mps-aggressor"]
KERNELS = Path(__file__).resolve().parent.parent / "src/programs/kernels.ptx"
KINDS = ["oob", "trap", "misaligned", "assert"]
# How many programs run at once, each with a context of its own: each takes a core and about 1 GiB.
AT_ONCE = 10

# What every program has: its rounds and its faults.
FRAME = '''
import ctypes, json, os, sys
SCRATCH = 0x10
def fault(kind, kernels):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    word, room = ctypes.c_uint64(SCRATCH), ctypes.c_uint64()
    if kind == "misaligned":
        assert cuda.cuMemAlloc_v2(ctypes.byref(room), ctypes.c_size_t(4096)) == 0
        word = room
    assert cuda.cuModuleLoadData(ctypes.byref(module), open(kernels, "rb").read() + b"\\0") == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, kind.encode()) == 0
    given = (ctypes.c_void_p * 1)(ctypes.addressof(word))
    launched = cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, given, None)
    told = [launched, cuda.cuCtxSynchronize(), cuda.cuCtxSynchronize()]
    cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    return told
def serve(compute):
    expected = compute()
    assert compute() == expected, "the program is not the same twice"
    ask = getattr(ctypes.CDLL(None), "mps_shim_last_recovery", None)
    if ask:
        ask.restype = ctypes.c_uint64
    print(json.dumps({"event": "ready"}), flush=True)
    for line in sys.stdin:
        words, codes, told, same = line.split(), None, [], False
        if words[0] == "fault":
            codes = fault(words[1], words[2])
        for _ in range(4):
            try:
                same = compute() == expected
                break
            except Exception as error:
                told.append(f"{type(error).__name__}: {str(error).splitlines()[0][:150] if str(error) else ''}")
        count = ask(None, 0) if ask else 0
        print(json.dumps({"event": "round", "codes": codes, "told": told, "is_same": same, "recoveries": count}), flush=True)
    os._exit(0)
'''

SOURCES = {
    "PyTorch MLP": """
import torch
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).cuda()
given = torch.randn(64, 512, device="cuda")
def compute():
    model.zero_grad()
    answer = model(given)
    answer.sum().backward()
    other = torch.linalg.solve(torch.eye(32, device="cuda") * 2, torch.ones(32, 1, device="cuda"))
    values = [answer.detach(), model[0].weight.grad, torch.sort(given)[0], torch.fft.rfft(given).abs(), other]
    return [part.cpu().numpy().tobytes() for part in values]
serve(compute)
""",
    "Llama of Transformers": """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(1)
shape = dict(vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4)
model = LlamaForCausalLM(LlamaConfig(**shape, num_key_value_heads=4, max_position_embeddings=256)).to(torch.bfloat16).cuda().eval()
words = torch.arange(1, 17).reshape(1, 16)
def compute():
    return model.generate(words.cuda(), max_new_tokens=12, do_sample=False, pad_token_id=0).tolist()
serve(compute)
""",
    "CuPy": """
import cupy, numpy
kernel = cupy.RawKernel('extern "C" __global__ void twice(float* x) { x[blockIdx.x * 64 + threadIdx.x] *= 2; }', "twice")
given = numpy.arange(1 << 14, dtype=numpy.float32).reshape(128, 128)
def compute():
    array = cupy.asarray(given)
    product = array @ array
    kernel((2,), (64,), (array,))
    return [cupy.asnumpy(part).tobytes() for part in (product, array, cupy.sort(array.ravel()), cupy.fft.fft(array[0]))]
serve(compute)
""",
    "JAX": """
import os
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax, numpy
work = jax.jit(lambda x: jax.numpy.tanh(x @ x / 100.0))
given = numpy.arange(1 << 14, dtype=numpy.float32).reshape(128, 128) / 1000
def compute():
    return numpy.asarray(work(given)).tobytes()
serve(compute)
""",
    "Triton": """
import torch, triton, triton.language as tl
@triton.jit
def more(x, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)
def compute():
    x = torch.zeros(1000, device="cuda")
    more[(8,)](x, 1000, B=128)
    return x.cpu().tolist()
serve(compute)
""",
    "torch.profiler": """
import torch
from torch.profiler import profile, ProfilerActivity
torch.manual_seed(1)
given = torch.randn(256, 256, device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
    (given @ given).sum().item()
def compute():
    return (given @ given).cpu().numpy().tobytes()
serve(compute)
""",
}
MODULES = {"Llama of Transformers": "transformers", "CuPy": "cupy", "JAX": "jax", "Triton": "triton"}

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


class Program(Client):
    """A program with the library around it, and what it says on standard error."""

    def __init__(self, folder, library, name, pipe="/nowhere"):
        # Each in a folder of its own, so that compilers' caches of one do not serve the other.
        self.name, self.environment = name, environment(library, pipe)
        self.errors = folder / f"errors {name}".replace(" ", "-")
        command = ["sh", "-c", f'exec "$0" -c "$1" 2>{self.errors}', sys.executable, FRAME + SOURCES[name]]
        super().__init__(self, command)
        self.recoveries = 0

    def round(self, line, seconds=90):
        """Has it do a round; what came of it, as one row's value."""
        seen = sum(one["event"] == "round" for one in self.lines)
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

        def another():
            self.read(0.01)
            if self.process.poll() is not None:
                raise Failed(f"{self.name} ended with {self.process.returncode}: {self.said()}")
            return sum(one["event"] == "round" for one in self.lines) > seen

        until(another, seconds, f"{self.name}'s answer")
        found = [one for one in self.lines if one["event"] == "round"][-1]
        told = [code for code in found["codes"] or [] if code] + found["told"]
        before, self.recoveries = self.recoveries, found["recoveries"]
        if found["recoveries"] > before:
            if not found["is_same"]:
                # Told and never well again is the program's own way; a value that is wrong is ours.
                if len(found["told"]) < 4:
                    raise Failed(f"{self.name}: a wrong value after a recovery: {found}")
                return f"recovered, but the program gives up: {found['told'][-1]}"
            return f"recovered, {'told ' + str(told[0]) if told else 'unaware'}"
        if not told:
            if not found["is_same"]:
                raise Failed(f"{self.name}: a wrong value: {found}")
            return "nothing happened"
        return f"refused ({self.reason() or 'no reason was told: ' + str(told[0])})"

    def reason(self):
        refused = [line.split(": ", 2)[-1] for line in self.said().splitlines() if "not recovered" in line]
        return refused[-1] if refused else None

    def said(self):
        text = self.errors.read_text(errors="replace") if self.errors.exists() else ""
        return "\n".join(line for line in text.splitlines() if "mps" in line.lower())[-1500:]


def wanted():
    """Programs that can be imported here."""
    names = []
    for name in SOURCES:
        module = MODULES.get(name, "torch")
        if subprocess.run([sys.executable, "-c", f"import importlib.util as u; exit(not u.find_spec('{module}'))"]).returncode == 0:
            names.append(name)
    return names


def each(names, work):
    """Does the same with every program, some at a time; what failed fails when all are done."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = {name: pool.submit(work, name) for name in names}
    result, failed = {}, []
    for name, future in done.items():
        error = future.exception()
        if error is None:
            result[name] = future.result()
        else:
            failed.append(f"{name}: {type(error).__name__}: {error}")
    if failed:
        raise Failed("; ".join(failed) + f"; others: {result}")
    return result


def own(ours, library, kinds):
    """Faults of each program's own, one after the other in one process, without MPS: recovered, told of it or not, or refused with
    the reason."""

    def one(name):
        program = Program(ours.root, library, name)
        try:
            program.wait("ready", 150)
            rows = {}
            for number, kind in enumerate(kinds, 1):
                rows[f"{number}. {kind}"] = program.round(f"fault {kind} {KERNELS}")
                if rows[f"{number}. {kind}"].startswith("refused"):
                    break
            return rows
        finally:
            program.end()

    return each(wanted(), one)


def idle(ours, library, kinds):
    """The programs together as idle clients of one daemon, beside a culprit."""
    with configured(ours, NO_QUARANTINE) as daemon:
        programs = {}
        lock = threading.Lock()

        def begin(name):
            program = Program(daemon.folder, library, name, daemon.pipe)
            with lock:
                daemon.clients.append(program)
                programs[name] = program
            program.wait("ready", 150)

        each(wanted(), begin)
        rows = {name: {} for name in programs}
        for number, kind in enumerate(kinds, 1):
            daemon.client("mps-aggressor", kind).process.wait(30)
            for name, said in each(programs, lambda name: programs[name].round("round")).items():
                if not any(row.startswith("refused") for row in rows[name].values()):
                    rows[name][f"{number}. {kind}"] = said
            programs = {name: of for name, of in programs.items() if not rows[name][f"{number}. {kind}"].startswith("refused")}
    return rows


def profiler(ours, library, times):
    """PyTorch's profiler in programs that nothing happens to: with the library in each of its ways, and without it."""
    ways = {
        "without": {},
        "memory": {"MPS_SHIM_KEEP": "memory"},
        "state": {"MPS_SHIM_KEEP": "state"},
        "in-place": {"MPS_SHIM_KEEP": "state", "MPS_SHIM_REPLAY": "in-place"},
    }

    def one(way_and_number):
        way = way_and_number[0]
        more = {"LD_PRELOAD": str(library), **ways[way]} if ways[way] else {}
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


def works(ours, library, quick):
    """The suite; with --quick one fault of two kinds each."""
    kinds = ["assert", "oob"] if quick else KINDS * 2
    others = ["oob", "trap"] if quick else ["oob", "trap", "misaligned"] * 2
    return {
        "own faults": lambda: own(ours, library, kinds),
        "profiler": lambda: profiler(ours, library, 20),
        "idle beside a culprit": lambda: idle(ours, library, others),
    }

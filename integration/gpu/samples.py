"""NVIDIA's cuda-samples, as they are, with the preloaded library and without it: the same ends and the same words.

`--samples DIR` is a checkout of them, with its folders `Common` and `Samples`. Each sample that has a `CMakeLists.txt` is
compiled by nvcc for this GPU, with the libraries that its list names. What needs more than CUDA, windows and MPI among it,
does not compile and is counted.

Each runs twice without the library, then once with it in each way. Numbers are not compared, since most are times: a sample
checks its values itself and ends by them. Lines of a sample whose first two runs differ are not compared either.
"""

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from bench import Failed
from replay import environment

PROGRAMS = []
# Seconds for the compiler and for one run.
TO_BUILD, TO_RUN = 240, 90
# At once: compilers take a core each, programs the GPU's memory.
BUILDS, RUNS = os.cpu_count(), 6
NUMBER = re.compile(r"[-+]?(0x[0-9a-fA-F]+|\d+(\.\d+)?(e[-+]?\d+)?|inf|nan)", re.IGNORECASE)
EXECUTABLE = re.compile(r"add_executable\(\S+\s+([^)]*)\)")
LINKED = re.compile(r"CUDA::(\w+)")
WITHOUT = {"cuda_driver": "cuda", "cudart": "cudart"}
WAYS = {"memory": {"MPS_SHIM_KEEP": "memory", "MPS_SHIM_REPLAY": ""}, "in-place": {}}
SOURCES = (".cu", ".cpp", ".c")


def found(folder):
    """The samples' folders by name."""
    lists = sorted((folder / "Samples").glob("*/*/CMakeLists.txt"))
    return {path.parent.name: path.parent for path in lists}


def built(sample, root, common):
    """Compiles a sample; its program, or the compiler's first words of why not."""
    name, folder = sample
    text = (folder / "CMakeLists.txt").read_text(errors="replace")
    listed = EXECUTABLE.search(text)
    sources = [folder / word for word in listed[1].split() if word.endswith(SOURCES)] if listed else []
    if not sources:
        return "it has no sources of its own"
    libraries = {WITHOUT.get(one, one) for one in LINKED.findall(text)}
    program = root / f"sample-{name}"
    # Kernels that the sample reads from a file.
    for kernels in (path for path in folder.glob("*.cu") if path not in sources and f"{path.stem}64.fatbin" in text):
        apart = ["nvcc", "-fatbin", "-arch=native", "-I", str(common), "-o", str(folder / f"{kernels.stem}64.fatbin"), str(kernels)]
        subprocess.run(apart, capture_output=True, timeout=TO_BUILD, cwd=folder)
    command = ["nvcc", "-O2", "-std=c++17", "-arch=native", "--extended-lambda", "-rdc=true", "-w", "-I", str(common), "-I", str(folder)]
    command += ["-I", str(folder / "inc"), "-Xcompiler", "-fopenmp", "-o", str(program), *map(str, sources)]
    command += [f"-l{one}" for one in sorted(libraries | {"cuda", "cudadevrt"})]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TO_BUILD, cwd=folder)
    except subprocess.TimeoutExpired:
        return "the compiler does not come to its end"
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line or "cannot find" in line]
        return (lines or ["nvcc fails without a word"])[0].replace(f"{common.parent}/", "").replace(str(folder), name)[:160]
    return program


def ran(program, folder, surroundings):
    """How a sample ends, and its words without numbers."""
    try:
        done = subprocess.run(
            [str(program)], cwd=folder, env=surroundings, stdin=subprocess.DEVNULL, capture_output=True, timeout=TO_RUN
        )
    except subprocess.TimeoutExpired:
        return "no end", []
    lines = (done.stdout + done.stderr).decode(errors="replace").splitlines()
    return done.returncode, [NUMBER.sub("#", line) for line in lines if not line.startswith("mps-client-shim[")]


def compared(sample, program, library):
    """One word on a sample, and what differs where something does."""
    name, folder = sample
    plain = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}
    first, second = ran(program, folder, plain), ran(program, folder, plain)
    if first[0] != second[0]:
        return "ends in more than one way without the library", f"{first[0]}, then {second[0]}"
    for way, more in WAYS.items():
        surroundings = {key: value for key, value in {**environment(library, "/nowhere"), **more}.items() if value}
        surroundings.pop("MPS_SHIM_REPORT")
        seen = ran(program, folder, surroundings)
        if seen[0] != first[0]:
            return "differs", f"{way}: ends with {seen[0]} in place of {first[0]}: {seen[1][-3:]}"
        if first[1] == second[1] and seen[1] != first[1]:
            odd = next((pair for pair in zip(seen[1], first[1]) if pair[0] != pair[1]), (seen[1][-1:], first[1][-1:]))
            return "differs", f"{way}: says {odd[0]!r} in place of {odd[1]!r}"
    words = "the same words" if first[1] == second[1] else "the same end"
    return (f"{words}, status 0" if first[0] == 0 else "ends with the same error or status"), str(first[0])


def works(ours, library, quick, folder, seconds):
    """The suite: every sample, with --quick those of the introduction; no sample is begun after these seconds."""
    end = time.monotonic() + seconds

    def samples():
        if folder is None:
            return "Skipped(--samples does not say where cuda-samples are)"
        if not shutil.which("nvcc"):
            return "Skipped(there is no nvcc)"
        all_of_them = {name: path for name, path in found(folder).items() if not quick or "0_Introduction" in str(path)}
        if not all_of_them:
            raise Failed(f"{folder} has no samples")
        common = folder / "Common"

        def one(name):
            if time.monotonic() > end:
                return "not tried", "there was no more time"
            return compared((name, all_of_them[name]), runnable[name], library)

        with ThreadPoolExecutor(BUILDS) as pool:
            programs = dict(zip(all_of_them, pool.map(lambda one: built(one, ours.root, common), all_of_them.items())))
        runnable = {name: made for name, made in programs.items() if not isinstance(made, str)}
        with ThreadPoolExecutor(RUNS) as pool:
            seen = dict(zip(runnable, pool.map(one, runnable)))
        result = {
            "samples": len(all_of_them),
            "compiled": len(runnable),
            **dict(Counter(word for word, _ in seen.values())),
            "not compiled": [f"{name}: {why}" for name, why in programs.items() if isinstance(why, str)],
            "same error or status": [f"{name}: {what}" for name, (word, what) in seen.items() if word.startswith("ends with the same")],
        }
        odd = [f"{name}: {what}" for name, (word, what) in seen.items() if word == "differs"]
        if odd:
            raise Failed(f"{len(odd)} samples differ", {**result, "differing": odd})
        return result

    return {"samples": samples}

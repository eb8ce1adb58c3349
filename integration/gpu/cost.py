"""What a call costs that programs make all the time, with and without the preload library, on a real GPU.

Runs of `mps-cost` in rounds, one for each way in each round, so that whatever else the machine does is in all of them;
what a way costs more is told round by round against the run without the library. With `--before LIBRARY` another build
of the library is one of the ways. Two processes differ by more than the library adds to a launch, so `beside` has the
driver's own function beside the one that the program finds, in turns in one process.
"""

import json
import os
import subprocess
import sysconfig
import time
from pathlib import Path

from bench import Failed
from figures import spread

PROGRAMS = ["mps-cost"]
# Seconds that one run may take.
PATIENCE = 60
WITHOUT = "without the library"


def ways(library, before):
    """Each with the environment that makes it."""
    replayed = {"MPS_SHIM_KEEP": "state", "MPS_SHIM_REPLAY": "in-place"}
    found = {
        WITHOUT: {},
        "library alone": {"LD_PRELOAD": str(library)},
        "state": {"LD_PRELOAD": str(library), "MPS_SHIM_KEEP": "state"},
        "in-place": {"LD_PRELOAD": str(library), **replayed},
    }
    if before:
        found["in-place before"] = {"LD_PRELOAD": str(before), **replayed}
    return found


def runtime_library():
    """The path of a cudart of this machine; of several the newest."""
    site = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    folders = [*site.glob("*/lib"), *Path("/usr/local").glob("cuda*/lib64"), *Path("/usr/local").glob("cuda*/targets/*/lib")]
    found = [path for folder in folders for path in folder.glob("libcudart.so.1?")]
    return max(found, key=lambda path: path.name, default=None)


def once(ours, environment, arguments, event="cost"):
    surroundings = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": "/nowhere", **environment}
    program = [str(ours.root / "mps-cost"), *arguments]
    done = subprocess.run(program, capture_output=True, text=True, env=surroundings, timeout=PATIENCE)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        raise Failed(f"status {done.returncode}: {lines[-1:]} {done.stderr[-300:]}")
    return {line["call"]: line for line in lines if line["event"] == event}


def rounds(ours, chosen, arguments, seconds, event="cost"):
    """As many rounds as begin in this time, and two at least."""
    begun, found = time.monotonic(), []
    while len(found) < 2 or time.monotonic() - begun < seconds:
        found.append({way: once(ours, environment, arguments, event) for way, environment in chosen.items()})
    return found


def told(found):
    """Of each call what it takes without the library, and what each way takes more."""
    result = {}
    for call in found[0][WITHOUT]:
        plain = [run[WITHOUT][call] for run in found]
        kinds = {"ns": lambda line: line["ns"]}
        of_instructions = plain[0]["instructions"] or {}
        if "least" in of_instructions:
            kinds["instructions"] = lambda line: line["instructions"]["least"]
        own = {f"{WITHOUT}, {kind}": spread([value(line) for line in plain]) for kind, value in kinds.items()}
        for way in (way for way in found[0] if way != WITHOUT):
            for kind, value in kinds.items():
                more = [value(run[way][call]) - value(run[WITHOUT][call]) for run in found]
                own[f"{way}, more, {kind}"] = spread(more)
        if "skipped" in of_instructions:
            own["instructions"] = f"Skipped({of_instructions['skipped']})"
        result[call] = own
    return result


def driver(ours, library, before, seconds):
    """Calls of the driver."""
    return told(rounds(ours, ways(library, before), ["--steps", "3"], seconds))


def runtime(ours, library, before, seconds):
    """The same through cudart."""
    name = runtime_library()
    if name is None:
        return {"Skipped": "there is no cudart"}
    return told(rounds(ours, ways(library, before), ["--steps", "3", "--runtime", str(name)], seconds))


# The call of the private table is none of the driver's exports, and what is made and ended is found by `driver`.
BESIDE = ["--beside", "60", "--calls", "128", "--steps", "5"]


def beside(ours, library, before, seconds):
    """Functions of the driver as the program finds them and as the driver has them, in turns in one process: of each run the
    middle of 60 rounds."""
    chosen = ways(library, before)
    found, result = rounds(ours, chosen, BESIDE, seconds, "beside"), {}
    for call, line in found[0][WITHOUT].items():
        own = result[call] = {"the driver's own, ns": spread([run[way][call]["own_ns"]["median"] for run in found for way in run])}
        for way in chosen:
            lines = [run[way][call] for run in found]
            own[f"{way}, more, ns"] = spread([line["more_ns"]["median"] for line in lines])
            own[f"{way}, more, ns, half of the rounds within"] = spread([line["more_ns"]["upper"] - line["more_ns"]["lower"] for line in lines])
            counts = [line["instructions"] for line in lines]
            if all("own" in count for count in counts):
                own[f"{way}, more, instructions"] = spread([count["shown"] - count["own"] for count in counts])
        if "skipped" in line["instructions"]:
            own["instructions"] = f"Skipped({line['instructions']['skipped']})"
    return result


def works(ours, library, quick, before):
    """What is run; four minutes in all."""
    seconds = 5 if quick else 75
    return {
        "beside": lambda: beside(ours, library, before, seconds),
        "driver": lambda: driver(ours, library, before, seconds),
        "runtime": lambda: runtime(ours, library, before, seconds),
    }

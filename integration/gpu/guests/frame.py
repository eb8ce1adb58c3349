"""What every guest written in Python does: rounds that compare each value with its own undisturbed ones, faults of its
own, and work that is always on its way. `samples/frame.cuh` is the same for programs in CUDA C++.

A guest hands `serve` a function that computes its values from what it keeps on the GPU. It is told what to do by lines:

    round [SECONDS RECOVERIES]
                   compares once more; with a time, when there were more recoveries than that or the time has gone
    fault KIND     does wrong itself while it is idle, then compares
    busy           begins to compare without end, in a thread
    wrong KIND     does wrong itself while that goes on
    rest SECONDS   waits for so long for a recovery, ends that, and tells what it has seen

Answers are lines of JSON. `told` has what the program was told, of which the first `earlier` came before it said that it was
at work, `wrong` how often a value that came as good was not.
"""

import ctypes
import json
import sys
import threading
import time
import traceback

WILD = 0x10
# How often a program that was told tries again before it is said to have given up.
TRIES = 5
# How long work that goes on may take to be right again, and what is told of work that does nothing more.
PATIENCE = 20
STILL = "it stands still"
KERNELS = sys.argv[1]


def fault(kind):
    """Launches a kernel that does wrong, through the driver's own interface; what it and two waits answer."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    word, room = ctypes.c_uint64(WILD), ctypes.c_uint64()
    told = []

    def call(name, *arguments):
        answer = getattr(cuda, name)(*arguments)
        # A thread of a program that is at work may hear of an earlier fault here.
        if answer:
            told.append(answer)
            answer = getattr(cuda, name)(*arguments)
        if answer:
            raise RuntimeError(f"{name} answers {answer} after {told}")

    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxPushCurrent_v2", context)
    if kind == "misaligned":
        call("cuMemAlloc_v2", ctypes.byref(room), ctypes.c_size_t(4096))
        word = room
    image = open(KERNELS, "rb").read() + b"\0"
    call("cuModuleLoadData", ctypes.byref(module), image)
    call("cuModuleGetFunction", ctypes.byref(function), module, kind.encode())
    given = (ctypes.c_void_p * 1)(ctypes.addressof(word))
    told.append(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, given, None))
    told += [cuda.cuCtxSynchronize(), cuda.cuCtxSynchronize()]
    cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    return [code for code in told if code]


def said(error):
    return f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"


def recoveries():
    ask = getattr(ctypes.CDLL(None), "mps_shim_last_recovery", None)
    if ask is None:
        return 0
    ask.restype = ctypes.c_uint64
    return ask(None, 0)


def wait(fact, seconds):
    end = time.monotonic() + seconds
    while not fact() and time.monotonic() < end:
        time.sleep(0.01)


class Work:
    """Rounds without end in a thread."""

    def __init__(self, compute, expected):
        self.compute, self.expected = compute, expected
        self.rounds, self.in_a_row, self.wrong, self.told = 0, 0, 0, []
        self.earlier = 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.go_on)
        self.thread.start()

    def go_on(self):
        while not self.is_over.is_set() and len(self.told) < 10 * TRIES:
            try:
                is_same = self.compute() == self.expected
            except Exception as error:  # noqa: BLE001 - whatever the program's libraries raise
                self.told.append(said(error))
                self.in_a_row = 0
                continue
            self.rounds += 1
            self.wrong += not is_same
            self.in_a_row = self.in_a_row + 1 if is_same else 0

    def until(self, fact, seconds):
        wait(lambda: fact() or not self.thread.is_alive(), seconds)

    def end(self):
        before = self.rounds
        is_right = lambda: self.in_a_row >= 2 and self.rounds >= before + 2  # noqa: E731
        self.until(is_right, PATIENCE)
        is_same = is_right()
        if not is_same and self.rounds == before and not self.told:
            self.told.append(STILL)
        self.is_over.set()
        self.thread.join(PATIENCE)
        return {"told": self.told, "is_same": is_same, "wrong": self.wrong, "rounds": self.rounds, "earlier": self.earlier}


def settled(compute, expected):
    """Rounds until one is right, or the program gives up."""
    told, wrong, is_same = [], 0, False
    for _ in range(TRIES):
        try:
            is_same = compute() == expected
            wrong += not is_same
            break
        except Exception as error:  # noqa: BLE001
            told.append(said(error))
            traceback.print_exc()
    return {"told": told, "is_same": is_same, "wrong": wrong, "rounds": 1}


def say(event, **what):
    print(json.dumps({"event": event, **what}), flush=True)


def serve(compute):
    expected = compute()
    if compute() != expected:
        raise SystemExit("the program is not the same twice")
    recoveries()
    say("ready")
    work, codes = None, []
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "busy":
            work, codes = Work(compute, expected), []
            work.until(lambda: work.rounds >= 2, PATIENCE)
            work.earlier = len(work.told)
            say("busy", rounds=work.rounds)
            continue
        if command == "wrong":
            codes = fault(rest[0])
            say("wrong", codes=codes)
            continue
        if command == "rest":
            before = int(rest[1])
            work.until(lambda: recoveries() > before, float(rest[0]))
            seen = work.end()
        else:
            codes = fault(rest[0]) if command == "fault" else []
            if command == "round" and rest:
                wait(lambda: recoveries() > int(rest[1]), float(rest[0]))
            seen = settled(compute, expected)
        say("round", codes=codes, recoveries=recoveries(), **seen)

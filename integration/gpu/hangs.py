"""Where the threads of processes are that hang, for a failure's text: what the kernel knows of each thread, and the stacks
that `mps-replay-probe` writes itself. There is no debugger on the machines that lend a GPU.
"""

import ctypes
import os
import signal
import time
from pathlib import Path

TGKILL = 234
# Lines of a stack, and of what was written to standard error.
DEPTH = 24
TAIL = 400


def read(path):
    try:
        return path.read_text().strip()
    except OSError as error:
        return f"({error.strerror})"


def of_kernel(pid, name):
    """Each thread of a process: its name, its state, the system call that it is in, and the kernel's stack of it."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        state = read(task / "stat").rpartition(") ")[2][:1]
        call, wchan = read(task / "syscall").split(" ")[0], read(task / "wchan")
        stack = " < ".join(line.split("] ")[-1] for line in read(task / "stack").splitlines()[:DEPTH])
        lines.append(f"{name} {task.name} {read(task / 'comm')}: {state}, call {call}, {wchan}: {stack}")
    return lines or [f"{name} {pid}: gone"]


def own(pid, errors):
    """The stacks that a program writes to its standard error, a file, when each of its threads is asked to."""
    before = len(read(errors))
    system = ctypes.CDLL(None)
    for task in Path(f"/proc/{pid}/task").glob("*"):
        system.syscall(TGKILL, pid, int(task.name), signal.SIGUSR2)
        # One after the other, so that the lines of two do not mix.
        time.sleep(0.02)
    time.sleep(0.2)
    return read(errors)[before:].splitlines()[:TAIL]


def told(probe, others):
    """All of it, of the program that was to be recovered and of the processes beside it, by name and number."""
    beats = [line for line in probe.lines if line["event"] == "beat"][-2:]
    lines = [f"last signs of life: {beats}"]
    lines += of_kernel(probe.pid, "program")
    if os.path.exists(f"/proc/{probe.pid}"):
        lines += own(probe.pid, probe.errors)
    for name, pid in others:
        lines += of_kernel(pid, name)
    return "\n".join(lines)

"""Programs that are hit by a neighbour's faults and go on, with a spare copy of the driver or with one that is made then: the
probe, and PyTorch.

A way is what `MPS_SHIM_REPLAY` has and, behind it, `MPS_SHIM_SPARE_STACK`.
"""

import re
import sys
import time
from pathlib import Path

import hangs
import replay
from bench import Client, Failed, until

STANDS = "a spare copy of the driver stands"
# The thread of the library's that gives a dead copy back.
GIVES_BACK = "mps-shim-copy"
# A heap of the C library's for a thread: what can be written, and what is kept behind it.
HEAP = r"^[0-9a-f]+[048c]000000-[0-9a-f]+ rw-p 00000000 00:00 0 \n[0-9a-f]+-[0-9a-f]+[048c]000000 ---p 00000000 00:00 0 $"
# Seconds between the last copy that stands and the fault: one that has just been made is still getting what the program has.
TO_SETTLE = 1
# Without a spare copy.
COLD = "in-place"


def name_of(task):
    """The name of a thread; none of one that has just ended."""
    try:
        return (task / "comm").read_text().strip()
    except OSError:
        return ""


class Victim(Client):
    """The probe, with what it says on standard error."""

    def __init__(self, daemon, library, way, arguments, program="mps-replay-probe"):
        replayed, _, stack = way.partition(" ")
        own = {"MPS_SHIM_REPLAY": replayed, "MPS_SHIM_LOG": "1", "MPS_SHIM_SPARE_STACK": stack}
        self.environment = {**replay.environment(library, daemon.pipe), **own}
        self.errors = daemon.folder / f"errors{len(daemon.clients)}"
        command = ["sh", "-c", f'exec "$0" "$@" 2>{self.errors}', str(daemon.subject.root / program)]
        super().__init__(self, [*command, *arguments])
        daemon.clients.append(self)

    def spares(self):
        return self.errors.read_text().count(STANDS)

    def has_recovered(self, done, is_last):
        """Whether it has gone on after this fault; after the last one the probe compares and ends."""
        self.read(0.01)
        recovered = sum(line["event"] == "recovered" for line in self.lines) > done
        if not recovered and not is_last and self.process.poll() is not None:
            raise Failed(f"a victim has ended: {self.lines[-2:]}; {self.errors.read_text()[-600:]}")
        return recovered or self.process.poll() is not None

    def gives_back(self):
        """Whether a dead copy is being given back."""
        return GIVES_BACK in [name_of(task) for task in Path(f"/proc/{self.pid}/task").iterdir()]

    def resources(self):
        """What the process has of what it could run out of, as the probe counts it."""
        until(lambda: not self.gives_back(), 120, "the end of dead copies' giving back")
        # The copy that stands is still getting what the program has.
        time.sleep(TO_SETTLE)
        own = Path(f"/proc/{self.pid}")
        maps = (own / "maps").read_text()
        counted = {"descriptors": len(list((own / "fd").iterdir())), "threads": len(list((own / "task").iterdir()))}
        resident = next(int(line.split()[1]) for line in (own / "status").read_text().splitlines() if line.startswith("VmRSS:"))
        heaps = len(re.findall(HEAP, maps, re.MULTILINE))
        libraries = maps.count("/fd/") + maps.count("(deleted)")
        return {**counted, "libraries": libraries, "mappings": maps.count("\n") - 2 * heaps, "arenas": heaps, "resident_kib": resident}

    def found(self, count):
        """The recoveries, when there were so many and every byte was right."""
        self.process.wait(60)
        while self.read(0.05):
            pass
        return replay.checked(self.lines, self.errors.read_text(), count)


class Torch(Victim):
    """PyTorch with a captured graph, which compares its answer and its weights when it is asked to."""

    def __init__(self, daemon, library, way):
        super().__init__(daemon, library, way, ["-c", replay.TORCH], sys.executable)
        self.recovered = []

    def has_recovered(self, done, is_last):
        answer = replay.torch_round(self)
        if not answer["is_same"]:
            raise Failed(f"{answer}: {self.errors.read_text()[-600:]}")
        if answer["recoveries"] > done and len(self.recovered) == done:
            self.recovered.append(answer["recovery"])
        return answer["recoveries"] > done

    def found(self, count):
        self.process.stdin.close()
        self.process.wait(60)
        if len(self.recovered) != count:
            raise Failed(f"after {len(self.recovered)} recoveries of {count}: {self.errors.read_text()[-600:]}")
        return self.recovered


def have_spares(daemon, programs, done):
    """Waits until each has made another copy than before that many faults; where one does not, says what it says of it."""
    try:
        until(lambda: all(program.spares() > done for program in programs), 40, f"spare copies after {done} faults")
    except Failed as failed:
        late = next(program for program in programs if program.spares() <= done)
        said = [line for line in late.errors.read_text().splitlines() if "spare" in line or "recovered" in line]
        raise Failed(f"{failed}: {said[-6:]}") from failed


def beside(programs, daemon, way, kinds, is_at_once=False):
    """One fault after the other, each when all have a copy ready, for a time or just then, or without one; the
    recoveries of each program.
    """
    for program in programs:
        program.wait("ready", 120)
    for done, kind in enumerate(kinds):
        if way != COLD:
            have_spares(daemon, programs, done)
            time.sleep(0 if is_at_once else TO_SETTLE)
        daemon.client("mps-aggressor", kind).process.wait(30)
        late = list(programs)

        def is_over(done=done, late=late):
            late[:] = [program for program in late if not program.has_recovered(done, done + 1 == len(kinds))]
            return not late

        try:
            until(is_over, 40, f"recoveries from {kind}, the {done + 1}th of {len(kinds)}")
        except Failed as failed:
            where = hangs.told(late[0], [("daemon", daemon.process.pid)])
            raise Failed(f"{failed}: {late[0].errors.read_text()[-600:]}\n{where}") from failed
    return [program.found(len(kinds)) for program in programs]

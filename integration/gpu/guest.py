"""One program of others under the preloaded library: it is asked for rounds, and what comes of a round is a cell of the table in
[`programs`](programs.py)."""

import re
import shutil
import subprocess
import sys

import hangs
import replay
from bench import Client, Failed, until
from replay import environment
from roster import ALL

# Seconds for a program to be ready, compilers included, and for one answer; the latter with --quick, too.
TO_BEGIN, TO_ANSWER, SOON = 150, 90, 45
# Seconds for a program to end by itself.
TO_END = 20
AT_REST = "the spare copy has all that the program has, which is at rest"
# A recovery in the library's words: how long it took, and in which way.
RECOVERED = re.compile(r": recovered .* in (\d+) us, number \d+( by the spare copy)?")
EARLIER = "told of an earlier fault"
# So much of what a failed program has said goes into the report.
SAID = 1500


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

"""A trap beside programs with spare copies of the driver: how soon they go on where the daemon ends the spoilt server at once
(`end_tainted`), where it does not, and with the vendor's daemon, under which they end and are started again.

From the culprit's launch of the bad kernel to the end of each bystander's next good one, by the time of day, and what of
that was the wait for the driver's error. The culprit has a spare copy, too, or would keep the server as it is until it has
ended. The bystanders are at work without end, or at rest but for a step now and then.
"""

import random
import time

from bench import Failed, until
from crowd import NO_QUARANTINE, configured, journal, last_seq, microseconds
from figures import spread_to_p99
from victims import STANDS, Victim

# Values of `end_tainted`, and the vendor's daemon.
EAGER, NEVER, VENDOR = "when-spared", "never", "vendor"
WAYS = (EAGER, NEVER, VENDOR)
KINDS = ("trap", "oob", "misaligned")
VICTIMS = (1, 4, 8)
RESTING = 4
# One step every half second, as a service that is asked now and then.
AT_REST = ["--pause-ms", "500"]
# How long the culprit runs good kernels first: eight spare copies made at once take a second each.
WARM_UP_MS = 3000
# A bystander's errors in a row before it gives up, which under a dead driver takes no time.
MOST_FAILURES = 100_000_000
# Nothing that begins later after the launch is the fault's.
WINDOW_S = 20


class Program(Victim):
    """A program with a spare copy, as far as it says."""

    def has_spare(self):
        said = self.errors.read_text()
        return said.rfind(STANDS) > max(said.rfind("no spare copy of the driver"), said.rfind("recovered"))


def bystander(daemon, library, is_at_rest):
    """One that goes on after errors: at work without end, or at rest but for a step now and then."""
    steps = ["--until-stdin-closes", "--every-ms", "100", "--go-on", str(MOST_FAILURES)]
    program = Program(daemon, library, "spare", steps + (AT_REST if is_at_rest else []), "mps-bystander")
    program.wait("ready", 120)
    return program


def ready_spares(daemon):
    """How many clients have a spare copy that is ready, as the daemon knows."""
    return daemon.ask("status")[1].count("ready")


def since(program, launched_us):
    """What it has told of since the launch: its error, if it had one, and the good step that came next; each may be `None`.
    Of a good step that no error came before, one that began before the launch or in the first second behind it counts, if it
    was slow, and for a program at rest the first one that began behind it."""
    program.read()
    after = [line for line in program.lines if line.get("at_us", 0) > launched_us]
    lost = next((line for line in after if line["event"] == "lost"), None)
    if lost:
        good = next((line for line in after if line["event"] == "again" and line["at_us"] >= lost["at_us"]), None)
    elif steps := [line for line in after if line["event"] == "step"]:
        good = next((line for line in steps if begun(line) > launched_us), None)
    else:
        good = next((line for line in after if line["event"] == "slow" and begun(line) < launched_us + 1e6), None)
    return lost, good


def begun(line):
    return line["at_us"] - (line["launch_ms"] + line["wait_ms"]) * 1000


def once(daemon, library, kind, programs):
    """One fault of ours: what each program has told of it, and what the daemon did when."""
    until(lambda: all(program.has_spare() for program in programs), 60, "spare copies")
    until(lambda: ready_spares(daemon) >= len(programs), 20, "ready copies, as the daemon knows")
    seq = last_seq(daemon)
    culprit = Program(daemon, library, "spare", [kind, "--after-ms", str(WARM_UP_MS)], "mps-aggressor")
    at = culprit.wait("launched", 120)["at_us"]
    had_spare = culprit.has_spare()
    deadline = time.monotonic() + WINDOW_S
    for program in programs:
        until(lambda p=program: since(p, at)[1] or time.monotonic() > deadline, WINDOW_S + 5, "a good kernel")
    try:
        culprit.process.wait(30)
    except Exception as error:
        raise Failed("the culprit does not end") from error
    try:
        until(lambda: any(e["event"] == "server-exited" and e["seq"] > seq for e in journal(daemon)), 45, "the server's end")
    except Failed:
        pass  # One that denies a fault stays; it has no time then.
    culprit.read()
    events = [event for event in journal(daemon) if event["seq"] > seq]
    told = lambda name: next(((microseconds(e["time"]) - at) / 1e3 for e in events if e["event"] == name), None)  # noqa: E731
    error = culprit.find("error")
    daemon.clients.remove(culprit)
    pids = {program.pid for program in programs}
    recovered = [e for e in events if e["event"] == "client-recovered" and e["process"]["pid"] in pids]
    return {
        "at": at,
        "steps": [since(program, at) for program in programs],
        "had_spare": had_spare,
        "culprit": error and (error["at_us"] - at) / 1e3,
        "recovered": [(microseconds(e["time"]) - at) / 1e3 for e in recovered],
        "tainted": told("server-tainted"),
        "ended early": told("server-ended-early"),
        "reaped": told("server-exited"),
    }


def vendors(daemon, kind, programs):
    """One fault of the vendor's: each bystander is started again as soon as it has ended, and again while it is refused."""
    start = lambda: daemon.client("mps-bystander", "--until-stdin-closes", "--every-ms", "100")  # noqa: E731
    culprit = daemon.client("mps-aggressor", kind, "--after-ms", "300")
    launched = culprit.wait("launched", 120)
    times = {}

    def are_served():
        for index, program in enumerate(programs):
            ready = program.find("ready")
            if index not in times and ready and ready["at_us"] > launched["at_us"]:
                times[index] = (ready["at_us"] - launched["at_us"]) / 1000
            elif index not in times and program.process.poll() is not None:
                daemon.clients.remove(program)
                programs[index] = start()
        return len(times) == len(programs)

    until(are_served, 60, "service for all that were started again")
    culprit.process.wait(30)
    daemon.clients.remove(culprit)
    return {"times": [times[index] for index in range(len(programs))]}


def told(rows):
    """The figures of one way."""
    result = {"faults": len(rows)}
    if "times" in rows[0]:
        result["launch to the next good kernel, ms"] = spread_to_p99([one for row in rows for one in row["times"]])
        result["the last of each fault, ms"] = spread_to_p99([max(row["times"]) for row in rows])
        return result
    all_steps = [(row["at"], *steps) for row in rows for steps in row["steps"]]
    errors = [(lost["at_us"] - at) / 1e3 for at, lost, _ in all_steps if lost]
    figures = {
        "launch to the culprit's own error, ms": [row["culprit"] for row in rows if row["culprit"] is not None],
        "launch to a program's error, ms": errors,
        "error to the end of the next good kernel, ms": [(good["at_us"] - lost["at_us"]) / 1e3 for _, lost, good in all_steps if lost and good],
        "launch to the next good kernel, ms": [(good["at_us"] - at) / 1e3 for at, _, good in all_steps if good],
        "the last of each fault, ms": [max(ends) for row in rows if (ends := [(good["at_us"] - row["at"]) / 1e3 for _, good in row["steps"] if good])],
        "launch to a program's having gone on, ms": [one for row in rows for one in row["recovered"]],
        # Of one that is asked for a step now and then: from its being asked to the good answer.
        "a step that began after the launch, ms": [
            (good["at_us"] - begun(lost or good)) / 1e3 for at, lost, good in all_steps if good and begun(lost or good) > at
        ],
    }
    for name in ("tainted", "ended early", "reaped"):
        figures[f"launch to the server being {name}, ms"] = [row[name] for row in rows if row[name] is not None]
    result |= {name: spread_to_p99(values) for name, values in figures.items() if values}
    result["had an error"] = f"{len(errors)} of {len(all_steps)}"
    if unseen := sum(not good for *_, good in all_steps):
        result["had no step in the fault's way"] = unseen
    result["server ended early"] = f"{sum(row['ended early'] is not None for row in rows)} of {len(rows)}"
    result["culprit had a spare copy"] = f"{sum(row['had_spare'] for row in rows)} of {len(rows)}"
    return result


def beside(ours, theirs, library, kind, victims, times, is_at_rest=False):
    """So many faults of a kind beside so many bystanders in each way."""
    config = lambda way: f'{NO_QUARANTINE}[replay]\nend_tainted = "{way}"\n'  # noqa: E731
    rows = {}
    # One daemon at a time: the other one's programs would have their share of the GPU.
    for way in random.sample((EAGER, NEVER), 2):
        with configured(ours, config(way)) as daemon:
            programs = [bystander(daemon, library, is_at_rest) for _ in range(victims)]
            rows[way] = [once(daemon, library, kind, programs) for _ in range(times)]
    if theirs and not is_at_rest:
        with theirs.daemon() as daemon:
            programs = [daemon.client("mps-bystander", "--until-stdin-closes", "--every-ms", "100") for _ in range(victims)]
            for program in programs:
                program.wait("ready", 60)
            rows[VENDOR] = [vendors(daemon, kind, programs) for _ in range(times)]
    result = {way: told(rows[way]) for way in WAYS if way in rows}
    if any(row["ended early"] is not None for row in rows[NEVER]):
        raise Failed(f"a server was ended against the configuration: {result}")
    if kind == "oob" and any(row["ended early"] is not None for row in rows[EAGER]):
        raise Failed(f"a server was ended after an illegal access: {result}")
    return result


def works(ours, theirs, library, times):
    """The suite: so many faults `trap` and `oob` beside 1, 4 and 8 bystanders at work and 4 at rest, and one `misaligned`, after
    which the server may deny a fault: then the next culprit would be on another one than the bystanders."""
    count = lambda kind: 1 if kind == "misaligned" else times  # noqa: E731
    beside_some = lambda kind, victims, rest: lambda: beside(ours, theirs, library, kind, victims, count(kind), rest)  # noqa: E731
    at_work = {f"eager {kind}, {victims} bystanders": beside_some(kind, victims, False) for kind in KINDS for victims in VICTIMS}
    return at_work | {f"eager {kind}, {RESTING} at rest": beside_some(kind, RESTING, True) for kind in KINDS}

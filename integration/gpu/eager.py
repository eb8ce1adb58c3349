"""A trap beside programs with spare copies of the driver: how soon they go on where the daemon ends the spoilt server at once
(`end_tainted`), where it does not, and with the vendor's daemon, under which they end and are started again.

From the culprit's launch of the bad kernel to the end of each bystander's next good one, by the time of day. The culprit
has a spare copy, too, or would keep the server as it is until it has ended. The ways are taken in turns.
"""

import random
import time

from bench import Failed, until
from faults import NO_QUARANTINE, configured, journal, last_seq, microseconds
from figures import spread_to_p99
from spare import STANDS, Victim

# Values of `end_tainted`, and the vendor's daemon.
EAGER, NEVER, VENDOR = "when-spared", "never", "vendor"
WAYS = (EAGER, NEVER, VENDOR)
KINDS = ("trap", "oob", "misaligned")
VICTIMS = (1, 4, 8)
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


def bystander(daemon, library):
    """One that goes on after errors."""
    steps = ("--until-stdin-closes", "--every-ms", "100", "--go-on", str(MOST_FAILURES))
    program = Program(daemon, library, "spare", steps, "mps-bystander")
    program.wait("ready", 120)
    return program


def ready_spares(daemon):
    """How many clients have a spare copy that is ready, as the daemon knows."""
    return daemon.ask("status")[1].count("ready")


def went_on(program, launched_us):
    """The end of the first good step after a fault, in milliseconds from its launch; `None` where no step was in its way."""
    program.read()
    after = [line for line in program.lines if line.get("at_us", 0) > launched_us]
    lost = next((line for line in after if line["event"] == "lost"), None)
    again = next((line for line in after if line["event"] == "again" and lost and line["at_us"] >= lost["at_us"]), None)
    if lost and not again:
        return None
    slow = [line for line in after if line["event"] == "slow" and line["at_us"] - line["took_ms"] * 1000 < launched_us + 1e6]
    ends = [again] if again else slow[:1]
    return (ends[0]["at_us"] - launched_us) / 1000 if ends else None


def is_over(program, launched_us, deadline):
    """Whether it has gone on, or no step of it was in the fault's way."""
    return went_on(program, launched_us) is not None or time.monotonic() > deadline


def once(daemon, library, kind, programs):
    """One fault of ours: how long it took for each, and what the daemon did when."""
    until(lambda: all(program.has_spare() for program in programs), 60, "spare copies")
    until(lambda: ready_spares(daemon) >= len(programs), 20, "ready copies, as the daemon knows")
    seq = last_seq(daemon)
    culprit = Program(daemon, library, "spare", [kind, "--after-ms", str(WARM_UP_MS)], "mps-aggressor")
    launched = culprit.wait("launched", 120)
    had_spare = culprit.has_spare()
    at, deadline = launched["at_us"], time.monotonic() + WINDOW_S
    for program in programs:
        until(lambda p=program: is_over(p, at, deadline), WINDOW_S + 5, "a good kernel")
    try:
        culprit.process.wait(30)
    except Exception as error:
        raise Failed("the culprit does not end") from error
    try:
        until(lambda: any(e["event"] == "server-exited" and e["seq"] > seq for e in journal(daemon)), 45, "the server's end")
    except Failed:
        pass  # One that denies a fault stays; it has no time then.
    events = [event for event in journal(daemon) if event["seq"] > seq]
    told = lambda name: next(((microseconds(e["time"]) - at) / 1e3 for e in events if e["event"] == name), None)  # noqa: E731
    times = [went_on(program, at) for program in programs]
    daemon.clients.remove(culprit)
    return {
        "times": times,
        "had_spare": had_spare,
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
    times = [one for row in rows for one in row["times"] if one is not None]
    unseen = sum(one is None for row in rows for one in row["times"])
    result = {"faults": len(rows)}
    if times:
        result["launch to the next good kernel, ms"] = spread_to_p99(times)
        last = [max(one for one in row["times"] if one is not None) for row in rows if any(row["times"])]
        result["the last of each fault, ms"] = spread_to_p99(last)
    if unseen:
        result["had no step in the fault's way"] = unseen
    for name in ("tainted", "ended early", "reaped"):
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            result[f"launch to the server being {name}, ms"] = spread_to_p99(values)
    if "had_spare" in rows[0]:
        result["server ended early"] = f"{sum(row['ended early'] is not None for row in rows)} of {len(rows)}"
        result["culprit had a spare copy"] = f"{sum(row['had_spare'] for row in rows)} of {len(rows)}"
    return result


def beside(ours, theirs, library, kind, victims, times):
    """So many faults of a kind beside so many bystanders in each way."""
    config = lambda way: f'{NO_QUARANTINE}[replay]\nend_tainted = "{way}"\n'  # noqa: E731
    rows, rng = {way: [] for way in WAYS if way != VENDOR or theirs}, random.Random()
    with configured(ours, config(EAGER)) as eager, configured(ours, config(NEVER)) as never:
        daemons = {EAGER: eager, NEVER: never}
        programs = {way: [bystander(daemon, library) for _ in range(victims)] for way, daemon in daemons.items()}
        for _ in range(times):
            for way in rng.sample(list(daemons), len(daemons)):
                rows[way].append(once(daemons[way], library, kind, programs[way]))
    if theirs:
        with theirs.daemon() as daemon:
            programs = [daemon.client("mps-bystander", "--until-stdin-closes", "--every-ms", "100") for _ in range(victims)]
            for program in programs:
                program.wait("ready", 60)
            for _ in range(times):
                rows[VENDOR].append(vendors(daemon, kind, programs))
    result = {way: told(of) for way, of in rows.items()}
    if rows[NEVER] and any(row["ended early"] is not None for row in rows[NEVER]):
        raise Failed(f"a server was ended against the configuration: {result}")
    if kind == "oob" and any(row["ended early"] is not None for row in rows[EAGER]):
        raise Failed(f"a server was ended after an illegal access: {result}")
    return result


def works(ours, theirs, library, times):
    """The suite: so many faults `trap` and `oob` beside 1, 4 and 8 bystanders, and one `misaligned`, after which the server may
    deny a fault: then the next culprit would be on another one than the bystanders."""
    count = lambda kind: 1 if kind == "misaligned" else times  # noqa: E731
    return {
        f"eager {kind}, {victims} bystanders": lambda kind=kind, victims=victims: beside(ours, theirs, library, kind, victims, count(kind))
        for kind in KINDS
        for victims in VICTIMS
    }

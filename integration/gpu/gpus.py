"""Faults on a machine with two GPUs: what a fault on the first costs those on the second, ours beside the vendor's.

Each daemon has a server with a culprit and a victim on the first GPU and a healthy client on the second; half of them
have one more that uses both, which carries the fault to the second GPU (measured with the vendor's daemon as well). The
daemons run at the same time, one for each subject, kind of fault and half, so that the minute that the healthy have to
stay alive is waited for once.
"""

import itertools
import json
import subprocess
import time
from contextlib import ExitStack

from bench import Failed, until
from faults import NO_QUARANTINE, configured, last_seq, newcomer_result, verdicts

KINDS = ["oob", "trap"]
# Longer than `drain_timeout`, after which a server used to be ended under those whom its fault had not reached.
STAYS_ALIVE = 60
# How long a daemon may take to know where its clients are: it looks 1 s after a context for the last time.
KNOWN_WITHIN = 10


def uuids():
    """The GPUs' names, in the order of their addresses."""
    query = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()


def bystander(daemon, *arguments):
    client = daemon.client("mps-bystander", "--until-stdin-closes", "--every-ms", "200", *arguments)
    client.wait("ready", 60)
    return client


def seeing(daemon, visible, start):
    """What `start` starts, with this `CUDA_VISIBLE_DEVICES`."""
    daemon.environment["CUDA_VISIBLE_DEVICES"] = visible
    try:
        return start()
    finally:
        del daemon.environment["CUDA_VISIBLE_DEVICES"]


def status(daemon):
    return json.loads(daemon.ask("status --json")[1])


def known(daemon, client):
    """What our daemon knows of a client."""
    rows = [row for row in status(daemon)["clients"] if row["process"]["pid"] == client.pid and row["phase"] != "gone"]
    return rows[0] if rows else {"gpus": None, "server": None, "phase": None}


class Bench:
    """One daemon with its clients, from before a fault until a minute after it."""

    def __init__(self, daemon, kind, is_ours, has_both):
        self.daemon, self.kind, self.is_ours, self.found = daemon, kind, is_ours, {}
        self.healthy = bystander(daemon, "--device", "1")
        self.victim = bystander(daemon, "--device", "0")
        self.both = bystander(daemon, "--device", "1", "--also-device", "0") if has_both else None
        self.old = daemon.servers()[0]
        if is_ours:
            try:
                until(lambda: all(known(daemon, one)["gpus"] for one in self.clients().values()), KNOWN_WITHIN, "where all are")
            except Failed:
                pass  # Reported as it is: unknown is all.
            self.found["known to be on"] = {name: known(daemon, one)["gpus"] for name, one in self.clients().items()}

    def clients(self):
        return {"healthy": self.healthy, **self.victims()}

    def victims(self):
        return {"victim": self.victim, **({"both": self.both} if self.both else {})}

    def status_of_old(self):
        return self.daemon.ask(f"get_server_status {self.old}")[1].strip()

    def fault(self):
        seq = last_seq(self.daemon) if self.is_ours else 0
        culprit = self.daemon.client("mps-aggressor", self.kind, "--device", "0", "--after-ms", "200")
        culprit.wait("launched")
        self.at = time.monotonic()
        # At once, while the victims are still there.
        newcomers = [self.daemon.client("mps-first-alloc", "--device", device) for device in "01"]
        self.found["newcomers at once"] = [newcomer_result(newcomer, 15) for newcomer in newcomers]
        self.found["status meanwhile"] = self.status_of_old()
        self.found["codes"] = {"culprit": culprit.error(20), **{name: one.error(20) for name, one in self.victims().items()}}
        self.found["the old server says ACTIVE after, s"] = self.active_after(10)
        newcomers = [self.daemon.client("mps-first-alloc", "--device", device) for device in "01"]
        self.found["newcomers when the victims have left"] = [newcomer_result(newcomer, 15) for newcomer in newcomers]
        if self.is_ours:
            self.after(seq, culprit)

    def active_after(self, seconds):
        while time.monotonic() - self.at < seconds:
            if self.status_of_old() == "ACTIVE":
                return round(time.monotonic() - self.at, 2)
            time.sleep(0.05)
        return None

    def after(self, seq, culprit):
        """What our daemon says of it, and where newcomers go that see one GPU only."""
        until(lambda: verdicts(self.daemon, seq), 5, "a verdict")
        verdict = verdicts(self.daemon, seq)[-1]["verdict"]
        self.found["verdict"] = {
            "gpus": verdict["gpus"],
            "victims are right": set(verdict["victims"]) - {culprit.pid} == {one.pid for one in self.victims().values()},
            "the healthy one is spared": verdict["spared"] == [self.healthy.pid],
        }
        goes_to = {}
        # A server that says so is asked again after 5 s at most.
        until(lambda: time.monotonic() - self.at > 8, 10, "the server to be asked again")
        for number, uuid in enumerate(uuids()[:2]):
            newcomer = seeing(self.daemon, uuid, lambda: bystander(self.daemon))
            goes_to[number] = "the old server" if known(self.daemon, newcomer)["server"] == self.old else "a new one"
            newcomer.end()
        self.found["a newcomer that sees one GPU only goes to"] = goes_to

    def minute(self):
        """After a minute: whether the healthy one lives, and ends well."""
        left = self.at + STAYS_ALIVE - time.monotonic()
        time.sleep(max(0.0, left))
        lives = self.healthy.process.poll() is None
        self.healthy.process.stdin.close()
        code = self.healthy.error(20)
        self.found["healthy"] = {"alive after, s": STAYS_ALIVE if lives else None, "code": code, "steps intact": None}
        end = self.healthy.find("end")
        self.found["healthy"]["steps intact"] = bool(end and end.get("is_intact"))
        if self.is_ours:
            until(lambda: self.old not in self.daemon.servers(), 20, "the end of the server that nobody needs any more")
            self.found["the old server has gone when the healthy one left"] = True


def fault_on_one(ours, theirs):
    """A fault on the first GPU: victims, newcomers on both, and the healthy client on the second after a minute."""
    with ExitStack() as stack:
        benches = {}
        for subject in (ours, theirs):
            for kind, has_both in itertools.product(KINDS, (False, True)):
                is_ours = subject is ours
                daemon = stack.enter_context(configured(subject, NO_QUARANTINE) if is_ours else subject.daemon())
                name = f"{subject.name}, {kind}{', beside one on both' if has_both else ''}"
                benches[name] = Bench(daemon, kind, is_ours, has_both)
        for bench in benches.values():
            bench.fault()
        for bench in benches.values():
            bench.minute()
        results = {name: bench.found for name, bench in benches.items()}
    for name, found in results.items():
        served = [one["code"] for part in ("newcomers at once", "newcomers when the victims have left") for one in found[part]]
        is_carried = name.endswith("both")
        if name.startswith("ours") and (
            not is_carried
            and (found["healthy"]["code"] is not None or not found["healthy"]["alive after, s"])
            or any(code is not None for code in served)
            or not all(found["verdict"].values())
        ):
            raise Failed(f"{name}: {results}")
    return results


def by_gpu(ours):
    """A server for each GPU, for clients that name one by its UUID; and what a number means on such a server."""
    with configured(ours, NO_QUARANTINE + "[domains]\nby_gpu = true\n") as daemon:
        names = uuids()[:2]
        clients = [seeing(daemon, name, lambda: bystander(daemon)) for name in names]
        domains = [known(daemon, client)["domain"] for client in clients]
        if len(daemon.servers()) != 2 or not all(name in domain for name, domain in zip(names, domains)):
            raise Failed(f"servers {daemon.servers()}, domains {domains}")
        culprit = seeing(daemon, names[0], lambda: daemon.client("mps-aggressor", "oob"))
        codes = {"culprit": culprit.error(20), "first": clients[0].error(20)}
        until(lambda: clients[1].find("progress"), 5, "the other goes on")
        clients[1].process.stdin.close()
        codes["second"] = clients[1].error(20)
        if codes["second"] is not None:
            raise Failed(f"codes {codes}")
        numbered = seeing(daemon, "1", lambda: newcomer_result(daemon.client("mps-first-alloc")))
        return {"domains": domains, "codes": codes, "a client with CUDA_VISIBLE_DEVICES=1": numbered}


def works(ours, theirs):
    return {"fault_on_one": lambda: fault_on_one(ours, theirs), "by_gpu": lambda: by_gpu(ours)}

"""Faults on a machine with two GPUs: what a fault on the first costs those on the second, ours beside the vendor's.

Each daemon has a server with a culprit and a victim on the first GPU and a healthy client on the second; half of them
have one more that uses both, which carries the fault to the second GPU (measured with the vendor's daemon as well): there
our daemon must know that it does, and call nobody spared. The daemons run at the same time, one for each subject, kind of fault and half, so that the minute that the healthy have to
stay alive is waited for once.
"""

import itertools
import json
import subprocess
import time
from contextlib import ExitStack

from bench import Failed, until
from crowd import NO_QUARANTINE, configured, last_seq, newcomer_result, verdicts

KINDS = ["oob", "trap"]
# Longer than `victims_timeout`, after which a server used to be ended under those whom its fault had not reached.
STAYS_ALIVE = 60
# The same where it is to go quickly, and only ours runs.
STAYS_ALIVE_QUICKLY = 35
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

    def __init__(self, daemon, kind, is_ours, has_both, stays):
        self.daemon, self.kind, self.is_ours, self.stays, self.found = daemon, kind, is_ours, stays, {}
        self.healthy = bystander(daemon, "--device", "1")
        self.victim = bystander(daemon, "--device", "0")
        self.both = bystander(daemon, "--device", "1", "--also-device", "0") if has_both else None
        self.old = daemon.servers()[0]
        self.found["get_device_client_list names it on"] = {name: self.listed_on(one) for name, one in self.clients().items()}
        if is_ours:
            first, second = uuids()[:2]
            self.places = {"healthy": [second], "victim": [first], **({"both": sorted([first, second])} if has_both else {})}
            try:
                until(lambda: self.known() == self.places, KNOWN_WITHIN, "where all are")
            except Failed:
                pass  # Reported as it is, and judged at the end.
            self.found["known to be on"] = self.known()

    def known(self):
        """Where our daemon says that its clients are."""
        return {name: (gpus := known(self.daemon, one)["gpus"]) and sorted(gpus) for name, one in self.clients().items()}

    def listed_on(self, client):
        """The GPUs, by number, on which the server itself lists contexts of a client, as `pid.context`."""
        gpu, found = None, []
        for line in self.daemon.ask("get_device_client_list")[1].splitlines():
            if line.startswith("["):
                gpu = int(line[1 : line.index("]")])
            elif line.strip().startswith(f"{client.pid}."):
                found.append(f"{gpu}: {line.strip().split('.')[1]}")
        return found

    def clients(self):
        return {"healthy": self.healthy, **self.victims()}

    def victims(self):
        return {"victim": self.victim, **({"both": self.both} if self.both else {})}

    def status_of_old(self):
        return self.daemon.ask(f"get_server_status {self.old}")[1].strip()

    def fault(self):
        self.seq = last_seq(self.daemon) if self.is_ours else 0
        self.culprit = culprit = self.daemon.client("mps-aggressor", self.kind, "--device", "0", "--after-ms", "200")
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

    def active_after(self, seconds):
        while time.monotonic() - self.at < seconds:
            if self.status_of_old() == "ACTIVE":
                return round(time.monotonic() - self.at, 2)
            time.sleep(0.05)
        return None

    def after(self):
        """What our daemon says of it, and where newcomers go that see one GPU only."""
        if not self.is_ours:
            return
        seq, culprit = self.seq, self.culprit
        until(lambda: verdicts(self.daemon, seq), 5, "a verdict")
        verdict = verdicts(self.daemon, seq)[-1]["verdict"]
        self.picture = self.daemon.picture()
        hit = self.clients() if self.both else self.victims()
        self.found["verdict"] = {
            "gpus": verdict["gpus"],
            "victims are right": set(verdict["victims"]) - {culprit.pid} == {one.pid for one in hit.values()},
            "who is on the other GPU alone is called": "spared" if verdict["spared"] == [self.healthy.pid] else "a victim",
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
        left = self.at + self.stays - time.monotonic()
        time.sleep(max(0.0, left))
        lives = self.healthy.process.poll() is None
        self.healthy.process.stdin.close()
        code = self.healthy.error(20)
        self.found["healthy"] = {"alive after, s": self.stays if lives else None, "code": code, "steps intact": None}
        end = self.healthy.find("end")
        self.found["healthy"]["steps intact"] = bool(end and end.get("is_intact"))
        if self.is_ours:
            until(lambda: self.old not in self.daemon.servers(), 20, "the end of the server that nobody needs any more")
            self.found["the old server has gone when the healthy one left"] = True


def fault_on_one(ours, theirs, stays=STAYS_ALIVE):
    """A fault on the first GPU: victims, newcomers on both, and the healthy client on the second after a minute."""
    with ExitStack() as stack:
        benches = {}
        for subject in (ours, theirs) if theirs else (ours,):
            for kind, has_both in itertools.product(KINDS, (False, True)):
                is_ours = subject is ours
                daemon = stack.enter_context(configured(subject, NO_QUARANTINE) if is_ours else subject.daemon())
                name = f"{subject.name}, {kind}{', beside one on both' if has_both else ''}"
                benches[name] = Bench(daemon, kind, is_ours, has_both, stays)
        for bench in benches.values():
            bench.fault()
        for bench in benches.values():
            bench.after()
        for bench in benches.values():
            bench.minute()
        results = {name: bench.found for name, bench in benches.items()}
    for name, found in results.items():
        served = [one["code"] for part in ("newcomers at once", "newcomers when the victims have left") for one in found[part]]
        is_carried = name.endswith("both")
        lives = found["healthy"]["code"] is None and found["healthy"]["alive after, s"]
        if not name.startswith("ours"):
            continue
        word = "a victim" if is_carried else "spared"
        bench = benches[name]
        wrong = [
            "a newcomer was refused" if any(code is not None for code in served) else None,
            "the healthy one does not live" if not is_carried and not lives else None,
            "nothing was carried" if is_carried and lives else None,
            "victims" if not found["verdict"]["victims are right"] else None,
            "word" if found["verdict"]["who is on the other GPU alone is called"] != word else None,
            "places" if found["known to be on"] != bench.places else None,
        ]
        if any(wrong):
            error = Failed(f"{name}: {[what for what in wrong if what]}: {results}")
            error.seen = bench.picture
            raise error
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


def works(ours, theirs, quick):
    whole, short = (lambda: fault_on_one(ours, theirs)), (lambda: fault_on_one(ours, None, STAYS_ALIVE_QUICKLY))
    return {"by_gpu": lambda: by_gpu(ours), "fault_on_one": short if quick else whole}

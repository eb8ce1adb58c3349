"""Replicas of a model server on one GPU under MPS: one makes a fault by a bad request, and all have to answer again.

`guests/model_server.py` is the server. Somebody asks each replica without end, and starts one that has ended again, as
whoever runs replicas does. Three ways of running them, in the same run:

| way | daemon | replicas |
|---|---|---|
| theirs, started again | the vendor's | end after the fault, and are started again |
| ours, started again | ours, with a standby | as above |
| ours, in place | ours, with a standby | under the preload library: the same processes go on |

Every answer is compared with the one before any fault. *Without an answer* is a replica's longest time from one good answer
to the next, the fault in between; it counts from the fault for the replica that makes it.
"""

import http.client
import json
import subprocess
import sys
import threading
import time

from bench import Client, Failed, until
from crowd import NO_QUARANTINE, configured
from figures import spread
from guest import SAID
from replay import environment
from roster import GUESTS, KERNELS

PROGRAMS = []
SERVER = GUESTS / "model_server.py"
REPLICAS = 4
KINDS = ["oob", "trap"]
STANDBY = NO_QUARANTINE + "[domains]\nstandby = true\n"
QUESTION = {"prompt": list(range(1, 17)), "tokens": 4}
# Seconds for a replica to serve after its start, for one answer, and for all to answer again.
TO_BEGIN, TO_ANSWER, TO_RECOVER = 90, 20, 150
# Good answers in a row after which a replica is well again.
STEADY = 5
# Seconds between two questions to a replica that does not answer.
PACE = 0.02


class Replica:
    """A server that is started again whenever it ends, and whoever asks it without end."""

    def __init__(self, daemon, number, command, surroundings):
        self.daemon, self.number, self.command, self.environment = daemon, number, command, surroundings
        self.errors = daemon.folder / f"errors {number}"
        self.starts, self.failed, self.in_a_row, self.wrong = 0, 0, 0, []
        self.expected = self.process = self.port = self.life = None
        self.good, self.is_over = [], threading.Event()
        self.thread = threading.Thread(target=self.live)
        self.thread.start()

    def start(self):
        self.starts += 1
        self.process = Client(self, ["sh", "-c", f'exec "$0" "$@" 2>>"{self.errors}"', *self.command])
        try:
            self.port = self.process.wait("ready", TO_BEGIN)["port"]
        except Failed:
            # It was refused, or has ended: another one is started.
            self.process.end()
            self.process = None

    def live(self):
        while not self.is_over.is_set():
            if self.process is None or self.process.process.poll() is not None:
                self.start()
                continue
            try:
                answer = self.ask("/generate", QUESTION)
            except (OSError, http.client.HTTPException):
                self.failed += 1
                self.in_a_row = 0
                self.is_over.wait(PACE)
                continue
            self.expected = self.expected or answer["tokens"]
            if answer["tokens"] != self.expected:
                self.wrong.append(answer)
            self.life, self.in_a_row = (answer["pid"], answer["recoveries"]), self.in_a_row + 1
            self.good.append(time.monotonic())

    def ask(self, path, what):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TO_ANSWER)
        try:
            connection.request("POST", path, json.dumps(what))
            response = connection.getresponse()
            content = json.loads(response.read())
            if response.status != 200:
                raise Failed(f"{path} answers {response.status}: {content}")
            return content
        finally:
            connection.close()

    def longest(self, since, is_culprit):
        """The longest time without a good answer from then on, in seconds, and how long after it that was over."""
        before = [moment for moment in self.good if moment <= since]
        moments = [since if is_culprit or not before else before[-1], *(moment for moment in self.good if moment > since)]
        return max((later - earlier, later - since) for earlier, later in zip(moments, moments[1:]))

    def end(self):
        self.is_over.set()
        if self.process is not None:
            self.process.process.kill()
        self.thread.join()
        if self.process is not None:
            self.process.end()

    def said(self):
        return self.errors.read_text(errors="replace")[-SAID:] if self.errors.exists() else ""


def at_fault(replicas, kind):
    """The first replica does wrong; how long each was without an answer, when all answer again."""
    lives, failed, starts = ([getattr(one, name) for one in replicas] for name in ("life", "failed", "starts"))
    for one in replicas:
        one.in_a_row = 0
    since = time.monotonic()
    try:
        replicas[0].ask("/fault", {"kind": kind})
    except (OSError, http.client.HTTPException):
        pass  # It has ended.

    def are_well():
        return all(one.life != life and one.in_a_row >= STEADY for one, life in zip(replicas, lives))

    try:
        until(are_well, TO_RECOVER, f"an answer of all after {kind}")
    except Failed as failed:
        states = [(one.number, one.life, one.in_a_row, one.said()) for one in replicas]
        raise Failed(f"{failed}: {states}") from failed
    waits, ends = zip(*(one.longest(since, one is replicas[0]) for one in replicas))
    wrong = [answer for one in replicas for answer in one.wrong]
    if wrong:
        raise Failed(f"{len(wrong)} answers are wrong after {kind}: {wrong[0]} in place of {replicas[0].expected}")
    return {
        "culprit": waits[0],
        "neighbours": waits[1:],
        "all": max(ends),
        "failed": sum(one.failed for one in replicas) - sum(failed),
        "starts": sum(one.starts for one in replicas) - sum(starts),
    }


def run(daemon, weights, surroundings, kind, times):
    """Faults of a kind, one after the other, with the same replicas; what the replicas' users saw."""
    replicas = []
    try:
        with daemon:
            surroundings = {**daemon.environment, **surroundings, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "2"}
            command = [sys.executable, str(SERVER), str(KERNELS), str(weights)]
            replicas += [Replica(daemon, number, command, surroundings) for number in range(REPLICAS)]
            until(lambda: all(one.in_a_row >= STEADY for one in replicas), TO_BEGIN, "an answer of all")
            if len({tuple(one.expected) for one in replicas}) != 1:
                raise Failed(f"the replicas answer {[one.expected for one in replicas]}")
            seen = [at_fault(replicas, kind) for _ in range(times)]
            for one in replicas:
                one.end()
    finally:
        for one in replicas:
            one.end()
    return {
        "faults": times,
        "the culprit without an answer, s": spread([one["culprit"] for one in seen]),
        "a neighbour without an answer, s": spread([wait for one in seen for wait in one["neighbours"]]),
        "all answer again after, s": spread([one["all"] for one in seen]),
        "questions without an answer": spread([one["failed"] for one in seen]),
        "replicas started again": spread([one["starts"] for one in seen]),
        "wrong answers": 0,
    }


def works(ours, theirs, library, quick):
    """The suite: each kind in the three ways."""
    times = 1 if quick else 5
    weights = ours.root / "weights"

    def replicas(kind):
        if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0:
            return "Skipped(torch cannot be imported)"
        if not weights.exists():
            subprocess.run([sys.executable, str(SERVER), "--make", str(weights)], check=True)
        in_place = {name: value for name, value in environment(library, "").items() if name.startswith(("MPS_SHIM", "LD_PRELOAD"))}
        return {
            "theirs, started again": run(theirs.daemon(), weights, {}, kind, min(times, 3)),
            "ours, started again": run(configured(ours, STANDBY), weights, {}, kind, min(times, 3)),
            "ours, in place": run(configured(ours, STANDBY), weights, in_place, kind, times),
        }

    return {f"replicas_{kind}": lambda kind=kind: replicas(kind) for kind in KINDS}

"""Clients at work on a GPU, and what is seen of them when one does wrong: by their lines, the journal and the kernel's log."""

import datetime
import json
import os
import select
import subprocess
import threading
import time
from pathlib import Path

from bench import Failed, until

CROWD = 8
# How long the culprit runs good kernels, so that everybody is at work when the fault comes.
WARM_UP_MS = 300
STARTUP_REFUSED = (805, 807)
# A newcomer that has nothing by then is counted as stuck.
NEWCOMERS_PATIENCE = 6
NO_QUARANTINE = "[faults]\nquarantine_after = 0\n"


class Kernel:
    """Xid lines, with the time at which they came."""

    def __init__(self):
        self.lines, self.stopped = [], threading.Event()
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.fd, 0, os.SEEK_END)
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        while not self.stopped.is_set():
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    text = os.read(self.fd, 8192).decode(errors="replace")
                except OSError:
                    continue
                if "Xid" in text:
                    self.lines.append((time.monotonic(), text))

    def since(self, at):
        return [text for seen, text in self.lines if seen >= at]

    def close(self):
        self.stopped.set()
        self.thread.join()
        os.close(self.fd)


def settled(clients, seconds):
    """The CUDA error of each, or None; `stuck` for one that does not end."""
    codes = []
    for client in clients:
        client.process.stdin.close() if client.process.stdin and not client.process.stdin.closed else None
        try:
            codes.append(client.error(seconds))
        except subprocess.TimeoutExpired:
            codes.append("stuck")
    return codes


def crowd(daemon, count=CROWD, **options):
    clients = [daemon.client("mps-bystander", "--until-stdin-closes", "--every-ms", "100", **options) for _ in range(count)]
    for client in clients:
        client.wait("ready", 60)
    return clients


def alive_after(clients, moment, seconds=10):
    """Those that live on after this moment: each has told of a step since, or has ended. One that does neither within
    so many seconds more lives and is stuck, which its longest step shows."""

    def is_known(client):
        client.read()
        steps = (line["seen"] for line in client.lines if line["event"] == "progress")
        return client.process.poll() is not None or any(seen >= moment for seen in steps)

    try:
        until(lambda: all([is_known(client) for client in clients]), moment - time.monotonic() + seconds, "a step or an end")
    except Failed:
        pass
    return [client for client in clients if client.process.poll() is None]


def longest_ms(client, since):
    """The longest step that the client has reported after this moment."""
    client.read()
    return max((line.get("longest_ms", 0) for line in client.lines if line["seen"] >= since), default=0.0)


def journal(daemon):
    path = daemon.logs / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def microseconds(stamp):
    moment = datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    return moment.timestamp() * 1e6


def verdicts(daemon, after):
    return [e for e in journal(daemon) if e["event"].startswith("verdict") and e["seq"] > after]


def last_seq(daemon):
    events = journal(daemon)
    return events[-1]["seq"] if events else 0


def newcomer_result(client, seconds=20):
    """Milliseconds from exec to the first allocation, or the error's code, or `stuck`."""
    try:
        code = client.error(seconds)
    except subprocess.TimeoutExpired:
        client.process.kill()
        client.process.wait()
        code = "stuck"
    line = client.find("allocated")
    return {"code": code, "ms": line["total_ms"] if line and code is None else None}


def configured(subject, text, *options):
    """A daemon with this configuration."""
    path = subject.root / f"{subject.name}-{subject.count + 1}.toml"
    path.write_text(text)
    return subject.daemon(*(options or ("-f",)), environment={"MPS_CONTROL_CONFIG": str(path)})


def resources(daemon):
    """What the daemon itself holds, and the GPU memory in use."""
    pid = daemon.process.pid
    status = Path(f"/proc/{pid}/status").read_text()
    rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
    memory = subprocess.run(
        ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True
    ).stdout.split()[0]
    return {"descriptors": len(os.listdir(f"/proc/{pid}/fd")), "rss_mib": round(rss, 2), "gpu_mib": int(memory)}

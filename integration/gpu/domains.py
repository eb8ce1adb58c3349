"""What domains and standby servers are good for, and what they cost."""

import subprocess
import time

from bench import Failed, until
from crowd import NO_QUARANTINE, alive_after, configured, crowd, journal, longest_ms, settled
from figures import spread


def other_domain(ours, theirs, times=10):
    """A client of another user while a fault kills eight others: its longest step, and its throughput before and then."""
    results = {}
    for subject in (ours, theirs):
        is_ours = subject is ours
        alive, stalls, ratios = 0, [], []
        # The vendor's daemon lets users wait for each other unless they share a server.
        with configured(subject, NO_QUARANTINE) if is_ours else subject.daemon("-f", "-multiuser-server") as daemon:
            for _ in range(times):
                apart = crowd(daemon, 1, user=True)[0]
                clients = crowd(daemon)
                culprit = daemon.client("mps-aggressor", "oob", "--after-ms", "600")
                culprit.wait("ready")
                apart.read()
                quiet = [line for line in apart.lines if line["event"] == "progress"]
                culprit.wait("launched")
                at = time.monotonic()
                settled([culprit, *clients], 10)
                if alive_after([apart], time.monotonic() + 0.6):
                    alive += 1
                    stalls.append(longest_ms(apart, at))
                    later = [line for line in apart.lines if line["event"] == "progress" and line["seen"] >= at]
                    if quiet and len(later) > 1:
                        ratios.append(rate(later[:6]) / rate(quiet[-4:] + later[:1]))
                settled([apart], 10)
        results[subject.name] = {
            "faults": times,
            "client of the other user alive": f"{alive} of {times}",
            "longest step, ms": spread(stalls) if stalls else None,
            "throughput, fault window to before": spread(ratios) if ratios else None,
        }
    return results


def rate(lines):
    first, last = lines[0], lines[-1]
    return (last["steps"] - first["steps"]) / ((last["t_ms"] - first["t_ms"]) / 1e3)


def standby_cost(ours, times=5):
    """GPU memory and start time of a server that stands by."""
    starts, sizes = [], []
    for _ in range(times):
        with configured(ours, "[domains]\nstandby = true\n") as daemon:
            daemon.client("mps-first-alloc").wait("allocated")
            event = until(
                lambda: next((e for e in journal(daemon) if e["event"] == "standby-ready"), None), 10, "a standby"
            )
            starts.append(event["start_ms"])
            text = subprocess.run(
                ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                capture_output=True,
                text=True,
            ).stdout
            used = dict(tuple(int(n) for n in line.split(",")) for line in text.splitlines() if "," in line)
            if event["server"] in used:
                sizes.append(used[event["server"]])
    return {"start, ms": spread(starts), "GPU memory, MiB": spread(sizes) if sizes else "not told"}


def domains_cost(ours, seconds=2, clients=8, times=3):
    """Throughput of eight steady clients in one, two, four and eight domains of one GPU, to that in one."""
    rates = {}
    for count in (1, 2, 4, 8):
        values = []
        with configured(ours, '[domains]\nby = "label"\n') as daemon:
            for _ in range(times):
                group = []
                for index in range(clients):
                    daemon.environment["MPS_DOMAIN"] = f"d{index % count}"
                    arguments = ["--seconds", str(seconds + 3), "--kernel-us", "200", "--every-ms", "100"]
                    group.append(daemon.client("mps-bystander", *arguments))
                for client in group:
                    client.wait("ready", 60)
                begin = time.monotonic()
                time.sleep(seconds)
                for client in group:
                    client.read()
                total = 0.0
                for client in group:
                    lines = [line for line in client.lines if line["event"] == "progress" and line["seen"] >= begin]
                    total += rate(lines) if len(lines) > 1 else 0.0
                values.append(total)
                settled(group, 20)
            if len(daemon.servers()) < count:
                raise Failed(f"{len(daemon.servers())} servers for {count} domains")
        rates[count] = values
    alone = spread(rates[1])["median"]
    return {
        str(count): {"steps a second": spread(values), "ratio to one domain": spread([v / alone for v in values])}
        for count, values in rates.items()
    }

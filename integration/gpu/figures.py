"""Figures of ours against the vendor's, measured in turns in one run, as minimum, median and maximum."""

import math
import os
import random
import signal
import statistics
import subprocess
import time

from bench import Failed


def spread(values):
    return {"n": len(values), "min": min(values), "median": statistics.median(values), "max": max(values)}


def spread_to_p99(values):
    return {**spread(values), "p99": percentile(values, 0.99)}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median_interval(values, confidence=0.95):
    """An interval that has the median in it with this confidence at least, whatever the values are distributed like: by
    the ranks, since each value is below the median with one half; `None` where there are too few values."""
    ordered, count = sorted(values), len(values)
    outside, rank = 0.0, -1
    while rank + 1 < count // 2 and outside + 2 * math.comb(count, rank + 1) / 2**count <= 1 - confidence:
        rank += 1
        outside += 2 * math.comb(count, rank) / 2**count
    return [ordered[rank], ordered[count - 1 - rank]] if rank >= 0 else None


def paired(ours, theirs):
    """Both spreads, the spread of the ratios pair by pair, and the interval of their median."""
    ratios = [a / b for a, b in zip(ours, theirs)]
    return {
        "ours": spread(ours),
        "theirs": spread(theirs),
        "ratio": spread(ratios),
        "median ratio, 95 %": median_interval(ratios),
    }


def in_turns(first, second, times):
    """Runs both, the order changing from pair to pair."""
    ours, theirs = [], []
    for index in range(times):
        for subject in (0, 1) if index % 2 else (1, 0):
            (ours, theirs)[subject].append((first, second)[subject]())
    return paired(ours, theirs)


def in_rounds(first, second, times, main, seconds=math.inf):
    """Runs both in each round, in an order drawn anew: what one leaves for the next to clear away meets both alike. What
    each gives is a table of figures, of which `main` is the one that is judged; the others are `parts`. No round begins
    after so many seconds."""
    rng = random.Random()
    rows, end = [[], []], time.monotonic() + seconds
    for _ in range(times):
        if time.monotonic() > end:
            break
        for subject in rng.sample((0, 1), 2):
            rows[subject].append((first, second)[subject]())
    return judged(rows, main)


def judged(rows, main):
    """What the rounds of both come to, with the rows, so that those of another run can be added (`pooled`)."""
    tables = {name: paired(*([row[name] for row in side] for side in rows)) for name in rows[0][0]}
    parts = {name: table for name, table in tables.items() if name != main}
    return {**tables[main], "parts": parts, "main": main, "rows": rows}


def pooled(before, after):
    """A figure of two runs as one, where it was taken in rounds."""
    return judged([first + second for first, second in zip(before["rows"], after["rows"])], after["main"])


def first_allocation(ours, theirs, times=200, seconds=math.inf):
    """Milliseconds from a client's start to its first memory, the server up and idle; pairs in random order. `cuInit`
    takes one of two times, some 11 or 19 ms, with either daemon, so the time for the context is judged beside the whole."""
    with ours.daemon() as a, theirs.daemon() as b:
        for daemon in (a, b):
            daemon.client("mps-first-alloc").wait("allocated")

        def once(daemon):
            client = daemon.client("mps-first-alloc")
            line = client.wait("allocated")
            client.process.wait()
            daemon.clients.clear()
            return {name: line[name] for name in ("total_ms", "init_ms", "context_ms")}

        return in_rounds(lambda: once(a), lambda: once(b), times, "total_ms", seconds)


def first_allocation_cold(ours, theirs, times=8):
    """The same when the client has to wait for a server to start."""

    def once(subject):
        with subject.daemon() as daemon:
            return daemon.client("mps-first-alloc").wait("allocated")["total_ms"]

    return in_turns(lambda: once(ours), lambda: once(theirs), times)


def herd(ours, theirs, clients=48, times=20, seconds=math.inf):
    """Milliseconds until every one of 48 clients started at once has memory, and what half of them waited; the server up
    and idle, pairs of crowds in random order."""
    with ours.daemon() as a, theirs.daemon() as b:
        for daemon in (a, b):
            daemon.client("mps-first-alloc").wait("allocated")

        def once(daemon):
            began = time.monotonic()
            crowd = [daemon.client("mps-first-alloc", "--until-stdin-closes") for _ in range(clients)]
            lines = [client.wait("allocated", 90) for client in crowd]
            for client in crowd:
                client.process.stdin.close()
            for client in crowd:
                client.process.wait(30)
            daemon.clients.clear()
            # The driver clears away what they had.
            time.sleep(0.5)
            half = statistics.median(line["total_ms"] for line in lines)
            return {"all_ms": (max(line["seen"] for line in lines) - began) * 1e3, "half_ms": half}

        return in_rounds(lambda: once(a), lambda: once(b), times, "all_ms", seconds)


def throughput(ours, theirs, seconds=2, times=8):
    """Steps a second of a client that launches short kernels all the time."""
    with ours.daemon() as a, theirs.daemon() as b:

        def once(daemon):
            client = daemon.client("mps-bystander", "--seconds", str(seconds), "--kernel-us", "200")
            ready = client.wait("ready")
            client.process.wait(seconds + 30)
            end = client.wait("end")
            return end["steps"] / ((end["t_ms"] - ready["t_ms"]) / 1e3)

        return in_turns(lambda: once(a), lambda: once(b), times)


def commands_a_second(ours, theirs, count=4000):
    """Commands a second in one session, daemon and command line on one core."""

    def once(subject):
        with subject.daemon() as daemon:
            core = min(os.sched_getaffinity(0))
            for pid in daemon.left_over():
                subprocess.run(["taskset", "-acp", str(core), str(pid)], capture_output=True, check=False)
            lines = "get_default_active_thread_percentage\n" * count
            command = ["taskset", "-c", str(core), subject.control]
            began = time.monotonic()
            done = subprocess.run(command, input=lines, env=daemon.environment, capture_output=True, text=True)
            took = time.monotonic() - began
            if done.stdout.count("100.0") != count:
                raise Failed(f"{done.stdout.count('100.0')} answers to {count} commands")
            return count / took

    return in_turns(lambda: once(ours), lambda: once(theirs), 3)


def idle(ours, seconds=60):
    """Resident memory in MiB and wake-ups of the daemon and its holder with one idle server."""
    with ours.daemon() as daemon:
        daemon.client("mps-first-alloc").wait("allocated")
        own = daemon.process.pid
        children = open(f"/proc/{own}/task/{own}/children").read().split()
        holders = [int(pid) for pid in children if b"--holder" in open(f"/proc/{pid}/cmdline", "rb").read()]
        pids = {"daemon": own, "holder": holders[0]}

        def switches(pid):
            status = open(f"/proc/{pid}/status").read()
            return sum(int(line.split()[1]) for line in status.splitlines() if "ctxt_switches" in line)

        def memory(pid):
            status = open(f"/proc/{pid}/status").read()
            return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

        time.sleep(3)
        before = {name: switches(pid) for name, pid in pids.items()}
        time.sleep(seconds)
        return {
            name: {"rss_mib": round(memory(pid), 2), "wake_ups": switches(pid) - before[name], "seconds": seconds}
            for name, pid in pids.items()
        }


def killed_again_and_again(ours, kills=20, workers=6):
    """`kill -9` of the daemon at random moments while clients come and go: how many were served, how many disturbed."""
    rng = random.Random(20261120)
    with ours.daemon() as daemon:
        steady = daemon.client("mps-bystander", "--until-stdin-closes")
        steady.wait("ready")
        (server,) = daemon.servers()
        count, served, errors = 0, 0, []
        for _ in range(kills):
            clients = [daemon.client("mps-first-alloc") for _ in range(workers)]
            time.sleep(rng.uniform(0, 0.25))
            daemon.kill()
            clients += [daemon.client("mps-first-alloc")]
            daemon.start()
            # One round after the other: a server takes no more than 60 contexts.
            count += len(clients)
            for client in clients:
                try:
                    client.wait("allocated", 60)
                    client.process.wait(10)
                    served += 1
                except Failed as failed:
                    errors.append(str(failed))
        same = daemon.servers() == [server]
        steady.process.stdin.close()
        code = steady.error()
    if errors or code is not None or not same:
        raise Failed(f"{served} of {count} served, {sorted(set(errors))}, steady client {code}, same server: {same}")
    return {
        "kills": kills,
        "clients": count,
        "served": served,
        "steady client": "undisturbed",
        "server": "the same throughout",
    }


def upgraded(ours):
    """SIGUSR1: the daemon leaves everything to its successor."""
    with ours.daemon() as daemon:
        client = daemon.client("mps-bystander", "--until-stdin-closes")
        client.wait("ready")
        before = daemon.servers()
        os.kill(daemon.process.pid, signal.SIGUSR1)
        status = daemon.process.wait(10)
        daemon.start()
        after = daemon.servers()
        client.process.stdin.close()
        code = client.error()
    if code is not None or before != after:
        raise Failed(f"client {code}, servers {before} before and {after} after")
    return {"status": status, "server": "the same", "client": "undisturbed"}

"""Clients and servers that end in the middle of their work, of themselves or by others: who is harmed, and what the daemon does."""

import os
import signal
import subprocess
import time
from pathlib import Path

from bench import Failed, until
from crowd import STARTUP_REFUSED, alive_after, configured, crowd, journal, last_seq, longest_ms, newcomer_result, resources, settled, verdicts
from figures import spread


def killed_in_kernel(ours, theirs, times=100, their_times=10):
    """`kill -9` of a client in a kernel of 0.7 s: who lives on, and the longest step of those."""
    results = {}
    for subject, count in ((ours, times), (theirs, their_times)):
        with subject.daemon() as daemon:
            clients, alive, died, stalls = [], 0, 0, []
            for _ in range(count):
                if not clients:
                    clients = crowd(daemon)
                victim = daemon.client("mps-aggressor", "long", "--for-ms", "700")
                victim.wait("launched")
                time.sleep(0.1)
                at = time.monotonic()
                victim.process.kill()
                victim.process.wait()
                # After the kernel: what its end does to the others is seen.
                living = alive_after(clients, at + 0.9)
                alive, died = alive + len(living), died + len(clients) - len(living)
                stalls += [longest_ms(client, at) for client in living]
                if len(living) < len(clients):
                    settled(clients, 10)
                    clients = []
            left = settled(clients, 10)
            results[subject.name] = {
                "kills": count,
                "bystanders alive": alive,
                "bystanders dead": died + sum(code is not None for code in left),
                "longest step, ms": spread(stalls) if stalls else None,
            }
            if subject is ours:
                funerals = [event for event in journal(daemon) if event["event"] == "funeral-ended"]
                results["ours"]["funerals"] = len(funerals)
                results["ours"]["held, ms"] = spread([event["held_ms"] for event in funerals]) if funerals else None
                results["ours"]["after"] = resources(daemon)
    if results["ours"]["bystanders dead"]:
        raise Failed(f"bystanders died: {results}")
    return results


def gpu_memory():
    """MiB of the GPU in use, and of that what living processes have, by the driver's own lists."""

    def query(what):
        line = ["nvidia-smi", what, "--format=csv,noheader,nounits"]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout

    used = int(query("--query-gpu=memory.used").split()[0])
    lines = [line.split(",") for line in query("--query-compute-apps=pid,used_memory").splitlines() if "," in line]
    return {"used": used, "of processes": {int(pid): int(size) for pid, size in lines if size.strip().isdigit()}}


def killed_beside_eight(ours, times=100):
    """`kill -9` of a client in a kernel of 0.7 s, again and again beside the same eight on one server: whether all eight
    live, and where the GPU's memory goes while the copies are held, and afterwards."""
    results = {}
    # Held for longer than it takes, until there are so many that newcomers get another server; and for 1.5 s each.
    for name, settings in (("held", "[funerals]\nhold_timeout = 3600\nhold_memory = 0\nhold_memory_per_user = 0\n"), ("given back", "[funerals]\nhold_timeout = 1.5\nendless_hold = 0\n")):
        count = times if name == "given back" else min(times, 30)
        with configured(ours, settings) as daemon:
            clients = crowd(daemon)
            servers = daemon.servers()
            steps, stalls, refused = [], [], None

            def look(kills):
                seen = gpu_memory()
                steps.append(
                    {
                        "kills": kills,
                        "used, MiB": seen["used"],
                        "of processes, MiB": sum(seen["of processes"].values()),
                        "funerals": len(open_funerals(daemon)),
                        "told, MiB": told_memory(daemon),
                    }
                )

            look(0)
            for kill in range(count):
                victim = daemon.client("mps-aggressor", "long", "--for-ms", "700")
                try:
                    victim.wait("launched")
                except Failed as failed:
                    look(kill)
                    refused = f"after {kill} kills: {failed}"
                    break
                at = time.monotonic()
                victim.process.kill()
                victim.process.wait()
                stalls += [longest_ms(client, at) for client in alive_after(clients, at + 0.8)]
                if kill % 10 == 9:
                    look(kill + 1)
            if name == "given back":
                until(lambda: not open_funerals(daemon), 20, "the ends of the funerals")
                time.sleep(2)
                look(count)
            same = set(servers) <= set(daemon.servers())
            codes = settled(clients, 10)
            results[name] = {
                "kills": count,
                "alive of 8": sum(code is None for code in codes),
                "servers": f"{len(daemon.servers())}, the first one among them" if same else "the first one is gone",
                "a newcomer refused": refused,
                "longest step, ms": spread(stalls) if stalls else None,
                "memory": steps,
            }
            if name == "held":
                until(lambda: not open_funerals(daemon), 20, "the ends of the funerals")
                for after in (0, 4):
                    time.sleep(after)
                    look(count)
    for name in ("held", "given back"):
        if results[name]["alive of 8"] != 8 or results[name]["a newcomer refused"]:
            raise Failed(f"{name}: {results}")
    return results


def told_memory(daemon):
    """MiB that the dead hold by the daemon's own word, and of how many of them it knows."""
    known = {}
    for event in journal(daemon):
        if event["event"] == "funeral-measured":
            known[event["process"]["pid"]] = event["pinned_bytes"] / (1 << 20)
        elif event["event"] == "funeral-ended":
            known.pop(event["process"]["pid"], None)
    return [round(sum(known.values()), 1), len(known)]


def open_funerals(daemon):
    """The beginnings of funerals that have not ended."""
    begun = {}
    for event in journal(daemon):
        if event["event"] == "funeral-begun":
            begun[event["process"]["pid"]] = event
        elif event["event"] == "funeral-ended":
            begun.pop(event["process"]["pid"], None)
    return list(begun.values())


def out_of_memory(ours, theirs, times=15):
    """The same when the kernel kills a client in a cgroup for want of memory."""
    group = Path("/sys/fs/cgroup/remps-oom")
    try:
        group.mkdir(exist_ok=True)
        (group / "memory.oom.group").write_text("1")
    except OSError as error:
        return {"Skipped": f"no cgroup can be made here: {error}"}
    hog = "import time\ntime.sleep(0.2)\nx=[bytearray(1<<24) for _ in range(1<<12)]\n"
    results = {}
    try:
        for subject in (ours, theirs):
            alive, died, ends = 0, 0, []
            with subject.daemon() as daemon:
                for _ in range(times):
                    (group / "memory.max").write_text("max")
                    clients = crowd(daemon)
                    victim = daemon.client("mps-aggressor", "long", "--for-ms", "1200")
                    victim.wait("launched")
                    eater = subprocess.Popen(["python3", "-c", hog], stderr=subprocess.DEVNULL)
                    for pid in (victim.pid, eater.pid):
                        (group / "cgroup.procs").write_text(str(pid))
                    (group / "memory.max").write_text(str(1 << 30))
                    victim.process.wait(20)
                    eater.wait(20)
                    living = alive_after(clients, time.monotonic() + 1.4)
                    alive, died = alive + len(living), died + len(clients) - len(living)
                    settled(clients, 10)
                    if subject is ours:
                        ends += [
                            event["end"]
                            for event in journal(daemon)
                            if event["event"] == "client-ended" and event["process"]["pid"] == victim.pid
                        ]
            results[subject.name] = {"kills": times, "bystanders alive": alive, "bystanders dead": died}
            if subject is ours:
                results["ours"]["told as"] = sorted({str(end) for end in ends})
    finally:
        until(lambda: not (group / "cgroup.procs").read_text().strip(), 5, "the end of the cgroup's processes")
        group.rmdir()
    if results["ours"]["bystanders dead"]:
        raise Failed(f"bystanders died: {results}")
    return results


def killed_in_endless_kernel(ours, theirs, times=20):
    """`kill -9` of a client in a kernel that never ends: what happens while the copies are held, and then."""
    settings = "[funerals]\nhold_timeout = 0.5\nendless_hold = 1.5\n"
    held, after, told, newcomers = 0, 0, 0, []
    with configured(ours, settings) as daemon:
        for _ in range(times):
            seq = last_seq(daemon)
            clients = crowd(daemon, 2)
            victim = daemon.client("mps-aggressor", "endless")
            victim.wait("launched")
            victim.process.kill()
            victim.process.wait()
            until(lambda: any(e["event"] == "server-tainted" and e["seq"] > seq for e in journal(daemon)), 5, "a swap")
            told += 1
            newcomers.append(newcomer_result(daemon.client("mps-first-alloc")))
            held += sum(client.process.poll() is None for client in clients)
            until(lambda: any(e["event"] == "funeral-ended" and e["seq"] > seq for e in journal(daemon)), 10, "the end")
            settled(clients, 10)
            after += sum(client.find("error") is None for client in clients)
    alive = []
    with theirs.daemon() as daemon:
        for _ in range(3):
            clients = crowd(daemon, 2)
            victim = daemon.client("mps-aggressor", "endless")
            victim.wait("launched")
            victim.process.kill()
            victim.process.wait()
            alive.append(len(alive_after(clients, time.monotonic() + 1.0)))
            settled(clients, 10)
    return {
        "ours": {
            "kills": times,
            "bystanders alive while held": f"{held} of {2 * times}",
            "operator told, domain swapped": told,
            "newcomers served meanwhile": sum(row["ms"] is not None for row in newcomers),
            "newcomer, ms": spread([row["ms"] for row in newcomers if row["ms"] is not None]),
            "bystanders alive after the copies were closed": f"{after} of {2 * times}",
        },
        "theirs": {"kills": 3, "bystanders alive a second later": f"{sum(alive)} of 6"},
    }


def server_killed(ours, theirs, times=30):
    """`kill -9` of the server: who is named, and when a newcomer is served."""
    results = {}
    for subject in (ours, theirs):
        served, refused, lost, named = [], 0, [], 0
        with subject.daemon() as daemon:
            for _ in range(times):
                clients = crowd(daemon, 2)
                seq = last_seq(daemon)
                os.kill(daemon.servers()[-1], signal.SIGKILL)
                result = newcomer_result(daemon.client("mps-first-alloc"))
                if result["ms"] is not None:
                    served.append(result["ms"])
                refused += result["code"] in STARTUP_REFUSED
                lost.append(sum(code is not None for code in settled(clients, 15)))
                named += sum(bool(v["verdict"]["culprit"]) for v in verdicts(daemon, seq))
        results[subject.name] = {
            "kills": times,
            "clients lost of 2": spread(lost),
            "newcomers served": len(served),
            "newcomers refused (805, 807)": refused,
            "newcomer, ms": spread(served) if served else None,
            "a client named": named,
        }
    if results["ours"]["a client named"]:
        raise Failed(f"a client was named for a server's death: {results}")
    return results

"""Faults on a real GPU: who is named, how soon, and what it costs everybody else, ours beside the vendor's.

Each fault has eight clients that run short kernels, a culprit, and a newcomer that is started when the culprit has
launched. At an `oob` one of the eight is stopped (SIGSTOP) until the newcomer has its answer, as a program is that hangs
after an error; after the other kinds NVIDIA's server hangs with it, which `stuck_victim` measures. The daemons run on
from fault to fault. Repeat offenders are not quarantined here, or all but the first faults
would harm nobody; that has a figure of its own.
"""

import datetime
import json
import os
import re
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

from bench import AS_USER, Failed, until
from figures import spread, spread_to_p99

CROWD = 8
KINDS = ["oob", "trap", "misaligned", "assert"]
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


def vendors_culprits(text, xids):
    """Whom the server's log and the kernel accuse."""
    logged = re.findall(r"Client \{PID: (\d+), Context: \d+\} encountered a fatal GPU error", text)
    kernel = [pid for line in xids for pid in re.findall(r"Xid \([^)]*\): \d+, pid=(\d+)", line)]
    return [int(pid) for pid in logged], [int(pid) for pid in kernel]


def server_log(daemon):
    path = daemon.logs / "server.log"
    return path.read_bytes() if path.exists() else b""


def one_fault(daemon, kind, kernel, is_ours):
    clients = crowd(daemon)
    seq, log_size = last_seq(daemon), len(server_log(daemon))
    culprit = daemon.client("mps-aggressor", kind, "--after-ms", str(WARM_UP_MS))
    culprit.wait("ready")
    stuck = [clients[0].pid] if kind == "oob" else []
    for pid in stuck:
        os.kill(pid, signal.SIGSTOP)
    launched = culprit.wait("launched")
    at = time.monotonic()
    newcomer = daemon.client("mps-first-alloc")
    result = newcomer_result(newcomer, NEWCOMERS_PATIENCE)
    for pid in stuck:
        os.kill(pid, signal.SIGCONT)
    own = settled([culprit], 10)[0]
    hurt = kind != "assert"
    if hurt:
        # A victim ends by itself when it meets its error.
        for client in clients:
            until(lambda c=client: c.process.poll() is not None, 10, "a victim's end")
    codes = settled(clients, 10)
    found = {"culprit_code": own, "victims": sum(code is not None for code in codes), "newcomer": result}
    if is_ours:
        try:
            until(lambda: verdicts(daemon, seq), 2 if hurt else 0, "a verdict")
        except Failed:
            pass  # Counted: it is named by nobody.
        final = verdicts(daemon, seq)
        named = [v["verdict"]["culprit"]["pid"] for v in final if v["verdict"]["culprit"]]
        found["named"] = named
        found["confidence"] = [v["verdict"]["confidence"] for v in final]
        found["right"] = bool(named) and all(pid == culprit.pid for pid in named)
        found["wrong"] = any(pid != culprit.pid for pid in named)
        if final:
            found["verdict_ms"] = (microseconds(final[0]["time"]) - launched["at_us"]) / 1e3
    text = server_log(daemon)[log_size:].decode(errors="replace")
    logged, xids = vendors_culprits(text, kernel.since(at - 0.05))
    found["log_right"] = bool(logged) and all(pid == culprit.pid for pid in logged)
    found["log_names"] = len(logged)
    found["xid_right"] = bool(xids) and all(pid == culprit.pid for pid in xids)
    found["xid_names"] = len(xids)
    return found


def share(rows, key):
    return f"{sum(bool(row.get(key)) for row in rows)} of {len(rows)}"


def summary(rows, is_ours):
    allocated = [row["newcomer"]["ms"] for row in rows if row["newcomer"]["ms"] is not None]
    codes = [row["newcomer"]["code"] for row in rows if row["newcomer"]["code"] is not None]
    result = {
        "faults": len(rows),
        "clients lost a fault": spread([row["victims"] for row in rows]),
        "newcomers served": f"{len(allocated)} of {len(rows)}",
        "newcomers refused (805, 807)": sum(code in STARTUP_REFUSED for code in codes),
        f"newcomers without memory after {NEWCOMERS_PATIENCE} s": sum(code == "stuck" for code in codes),
        "other errors of newcomers": sorted({str(code) for code in codes if code not in (*STARTUP_REFUSED, "stuck")}),
        "server log names the culprit": share(rows, "log_right"),
        "Xid lines name the culprit": share(rows, "xid_right"),
    }
    if allocated:
        result["newcomer, exec to memory, ms"] = spread(allocated)
    if is_ours:
        result["culprit named"] = share(rows, "right")
        result["somebody else named"] = share(rows, "wrong")
        result["without any verdict"] = sum(not row["confidence"] for row in rows)
        delays = [row["verdict_ms"] for row in rows if "verdict_ms" in row]
        if delays:
            result["launch to verdict, ms"] = spread_to_p99(delays)
            result["confidence"] = sorted({word for row in rows for word in row["confidence"]})
    return result


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


def faults(ours, theirs, kind, times=30, standby=False, their_times=None):
    """Faults of one kind, in one daemon each that goes on from fault to fault."""
    results = {}
    kernel = Kernel()
    try:
        for subject in (ours, theirs):
            is_ours = subject is ours
            settings = NO_QUARANTINE + ("[domains]\nstandby = true\n" if standby else "")
            with configured(subject, settings) if is_ours else subject.daemon() as daemon:
                daemon.client("mps-first-alloc").wait("allocated")
                before = resources(daemon)
                count = times if is_ours else their_times or times
                rows = [one_fault(daemon, kind, kernel, is_ours) for _ in range(count)]
                results[subject.name] = summary(rows, is_ours)
                if is_ours:
                    results[subject.name]["before"] = before
                    results[subject.name]["after"] = resources(daemon)
    finally:
        kernel.close()
    if results["ours"]["somebody else named"].split()[0] != "0":
        raise Failed(f"{kind}: an innocent client was named: {results}")
    return results


def told(ours, library, kind, times=30):
    """Faults of one kind among clients that all have the preload library and `MPS_SHIM_FAULTS=tell`: from the launch to
    the first verdict, to the first that names somebody, and to the culprit's own error; whom it names. In every other one
    only the victims have the library, who must not be taken for the culprit."""
    if not Path(library).exists():
        return {"Skipped": f"there is no {library}"}
    telling = {"LD_PRELOAD": str(library), "MPS_SHIM_FAULTS": "tell"}
    rows, kernel = [], Kernel()
    try:
        with configured(ours, NO_QUARANTINE) as daemon:
            plain = daemon.environment
            for index in range(2 * times):
                is_silent = index % 2 == 1
                daemon.environment = {**plain, **telling}
                clients, seq = crowd(daemon), last_seq(daemon)
                daemon.environment = plain if is_silent else daemon.environment
                culprit = daemon.client("mps-aggressor", kind, "--after-ms", str(WARM_UP_MS))
                daemon.environment = plain
                launched = culprit.wait("launched")
                own = settled([culprit], 10)[0]
                for client in clients:
                    until(lambda c=client: c.process.poll() is not None, 10, "a victim's end")
                settled(clients, 10)
                try:
                    until(lambda: verdicts(daemon, seq), 3, "a verdict")
                except Failed:
                    pass  # Counted: it has none.
                since = lambda event: (microseconds(event["time"]) - launched["at_us"]) / 1e3  # noqa: E731
                given = verdicts(daemon, seq)
                naming = [event for event in given if event["verdict"]["culprit"]]
                named = [event["verdict"]["culprit"]["pid"] for event in naming]
                errors = [line for line in culprit.lines if line["event"] == "error"]
                rows.append(
                    {
                        "silent": is_silent,
                        "own code": own,
                        "own_ms": errors[0]["t_ms"] - launched["t_ms"] if errors else None,
                        "verdict_ms": since(given[0]) if given else None,
                        "named_ms": since(naming[0]) if naming else None,
                        "right": bool(named) and set(named) == {culprit.pid},
                        "wrong": any(pid != culprit.pid for pid in named),
                        "confidence": [event["verdict"]["confidence"] for event in given],
                        "final": given[-1]["verdict"]["confidence"] if given else "none",
                    }
                )
    finally:
        kernel.close()
    results = {}
    for name, part in (("all tell", [r for r in rows if not r["silent"]]), ("the culprit does not", [r for r in rows if r["silent"]])):
        results[name] = {
            "faults": len(part),
            "without any verdict": sum(row["final"] == "none" for row in part),
            "culprit named": share(part, "right"),
            "somebody else named": share(part, "wrong"),
            "last confidence": {word: sum(row["final"] == word for row in part) for word in sorted({row["final"] for row in part})},
        }
        for key, text in (("own_ms", "culprit's own error"), ("verdict_ms", "first verdict"), ("named_ms", "named")):
            values = [row[key] for row in part if row[key] is not None]
            if values:
                results[name][f"launch to {text}, ms"] = spread_to_p99(values)
    if any(row["wrong"] for row in rows):
        raise Failed(f"{kind}: an innocent client was named: {results}")
    return results


def floor(ours, times=10):
    """A newcomer that does not use MPS at all, started in the same moment: what the driver alone makes it wait."""
    values = []
    with configured(ours, NO_QUARANTINE) as daemon:
        for _ in range(times):
            clients = crowd(daemon)
            culprit = daemon.client("mps-aggressor", "oob", "--after-ms", str(WARM_UP_MS))
            culprit.wait("launched")
            pipe = daemon.environment["CUDA_MPS_PIPE_DIRECTORY"]
            daemon.environment["CUDA_MPS_PIPE_DIRECTORY"] = "/nonexistent"
            newcomer = daemon.client("mps-first-alloc")
            daemon.environment["CUDA_MPS_PIPE_DIRECTORY"] = pipe
            result = newcomer_result(newcomer)
            if result["ms"] is not None:
                values.append(result["ms"])
            settled([culprit, *clients], 15)
    return {"exec to memory without MPS, ms": spread(values)}


def stuck_victim(ours, theirs, times=5):
    """A `trap` while one of three victims is stopped, with which NVIDIA's server hangs: when a newcomer has memory."""
    results = {}
    for subject, count in ((ours, times), (theirs, 2)):
        rows = []
        for _ in range(count):
            with configured(subject, NO_QUARANTINE) if subject is ours else subject.daemon() as daemon:
                clients = crowd(daemon, 3)
                culprit = daemon.client("mps-aggressor", "trap", "--after-ms", str(WARM_UP_MS))
                culprit.wait("ready")
                os.kill(clients[0].pid, signal.SIGSTOP)
                culprit.wait("launched")
                rows.append(newcomer_result(daemon.client("mps-first-alloc"), NEWCOMERS_PATIENCE))
                os.kill(clients[0].pid, signal.SIGCONT)
                settled([culprit, *clients], 15)
        served = [row["ms"] for row in rows if row["ms"] is not None]
        results[subject.name] = {
            "faults": count,
            "newcomers served": len(served),
            "newcomer, ms": spread(served) if served else None,
            "else": sorted({str(row["code"]) for row in rows if row["code"] is not None}),
        }
    return results


def quarantine(ours, times=3):
    """The same program faults again and again: from the fourth time on it is alone with its fault."""
    lost = []
    with ours.daemon() as daemon:
        for _ in range(times + 2):
            clients = crowd(daemon)
            culprit = daemon.client("mps-aggressor", "oob", "--after-ms", str(WARM_UP_MS))
            culprit.wait("launched")
            settled([culprit], 10)
            lost.append(sum(code is not None for code in settled(clients, 10)))
    if lost[-1] or not lost[0]:
        raise Failed(f"clients lost by fault: {lost}")
    return {"clients lost of 8, fault by fault": lost}


def idle_start(ours, times=10):
    """The yardstick for a newcomer: exec to memory on an idle server."""
    with ours.daemon() as daemon:
        daemon.client("mps-first-alloc").wait("allocated")
        return spread([newcomer_result(daemon.client("mps-first-alloc"))["ms"] for _ in range(times)])


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


def many_faults(ours, times=100):
    """A hundred memory faults in a row in one daemon: every verdict, and what is left behind."""
    kernel = Kernel()
    try:
        with configured(ours, NO_QUARANTINE) as daemon:
            daemon.client("mps-first-alloc").wait("allocated")
            steps, right, refused = [resources(daemon)], 0, 0
            for index in range(times):
                seq = last_seq(daemon)
                clients = crowd(daemon, 1)
                culprit = daemon.client("mps-aggressor", "oob")
                culprit.wait("launched")
                result = newcomer_result(daemon.client("mps-first-alloc"))
                refused += result["code"] is not None
                settled([culprit, *clients], 10)
                named = [v["verdict"]["culprit"]["pid"] for v in verdicts(daemon, seq) if v["verdict"]["culprit"]]
                right += named == [culprit.pid]
                if index % 25 == 24:
                    try:
                        until(lambda: len(daemon.servers()) == 1, 40, "the end of the tainted servers")
                    except Failed as failed:
                        told = [line for line in daemon.log().splitlines() if "UI" not in line and "Cmd" not in line]
                        raise Failed(f"{failed}: {daemon.servers()}\n" + "\n".join(told[-80:])) from failed
                    steps.append(resources(daemon))
            return {"faults": times, "verdicts right": right, "newcomers not served": refused, "every 25": steps}
    finally:
        kernel.close()

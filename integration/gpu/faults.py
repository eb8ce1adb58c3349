"""Faults on a real GPU: who is named, how soon, and what it costs everybody else, ours beside the vendor's.

Each fault has eight clients that run short kernels, a culprit, and a newcomer that is started when the culprit has
launched. At an `oob` one of the eight is stopped (SIGSTOP) until the newcomer has its answer, as a program is that hangs
after an error; after the other kinds NVIDIA's server hangs with it, which `stuck_victim` measures. The daemons run on
from fault to fault. Repeat offenders are not quarantined here, or all but the first faults
would harm nobody; that has a figure of its own.
"""

import os
import re
import signal
import time
from pathlib import Path

from bench import Failed, until
from crowd import Kernel, NEWCOMERS_PATIENCE, NO_QUARANTINE, STARTUP_REFUSED, WARM_UP_MS, configured, crowd, last_seq, microseconds, newcomer_result, resources, settled, verdicts
from figures import spread, spread_to_p99

KINDS = ["oob", "trap", "misaligned", "assert"]


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

"""What a daemon must do on a real GPU. Each check runs on both subjects and gives a text; a difference is listed."""

import array
import ast
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from bench import Failed

GOLDEN = Path(__file__).resolve().parent.parent / "goldens" / "580.txt"
TORCH = """
import torch
a = torch.randn(2048, 2048, device="cuda"); b = torch.randn(2048, 2048, device="cuda")
error = ((a @ b).cpu() - a.cpu() @ b.cpu()).norm() / (a.cpu() @ b.cpu()).norm()
s = torch.cuda.Stream()
with torch.cuda.stream(s):
    c = (a @ b).relu().sum()
torch.cuda.synchronize()
assert error < 1e-2, error
print("torch", torch.__version__, "ok")
"""


def masked(text, names=None):
    """The text without what differs from run to run: UUIDs, and the numbers in `names`."""
    text = re.sub(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){1,3}(-[0-9a-f]{12})?", "GPU-…", text)
    for name, number in (names or {}).items():
        # A table's column is as wide as the pid and its blanks.
        text = re.sub(rf"\b{number}\b( *)", lambda match, name=name: f"{{{name}}}{'+' if match.group(1) else ''}", text)
    return text


def golden(subject):
    """Every command of the golden file, without a server; `None` where the answer is the file's."""
    rows = []
    for line in GOLDEN.read_text().splitlines():
        if line.startswith("---"):
            break
        match = re.match(r"('(?:[^'\\]|\\.)*')\s+rc=(\S+) out=(b'.*'|b\".*\") err=(b'.*'|b\".*\")$", line)
        if match:
            command, status, out = (ast.literal_eval(match.group(i)) for i in (1, 2, 3))
            rows.append((command, status, out.decode()))
    with subject.daemon() as daemon:
        different = []
        for command, status, out in rows:
            got = daemon.ask(command)
            if (got[0], masked(got[1])) != (status, masked(out)):
                different.append(f"{command!r}: {got[1]!r} instead of {out!r}")
    return f"{len(rows)} commands" + (", different: " + "; ".join(different) if different else ", all as in the file")


def live(subject):
    """All commands with a server and two clients: gives the masked transcript."""
    with subject.daemon() as daemon:
        first = daemon.client("mps-bystander", "--until-stdin-closes")
        first.wait("ready")
        second = daemon.client("mps-bystander", "--until-stdin-closes")
        second.wait("ready")
        (server,) = daemon.servers()
        commands = """get_server_status {S}|get_client_list {S}|ps|ps -p {S}|get_device_client_list
            |get_device_client_list {S}|device_query|device_query {S} --csv|get_active_thread_percentage {S}
            |set_active_thread_percentage {S} 40|set_active_thread_percentage {S} 0|get_device_pinned_mem_limit {S} 0
            |set_device_pinned_mem_limit {S} 0 2G|get_device_pinned_mem_limit {S} 0|set_device_pinned_mem_limit {S} 0 700M
            |get_device_pinned_mem_limit {S} 0|set_device_pinned_mem_limit {S} 0 0G|get_device_pinned_mem_limit {S} 0
            |set_default_client_priority 1|get_default_client_priority|set_default_client_priority 0|start_server -uid 0
            |terminate_client {S} 99999|terminate_client {S} {C}|get_server_status {S}|get_client_list {S}
            |set_active_thread_percentage {S} 100"""
        refused = """quit|set_default_active_thread_percentage 70|set_active_thread_percentage {S} 30
            |set_device_pinned_mem_limit {S} 0 1G|terminate_client {S} {D}|start_server -uid 0|shutdown_server {S}
            |shutdown_server {S} -f|get_server_list|get_default_active_thread_percentage"""
        names = {"S": server, "C": second.pid, "D": first.pid}
        transcript = []
        for user, block in ((False, commands), (True, refused)):
            for command in (part.strip() for part in block.split("|")):
                answer = daemon.ask(command.format(**names), user=user)
                transcript.append(f"{'user> ' if user else '> '}{command}\n{masked(answer[1], names)}[{answer[0]}]")
        if second.error() != 810:
            raise Failed("the terminated client did not see 810")
        first.process.stdin.close()
        if first.error() is not None:
            raise Failed("the other client was disturbed")
    # The command line of a client shows where this run keeps its programs.
    transcript = [line.replace(str(subject.root), "…") for line in transcript]
    return "\n".join(transcript)


def users(subject):
    """A client of another user while the first one's works for 3 s."""
    with subject.daemon() as daemon:
        first = daemon.client("mps-bystander", "--seconds", "3")
        first.wait("ready")
        second = daemon.client("mps-first-alloc", user=True)
        waited = second.wait("allocated", 30)["total_ms"]
        if first.error() is not None:
            raise Failed("the first user's client was disturbed")
    return f"the second user's client has memory after {waited:.0f} ms"


def multi_user(subject):
    """`-M`: clients of two users on one server at once."""
    with subject.daemon("-f", "-M") as daemon:
        clients = [daemon.client("mps-bystander", "--until-stdin-closes", user=user) for user in (False, True)]
        for client in clients:
            client.wait("ready")
        servers = daemon.servers()
        pids = daemon.ask(f"get_client_list {servers[0]}")[1].split()
        owner = os.stat(f"/proc/{servers[0]}").st_uid
    if len(servers) != 1 or {str(client.pid) for client in clients} != set(pids):
        raise Failed(f"servers {servers}, clients {pids}")
    return f"one server of user {owner}, both clients on it"


def torch(subject):
    """A PyTorch program, twice at once."""
    probe = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True)
    if probe.returncode:
        return "skipped: no torch in this Python"
    with subject.daemon() as daemon:
        runs = [
            subprocess.Popen([sys.executable, "-c", TORCH], env=daemon.environment, stdout=-1, stderr=-1, text=True)
            for _ in range(2)
        ]
        for run in runs:
            out, error = run.communicate(timeout=120)
            if run.returncode:
                raise Failed(error.splitlines()[-1] if error else "no reason given")
    return out.strip()


def server_killed(subject):
    """`kill -9` of the server: what its client sees, and the next one."""
    with subject.daemon() as daemon:
        client = daemon.client("mps-bystander", "--until-stdin-closes")
        client.wait("ready")
        (server,) = daemon.servers()
        began = time.monotonic()
        os.kill(server, signal.SIGKILL)
        code = client.error()
        seen = (time.monotonic() - began) * 1e3
        following = daemon.client("mps-first-alloc").wait("allocated")["total_ms"]
    return f"its client gets {code} after {seen:.0f} ms, the next client has memory after {following:.0f} ms"


def forced_then_quit(subject):
    """`shutdown_server -f` with a client, then `quit`, then a newcomer never sees 805 before that."""
    with subject.daemon() as daemon:
        client = daemon.client("mps-bystander", "--until-stdin-closes")
        client.wait("ready")
        (server,) = daemon.servers()
        daemon.ask(f"shutdown_server {server} -f")
        newcomer = daemon.client("mps-first-alloc")
        try:
            served = f"served after {newcomer.wait('allocated', 10)['total_ms']:.0f} ms"
        except Failed as failed:
            served = str(failed)
        began = time.monotonic()
        status = daemon.ask("quit", seconds=15)[0]
        took = time.monotonic() - began
    return f"a newcomer: {served}; quit ends with {status} after {took:.1f} s"


def drained(subject):
    """SIGTERM with a client that stays: what is left behind."""
    with subject.daemon(environment={"MPS_CONTROL_CONFIG": str(two_seconds(subject))}) as daemon:
        client = daemon.client("mps-bystander", "--until-stdin-closes")
        client.wait("ready")
        began = time.monotonic()
        daemon.process.terminate()
        status = daemon.process.wait(30)
        took = time.monotonic() - began
        files = sorted(entry.name for entry in daemon.pipe.iterdir())
        try:
            code = client.error(3)
        except subprocess.TimeoutExpired:
            code = "still running"
        left = len(daemon.left_over())
    if subject.name == "ours" and (status != 0 or files or left):
        raise Failed(f"status {status}, files {files}, {left} processes")
    return f"ends with {status} after {took:.1f} s, client: {code}, processes left: {left}, files left: {files}"


def two_seconds(subject):
    path = subject.root / "two-seconds.toml"
    path.write_text("drain_timeout = 2\n")
    return path


def left_in_handshake(subject):
    """Clients that close at each step of their handshake with the server, and then a real one."""
    results = []
    for stage in ("role sent", "descriptor taken", "pipes taken", "credentials sent", "context sent"):
        with subject.daemon() as daemon:
            daemon.client("mps-first-alloc").wait("allocated")
            half_client(daemon, stage)
            try:
                total = daemon.client("mps-first-alloc").wait("allocated", 8)["total_ms"]
                results.append(f"{stage}: served in {total:.0f} ms")
            except Failed:
                results.append(f"{stage}: the next client hangs")
    if subject.name == "ours" and any("hangs" in result for result in results):
        raise Failed("; ".join(results))
    return "; ".join(results)


def half_client(daemon, stage):
    so_passcred, scm_credentials, scm_rights = 16, 2, 1
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.settimeout(10)
    control.setsockopt(socket.SOL_SOCKET, so_passcred, 1)
    control.connect(str(daemon.pipe / "control"))
    control.recv(64)
    credentials = [(socket.SOL_SOCKET, scm_credentials, struct.pack("iii", os.getpid(), os.getuid(), os.getgid()))]
    control.sendmsg([b"OUTBCRED\0"], credentials)
    control.send(struct.pack("I", 2))
    if stage != "role sent":
        _, ancillary, _, _ = control.recvmsg(64, 256)
        (number,) = [array.array("i", data)[0] for _, kind, data in ancillary if kind == scm_rights]
        server = socket.socket(fileno=number)
        server.settimeout(10)
        received = []
        if stage in ("pipes taken", "credentials sent", "context sent"):
            received = [server.recvmsg(64, 256) for _ in range(5)]
        if stage in ("credentials sent", "context sent"):
            server.sendmsg([b"OUTBCRED\0"], credentials)
        if stage == "context sent":
            server.send(struct.pack("I", 0))
        for _, ancillary, _, _ in received:
            for _, kind, data in ancillary:
                if kind == scm_rights:
                    os.close(array.array("i", data)[0])
        server.close()
    control.close()


def fault_elsewhere(subject):
    """An out-of-bounds write of one user while another user's client works."""
    with subject.daemon() as daemon:
        other = daemon.client("mps-bystander", "--until-stdin-closes", user=True)
        if subject.name == "ours":
            other.wait("ready")
        culprit = daemon.client("mps-aggressor", "oob")
        code = culprit.error(40)
        try:
            other.wait("ready", 20)
            other.process.stdin.close()
            ended = other.error()
        except Failed as failed:
            ended = str(failed)
        newcomer = daemon.client("mps-first-alloc")
        served = newcomer.wait("allocated")["total_ms"]
    if subject.name == "ours" and ended is not None:
        raise Failed(f"the other user's client ends with {ended}")
    words = "is untouched" if ended is None else f"ends with {ended}"
    return f"the culprit gets {code}, the other user's client {words}, the next client is served in {served:.0f} ms"


def daemon_killed(subject):
    """`kill -9` of the daemon with a client at work; a newcomer meanwhile; the daemon started again."""
    with subject.daemon() as daemon:
        client = daemon.client("mps-bystander", "--until-stdin-closes")
        client.wait("ready")
        before = daemon.servers()
        daemon.kill()
        newcomer = daemon.client("mps-first-alloc", "--until-stdin-closes")
        try:
            newcomer.wait("allocated", 1.5)
            meanwhile = "runs without MPS"
        except Failed as failed:
            meanwhile = "waits" if "no allocated" in str(failed) else str(failed)
        daemon.start()
        after = daemon.servers()
        served = bool(newcomer.find("allocated")) or newcomer.wait("allocated", 20)
        known = str(newcomer.pid) in daemon.ask(f"get_client_list {after[0]}")[1].split() if after else False
        client.process.stdin.close()
        code = client.error()
    if subject.name == "ours" and (code is not None or meanwhile != "waits" or before != after or not known):
        raise Failed(f"client {code}, newcomer {meanwhile}, servers {before} {after}, newcomer known: {known}")
    return (
        f"the client {'goes on' if code is None else f'gets {code}'}, a newcomer {meanwhile}"
        f"{', then is served' if served and meanwhile == 'waits' else ''}; after the restart the server is"
        f" {'the same' if before == after else 'another or none'} and {'knows' if known else 'does not know'} the newcomer"
    )


CHECKS = [
    golden,
    live,
    users,
    multi_user,
    torch,
    server_killed,
    forced_then_quit,
    drained,
    left_in_handshake,
    fault_elsewhere,
    daemon_killed,
]

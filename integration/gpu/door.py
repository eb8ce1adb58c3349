"""The pipe directory belongs to the daemon's user alone: real servers and clients of three users get all they need. And what
they may have together, where they share it (`shares`).
"""

import os
import re
import stat
import subprocess
import time

from bench import Client, Failed, until
from shares import shared_by

USERS = [0, 1000, 2000]
PROGRAMS = ["mps-bystander", "mps-first-alloc"]
# As it is found: not there, left by the vendor's daemon, made by Kubernetes' plugin and driver, made as /tmp is.
FOUND = {"missing": None, "vendor's 0777": 0o777, "Kubernetes' 0755": 0o755, "sticky 1777": 0o1777}


def works(ours, theirs, quick):
    """What is run; half a minute in all."""
    found = {"missing": None, "vendor's 0777": 0o777} if quick else FOUND
    several = {f"users {name}": lambda mode=mode: users(ours, mode) for name, mode in found.items()}
    return {
        **several,
        "multi_user": lambda: multi_user(ours, 0o777),
        "shared": lambda: shared(ours),
        "vendor": lambda: vendor(theirs),
        "shared_by": lambda: shared_by(ours),
    }


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def as_user(uid):
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"] if uid else []


def client_of(daemon, uid, program, *arguments):
    """A client of any user, in the environment of the daemon."""
    run = as_user(uid)
    client = Client(daemon, run + [str(daemon.subject.root / program), *arguments])
    daemon.clients.append(client)
    return client


def ask_as(daemon, uid, command):
    run = as_user(uid)
    done = subprocess.run(
        run + [daemon.subject.control], input=command + "\n", env=daemon.environment, capture_output=True, text=True, timeout=20
    )
    return done.returncode, done.stdout


def prepared(subject, mode, *options):
    """A daemon that is not started yet, and its directory as it is found."""
    daemon = subject.daemon(*options)
    if mode is not None:
        daemon.pipe.mkdir()
        daemon.pipe.chmod(mode)
    return daemon


def kept(daemon, found):
    """What is in the directory by now, and that it is the daemon's alone."""
    names = {entry.name: entry.lstat() for entry in daemon.pipe.iterdir()}
    foreign = [name for name, entry in names.items() if entry.st_uid != os.geteuid()]
    if foreign:
        raise Failed(f"other users have made {foreign} in the pipe directory")
    now = mode_of(daemon.pipe)
    if daemon.subject.name == "ours" and now & 0o022 and not now & stat.S_ISVTX:
        raise Failed(f"the directory has mode {now:04o}")
    shown = "missing" if found is None else f"{found:04o}"
    modes = ", ".join(f"{name} {stat.S_IMODE(entry.st_mode):04o}" for name, entry in sorted(names.items()))
    return {"directory": f"{shown} before, {now:04o} with the daemon", "in it": modes}


def served_one_after_the_other(daemon):
    """A client of each user, each with a server of that user; the pids of the servers by user."""
    servers = {}
    for uid in USERS:
        client = client_of(daemon, uid, "mps-bystander", "--until-stdin-closes")
        client.wait("ready", 30)
        for pid in daemon.servers():
            try:
                servers.setdefault(os.stat(f"/proc/{pid}").st_uid, pid)
            except FileNotFoundError:
                pass  # The one of the user before has ended since.
        status, answer = ask_as(daemon, uid, "get_server_list")
        if status != 0 or not answer.split():
            raise Failed(f"user {uid} asks and gets {status} {answer!r}")
        client.process.stdin.close()
        if client.error() is not None:
            raise Failed(f"the client of user {uid} fails")
        if daemon.subject.name != "ours":
            # The vendor serves one user at a time.
            time.sleep(1)
    return servers


def users(subject, mode):
    """Clients of three users, each on a server of that user, whose log records arrive."""
    with prepared(subject, mode, "-f") as daemon:
        servers = served_one_after_the_other(daemon)
        if sorted(servers) != USERS:
            raise Failed(f"servers of {sorted(servers)}")
        for uid, pid in servers.items():
            # Through the FIFO, which a server of another user has to open for writing.
            until(lambda pid=pid: re.search(rf"Server +{pid}\]", daemon.log()), 10, f"a record of user {uid}'s server")
        return {"servers of users": sorted(servers), **kept(daemon, mode)}


def multi_user(subject, mode):
    """`-M`: clients of three users at once on one server."""
    with prepared(subject, mode, "-f", "-M") as daemon:
        clients = [client_of(daemon, uid, "mps-bystander", "--until-stdin-closes") for uid in USERS]
        for client in clients:
            client.wait("ready", 30)
        (server,) = daemon.servers()
        pids = set(daemon.ask(f"get_client_list {server}")[1].split())
        if pids != {str(client.pid) for client in clients}:
            raise Failed(f"clients {pids}")
        return kept(daemon, mode)


def shared(subject):
    """Two other users try what the mode is for: to make, replace and remove names."""
    with prepared(subject, 0o777, "-f") as daemon:
        attempts = ["touch new", "mv control other", "rm -f log", "ln -sf /etc/passwd control", "mkdir sub"]
        for uid in USERS[1:]:
            run = [*as_user(uid), "sh", "-c"]
            for attempt in attempts:
                done = subprocess.run(run + [f"cd {daemon.pipe} && {attempt}"], capture_output=True)
                if done.returncode == 0:
                    raise Failed(f"user {uid} could {attempt!r}")
        served_one_after_the_other(daemon)
        return kept(daemon, 0o777)


def vendor(subject):
    """The vendor's own daemon in a directory with mode 0755: what its servers need is not the right to make files."""
    with prepared(subject, 0o755, "-f") as daemon:
        servers = served_one_after_the_other(daemon)
        return {"servers of users": sorted(servers), **kept(daemon, 0o755)}

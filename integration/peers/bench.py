"""A folder with our daemon, the simulated server and the simulated driver, as a peer finds them on a machine."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

# Where cargo has put the programs; `run` sets it.
PROGRAMS = Path()
# How long anything may take; it is there to end a hang.
LIMIT = 60
LIBRARIES = ["libcuda.so", "libcuda.so.1"]
CONTROL = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"


def wait_for(what, is_so):
    """Waits until something is so."""
    deadline = time.monotonic() + LIMIT
    while not is_so():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {LIMIT} s")
        time.sleep(0.01)


class Bench:
    """The folder, the environment of a peer in it, and the clients that it starts."""

    def __init__(self):
        # Short, because the peer's own folders must fit into a socket's name.
        self.folder = Path(tempfile.mkdtemp(prefix="peer", dir="/tmp"))
        programs, libraries = self.folder / "bin", self.folder / "lib"
        programs.mkdir()
        libraries.mkdir()
        for name in (CONTROL, SERVER):
            (programs / name).symlink_to(PROGRAMS / name)
        for name in LIBRARIES:
            (libraries / name).symlink_to(PROGRAMS / "deps/libcuda.so")
        (self.folder / "config").touch()
        self.libraries = libraries
        self.before = dict(os.environ)
        os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
        os.environ["MPS_CONTROL_CONFIG"] = str(self.folder / "config")
        os.environ["MPS_PERSONALITY"] = "580"
        self.clients = []

    def start(self, program, arguments, environment, event):
        """A client, once it has said that this has happened."""
        command = [str(PROGRAMS / program), *arguments]
        environment = {"LD_LIBRARY_PATH": str(self.libraries), **environment}
        output = (self.folder / f"client{len(self.clients)}").open("w+b")
        client = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=output)
        client.told = Path(output.name)
        self.clients.append(client)
        wait_for(f"{event} of {program}", lambda: event in self.events(client))
        return client

    def events(self, client):
        """The events that a client has told of, by name."""
        lines = client.told.read_text().splitlines()
        told = [json.loads(line) for line in lines if line.endswith("}")]
        return {line["event"]: line for line in told}

    def close(self):
        """Ends what was started and removes the folder."""
        for client in self.clients:
            client.stdin.close()
            client.kill()
            client.wait()
        for pid_file in self.folder.rglob(f"{CONTROL}.pid"):
            os.kill(int(pid_file.read_text()), signal.SIGTERM)
            wait_for("the daemon's end", lambda pid_file=pid_file: not pid_file.exists())
        os.environ.clear()
        os.environ.update(self.before)
        shutil.rmtree(self.folder)

"""Daemons, clients and the command line as processes, for both subjects: ours and the vendor's."""

import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

USER = 1000
AS_USER = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
PROGRAMS = ["mps-bystander", "mps-aggressor", "mps-first-alloc"]


class Failed(Exception):
    """A check did not hold; the text says what was seen, and `result` what was found all the same."""

    def __init__(self, text, result=None):
        super().__init__(text)
        if result is not None:
            self.result = result


def until(fact, seconds, what):
    """Waits for `fact` to give something true, and gives it."""
    end = time.monotonic() + seconds
    while True:
        value = fact()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"{what} did not come in {seconds} s")
        time.sleep(0.002)


class Subject:
    """A control program: `ours` or `theirs`."""

    def __init__(self, name, control, root):
        self.name, self.control, self.root = name, str(control), root
        self.count = 0

    def daemon(self, *options, environment=None):
        self.count += 1
        return Daemon(self, self.root / f"{self.name}{self.count}", options or ("-f",), environment or {})


class Daemon:
    """One daemon in folders of its own. Use it with `with`: it is ended whatever happens."""

    def __init__(self, subject, folder, options, environment):
        self.subject, self.folder, self.options = subject, folder, options
        folder.mkdir()
        folder.chmod(0o755)
        self.pipe, self.logs = folder / "p", folder / "l"
        self.environment = {
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.logs),
            **environment,
        }
        self.process = None
        self.clients = []

    def __enter__(self):
        self.start()
        return self

    def start(self):
        self.output = open(self.folder / "out", "ab")
        command = [self.subject.control, *self.options]
        self.process = subprocess.Popen(command, env=self.environment, stdout=self.output, stderr=self.output)
        until(lambda: self.ask("get_server_list", seconds=5)[0] == 0, 20, "the daemon")

    def __exit__(self, _, error, __):
        if isinstance(error, Failed):
            error.seen = [*getattr(error, "seen", []), *self.picture()]
        for client in self.clients:
            client.end()
        self.quit(1)
        self.kill()
        for pid in self.left_over():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def kill(self):
        """SIGKILL, as `kill -9` or the kernel out of memory would."""
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()

    def quit(self, seconds):
        self.ask(f"quit -t {seconds}", seconds=seconds + 15)
        if self.process:
            try:
                return self.process.wait(seconds + 10)
            except subprocess.TimeoutExpired:
                return None

    def left_over(self):
        """Processes that still have this pipe directory in their environment."""
        marker = f"CUDA_MPS_PIPE_DIRECTORY={self.pipe}".encode()
        pids = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and marker in (entry / "environ").read_bytes().split(b"\0"):
                    name = (entry / "cmdline").read_bytes().split(b"\0")[0]
                    if b"nvidia-cuda-mps" in name:
                        pids.append(int(entry.name))
            except (OSError, ValueError):
                pass
        return pids

    def ask(self, command, user=False, seconds=20):
        """Sends a command; gives exit status, standard output and standard error."""
        line = (AS_USER if user else []) + [self.subject.control]
        try:
            done = subprocess.run(
                line, input=command + "\n", env=self.environment, capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return "no answer", "", ""
        return done.returncode, done.stdout, done.stderr

    def servers(self):
        return [int(pid) for pid in self.ask("get_server_list")[1].split()]

    def client(self, program, *arguments, user=False):
        client = Client(self, [str(self.subject.root / program), *arguments], user)
        self.clients.append(client)
        return client

    def picture(self):
        """What the daemon says, has logged and has noted, and where its clients are: for whoever looks for a failure's cause."""
        lines = self.ask("status", seconds=10)[1].splitlines() + self.ask("ps", seconds=10)[1].splitlines()
        journal = self.logs / "events.jsonl"
        lines += journal.read_text(errors="replace").splitlines()[-80:] if journal.exists() else []
        lines += self.log().splitlines()[-60:]
        for pid in [client.pid for client in self.clients if client.process.poll() is None] + self.servers():
            for thread in sorted(Path(f"/proc/{pid}/task").glob("*")):
                for name in ("comm", "wchan", "syscall", "stack"):
                    try:
                        lines.append(f"{pid} {thread.name} {name}: " + " | ".join((thread / name).read_text().split("\n")))
                    except OSError as error:
                        lines.append(f"{pid} {thread.name} {name}: {error}")
        return lines

    def log(self):
        files = [self.folder / "out", self.logs / "control.log", self.logs / "server.log"]
        return "".join(file.read_text(errors="replace") for file in files if file.exists())


class Client:
    """A program on the GPU that prints lines of JSON."""

    def __init__(self, daemon, command, user=False):
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            (AS_USER if user else []) + command,
            env=daemon.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        os.set_blocking(self.process.stdout.fileno(), False)
        self.pid, self.rest, self.lines = self.process.pid, b"", []

    def read(self, seconds=0.0):
        """Takes what the program has printed."""
        if select.select([self.process.stdout], [], [], seconds)[0]:
            chunk = self.process.stdout.read() or b""
            self.rest += chunk
            *whole, self.rest = self.rest.split(b"\n")
            now = time.monotonic()
            self.lines += [{**json.loads(line), "seen": now} for line in whole if line.startswith(b"{")]
            return bool(chunk)
        return False

    def find(self, event):
        self.read()
        return next((line for line in self.lines if line["event"] == event), None)

    def wait(self, event, seconds=30):
        """The first line of this event; an error that comes instead is a failure."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.find(event)
            if found:
                return found
            error = self.find("error")
            if error:
                raise Failed(f"{event} expected, got CUDA error {error.get('code')} {error.get('name')}")
            if not self.read(0.05) and self.process.poll() is not None and not self.find(event):
                raise Failed(f"{event} expected, the program ended with {self.process.returncode}")
        raise Failed(f"no {event} in {seconds} s")

    def error(self, seconds=30):
        """The code of the CUDA error with which the program ends; `None` when it ends well."""
        self.process.wait(seconds)
        while self.read(0.05):
            pass
        line = self.find("error")
        return line and line["code"]

    def end(self):
        """Lets a program that waits for the end of its input end, and any other one too."""
        if self.process.poll() is None:
            try:
                self.process.stdin.close()
                self.process.wait(0.5)
            except (subprocess.TimeoutExpired, BrokenPipeError):
                self.process.terminate()
                try:
                    self.process.wait(5)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()


def prepare(binaries, root, programs=tuple(PROGRAMS)):
    """Copies the programs to where every user can run them."""
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)
    for program in programs:
        shutil.copy(binaries / program, root / program)
        (root / program).chmod(0o755)

"""NVIDIA's k8s-device-plugin with `sharing.mps`: its `mps-control-daemon` and its `nvidia-device-plugin`, as whole programs.

They run in a root of their own with the mounts of their chart's daemon set: `mount-shm` first, as its init container, then
the program that starts and limits our daemon, then the plugin, which asks the daemon how it is before it registers with a
kubelet of ours. What it gives to a container, variable and mounts, is what a simulated client has then.
"""

import json
import os
import re
import signal
import tempfile
import unittest
from pathlib import Path

import golang
from bench import LIMIT, wait_for
from node import MEMORY_MIB, Node, mount, only_ours

# A checkout of NVIDIA/k8s-device-plugin and the `go` command; `run` sets them.
CHECKOUT, GO = Path(), ""
# What is built of theirs, and the kubelet that stands in their module.
BUILT = {"mps-control-daemon": {}, "nvidia-device-plugin": {}, "remps-kubelet": {"main.go": "device_plugin_kubelet.go"}}
MAIN = "cmd/mps-control-daemon/main.go"
PLUGINS = "/var/lib/kubelet/device-plugins"
RESOURCE = "nvidia.com/gpu"
EXCLUSIVE_PROCESS, DEFAULT = 3, 0
STAYS = ["--until-stdin-closes"]
CONFIG = """version: v1
sharing:
  mps:
    renameByDefault: {renamed}
    resources:
      - name: nvidia.com/gpu
        replicas: {replicas}
"""


def setUpModule():
    global folder
    folder = tempfile.TemporaryDirectory(prefix="built", dir="/tmp")
    unittest.addModuleCleanup(folder.cleanup)
    print(f"k8s-device-plugin: {golang.version(CHECKOUT)}", flush=True)
    for name, ours in BUILT.items():
        files = {f"cmd/{name}/{place}": file for place, file in ours.items()}
        golang.build(GO, CHECKOUT, f"./cmd/{name}", Path(folder.name) / name, files)


class DevicePlugin(unittest.TestCase):
    def begin(self, gpus=1, replicas=4, renamed=False):
        """The node, with the plugin's programs and the mounts of its daemon set."""
        self.node = Node(gpus)
        self.addCleanup(self.node.close)
        self.plugins = []
        root = self.node.root
        for name in BUILT:
            (root / "usr/bin" / name).touch()
            mount("--bind", Path(folder.name) / name, root / "usr/bin" / name)
        host = root / "run/nvidia/mps"
        host.mkdir(parents=True)
        mount("--bind", host, host)
        mount("--make-shared", host)
        mount("--bind", host, root / "mps")
        (root / PLUGINS.lstrip("/")).mkdir()
        (root / "etc/plugin.yaml").write_text(CONFIG.format(replicas=replicas, renamed=str(renamed).lower()))
        self.resource = RESOURCE + (".shared" if renamed else "")
        self.own = root / "mps" / self.resource
        self.pipe = f"/mps/{self.resource}/pipe"
        done = self.node.run("mps-control-daemon", "mount-shm")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((host / "shm").is_mount())
        mount("--bind", host / "shm", root / "dev/shm")

    def daemons(self):
        """Their program that starts ours, once it is ready."""
        process = self.node.start("mps-control-daemon", "--config-file", "/etc/plugin.yaml")
        # Its file of readiness may be that of one that was killed.
        is_over = lambda: self.has_begun(process, 1) or process.poll() is not None  # noqa: E731
        self.node.wait("readiness", is_over, process)
        self.assertIsNone(process.poll(), process.told.read_text())
        return process

    def has_begun(self, process, times):
        """Whether their program has started a daemon so often, and is ready."""
        return self.is_ready() and process.told.read_text().count("Starting log tailer") >= times

    def is_ready(self):
        return (self.node.root / "mps/.ready").exists()

    def plugin(self):
        """Their plugin, and what it has told a kubelet to give to a container that wants one device."""
        sockets = self.node.root / PLUGINS.lstrip("/")
        # The one before would register with this kubelet, too.
        for before in self.plugins:
            before.kill()
            before.wait()
        for old in sockets.iterdir():
            old.unlink()
        kubelet = self.node.start("remps-kubelet", PLUGINS)
        self.node.wait("a kubelet", (sockets / "kubelet.sock").exists, kubelet)
        plugin = self.node.start(
            "nvidia-device-plugin", "--config-file", "/etc/plugin.yaml", "--mps-root", "/run/nvidia/mps",
            # They would wait for events of the library.
            environment={"DP_DISABLE_HEALTHCHECKS": "all"},
        )
        self.plugins.append(plugin)
        failed = "Failed to start plugin"
        is_over = lambda: kubelet.poll() is not None or failed in plugin.told.read_text()  # noqa: E731
        self.node.wait("an answer", is_over, kubelet, plugin)
        return plugin, json.loads(kubelet.told.read_text() or "null")

    def allocated(self):
        plugin, given = self.plugin()
        self.assertIsNotNone(given, plugin.told.read_text())
        self.assertIn("MPS daemon is healthy", plugin.told.read_text())
        return given

    def ask(self, line):
        return self.node.ask(self.pipe, line)

    def daemon(self):
        """The daemon's pid, by its log: the vendor's of 535 writes no file."""
        lines = (self.own / "log/control.log").read_text().splitlines()
        (*_, last) = [line for line in lines if "Starting control daemon" in line]
        return int(re.search(r" (\d+)\]", last)[1])

    def ended(self, process):
        """Their program's status, after it was told to end."""
        process.send_signal(signal.SIGTERM)
        return process.wait(LIMIT)

    def assert_nothing_left(self, daemon, process):
        said = process.told.read_text()
        wait_for("the daemon's end", lambda: not Path(f"/proc/{daemon}").exists())
        self.assertFalse(self.is_ready(), said)
        self.assertEqual([path.name for path in self.own.iterdir()], ["pipe"], said)
        self.assertEqual([self.node.mode(uuid) for uuid in self.node.gpus], [DEFAULT] * len(self.node.gpus), said)
        self.assertIn("Stopped MPS control daemon", said)

    def test_the_daemon_is_started_limited_followed_and_ended(self):
        self.begin()
        process = self.daemons()
        self.assertTrue((self.own / ".started").exists())
        self.assertEqual(self.node.mode(self.node.gpus[0]), EXCLUSIVE_PROCESS)
        self.assertEqual(self.ask("get_default_device_pinned_mem_limit 0"), "20G")
        self.assertEqual(self.ask("get_default_active_thread_percentage"), "25.0")
        log = (self.own / "log/control.log").read_text()
        self.assertIn("set_default_device_pinned_mem_limit 0 20480M", log)
        self.node.wait("the log as theirs shows it", lambda: log in process.told.read_text(), process)
        daemon = self.daemon()
        self.assertEqual(self.ended(process), 0, process.told.read_text())
        self.assert_nothing_left(daemon, process)

    def test_a_container_gets_the_directory_and_its_share_of_the_gpu(self):
        self.begin()
        process = self.daemons()
        given = self.allocated()
        self.assertEqual((given["resource"], len(given["devices"])), (RESOURCE, 4))
        self.assertEqual(given["envs"]["CUDA_MPS_PIPE_DIRECTORY"], self.pipe)
        for mounted in given["mounts"]:
            # The container's is the node's, as the kubelet would mount it.
            container, host = (self.node.root / mounted[key].lstrip("/") for key in ("container_path", "host_path"))
            self.assertTrue(container.samefile(host), mounted)
        clients = [self.node.client("mps-bystander", STAYS, given["envs"], "ready") for _ in range(4)]
        server = self.ask("get_server_list")
        self.assertEqual(
            sorted(map(int, self.ask(f"get_client_list {server}").split())), sorted(client.pid for client in clients)
        )
        self.assertEqual(self.ask(f"get_active_thread_percentage {server}"), "25.0")
        self.assertEqual(self.ask(f"get_device_pinned_mem_limit {server} 0"), "20G")
        share = MEMORY_MIB // 4
        self.node.client("mps-first-alloc", ["--mib", str(share - 1024)], given["envs"], "allocated")
        refused = self.node.client("mps-first-alloc", ["--mib", str(share + 1)], given["envs"], "error")
        self.assertIn("OUT_OF_MEMORY", refused.told.read_text())
        for client in clients:
            client.stdin.close()
            self.assertEqual(client.wait(LIMIT), 0, client.told.read_text())
        self.assertEqual(self.ended(process), 0, process.told.read_text())

    def test_each_gpu_has_its_limit_under_the_name_that_sharing_gives(self):
        self.begin(gpus=2, replicas=8, renamed=True)
        process = self.daemons()
        given = self.allocated()
        self.assertEqual((given["resource"], len(given["devices"])), (f"{RESOURCE}.shared", 16))
        client = self.node.client("mps-bystander", [*STAYS, "--device", "1"], given["envs"], "ready")
        server = self.ask("get_server_list")
        for gpu in (0, 1):
            self.assertEqual(self.node.mode(self.node.gpus[gpu]), EXCLUSIVE_PROCESS)
            self.assertEqual(self.ask(f"get_device_pinned_mem_limit {server} {gpu}"), "10G")
        self.assertEqual(self.ask(f"get_active_thread_percentage {server}"), "12.0")
        share = MEMORY_MIB // 8
        for gpu in ("0", "1"):
            over = ["--device", gpu, "--mib", str(share + 1)]
            self.node.client("mps-first-alloc", over, given["envs"], "error")
        client.stdin.close()
        self.assertEqual(client.wait(LIMIT), 0, client.told.read_text())
        daemon = self.daemon()
        self.assertEqual(self.ended(process), 0, process.told.read_text())
        self.assert_nothing_left(daemon, process)

    def test_a_change_of_their_configuration_ends_the_daemon_and_starts_another(self):
        self.begin()
        process = self.daemons()
        for times, replicas in enumerate((8, 10, 2), 2):
            daemon = self.daemon()
            (self.node.root / "etc/plugin.yaml").write_text(CONFIG.format(replicas=replicas, renamed="false"))
            process.send_signal(signal.SIGHUP)
            self.node.wait("another daemon", lambda times=times: self.has_begun(process, times), process)
            self.assertNotEqual(self.daemon(), daemon)
            self.assertEqual(self.ask("get_default_active_thread_percentage"), f"{100 // replicas}.0")
            self.assertEqual(self.ask("get_default_device_pinned_mem_limit 0"), f"{MEMORY_MIB // 1024 // replicas}G")
        self.assertEqual(self.ended(process), 0, process.told.read_text())

    def test_the_end_waits_for_clients_at_work(self):
        self.begin()
        process = self.daemons()
        client = self.node.client("mps-bystander", [*STAYS, "--every-ms", "50"], self.allocated()["envs"], "ready")
        daemon = self.daemon()
        process.send_signal(signal.SIGTERM)
        self.node.wait("the order to end", lambda: "Cmd:quit" in process.told.read_text(), process)
        seen = client.told.read_text().count("progress")
        self.node.wait("more work", lambda: client.told.read_text().count("progress") > seen + 3, client)
        self.assertIsNone(process.poll(), process.told.read_text())
        client.stdin.close()
        self.assertEqual(client.wait(LIMIT), 0, client.told.read_text())
        self.assertEqual(process.wait(LIMIT), 0, process.told.read_text())
        self.assert_nothing_left(daemon, process)

    def test_a_pod_that_is_killed_leaves_nothing_that_keeps_the_next_from_starting(self):
        self.begin()
        process = self.daemons()
        given = self.allocated()
        lost = self.node.client("mps-bystander", STAYS, given["envs"], "ready")
        daemon = self.daemon()
        # The whole node, since a container of its client's has the same root here.
        self.node.kill(self.node.root)
        for one in (process, lost):
            # A client may have had its error before.
            self.assertNotEqual(one.wait(LIMIT), 0)
        self.assertTrue((self.own / ".started").exists())
        process = self.daemons()
        self.assertNotEqual(self.daemon(), daemon)
        self.assertEqual(self.ask("get_default_device_pinned_mem_limit 0"), "20G")
        client = self.node.client("mps-bystander", STAYS, self.allocated()["envs"], "ready")
        self.assertEqual(self.ask(f"get_client_list {self.ask('get_server_list')}"), str(client.pid))
        client.stdin.close()
        self.assertEqual(client.wait(LIMIT), 0, client.told.read_text())
        daemon = self.daemon()
        self.assertEqual(self.ended(process), 0, process.told.read_text())
        self.assert_nothing_left(daemon, process)

    @only_ours
    def test_a_daemon_that_dies_is_seen_by_both_and_is_there_again_with_its_clients(self):
        self.begin()
        process = self.daemons()
        given = self.allocated()
        client = self.node.client("mps-bystander", [*STAYS, "--every-ms", "50"], given["envs"], "ready")
        daemon = self.daemon()
        os.kill(daemon, signal.SIGKILL)
        wait_for("its end", lambda: not Path(f"/proc/{daemon}").exists())
        plugin, none = self.plugin()
        self.assertIsNone(none)
        self.assertIn("error checking MPS daemon health", plugin.told.read_text())
        process.send_signal(signal.SIGHUP)
        # As theirs is written it ends then, and its container is started again.
        self.assertEqual(process.wait(LIMIT), 1, process.told.read_text())
        self.assertIn("error sending quit message", process.told.read_text())
        self.assertFalse(self.is_ready())
        process = self.daemons()
        self.assertNotEqual(self.daemon(), daemon)
        self.assertEqual(self.ask("get_default_device_pinned_mem_limit 0"), "20G")
        given = self.allocated()
        second = self.node.client("mps-bystander", STAYS, given["envs"], "ready")
        server = self.ask("get_server_list")
        self.assertEqual(
            sorted(map(int, self.ask(f"get_client_list {server}").split())), sorted([client.pid, second.pid])
        )
        seen = client.told.read_text().count("progress")
        self.node.wait("more work", lambda: client.told.read_text().count("progress") > seen + 3, client)
        for one in (client, second):
            one.stdin.close()
            self.assertEqual(one.wait(LIMIT), 0, one.told.read_text())
        self.assertEqual(self.ended(process), 0, process.told.read_text())

    @only_ours
    def test_a_thin_daemon_answers_in_the_place_of_one_of_its_own(self):
        self.begin()
        self.node.start_node_daemon()
        process = self.daemons()
        given = self.allocated()
        client = self.node.client("mps-bystander", STAYS, given["envs"], "ready")
        server = self.ask("get_server_list")
        self.assertEqual(self.ask(f"get_client_list {server}"), str(client.pid))
        self.assertEqual(self.ask(f"get_active_thread_percentage {server}"), "25.0")
        self.assertEqual(self.ask(f"get_device_pinned_mem_limit {server} 0"), "20G")
        self.assertIn("joined_", self.node.of_the_node("server list --format=csv,noheader"))
        refused = self.node.client("mps-first-alloc", ["--mib", str(MEMORY_MIB // 4 + 1)], given["envs"], "error")
        self.assertIn("OUT_OF_MEMORY", refused.told.read_text())
        client.stdin.close()
        self.assertEqual(client.wait(LIMIT), 0, client.told.read_text())
        daemon = self.daemon()
        self.assertEqual(self.ended(process), 0, process.told.read_text())
        self.assert_nothing_left(daemon, process)

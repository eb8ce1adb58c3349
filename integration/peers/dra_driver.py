"""The DRA driver (kubernetes-sigs/dra-driver-nvidia-gpu): its `MpsControlDaemon`, and the daemon that its Deployment starts.

`Start`, `AssertReady`, `GetCDIContainerEdits` and `Stop` are called in the driver's package by a test of ours that stands
there, against an API server and a kubelet of ours (`cluster.py`). The Deployment is rendered from the driver's template by
the driver, and its shell is executed with the volumes that it names. What the driver gives to a container, variable and
mounts, is what a simulated client has then. Its `main`, which needs a kubelet's socket and ResourceSlices, is not run.
"""

import json
import tempfile
import unittest
from pathlib import Path

import golang
from bench import CONTROL, LIMIT
from cluster import Cluster, with_mounts
from node import Node, bind, is_old, mount, only_ours

# A checkout of kubernetes-sigs/dra-driver-nvidia-gpu and the `go` command; `run` sets them.
CHECKOUT, GO = Path(), ""
PLUGINS = "/var/lib/kubelet/plugins"
TEMPLATE = "templates/mps-control-daemon.tmpl.yaml"
EXCLUSIVE_PROCESS, DEFAULT = 3, 0
# A driver's root without a shell, as on Google's nodes.
WITHOUT_SHELL = "/opt/nvidia"
STAYS = ["--until-stdin-closes", "--every-ms", "50"]
LIMIT_MIB = 10 * 1024


def setUpModule():
    global folder
    folder = tempfile.TemporaryDirectory(prefix="built", dir="/tmp")
    unittest.addModuleCleanup(folder.cleanup)
    print(f"dra-driver-nvidia-gpu: {golang.version(CHECKOUT)}", flush=True)
    ours = {"cmd/gpu-kubelet-plugin/remps_test.go": "dra_driver_test.go"}
    golang.build(GO, CHECKOUT, "./cmd/gpu-kubelet-plugin", Path(folder.name) / "driver", ours, test=True)


class DraDriver(unittest.TestCase):
    def begin(self, gpus=1, driver_root="/"):
        """The node, and the container of the driver's plugin on it."""
        self.node = Node(gpus)
        self.addCleanup(self.node.close)
        self.driver_root = driver_root
        if driver_root != "/":
            self.node.install(self.node.place(driver_root), "/lib64")
        kubelet = self.node.root / "var/lib/kubelet"
        mount("--bind", kubelet, kubelet)
        mount("--make-shared", kubelet)
        self.cluster = Cluster(self.node)
        self.addCleanup(self.cluster.close)
        self.plugin = self.node.make_root("plugin")
        mount("--bind", kubelet, self.plugin / "var/lib/kubelet")
        bind(self.node.place(driver_root), self.plugin / "driver-root")
        bind(Path(folder.name), self.plugin / "built")
        bind(CHECKOUT.resolve() / "templates", self.plugin / "templates")

    def claim(self, gpus, uid="claim", percentage=50, users=False):
        """The driver's own code for a claim, which waits for steps."""
        asked = {
            "api": self.cluster.address,
            "claim": uid,
            "gpus": gpus,
            "percentage": percentage,
            "limit": f"{LIMIT_MIB}Mi",
            "multiUser": users,
            "driverRoot": "/driver-root",
            "hostRoot": self.driver_root,
            "pluginsPath": PLUGINS,
        }
        return self.node.start(
            "/built/driver", "-test.run", "TestOfReMPS",
            environment={"MPS_PEER_ASKED": json.dumps(asked)}, root=self.plugin,
        )

    def step(self, driver, step):
        """Has the driver do a step, and returns what it says of it."""
        def answers():
            lines = driver.told.read_text().splitlines(keepends=True)
            return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

        before = len(answers())
        driver.stdin.write(f"{step}\n".encode())
        driver.stdin.flush()
        self.node.wait(step, lambda: len(answers()) > before or driver.poll() is not None, driver)
        self.assertGreater(len(answers()), before, driver.told.read_text())
        return answers()[-1]

    def does(self, driver, step):
        answer = self.step(driver, step)
        self.assertNotIn("error", answer, driver.told.read_text() + self.pods_told())
        return answer

    def pods_told(self):
        return "".join(pod.process.told.read_text() for pod in self.cluster.pods.values())

    def pod(self, answer):
        return self.cluster.pods[f"mps-control-daemon-{answer['id']}"]

    def directories(self, answer):
        """The claim's directory on the node."""
        return self.node.place(f"{PLUGINS}/gpu.nvidia.com/mps/{answer['id']}")

    def client(self, driver, program, arguments, gpu, event):
        """A client in a container of the claim."""
        edits = self.does(driver, "edits")["edits"]
        mounts = [(self.node.place(one["hostPath"]), self.node.place(one["containerPath"])) for one in edits["mounts"]]
        variables = dict(one.split("=", 1) for one in edits["env"])
        environment = {**variables, "CUDA_VISIBLE_DEVICES": gpu}
        return self.node.client(program, arguments, environment, event, before=with_mounts(mounts))

    def ask(self, answer, line):
        """What the claim's daemon answers."""
        return self.node.ask(str(self.directories(answer) / "pipe").removeprefix(str(self.node.root)), line)

    def assert_claim_serves(self, driver, started, gpu):
        """A claim's daemon has its limits, and clients have them, too. The first of them stays."""
        self.assertEqual(self.ask(started, "get_default_active_thread_percentage"), "50.0")
        first = self.client(driver, "mps-bystander", STAYS, gpu, "ready")
        server = self.ask(started, "get_server_list")
        self.assertEqual(self.ask(started, f"get_client_list {server}"), str(first.pid))
        self.assertEqual(self.ask(started, f"get_active_thread_percentage {server}"), "50.0")
        if is_old():
            return first
        self.assertEqual(self.ask(started, f"get_device_pinned_mem_limit {server} 0"), "10G")
        self.client(driver, "mps-first-alloc", ["--mib", str(LIMIT_MIB - 1024)], gpu, "allocated")
        refused = self.client(driver, "mps-first-alloc", ["--mib", str(LIMIT_MIB + 1)], gpu, "error")
        self.assertIn("OUT_OF_MEMORY", refused.told.read_text())
        return first

    def ends(self, client):
        client.stdin.close()
        self.assertEqual(client.wait(LIMIT), 0, client.told.read_text())

    def assert_comes_up_and_goes(self):
        gpu = self.node.gpus[-1]
        driver = self.claim([gpu])
        started = self.does(driver, "start")
        self.assertEqual(self.node.mode(gpu, self.driver_root), EXCLUSIVE_PROCESS)
        self.assertTrue((self.directories(started) / "shm").is_mount())
        self.does(driver, "ready")
        log = (self.directories(started) / "log/control.log").read_text()
        pod = self.pod(started).process
        self.node.wait("the log as the pod shows it", lambda: log in pod.told.read_text(), pod)
        self.ends(self.assert_claim_serves(driver, started, gpu))
        # Again, as after the plugin's restart: it finds its Deployment.
        self.does(driver, "start")
        self.does(driver, "stop")
        self.assertEqual(self.node.mode(gpu, self.driver_root), DEFAULT)
        self.assertFalse(self.directories(started).exists())
        driver.stdin.close()
        self.assertEqual(driver.wait(LIMIT), 0, driver.told.read_text())

    def test_a_claim_comes_up_in_the_drivers_root_serves_and_goes(self):
        self.begin(gpus=2)
        self.assert_comes_up_and_goes()

    def test_a_claim_comes_up_where_the_drivers_root_has_no_shell(self):
        self.begin(driver_root=WITHOUT_SHELL)
        self.assert_comes_up_and_goes()

    @only_ours
    def test_claims_join_the_daemon_of_the_node_by_the_script_in_the_drivers_root(self):
        self.begin(gpus=2)
        self.node.start_node_daemon()
        drivers = [self.claim([gpu], uid) for gpu, uid in zip(self.node.gpus, ("one", "two"))]
        started = [self.does(driver, "start") for driver in drivers]
        for driver in drivers:
            self.does(driver, "ready")
        clients = [self.assert_claim_serves(*claim) for claim in zip(drivers, started, self.node.gpus)]
        servers = [row.split(",") for row in self.node.of_the_node("server list --format=csv,noheader").splitlines()]
        joined = [row for row in servers if row[0].startswith("joined_")]
        self.assertEqual(len(joined), 2, servers)
        # A claim that goes takes its clients along, and nobody else's.
        self.does(drivers[0], "stop")
        self.assertFalse(self.directories(started[0]).exists())
        seen = clients[1].told.read_text().count("progress")
        self.node.wait("more work", lambda: clients[1].told.read_text().count("progress") > seen + 3, clients[1])
        self.ends(clients[1])
        self.does(drivers[1], "stop")

    def test_a_claim_of_several_users_has_a_server_for_all_of_them(self):
        if is_old():
            self.skipTest("Skipped(no -M)")
        self.begin()
        driver = self.claim(self.node.gpus, users=True)
        started = self.does(driver, "start")
        self.does(driver, "ready")
        client = self.assert_claim_serves(driver, started, self.node.gpus[0])
        server = self.ask(started, "get_server_list")
        self.assertIn("-multiuser-server", Path(f"/proc/{server}/cmdline").read_text().split("\0"))
        self.ends(client)
        self.does(driver, "stop")

    def test_a_pod_that_is_killed_comes_up_again_in_the_same_directories(self):
        self.begin()
        driver = self.claim(self.node.gpus)
        started = self.does(driver, "start")
        self.does(driver, "ready")
        first = self.assert_claim_serves(driver, started, self.node.gpus[0])
        self.cluster.restart(f"mps-control-daemon-{started['id']}")
        self.node.wait("its client's end", lambda: '"error"' in first.told.read_text(), first)
        self.does(driver, "ready")
        self.ends(self.assert_claim_serves(driver, started, self.node.gpus[0]))
        self.does(driver, "stop")

    def test_a_pod_that_never_starts_is_not_ready_and_can_be_stopped(self):
        self.begin()
        (self.node.root / "usr/bin" / CONTROL).unlink()
        driver = self.claim(self.node.gpus)
        started = self.does(driver, "start")
        self.assertIn("come online", self.step(driver, "ready")["error"])
        self.does(driver, "stop")
        self.assertFalse(self.directories(started).exists())

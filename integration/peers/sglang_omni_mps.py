"""sglang-omni's `MpsManager` with its `SubprocessMpsControlClient`: the life of its replicas on one GPU under our daemon.

What it checks of a daemon by itself: the pid file and that `/proc` shows its program's name and pipe directory, lists of
pids that hold digits alone, `0` and nothing else as the answer to `terminate_client`, and the daemon's end after `quit`.
"""

import os
import signal
import unittest

from bench import Bench, wait_for

# The first of the simulated driver's (`integration/sim-wire/src/hardware.rs`).
GPU = "GPU-5e900000-6d70-732d-7369-6d0000000000"


class SglangOmni(unittest.TestCase):
    def setUp(self):
        from sglang_omni.mps.control import SubprocessMpsControlClient
        from sglang_omni.mps.manager import MPS_CLIENT_TOKEN_ENV, MpsManager
        from sglang_omni.mps.state import MpsGpuPaths

        self.bench = Bench()
        self.addCleanup(self.bench.close)
        self.token_variable = MPS_CLIENT_TOKEN_ENV
        paths = MpsGpuPaths(state_root=self.bench.folder / "state", gpu_uuid=GPU)
        self.client = SubprocessMpsControlClient()
        self.manager = MpsManager(paths=paths, gpu_uuid=GPU, client=self.client)
        self.pipe = paths.pipe_dir

    def replica(self, token, program="mps-bystander", arguments=("--until-stdin-closes",), event="ready"):
        stage = self.manager.env_for_stage()
        return self.bench.start(program, arguments, {**stage, self.token_variable: token}, event)

    def test_two_replicas_attach_work_and_are_released(self):
        lease = self.manager.acquire({"first": "a", "second": "b"})
        self.assertEqual(self.client.snapshot(self.pipe), set())
        replicas = [self.replica("a"), self.replica("b")]
        attached = self.manager.verify(lease)
        self.assertEqual({ref.client_pid for ref in attached}, {replica.pid for replica in replicas})
        self.assertEqual(len({ref.server_pid for ref in attached}), 1)
        self.assertIsNone(self.manager.probe(lease))
        for replica in replicas:
            replica.stdin.close()
            self.assertEqual(replica.wait(), 0)
        self.manager.release(lease)
        self.assertFalse(self.client.daemon_process_alive(lease.daemon_pid))
        self.assertFalse(self.manager.paths.state_dir.exists())

    def test_one_replica_is_retired_and_the_other_goes_on(self):
        lease = self.manager.acquire({"first": "a", "second": "b"})
        first = self.replica("a", "mps-aggressor", ("endless",), "launched")
        second = self.replica("b")
        self.manager.verify(lease)
        retired = self.manager.retire_clients_for(lease, "first")
        self.assertEqual({ref.client_pid for ref in retired}, {first.pid})
        first.kill()
        first.wait()
        wait_for("the list is without it", lambda: first.pid not in self.pids())
        self.assertEqual(self.pids(), {second.pid})
        self.assertIsNone(self.manager.probe(lease))
        second.stdin.close()
        self.assertEqual(second.wait(), 0)
        self.assertNotIn("error", self.bench.events(second))
        self.manager.release(lease)

    def test_a_client_that_is_none_is_refused_in_words(self):
        from sglang_omni.mps.manager import MpsClientRef, MpsControlError

        lease = self.manager.acquire({"first": "a"})
        replica = self.replica("a")
        (attached,) = self.manager.verify(lease)
        with self.assertRaises(MpsControlError):
            self.client.terminate_client(self.pipe, MpsClientRef(attached.server_pid, 1))
        with self.assertRaises(MpsControlError):
            self.client.terminate_client(self.pipe, MpsClientRef(1, replica.pid))
        self.assertEqual(self.pids(), {replica.pid})
        replica.stdin.close()
        self.assertEqual(replica.wait(), 0)
        self.manager.release(lease)

    def test_a_daemon_that_is_killed_is_told_from_one_that_answers(self):
        lease = self.manager.acquire({"first": "a"})
        os.kill(lease.daemon_pid, signal.SIGTERM)
        wait_for("its end", lambda: not self.client.daemon_process_alive(lease.daemon_pid))
        self.assertIn("daemon identity", self.manager.probe(lease))

    def pids(self):
        return {ref.client_pid for ref in self.client.snapshot(self.pipe)}

"""NVIDIA Dynamo's `GPUQuiescenceManager`, with which its GPU memory service fences writers before their memory is used again.

It asks `nvidia-cuda-mps-control` by pipes: `get_server_list` and `get_client_list`, of which every word has to be a pid,
and `terminate_client`, whose only proof is `0` and nothing else, also on standard error. The file is run alone and
unmodified. What it imports of its package are three functions, which are stood in for: one writes a marker for other
programs, and two say what holds where its variables say nothing, which they do not here.
"""

import asyncio
import importlib.util
import os
import subprocess
import sys
import types
import unittest
from pathlib import Path

from bench import CONTROL, LIMIT, Bench, wait_for

# `gpu_quiescence.py`; `run` sets it.
FILE = Path()
PACKAGE = "gpu_memory_service"
BACKEND, OLD, NEW = "vllm", "old", "new"


def loaded():
    """The peer's module."""
    stand_ins = {
        "gpu_failure_marker": {"publish_gpu_failure_marker": lambda *_, **__: None},
        "gpu_isolation": {"default_quiescence_provider": lambda: None, "default_reclaim_policy": lambda: "strict"},
    }
    for name in (PACKAGE, f"{PACKAGE}.common"):
        package = sys.modules.setdefault(name, types.ModuleType(name))
        package.__path__ = []
    for name, functions in stand_ins.items():
        module = types.ModuleType(f"{PACKAGE}.common.{name}")
        vars(module).update(functions)
        sys.modules[module.__name__] = module
    spec = importlib.util.spec_from_file_location("gpu_quiescence", FILE)
    peer = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = peer
    spec.loader.exec_module(peer)
    return peer


class GmsQuiescence(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.bench = Bench()
        self.addCleanup(self.bench.close)
        self.pipe = self.bench.folder / "pipe"
        self.pipe.mkdir()
        os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(self.bench.folder)
        os.environ["DYN_GMS_GPU_QUIESCENCE_PROVIDER"] = "gms-mps"
        os.environ["DYN_GMS_GPU_QUIESCENCE_TIMEOUT_SECS"] = str(LIMIT)
        self.peer = loaded()
        self.manager = self.peer.GPUQuiescenceManager()

    async def asyncSetUp(self):
        # The loop of a test complains of what takes long, as the start of a program does.
        asyncio.get_running_loop().slow_callback_duration = LIMIT

    def daemon(self, config=""):
        (self.bench.folder / "config").write_text(config)
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}
        subprocess.run([CONTROL, "-d"], env=environment, check=True, timeout=LIMIT)

    def ask(self, line):
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}
        done = subprocess.run(
            [CONTROL], env=environment, input=line, capture_output=True, text=True, check=True, timeout=LIMIT
        )
        return done.stdout.split()

    def writer(self, **more):
        """A client at work on the GPU for ever."""
        return self.started("mps-aggressor", ["endless"], "launched", **more)

    def started(self, program, arguments, event, **more):
        environment = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), **more}
        return self.bench.start(program, arguments, environment, event)

    def register(self, writer, cohort=OLD):
        descriptor = self.manager.register(
            backend=BACKEND,
            cohort=cohort,
            pid=writer.pid,
            process_start_time_value=self.peer.process_start_time(writer.pid),
            rank=0,
            mps_pipe_directory=str(self.pipe),
            crash_interlock=True,
        )
        self.addCleanup(os.close, descriptor)

    async def quiesce(self, cohort=OLD):
        return await self.manager.quiesce(
            backend=BACKEND, predecessor_cohort=cohort, successor_cohort=NEW, terminate_host=True
        )

    async def test_a_writer_is_ended_with_the_proof_that_it_wants_and_the_successor_goes_on(self):
        self.daemon()
        old, new = self.writer(), self.writer()
        self.register(old)
        self.register(new, NEW)
        result = await self.quiesce()
        self.assertTrue(result.quiesced, result)
        self.assertEqual((result.provider, result.client_count), ("gms-mps", 1))
        self.assertIn(f"pid={old.pid}:cuda_result=0:absent from inventory", result.detail)
        # Its GPU error ends it, or the peer does.
        self.assertNotEqual(old.wait(LIMIT), 0)
        (server,) = self.ask("get_server_list\n")
        self.assertEqual(self.ask(f"get_client_list {server}\n"), [str(new.pid)])
        self.assertEqual(await self.quiesce(), result, "a proof stays one")

    async def test_of_several_servers_the_writers_own_is_found(self):
        self.daemon('[domains]\nby = "label"\n')
        old, new = self.writer(MPS_DOMAIN="a"), self.writer(MPS_DOMAIN="b")
        # Without another client the server of a writer that dies at work is ended at once, and the peer takes a server that
        # is not found for no answer (docs/limits.md).
        beside = self.started("mps-bystander", ["--until-stdin-closes"], "ready", MPS_DOMAIN="a")
        self.assertEqual(len(self.ask("get_server_list\n")), 2)
        self.register(old)
        result = await self.quiesce()
        self.assertTrue(result.quiesced, result)
        old.wait(LIMIT)
        listed = [pid for server in self.ask("get_server_list\n") for pid in self.ask(f"get_client_list {server}\n")]
        self.assertEqual(set(listed), {str(new.pid), str(beside.pid)})

    async def test_who_was_gone_before_is_no_proof(self):
        self.daemon()
        # At rest, since the death of one at work has its domain get another server.
        old, new = (self.started("mps-bystander", ["--until-stdin-closes"], "ready") for _ in range(2))
        self.register(old)
        old.kill()
        old.wait(LIMIT)
        (server,) = self.ask("get_server_list\n")
        wait_for("the list is without it", lambda: str(old.pid) not in self.ask(f"get_client_list {server}\n"))
        result = await self.quiesce()
        self.assertFalse(result.quiesced, result)
        self.assertIn("did not certify termination", result.detail)
        self.assertIsNone(new.poll())

"""NCCL by torch.distributed: sums over all ranks, one a GPU, in processes that begin together; the first is the guest."""

import ctypes
import datetime
import os
import sys

import torch
import torch.distributed as group
import torch.multiprocessing as processes

WORLD = int(sys.argv[2])
# PyTorch's watchdog of NCCL ends the process at any error of CUDA's, told or not; this program goes on instead.
os.environ.update({"TORCH_NCCL_RETHROW_CUDA_ERRORS": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"})


def join(rank):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.cuda.set_device(rank)
    group.init_process_group("nccl", rank=rank, world_size=WORLD, timeout=datetime.timedelta(seconds=60))


def summed(rank):
    values = torch.arange(4096, dtype=torch.float32, device="cuda") + rank
    group.all_reduce(values)
    return values.cpu().numpy().tobytes()


# Of prctl: a signal when the one who has begun this process ends.
PR_SET_PDEATHSIG, SIGKILL = 1, 9


def other(rank, requests, answers):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    join(rank)
    while requests.get():
        try:
            summed(rank)
            answers.put(None)
        except Exception as error:  # noqa: BLE001 - the first process is to know
            answers.put(f"{type(error).__name__}: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    from frame import serve

    spawning = processes.get_context("spawn")
    os.environ["MASTER_PORT"] = str(29500 + os.getpid() % 2000)
    pairs = [(spawning.Queue(), spawning.Queue()) for _ in range(1, WORLD)]
    for rank, pair in enumerate(pairs, 1):
        spawning.Process(target=other, args=(rank, *pair), daemon=True).start()
    join(0)

    def compute():
        for requests, _ in pairs:
            requests.put(True)
        values = summed(0)
        for _, answers in pairs:
            error = answers.get(timeout=60)
            if error:
                raise RuntimeError(f"another rank: {error}")
        return values

    serve(compute)

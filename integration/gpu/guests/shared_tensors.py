"""torch.multiprocessing: a tensor on the GPU that another process, with a context of its own, works on too."""

import ctypes

import torch
import torch.multiprocessing as processes


# Of prctl: a signal when the one who has begun this process ends.
PR_SET_PDEATHSIG, SIGKILL = 1, 9


def other(requests, answers):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
    shared = requests.get()
    while requests.get():
        try:
            shared.mul_(2)
            torch.cuda.synchronize()
            answers.put(None)
        except Exception as error:  # noqa: BLE001 - the first process is to know
            answers.put(f"{type(error).__name__}: {str(error).splitlines()[0]}")


if __name__ == "__main__":
    from frame import serve

    spawning = processes.get_context("spawn")
    requests, answers = spawning.Queue(), spawning.Queue()
    spawning.Process(target=other, args=(requests, answers), daemon=True).start()
    host = torch.arange(1 << 16, dtype=torch.float32)
    shared = host.cuda()
    requests.put(shared)

    def compute():
        shared.copy_(host)
        torch.cuda.synchronize()
        requests.put(True)
        error = answers.get(timeout=30)
        if error:
            raise RuntimeError(f"the other process: {error}")
        return shared.cpu().numpy().tobytes()

    serve(compute)

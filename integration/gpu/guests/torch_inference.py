"""PyTorch: a small network with attention and a convolution, and what else goes to NVIDIA's libraries: eager, compiled,
with automatic mixed precision, as a captured graph, or with the profiler on."""

import sys

import torch
from frame import serve

way = sys.argv[2]
torch.manual_seed(1)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = torch.nn.Conv1d(16, 32, 3, padding=1)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.last = torch.nn.Linear(32, 8)

    def forward(self, given):
        return torch.softmax(self.last(self.layer(self.seen(given).transpose(1, 2))), -1)


network = Network().cuda().eval()
host = torch.randn(8, 16, 64).pin_memory()
given = host.cuda()
called = torch.compile(network) if way == "compiled" else network
graph = answer = None
if way == "graph":
    with torch.no_grad():
        for _ in range(3):
            network(given)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = network(given)
if way == "profiled":
    from torch.profiler import ProfilerActivity, profile

    profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]).__enter__()


@torch.no_grad()
def compute():
    given.copy_(host, non_blocking=True)
    if graph:
        graph.replay()
        return answer.cpu().numpy().tobytes()
    with torch.autocast("cuda", torch.bfloat16, enabled=way == "amp"):
        values = [called(given).float()]
    if way == "eager":
        square = torch.eye(32, device="cuda") * 2 + 1
        values += [torch.linalg.solve(square, torch.ones(32, 1, device="cuda")), torch.sort(given.flatten())[0]]
        values += [torch.fft.rfft(given).abs()]
    return [value.cpu().numpy().tobytes() for value in values]


serve(compute)

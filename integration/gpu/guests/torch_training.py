"""PyTorch: three steps of training from known weights, eager, compiled, or with automatic mixed precision."""

import sys

import torch
from frame import serve

way = sys.argv[2]
torch.manual_seed(1)
first, last = torch.nn.Linear(256, 256), torch.nn.Linear(256, 64)
model = torch.nn.Sequential(first, torch.nn.GELU(), torch.nn.LayerNorm(256), last).cuda()
begun = {name: value.cpu().clone() for name, value in model.state_dict().items()}
given, wanted = torch.randn(64, 256, device="cuda"), torch.randn(64, 64, device="cuda")
called = torch.compile(model) if way == "compiled" else model


def compute():
    model.load_state_dict(begun)
    adam, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler(enabled=way == "amp")
    for _ in range(3):
        adam.zero_grad()
        with torch.autocast("cuda", torch.float16, enabled=way == "amp"):
            loss = torch.nn.functional.mse_loss(called(given).float(), wanted)
        scaler.scale(loss).backward()
        scaler.step(adam)
        scaler.update()
    values = [loss.detach(), *(parameter.detach() for parameter in model.parameters())]
    return [value.cpu().numpy().tobytes() for value in values]


serve(compute)

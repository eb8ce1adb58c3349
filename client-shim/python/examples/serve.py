#!/usr/bin/env python3
"""Serves a small language model with random weights of its own, and goes on where it was after a fault.

    pip install ./client-shim/python
    nvidia-cuda-mps-control run --name llm -- python3 client-shim/python/examples/serve.py

Each line of standard input is a prompt; the answer is generated one token a step. Weights are constant, so a successor has
them at once. Tokens are committed with their count, the cache is made anew from them, since a fault may have torn it. So an
answer that was cut off is finished by the next process, the same to the last token. Without a predecessor it begins anew.
"""

import json
import sys

import torch

import mps_state.torch

VOCABULARY, WIDTH, LAYERS, TOKENS = 256, 256, 4, 64


def fill(seed):
    def make(tensor):
        generator = torch.Generator(device="cpu").manual_seed(seed)
        tensor.copy_(torch.randn(tensor.shape, generator=generator).mul_(tensor.shape[-1] ** -0.5))

    return make


class Model:
    """A causal model: each layer mixes the mean of what came before into each token."""

    def __init__(self, state):
        constant = lambda name, shape, seed: state.tensor(name, shape, torch.float32, fill(seed), constant=True)  # noqa: E731
        self.embedding = constant("embedding", (VOCABULARY, WIDTH), 1)
        self.layers = [(constant(f"mix{i}", (WIDTH, WIDTH), 10 + i), constant(f"own{i}", (WIDTH, WIDTH), 50 + i))
                       for i in range(LAYERS)]

    def next(self, tokens):
        """The token that follows, without chance."""
        hidden = self.embedding[torch.tensor(tokens, device=self.embedding.device)]
        for mix, own in self.layers:
            past = hidden.cumsum(0) / torch.arange(1, len(tokens) + 1, device=hidden.device).unsqueeze(1)
            hidden = hidden + torch.tanh(past @ mix + hidden @ own)
        return int((hidden[-1] @ self.embedding.T).argmax())


def answer(state, model, number, tokens, prompt_length):
    while len(tokens) < prompt_length + TOKENS:
        tokens.append(model.next(tokens))
        state.commit(number, json.dumps({"tokens": tokens, "prompt": prompt_length}).encode())
    print(json.dumps({"request": number, "tokens": tokens[prompt_length:]}), flush=True)


def main():
    state = mps_state.torch.State()
    model = Model(state)
    number = 0
    if state.generation is not None:
        number = state.generation
        unfinished = json.loads(state.recovery.data) if state.recovery.data else None
        print(json.dumps({"recovered": number, "rest": state.recovery.rest}), flush=True)
        if unfinished:
            answer(state, model, number, unfinished["tokens"], unfinished["prompt"])
            state.commit(number)
    for line in sys.stdin:
        tokens = list(line.strip().encode()[:TOKENS]) or [0]
        number += 1
        answer(state, model, number, tokens, len(tokens))
        # Nothing is unfinished any more.
        state.commit(number)


if __name__ == "__main__":
    main()

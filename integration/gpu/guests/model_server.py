"""A small model server: a language model whose weights come from a file, behind HTTP on the loopback interface.

    model_server.py KERNELS WEIGHTS     serves; prints the port with `ready`
    model_server.py --make WEIGHTS      writes weights of its own making

It is what an inference server is to its neighbours under MPS, and has the three lines that one needs which is to go on
after a fault (docs/engineers.md). `POST /generate` with `{"prompt": [numbers], "tokens": N}` answers with the tokens, with
the process and with how often it was recovered. `POST /fault` with `{"kind": NAME}` launches a kernel that does wrong, as a
bad request may make any server do. A server that still fails after `TRIES` is of no more use, and ends.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.nn.functional as F

LAYERS, WIDTH, INNER, HEADS, VOCABULARY = 16, 2048, 5632, 16, 8192
TRIES = 3
# Of a request, in bytes: a prompt of some thousand numbers.
LONGEST = 1 << 16


def shapes():
    """Each weight's name and shape."""
    yield "embedding", (VOCABULARY, WIDTH)
    for layer in range(LAYERS):
        yield f"{layer}.attention", (3 * WIDTH, WIDTH)
        yield f"{layer}.out", (WIDTH, WIDTH)
        yield f"{layer}.up", (2 * INNER, WIDTH)
        yield f"{layer}.down", (WIDTH, INNER)


def make(path):
    """Weights without training: the same in every run."""
    generator = torch.Generator().manual_seed(1)
    weights = {name: (torch.randn(shape, generator=generator) * shape[-1] ** -0.5).bfloat16() for name, shape in shapes()}
    torch.save(weights, path)


class Model:
    """A causal model in the manner of Llama, which decides without chance."""

    def __init__(self, path):
        self.weights = {name: weight.cuda() for name, weight in torch.load(path, mmap=True).items()}

    @torch.inference_mode()
    def next(self, tokens):
        """The token that follows."""
        hidden = F.embedding(torch.tensor([tokens], device="cuda"), self.weights["embedding"])
        for layer in range(LAYERS):
            of = lambda name, layer=layer: self.weights[f"{layer}.{name}"]  # noqa: E731
            parts = F.linear(F.rms_norm(hidden, (WIDTH,)), of("attention")).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2)
            hidden = hidden + F.linear(seen, of("out"))
            gate, up = F.linear(F.rms_norm(hidden, (WIDTH,)), of("up")).chunk(2, -1)
            hidden = hidden + F.linear(F.silu(gate) * up, of("down"))
        return int(F.linear(F.rms_norm(hidden[:, -1], (WIDTH,)), self.weights["embedding"]).argmax())

    def generate(self, prompt, count):
        tokens = list(prompt)
        while len(tokens) < len(prompt) + count:
            tokens.append(self.next(tokens))
        return tokens[len(prompt) :]


class Server:
    """One model, one request at a time."""

    def __init__(self, weights):
        self.model, self.lock = Model(weights), threading.Lock()

    def generate(self, prompt, tokens):
        with self.lock:
            for attempt in range(TRIES):
                try:
                    return {"tokens": self.model.generate(prompt, tokens)}
                except RuntimeError as error:
                    # It was told: nothing of this answer counts, and the weights are constant.
                    print("again after", error, file=sys.stderr, flush=True)
                    last = error
            end(f"no answer after {TRIES} tries: {last}")

    def fault(self, kind):
        with self.lock:
            try:
                return {"codes": fault(kind)}
            except RuntimeError as error:
                end(f"after its own fault: {error}")


def end(why):
    """Ends the process at once: other threads may be inside a driver that is dead."""
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):  # noqa: N802 - the name that http.server asks for
        try:
            length = int(self.headers.get("Content-Length", ""))
            if not 0 < length <= LONGEST:
                raise ValueError("the request is empty or too long")
            asked = json.loads(self.rfile.read(length))
            if self.path == "/generate":
                answer = self.server.own.generate([int(word) % VOCABULARY for word in asked["prompt"]], int(asked["tokens"]))
            elif self.path == "/fault":
                answer = self.server.own.fault(str(asked["kind"]))
            else:
                return self.answer(404, {"error": f"there is no {self.path}"})
        except (ValueError, KeyError, TypeError) as error:
            return self.answer(400, {"error": str(error)})
        return self.answer(200, {**answer, "pid": os.getpid(), "recoveries": recoveries()})

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main(weights):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.own = Server(weights)
    server.own.generate([1, 2, 3], 2)
    print(json.dumps({"event": "ready", "port": server.server_port}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        make(sys.argv[2])
    else:
        from frame import fault, recoveries

        main(sys.argv[2])

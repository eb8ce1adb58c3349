"""`shared_by` on a real GPU: the clients of a domain together take no more memory than the domain may have, and one more than
there are parts is refused. NVIDIA's server enforces each one's part.
"""

import sys
from pathlib import Path

from bench import Client, Failed
from crowd import configured

ALLOCATOR = Path(__file__).resolve().parent / "guests/allocator.py"
# Parts, and what the domain may have in all.
PARTS, ALL_MIB = 2, 4096
CONFIGURATION = f"[domains]\nshared_by = {PARTS}\n"
# What a client may take less than its part, since it takes pieces and its context has some, and seconds for its answer.
SLACK_MIB, TO_ANSWER = 1024, 60


def allocator(daemon):
    """A program that takes what it gets."""
    client = Client(daemon, [sys.executable, str(ALLOCATOR)])
    daemon.clients.append(client)
    return client


def shared_by(subject):
    """Clients up to the number of parts, then one more, then one in the place of one that has ended."""
    with configured(subject, CONFIGURATION) as daemon:
        status, output, errors = daemon.ask(f"set_default_device_pinned_mem_limit 0 {ALL_MIB}M")
        if status != 0:
            raise Failed(f"the limit is refused: {output}{errors}")
        clients, taken = [], []
        for _ in range(PARTS):
            clients.append(allocator(daemon))
            taken.append(clients[-1].wait("taken", TO_ANSWER)["mib"])
        if sum(taken) > ALL_MIB or min(taken) < ALL_MIB // PARTS - SLACK_MIB:
            raise Failed(f"{PARTS} clients that share {ALL_MIB} MiB have taken {taken} MiB")
        one_more = allocator(daemon).wait("refused", TO_ANSWER)
        if one_more["mib"]:
            raise Failed(f"one more client is there: {one_more}")
        clients[0].end()
        again = allocator(daemon).wait("taken", TO_ANSWER)["mib"]
        return {
            "for all, MiB": ALL_MIB,
            "taken by each, MiB": taken,
            "one more": f"refused with CUDA error {one_more['code']}",
            "in the place of one that has ended, MiB": again,
        }

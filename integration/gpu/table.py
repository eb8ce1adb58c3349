"""The table *program × fault* of the suite `programs`: what each cell says is in the header of [`programs`](programs.py)."""

import os
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import replay
from bench import Failed
from guest import TO_END
from roster import ALL

KINDS = ["oob", "trap", "misaligned", "assert"]
# Each kind while the program is idle and while it is at work, and the table's columns.
FAULTS = [(kind, is_busy) for is_busy in (False, True) for kind in KINDS]
# Those that reach a neighbour: a failed assertion ends its own program alone.
REACHING = [(kind, is_busy) for kind, is_busy in FAULTS if kind in replay.SHARED]
COLUMNS = {(kind, is_busy): f"{kind}, {'busy' if is_busy else 'idle'}" for kind, is_busy in FAULTS}
# How many programs begin at once: each takes a core or two and about 1 GiB.
AT_ONCE = max(1, 3 * (os.cpu_count() or 1) // 4)
# Seconds between two reports of a table that is not whole yet.
BETWEEN_REPORTS = 5
# The neighbour that does wrong, which has a row where it did not end by itself.
CULPRIT = "the culprit itself"
# The column that says whether a program has ended by itself.
END = "its end"
# The column that says what an idle bystander has lost, and the one with the recoveries of all its processes.
SINCE = "told, since"
RECOVERIES = "recoveries, ms"


class Table:
    """Cells by program and fault; a cell that failed is told, and fails the figure when all is done."""

    def __init__(self, suite, figure):
        self.cells, self.failed, self.suite, self.figure = {}, [], suite, figure
        self.recovered = {}
        self.lock, self.told_at = threading.Lock(), time.monotonic()

    def put(self, name, kind, cell):
        print(f"{name}, {kind}: {cell}", file=sys.stderr, flush=True)
        with self.lock:
            self.cells.setdefault(name, {}).setdefault(kind, Counter())[cell] += 1
            self.tell()

    def tell(self):
        """Reports what there is so far: the machine may be taken away before the rest."""
        if time.monotonic() > self.told_at + BETWEEN_REPORTS:
            self.suite.tell(self.figure, self.rows())
            self.told_at = time.monotonic()

    def is_not_tried(self, name, kind):
        with self.lock:
            if not self.cells.setdefault(name, {}).get(kind):
                self.cells[name][kind] = Counter({"not tried": 1})

    def fails(self, name, kind, error):
        print(f"{name}, {kind}: FAILED: {error}", file=sys.stderr, flush=True)
        with self.lock:
            self.failed.append(f"{name}, {kind}: {error}")
            self.cells.setdefault(name, {}).setdefault(kind, Counter())["**failed**"] += 1
            self.tell()

    def leaves(self, name, program):
        """Lets a program that is well end by itself. One that waits for ever has lost work that its libraries wait for."""
        program.process.stdin.close()
        try:
            status = program.process.wait(TO_END)
        except subprocess.TimeoutExpired:
            program.hangs()
            program.process.kill()
            program.process.wait()
            return self.put(name, END, f"does not end in {TO_END} s")
        if status != 0:
            return self.fails(name, END, f"ended with {status}: {program.said()}")
        return self.put(name, END, "well")

    def takes_in(self, name, is_busy, recovered):
        """How long each recovery took, and whether it was by a spare copy."""
        with self.lock:
            for is_by_spare, took in recovered:
                self.recovered.setdefault(name, {}).setdefault((is_busy, is_by_spare), []).append(took)

    def recoveries_of(self, name):
        parts = []
        for (is_busy, is_by_spare), took in sorted(self.recovered.get(name, {}).items()):
            way = f"{'busy' if is_busy else 'idle'}, {'by the spare copy' if is_by_spare else 'without'}"
            parts.append(f"{way}: {len(took)}, {min(took):.3g} / {statistics.median(took):.3g} / {max(took):.3g}")
        return {RECOVERIES: "; ".join(parts)} if parts else {}

    def rows(self):
        def text(cells):
            return "; ".join(cell if count == 1 and len(cells) == 1 else f"{cell} ({count})" for cell, count in cells.most_common())

        rows = {}
        for name in (*ALL, CULPRIT):
            if name in self.cells:
                rows[name] = {kind: text(self.cells[name][kind]) for kind in (*COLUMNS.values(), END, SINCE) if kind in self.cells[name]}
                rows[name] |= self.recoveries_of(name)
            elif name in (self.suite.missing or {}):
                rows[name] = {kind: self.suite.missing[name] for kind in COLUMNS.values()}
        return rows

    def result(self):
        rows = self.rows()
        if self.failed:
            raise Failed("; ".join(self.failed), {**rows, "failures": dict(enumerate(self.failed, 1))})
        return rows


def each(names, work, table=None, kind="begins", at_once=AT_ONCE):
    """Does the same with every program, some at a time. What fails is told at the end, or put into the table."""
    with ThreadPoolExecutor(max(1, at_once)) as pool:
        done = {name: pool.submit(work, name) for name in names}
    result, failed = {}, []
    for name, future in done.items():
        error = future.exception()
        if error is None:
            result[name] = future.result()
        elif table is not None:
            table.fails(name, kind, f"{type(error).__name__}: {error}")
        else:
            failed.append(f"{name}: {type(error).__name__}: {error}")
    if failed:
        raise Failed("; ".join(failed) + f"; others: {result}")
    return result

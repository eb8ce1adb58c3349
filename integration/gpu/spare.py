"""A spare copy of the driver on a real GPU: programs that have everything which can be made again are hit by a neighbour's
faults, and go on with the copy that stands by in them, or with one that is made then, in the same run.

`mps-replay-probe` compares every byte after each recovery and says in which way it was made and what each step took. The
times are the library's: from the error's being noticed until the gate opens.
"""

import itertools
import re
import subprocess
import time

import hangs
import replay
from bench import Failed, until
from crowd import NO_QUARANTINE, configured
from figures import spread, spread_to_p99
from victims import COLD, Torch, Victim, beside, have_spares

PROGRAMS = ["mps-replay-probe", "mps-aggressor", "mps-cost"]
# As `mps_shim.h` has it.
BY_THE_SPARE = 1
STEPS = ("wait", "map", "objects")
# What the last two are made of.
SWITCH = ("held", "alive", "memory", "objects", "stack", "settings", "variables", "graphs", "names", "lead")
# The ways as `victims` has them, and what each is called.
WAYS = {"spare": "spare", "spare full": "spare with full stacks", COLD: "cold"}
# What the library says when the copy has all that the program has, to the end of the line.
IS_LEVEL = re.compile("the spare copy has all that the program has(, which is at rest)?\n")
# After how many switches of one process what it has is counted, besides the last one.
COUNTED_AFTER = (10, 100, 500)
# The two that are compared.
MEASURED_OFTEN = ("spare", COLD)
VICTIMS = (1, 4, 8)


def is_by_the_spare(way, recoveries):
    """Fails where a copy stood by and was not gone on with."""
    ways = [one["way"] for one in recoveries]
    if way != COLD and set(ways) != {BY_THE_SPARE}:
        raise Failed(f"by the spare copy {ways.count(BY_THE_SPARE)} of {len(ways)}")


def total_ms(recoveries):
    return [one["total_us"] / 1000 for one in recoveries]


def probed(kinds, seconds=10):
    """What the probe is told for so many faults, with so many seconds for each."""
    patience = str(120 + seconds * len(kinds))
    return ["--recoveries", str(len(kinds)), "--seconds", patience, "--light", *replay.BELONGINGS["all"]]


def faults(ours, library, way, victims, kinds, is_at_once=False):
    """One fault after the other beside so many victims, each when all have had a copy for a second, or none; or, at once, as
    soon as the last copy stands.
    """
    with configured(ours, NO_QUARANTINE) as daemon:
        programs = [Victim(daemon, library, way, probed(kinds)) for _ in range(victims)]
        found = beside(programs, daemon, way, kinds, is_at_once)
    recoveries = list(itertools.chain.from_iterable(found))
    is_by_the_spare(way, recoveries)
    total = total_ms(recoveries)
    after = {kind: [one["total_us"] / 1000 for own in found for one, of in zip(own, kinds) if of == kind] for kind in dict.fromkeys(kinds)}
    by_kind = {f"after {kind}, ms": spread_to_p99(times) for kind, times in after.items()}
    steps = steps_of(way, recoveries)
    return {"recovered, bit-exact": f"{len(total)} of {len(total)}", "error to gate, ms": spread_to_p99(total), **by_kind, **steps}


def steps_of(way, recoveries):
    """What the time went to, and the recoveries that took most of it."""
    steps = {f"{step}, ms": spread([one["steps_us"][step] / 1000 for one in recoveries]) for step in STEPS}
    if way != COLD:
        steps |= {f"switch: {part}, ms": spread([one["switch_us"][part] / 1000 for one in recoveries]) for part in SWITCH}
        steps["calls of the spare copy"] = spread([one["calls"] for one in recoveries])
        steps |= longest(recoveries)
    return steps


def switches(ours, library, count, tell):
    """One switch after the other in one process, each as soon as the next copy stands, and what the process has after 10, 100
    and 1,000 of them.

    It is counted while a copy stands and no dead one is being given back. `tell` takes what there is so far.
    """
    kinds = (["oob", "trap"] * count)[:count]
    with configured(ours, NO_QUARANTINE) as daemon:
        program = Victim(daemon, library, "spare", probed(kinds))
        program.wait("ready", 120)
        again, resources = [], {}

        def counts():
            return {f"after {done}": ", ".join(f"{name} {number}" for name, number in of.items()) for done, of in resources.items()}

        def one(done, kind):
            began = time.monotonic()
            have_spares(daemon, [program], done)
            if done:
                again.append(1000 * (time.monotonic() - began))
            if done in COUNTED_AFTER or done + 1 == count:
                resources[done] = program.resources()
                tell(counts())
            daemon.client("mps-aggressor", kind).process.wait(30)
            until(lambda: program.has_recovered(done, done + 1 == count), 40, "a recovery")
            for ended in [client for client in daemon.clients if client is not program and client.process.poll() is not None]:
                daemon.clients.remove(ended)

        for done, kind in enumerate(kinds):
            try:
                one(done, kind)
            except Failed as failed:
                where = hangs.told(program, [("daemon", daemon.process.pid)])
                raise Failed(f"after {done} of {count}, {kind}: {failed}: {program.errors.read_text()[-600:]}\n{where}") from failed
        recoveries = program.found(count)
    is_by_the_spare("spare", recoveries)
    total = total_ms(recoveries)
    found = {"recovered, bit-exact": f"{len(total)} of {count}", "error to gate, ms": spread_to_p99(total), "from the recovery and the culprit's end to the next copy, ms": spread(again)}
    replay.check_growth(resources[min(10, count - 1)], resources[count - 1], count - 1)
    return found | counts()


def longest(recoveries):
    """The three that took longest, with the steps that took more than a tenth of each."""
    found = {}
    for number, one in enumerate(sorted(recoveries, key=lambda one: -one["total_us"])[:3], 1):
        parts = {**one["steps_us"], **{f"switch: {part}": taken for part, taken in one["switch_us"].items()}}
        large = {part: taken / 1000 for part, taken in parts.items() if 10 * taken > one["total_us"]}
        found[f"the {number}. longest, ms"] = f"{one['total_us'] / 1000}: {large}"
    return found


def models(ours, library, way, victims, kinds):
    """The same beside programs with 8 GiB each in 64 blocks, which compare all of it after each fault; PyTorch with a captured
    graph is one of several.
    """
    slabs = ["--slabs", "64,128"]
    with configured(ours, NO_QUARANTINE) as daemon:
        programs = [Victim(daemon, library, way, probed(kinds, 30) + slabs) for _ in range(max(1, victims - 1))]
        if victims > 1:
            programs.append(Torch(daemon, library, way))
        found = beside(programs, daemon, way, kinds)
    is_by_the_spare(way, list(itertools.chain.from_iterable(found)))
    own = found[:-1] if victims > 1 else found
    large = list(itertools.chain.from_iterable(own))
    result = {"recovered, bit-exact": f"{sum(map(len, found))} of {victims * len(kinds)}", "8 GiB: error to gate, ms": spread_to_p99(total_ms(large))}
    result |= {f"8 GiB: {name}": value for name, value in steps_of(way, large).items()}
    if victims > 1:
        result["PyTorch: error to gate, ms"] = spread_to_p99(total_ms(found[-1]))
    return result


def one_side(daemon, program, kind):
    """One fault beside this program: when the culprit's kernel was launched, and what the program has written of it."""
    program.wait("ready", 120)
    program.read(0.01)
    # The program is at work, and not on its way to its first tick.
    program.wait("beat", 30)
    culprit = daemon.client("mps-aggressor", kind)
    launched = culprit.wait("launched", 60)
    culprit.process.wait(30)
    end = time.monotonic() + 60
    while program.process.poll() is None and time.monotonic() < end:
        program.read(0.05)
    while program.read(0.05):
        pass
    return launched["at_us"]


def one_fault(ours, theirs, library, kind="oob"):
    """One fault beside one program that runs one short kernel after the other: with a spare copy, without one, and with the
    vendor's daemon, where there is one. Times of day in microseconds, as the programs and the library have written them.
    """
    found = {"fault": kind}
    arguments = ["--recoveries", "1", "--seconds", "90", "--light", "--ticking", *replay.BELONGINGS["all"]]
    for way, name in (("spare", "with a spare copy"), (COLD, "without one")):
        with configured(ours, NO_QUARANTINE) as daemon:
            program = Victim(daemon, library, way, arguments)
            program.wait("ready", 120)
            if way != COLD:
                have_spares(daemon, [program], 0)
            launched = one_side(daemon, program, kind)
            (recovery,) = replay.checked(program.lines, program.errors.read_text(), 1)
            if way != COLD and recovery["way"] != BY_THE_SPARE:
                raise Failed(f"not by the spare copy: {recovery}")
            line = program.find("recovered")
            times = {"launched_at_us": launched, "error_at_us": recovery["at_us"], "good_at_us": line["good_at_us"]}
            found[name] = {**times, "told": line["told"] or 0, "recovery": recovery}
    if theirs:
        with theirs.daemon() as daemon:
            program = daemon.client("mps-replay-probe", *arguments)
            launched = one_side(daemon, program, kind)
            line = program.find("error")
            if not line:
                raise Failed(f"the vendor's client goes on: {program.lines[-2:]}")
            found["with the vendor's daemon"] = {"launched_at_us": launched, "error_at_us": line["at_us"], "told": line["code"]}
    return found


def used_mib():
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])


def memory(ours, library):
    """What spare copies take of the GPU: what is used with them, less what is used without, with a second server each. The
    first one takes what the server itself needs for its first client, too.
    """
    used = {}
    for way, count in itertools.product((COLD, "spare", "spare full"), (1, 2)):
        with configured(ours, NO_QUARANTINE + "\n[domains]\nstandby = true\n") as daemon:
            programs = [Victim(daemon, library, way, ["--recoveries", "1", "--seconds", "60", "--light"]) for _ in range(count)]
            for program in programs:
                program.wait("ready", 120)
            until(lambda: len(daemon.servers()) > 1, 60, "a server that stands by")
            if way != COLD:
                have_spares(daemon, programs, 0)
            used[way, count] = used_mib()
            for program in programs:
                program.process.kill()
                program.process.wait(30)
    taken = {way: [used[way, count] - used[COLD, count] for count in (1, 2)] for way in WAYS if way != COLD}
    found = {f"{WAYS[way]}, the first, MiB": first for way, (first, _) in taken.items()}
    return found | {f"{WAYS[way]}, the second, MiB": both - first for way, (first, both) in taken.items()}


def priced(daemon, library, way):
    """What calls take in a program, in nanoseconds: one run of `mps-cost`, measured when its copy has all that it has."""
    program = Victim(daemon, library, way, ["--begin-when", "told", "--steps", "1"], "mps-cost")
    program.wait("ready", 60)
    if way == "spare":
        until(lambda: IS_LEVEL.search(program.errors.read_text()), 60, "a level copy")
    program.process.stdin.write(b"now\n")
    program.process.stdin.flush()
    program.wait("end", 60)
    program.process.wait(30)
    return {line["call"]: line["ns"] for line in program.lines if line["event"] == "cost"}


def steady(ours, library, seconds):
    """What a spare copy costs while nothing happens: calls of a program that has one, as a share of what they take in the same
    round in a program that is recovered without one; runs in turns as long as there is time.
    """
    begun, found = time.monotonic(), []
    with configured(ours, NO_QUARANTINE + "\n[domains]\nstandby = true\n") as daemon:
        while len(found) < 3 or time.monotonic() - begun < seconds:
            # Who is first is another one in each round.
            ways = ("spare", COLD) if len(found) % 2 else (COLD, "spare")
            found.append({way: priced(daemon, library, way) for way in ways})
    share = lambda call: [one["spare"][call] / one[COLD][call] for one in found]  # noqa: E731
    return {f"{call}, to one without": spread(share(call)) for call in found[0][COLD]}


# Scenes of `mps-replay-probe`, and what the program is told of its stack limit before, after and at the end.
SCENES = {
    "deep-kernel-later": [1024, 1024, 1024],
    "deep-kernel-before": [1024, 1024, 1024],
    "stack-limit": [2048, 2048, 4096],
}


def stacks(ours, library):
    """A recursive kernel, of which nobody knows how much stack it needs, after a switch to a copy whose stacks are as large as
    the program's kernels need.
    """
    for name, limits in SCENES.items():
        with configured(ours, NO_QUARANTINE) as daemon:
            program = Victim(daemon, library, "spare", ["--scene", name])
            program.wait("pending", 120)
            until(lambda: IS_LEVEL.search(program.errors.read_text()), 60, "a level copy")
            daemon.client("mps-aggressor", "oob").process.wait(30)
            scene = program.wait("scene", 60)
            heard, way = scene["heard"], scene["recovery"]["way"]
            if (heard["limits"], heard["word"], way) != (limits, 28, BY_THE_SPARE):
                raise Failed(f"{name}: {scene}")
    return {name: "right" for name in SCENES}


def works(ours, theirs, library, count, tell):
    """The suite: so many faults `oob` and `trap`, half as many beside several victims, and one `misaligned` for each way and
    number of victims, or a tenth of that with full stacks; as many `misaligned` beside one; ten times as many switches of one
    process; a fifth beside large programs; one fault as it was, of which a
    picture is drawn; stacks, and memory. With --quick it is two of them, some two minutes; 100 else, more than half an hour.
    """
    works = {}
    for victims in VICTIMS:
        for way, name in WAYS.items():
            times = count if way in MEASURED_OFTEN else -(-count // 10)
            # After a misaligned access the server may deny a fault: then the next culprit would be on another one.
            few = ["oob", "trap"] * (times if victims == 1 else -(-times // 2)) + ["misaligned"]
            works[f"faults {name}, {victims} victims"] = lambda way=way, victims=victims, few=few: faults(ours, library, way, victims, few)
    few = ["oob", "trap"] * -(-count // 2)
    works["faults spare at once, 8 victims"] = lambda few=few: faults(ours, library, "spare", 8, few, True)
    for way in MEASURED_OFTEN:
        for victims in (1, 8):
            few = ["oob", "trap"] * -(-count // 10)
            works[f"models {WAYS[way]}, {victims} victims"] = lambda way=way, victims=victims, few=few: models(ours, library, way, victims, few)
        works[f"faults {WAYS[way]}, misaligned"] = lambda way=way: faults(ours, library, way, 1, ["misaligned"] * count)
    works["switches without end"] = lambda: switches(ours, library, 10 * count, lambda so_far: tell("switches without end", so_far))
    works["one_fault"] = lambda: one_fault(ours, theirs, library)
    works["steady"] = lambda: steady(ours, library, 5 if count < 10 else 60)
    works["stacks"] = lambda: stacks(ours, library)
    works["memory"] = lambda: memory(ours, library)
    return works

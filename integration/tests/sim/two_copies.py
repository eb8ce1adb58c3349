"""Two living copies of the driver in one process, each a client of a daemon of its own, with the same memory.

Arguments: the driver, the folders of the first and the second daemon, a text with kernels, a folder for copies. Says
`ready` when both live and have used the memory and a kernel of the first is kept before its work, and `switched` when the
first has met an error and the second has gone on.
"""
import ctypes
import json
import os
import struct
import sys
import time

DRIVER, FIRST, SECOND, KERNELS, FOLDER = sys.argv[1:]
PLACE, SIZE, WORDS = 0x1100_0000_0000, 32 << 20, 1000
libc = ctypes.CDLL(None, use_errno=True)


def out(kind, call):
    value = kind()
    answer = call(ctypes.byref(value))
    assert answer == 0, answer
    return value.value


class Copy:
    def __init__(self, path, daemon):
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = daemon
        self.driver = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
        self.initialised = self.driver.cuInit(0)

    def call(self, name, *arguments):
        answer = getattr(self.driver, name)(*arguments)
        assert answer == 0, (name, answer)

    def make_context(self):
        self.context = out(ctypes.c_void_p, lambda to: self.driver.cuDevicePrimaryCtxRetain(to, 0))
        self.enter()
        with open(KERNELS, "rb") as kernels:
            module = out(ctypes.c_void_p, lambda to: self.driver.cuModuleLoadData(to, kernels.read() + b"\0"))
        module = ctypes.c_void_p(module)
        self.kernel = out(ctypes.c_void_p, lambda to: self.driver.cuModuleGetFunction(to, module, b"increment"))

    def enter(self):
        self.call("cuCtxSetCurrent", ctypes.c_void_p(self.context))

    def reserve(self):
        self.enter()
        size, place, none = ctypes.c_size_t(SIZE), ctypes.c_uint64(PLACE), ctypes.c_size_t(0)
        return out(ctypes.c_uint64, lambda to: self.driver.cuMemAddressReserve(to, size, none, place, 0))

    def map(self, memory):
        place, size, memory = ctypes.c_uint64(PLACE), ctypes.c_size_t(SIZE), ctypes.c_uint64(memory)
        self.call("cuMemMap", place, size, ctypes.c_size_t(0), memory, ctypes.c_uint64(0))
        self.call("cuMemSetAccess", place, size, struct.pack("3i", 1, 0, 3), ctypes.c_size_t(1))

    def increment(self):
        return self.launch() or self.driver.cuCtxSynchronize()

    def launch(self):
        self.enter()
        address, count = ctypes.c_uint64(PLACE), ctypes.c_uint32(WORDS)
        places = (ctypes.c_void_p * 2)(ctypes.addressof(address), ctypes.addressof(count))
        kernel, none = ctypes.c_void_p(self.kernel), ctypes.c_void_p(None)
        return self.driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, none, places, none)

    def words(self):
        self.enter()
        words = (ctypes.c_uint32 * WORDS)()
        self.call("cuMemcpyDtoH_v2", words, ctypes.c_uint64(PLACE), ctypes.c_size_t(WORDS * 4))
        return sorted(set(words))


def copied(number, name):
    """The driver's file once more, with another beginning of its socket's name."""
    with open(DRIVER, "rb") as driver:
        text = driver.read()
    assert text.count(b"cuda-uvmfd-") == 1
    path = os.path.join(FOLDER, f"copy-{number}.so")
    with open(path, "wb") as copy:
        copy.write(text.replace(b"cuda-uvmfd-", name))
    return path


def until(fact):
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def say(event, **facts):
    print(json.dumps({"event": event, **facts}), flush=True)


GATE = os.path.join(FOLDER, "gate")
os.environ["MPS_SIM_WORK_GATE"] = GATE
first = Copy(DRIVER, FIRST)
first.make_context()
assert first.reserve() == PLACE
create = first.driver.cuMemCreate
properties = struct.pack("4i2Q", 1, 1, 1, 0, 0, 0)
memory = out(ctypes.c_uint64, lambda to: create(to, ctypes.c_size_t(SIZE), properties, ctypes.c_uint64(0)))
first.map(memory)
export = first.driver.cuMemExportToShareableHandle
descriptor = out(ctypes.c_int, lambda to: export(to, ctypes.c_uint64(memory), 1, ctypes.c_uint64(0)))
assert first.increment() == 0

same_name = Copy(copied(1, b"cuda-uvmfd-"), SECOND).initialised
# This one sees the first copy's place when it is initialised.
late = Copy(copied(2, b"cuda-uvmf2-"), SECOND)
assert late.initialised == 0
late.make_context()
assert libc.munmap(ctypes.c_void_p(PLACE), ctypes.c_size_t(SIZE)) == 0
without_its_place = first.increment()
late_has_the_place = late.reserve() == PLACE

spare = Copy(copied(3, b"cuda-uvmf3-"), SECOND)
assert spare.initialised == 0
spare.make_context()
spare_has_the_place = spare.reserve() == PLACE
take = spare.driver.cuMemImportFromShareableHandle
spare.map(out(ctypes.c_uint64, lambda to: take(to, ctypes.c_void_p(descriptor), 1)))
seen = [spare.words()]
assert spare.increment() == 0
seen.append(first.words())
assert first.increment() == 0
seen.append(spare.words())
# A kernel that the driver has begun, and that is kept before it touches anything.
os.mkfifo(GATE)
assert first.launch() == 0
until(lambda: os.path.exists(GATE + ".here"))
say(
    "ready",
    same_name=same_name,
    without_its_place=without_its_place,
    late_has_the_place=late_has_the_place,
    spare_has_the_place=spare_has_the_place,
    seen=seen,
)

first.enter()
error = first.driver.cuCtxSynchronize()
# What the copy had begun is over when it has said so: the other one has the memory to itself.
before = spare.words()
os.close(os.open(GATE, os.O_WRONLY))
until(lambda: not os.path.exists(GATE + ".here"))
at_rest = spare.words() == before
os.remove(GATE)
again = [spare.increment() for _ in range(3)]
right = spare.words() == [4 + 3]
first.enter()
say("switched", error=error, at_rest=at_rest, again=again, right=right, first=first.driver.cuCtxSynchronize())

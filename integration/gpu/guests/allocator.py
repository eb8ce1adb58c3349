"""Takes memory of the GPU in equal pieces until it gets no more, by the driver's own interface, and keeps it until its input
ends. It says how much that was, or with which error it was refused.
"""

import ctypes
import json
import sys

PIECE = 64 << 20
# CUDA_ERROR_OUT_OF_MEMORY.
NO_MORE = 2


def say(**what):
    print(json.dumps(what), flush=True)


cuda = ctypes.CDLL("libcuda.so.1")
context, taken = ctypes.c_void_p(), 0
answer = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cuda.cuCtxSetCurrent(context)
while not answer:
    place = ctypes.c_uint64()
    answer = cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(PIECE))
    taken += 0 if answer else PIECE
if taken and answer == NO_MORE:
    say(event="taken", mib=taken >> 20)
else:
    say(event="refused", code=answer, mib=taken >> 20)
sys.stdin.read()

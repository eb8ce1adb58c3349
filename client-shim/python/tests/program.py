"""A program for the test of the module, with nothing but ctypes: what it does is its first argument."""

import ctypes
import os
import signal
import sys

import mps_state

SIZE = 3 << 20
PATTERN = bytes(range(251)) * (SIZE // 251 + 1)


def driver():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, device = ctypes.c_void_p(), ctypes.c_int()
    for answer in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
                   cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)):
        assert answer == 0, answer
    return cuda


def main(what):
    cuda = driver()
    if what == "plain":
        try:
            mps_state.commit(1)
        except (mps_state.NotPreloaded, mps_state.Error) as error:
            print(type(error).__name__, mps_state.is_available())
        return
    if what == "first":
        assert mps_state.adopt() is None, "somebody was here before"
        address = ctypes.c_uint64()
        assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(SIZE)) == 0
        assert cuda.cuMemcpyHtoD_v2(address, PATTERN, ctypes.c_size_t(SIZE)) == 0
        mps_state.register("weights", address.value, SIZE, constant=True)
        try:
            mps_state.register("nowhere", 0x1000, 10)
        except mps_state.Error as error:
            assert error.code == mps_state.INVALID, error
        mps_state.commit(41, b"so far")
        print("committed", hex(address.value), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    recovery = mps_state.adopt()
    assert (recovery.generation, recovery.data, recovery.ranges_in_doubt) == (41, b"so far", 0), recovery.data
    found = mps_state.find("weights")
    assert found.bytes == SIZE and not found.is_in_doubt and mps_state.find("nothing") is None
    back = ctypes.create_string_buffer(SIZE)
    assert cuda.cuMemcpyDtoH_v2(back, ctypes.c_uint64(found.address), ctypes.c_size_t(SIZE)) == 0
    assert back.raw == PATTERN[:SIZE], "torn"
    print("intact", hex(found.address))
    assert mps_state.discard() and not mps_state.discard()


if __name__ == "__main__":
    main(sys.argv[1])

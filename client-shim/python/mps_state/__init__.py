"""State of a GPU program that outlives it: the functions ``mps_state_…`` of the preloaded library, for Python.

The program is started with ``nvidia-cuda-mps-control run --name N -- python …``. It has a CUDA context before it calls
anything here, and adopts before it allocates::

    import mps_state
    left = mps_state.adopt()             # None: nobody has left anything
    ...
    mps_state.register("weights", address, size, constant=True)
    mps_state.commit(step, b"whatever the successor must know")

``include/mps_shim.h`` of the library says what each call means and promises. Pure Python: nothing is compiled, and nothing
but the preloaded library is needed.
"""

import ctypes
import os

__all__ = ["Error", "NotPreloaded", "Range", "Recovery", "adopt", "commit", "discard", "find", "last_recovery",
           "in_doubt", "register", "restore", "unregister", "wait_for_activation", "is_available", "is_standby",
           "OK", "NOTHING", "NOT_YET", "OFF", "NO_DAEMON", "OLD_DAEMON", "REFUSED", "ADDRESS", "DRIVER", "INVALID",
           "NOT_KEPT", "TAKEN", "LOST", "REST_NONE", "REST_PROCESS", "REST_SERVER"]

(OK, NOTHING, NOT_YET, OFF, NO_DAEMON, OLD_DAEMON, REFUSED, ADDRESS, DRIVER, INVALID, NOT_KEPT, TAKEN,
 LOST) = range(13)
REST_NONE, REST_PROCESS, REST_SERVER = range(3)
CONSTANT, SHADOWED = 1, 2
MAX_COMMIT_BYTES = 4096


class Error(RuntimeError):
    """A call that was not done; ``code`` says why."""

    def __init__(self, call, code, text):
        super().__init__(f"{call}: {text}")
        self.code = code


class NotPreloaded(RuntimeError):
    """The library is not in this process: start the program with ``nvidia-cuda-mps-control run``."""


class Range(ctypes.Structure):
    """A labelled range of device memory."""

    _fields_ = [("address", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("flags", ctypes.c_uint32),
                ("is_in_doubt", ctypes.c_uint32)]

    def __repr__(self):
        doubt = ", in doubt" if self.is_in_doubt else ""
        return f"<{self.bytes} bytes at {self.address:#x}{doubt}>"


class Recovery(ctypes.Structure):
    """What this process has taken over. ``data`` are the bytes of the predecessor's last commit."""

    _fields_ = [("generation", ctypes.c_uint64), ("server", ctypes.c_uint64), ("region_bytes", ctypes.c_uint64),
                ("wait_us", ctypes.c_uint64), ("map_us", ctypes.c_uint64), ("is_committed", ctypes.c_uint32),
                ("data_bytes", ctypes.c_uint32), ("predecessor", ctypes.c_uint32), ("rest", ctypes.c_uint32),
                ("regions", ctypes.c_uint32), ("ranges", ctypes.c_uint32), ("ranges_in_doubt", ctypes.c_uint32),
                ("was_standby", ctypes.c_uint32), ("offered_us", ctypes.c_uint64), ("mapped_us", ctypes.c_uint64)]
    data = b""


_SIGNATURES = {
    "adopt": [ctypes.c_uint32],
    "wait_for_activation": [ctypes.c_uint32],
    "discard": [ctypes.c_uint32],
    "register": [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32],
    "unregister": [ctypes.c_char_p],
    "restore": [ctypes.c_char_p],
    "find": [ctypes.c_char_p, ctypes.POINTER(Range)],
    "commit": [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint32],
    "last_recovery": [ctypes.POINTER(Recovery), ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t],
}


def _function(name):
    try:
        # What is preloaded is found among the process's own symbols.
        function = getattr(ctypes.CDLL(None), f"mps_state_{name}")
    except AttributeError:
        raise NotPreloaded(f"mps_state_{name} is not in this process; is libmps_client_shim.so in LD_PRELOAD?") from None
    if name == "text":
        function.argtypes, function.restype = [ctypes.c_int], ctypes.c_char_p
    else:
        function.argtypes, function.restype = _SIGNATURES[name], ctypes.c_int
    return function


def _call(name, *arguments, accepts=(OK,)):
    code = _function(name)(*arguments)
    if code not in accepts:
        raise Error(f"mps_state_{name}", code, _function("text")(code).decode())
    return code


def _milliseconds(seconds):
    return max(0, min(int(seconds * 1000), 0xFFFFFFFF))


def is_available():
    """Whether the library is preloaded and the program has a name."""
    try:
        _function("text")
    except NotPreloaded:
        return False
    return bool(os.environ.get("MPS_SHIM_NAME")) and os.environ.get("MPS_SHIM_KEEP") in ("memory", "state")


def in_doubt():
    """The ranges that work lost by a recovery in place may have written, as pairs of address and bytes; once they are
    read here the next recovery begins anew. mps_shim.h says which they are."""
    try:
        function = ctypes.CDLL(None).mps_shim_in_doubt
    except AttributeError:
        raise NotPreloaded("mps_shim_in_doubt is not in this process") from None
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_size_t
    while True:
        count = function(None, 0)
        ranges = (ctypes.c_uint64 * 2 * count)()
        if function(ranges, count) <= count:
            return [(address, size) for address, size in ranges]


def is_standby():
    """Whether this process was started to wait for another one's end."""
    return os.environ.get("MPS_SHIM_STANDBY", "0") not in ("", "0")


def adopt(timeout=10.0):
    """Takes over what a predecessor has left, at the same addresses; a Recovery, or None if this program is the first.

    Raises Error with NOT_YET when the name's owner lives on, or its server is not known to be at rest in time."""
    return last_recovery() if _call("adopt", _milliseconds(timeout), accepts=(OK, NOTHING)) == OK else None


def wait_for_activation(timeout=1.0):
    """Waits for the end of the name's owner, and takes over from it; None while it lives."""
    code = _call("wait_for_activation", _milliseconds(timeout), accepts=(OK, NOT_YET))
    return last_recovery() if code == OK else None


def register(label, address, size, constant=False, shadowed=False):
    """Names a range of device memory for the next commit. A constant one is not written any more; of a shadowed one each
    commit keeps a copy, for ``restore``."""
    _call("register", label.encode(), address, size, CONSTANT if constant else SHADOWED if shadowed else 0)


def restore(label):
    """Writes a shadowed range back as it was at the last commit; whether there was one."""
    return _call("restore", label.encode(), accepts=(OK, NOTHING)) == OK


def unregister(label):
    """Forgets a label, for the next commit."""
    _call("unregister", label.encode())


def find(label):
    """Where the range of a label is; None if there is none."""
    found = Range()
    return found if _call("find", label.encode(), ctypes.byref(found), accepts=(OK, NOTHING)) == OK else None


def commit(generation, data=b"", timeout=10.0):
    """Notes how far the program has come. Waits for the current context first, and until the vault has everything."""
    _call("commit", generation, bytes(data), len(data), _milliseconds(timeout))


def last_recovery():
    """What this process has taken over; None if nothing."""
    recovery, data = Recovery(), ctypes.create_string_buffer(MAX_COMMIT_BYTES)
    arguments = (ctypes.byref(recovery), ctypes.sizeof(recovery), data, len(data))
    if _call("last_recovery", *arguments, accepts=(OK, NOTHING)) == NOTHING:
        return None
    recovery.data = data.raw[: recovery.data_bytes]
    return recovery


def discard(timeout=10.0):
    """Has the vault forget what is under the program's name; whether there was anything."""
    return _call("discard", _milliseconds(timeout), accepts=(OK, NOTHING)) == OK

"""Which handles a driver gives of functions and kernels that are asked for twice, as a line of JSON.

Arguments: the driver, a text with kernels of which two are `spin` and `long`. Any driver will do, a GPU's too.
"""
import ctypes
import json
import sys

driver = ctypes.CDLL(sys.argv[1])
with open(sys.argv[2], "rb") as file:
    TEXT = file.read() + b"\0"


def out(name, *arguments):
    """What a function gives by its first argument."""
    value = ctypes.c_void_p()
    answer = getattr(driver, name)(ctypes.byref(value), *arguments)
    assert answer == 0, (name, answer)
    return value


assert driver.cuInit(0) == 0
context = out("cuDevicePrimaryCtxRetain", 0)
assert driver.cuCtxSetCurrent(context) == 0
module = out("cuModuleLoadData", TEXT)
functions = [out("cuModuleGetFunction", module, name).value for name in (b"spin", b"long", b"spin", b"long")]
library = out("cuLibraryLoadData", TEXT, None, None, 0, None, None, 0)
kernels = [out("cuLibraryGetKernel", library, b"spin") for _ in range(2)]
of_kernels = [out("cuKernelGetFunction", kernel).value for kernel in kernels]
modules = [out("cuLibraryGetModule", library) for _ in range(2)]
of_modules = [out("cuModuleGetFunction", module, b"spin").value for module in modules]
seen = {
    "functions": functions[:2] == functions[2:],
    "of two names": functions[0] == functions[1],
    "kernels": kernels[0].value == kernels[1].value,
    "functions of kernels": of_kernels[0] == of_kernels[1],
    "modules of a library": modules[0].value == modules[1].value,
    "its module's and its kernel's": set(of_modules) == set(of_kernels),
}
print(json.dumps(seen))

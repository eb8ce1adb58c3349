"""CuPy: cuBLAS, cuFFT, sorting, a kernel that is compiled at run time, and its asynchronous pool."""

import sys

import cupy
import numpy
from frame import serve

if sys.argv[2] == "async":
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
SOURCE = 'extern "C" __global__ void twice(float* x) { x[blockIdx.x * 64 + threadIdx.x] *= 2; }'
kernel = cupy.RawKernel(SOURCE, "twice")
given = numpy.arange(1 << 14, dtype=numpy.float32).reshape(128, 128)


def compute():
    array = cupy.asarray(given)
    product = array @ array
    kernel((2,), (64,), (array,))
    values = [product, array, cupy.sort(array.ravel())]
    if sys.argv[2] == "fft":
        values.append(cupy.fft.fft(array[0]))
    return [cupy.asnumpy(value).tobytes() for value in values]


serve(compute)

// Kernels that allocate and print: both need what the driver has on the GPU for the context, with sizes that were set.
#include "frame.cuh"

__global__ void work(int *words) {
    int *own = static_cast<int *>(malloc(64 * sizeof(int)));
    for (int i = 0; own && i < 64; i++) own[i] = threadIdx.x * i;
    words[threadIdx.x] = own ? own[63] + own[1] : -1;
    free(own);
    if (threadIdx.x == 0) printf("printed by a kernel\n");
}

int main(int count, char **arguments) {
    int *device;
    must(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
    must(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
    must(cudaMalloc(&device, 128 * sizeof(int)));
    return frame::serve(count, arguments, [&] {
        std::vector<int> values(130);
        size_t heap = 0, buffer = 0;
        work<<<1, 128>>>(device);
        must(cudaGetLastError());
        must(cudaMemcpy(values.data(), device, 128 * sizeof(int), cudaMemcpyDeviceToHost));
        must(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
        must(cudaDeviceGetLimit(&buffer, cudaLimitPrintfFifoSize));
        values[128] = heap >> 20, values[129] = buffer >> 20;
        return frame::words(values);
    });
}

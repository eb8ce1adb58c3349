// A kernel that launches a kernel.
#include "frame.cuh"

__global__ void inner(int *words, int by) { words[threadIdx.x] = by * threadIdx.x; }

__global__ void outer(int *words) { inner<<<1, 64>>>(words + 64 * threadIdx.x, threadIdx.x + 2); }

int main(int count, char **arguments) {
    int *device;
    must(cudaMalloc(&device, 256 * sizeof(int)));
    return frame::serve(count, arguments, [&] {
        std::vector<int> values(256);
        outer<<<1, 4>>>(device);
        must(cudaGetLastError());
        must(cudaDeviceSynchronize());
        must(cudaMemcpy(values.data(), device, 256 * sizeof(int), cudaMemcpyDeviceToHost));
        return frame::words(values);
    });
}

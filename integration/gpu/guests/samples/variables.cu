// Constants and a variable of a module that the host writes, and a variable that kernels write.
#include "frame.cuh"

constexpr int N = 1024;
__constant__ int factors[N];
__device__ int offset;
__device__ unsigned total;

__global__ void work(int *words) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    words[i] = i * factors[i] + offset;
    atomicAdd(&total, words[i]);
}

int main(int count, char **arguments) {
    std::vector<int> given(N), values(N + 1);
    for (int i = 0; i < N; i++) given[i] = 3 * i + 1;
    int *device, by = 11;
    must(cudaMalloc(&device, N * sizeof(int)));
    must(cudaMemcpyToSymbol(factors, given.data(), N * sizeof(int)));
    must(cudaMemcpyToSymbol(offset, &by, sizeof(by)));
    return frame::serve(count, arguments, [&] {
        unsigned zero = 0;
        must(cudaMemcpyToSymbol(total, &zero, sizeof(zero)));
        work<<<N / 256, 256>>>(device);
        must(cudaGetLastError());
        must(cudaMemcpy(values.data(), device, N * sizeof(int), cudaMemcpyDeviceToHost));
        must(cudaMemcpyFromSymbol(&values[N], total, sizeof(zero)));
        return frame::words(values);
    });
}

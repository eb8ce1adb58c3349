// Kernels that work on the host's memory: mapped, and registered.
#include "frame.cuh"

constexpr int N = 1 << 14;

__global__ void add(const int *a, const int *b, int *c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i] + b[i];
}

int main(int count, char **arguments) {
    int *a, *c, *on_a, *on_b, *on_c;
    std::vector<int> b(N);
    must(cudaHostAlloc(&a, N * sizeof(int), cudaHostAllocMapped));
    must(cudaHostAlloc(&c, N * sizeof(int), cudaHostAllocMapped));
    must(cudaHostRegister(b.data(), N * sizeof(int), cudaHostRegisterMapped));
    for (int i = 0; i < N; i++) a[i] = i, b[i] = 5 * i;
    must(cudaHostGetDevicePointer(&on_a, a, 0));
    must(cudaHostGetDevicePointer(&on_b, b.data(), 0));
    must(cudaHostGetDevicePointer(&on_c, c, 0));
    return frame::serve(count, arguments, [&] {
        memset(c, 0, N * sizeof(int));
        add<<<N / 256, 256>>>(on_a, on_b, on_c);
        must(cudaGetLastError());
        must(cudaDeviceSynchronize());
        return frame::words(std::vector<int>(c, c + N));
    });
}

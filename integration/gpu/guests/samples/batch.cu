// Copies in a batch: a list of addresses, one of which is a variable's.
#include "frame.cuh"

constexpr int N = 1024;
__device__ int variable[N];

__global__ void more(int *words) { words[threadIdx.x] = variable[threadIdx.x] + 1; }

int main(int count, char **arguments) {
    using namespace frame;
    std::vector<int> given(N), values(2 * N);
    for (int i = 0; i < N; i++) given[i] = 9 * i;
    int *device;
    void *of_variable;
    cudaStream_t stream;
    must(cudaStreamCreate(&stream));
    must(cudaMalloc(&device, 2 * N * sizeof(int)));
    must(cudaGetSymbolAddress(&of_variable, variable));
    return serve(count, arguments, [&] {
        must(cudaMemcpy(device + N, given.data(), N * sizeof(int), cudaMemcpyHostToDevice));
        const void *to[] = {of_variable, device};
        const void *from[] = {device + N, device + N};
        size_t sizes[] = {N * sizeof(int), N * sizeof(int)}, first = 0;
        cudaMemcpyAttributes how = {};
        how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
        must(cudaMemcpyBatchAsync(to, from, sizes, 2, &how, &first, 1, stream));
        more<<<1, N, 0, stream>>>(device + N);
        must(cudaGetLastError());
        must(cudaMemcpyAsync(values.data(), device, 2 * N * sizeof(int), cudaMemcpyDeviceToHost, stream));
        must(cudaStreamSynchronize(stream));
        return words(values);
    });
}

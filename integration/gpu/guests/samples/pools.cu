// Memory in the order of a stream, of the default pool and of a pool of its own.
#include "frame.cuh"

constexpr int N = 1 << 15;

__global__ void fill(int *words, int by) {
    words[blockIdx.x * blockDim.x + threadIdx.x] = by * (blockIdx.x + threadIdx.x);
}

int main(int count, char **arguments) {
    cudaStream_t stream;
    cudaMemPool_t pool;
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 0};
    must(cudaStreamCreate(&stream));
    must(cudaMemPoolCreate(&pool, &properties));
    return frame::serve(count, arguments, [&] {
        std::vector<int> values(2 * N);
        int *of_default, *of_own;
        must(cudaMallocAsync(&of_default, N * sizeof(int), stream));
        must(cudaMallocFromPoolAsync(&of_own, N * sizeof(int), pool, stream));
        fill<<<N / 256, 256, 0, stream>>>(of_default, 3);
        fill<<<N / 256, 256, 0, stream>>>(of_own, 4);
        must(cudaGetLastError());
        must(cudaMemcpyAsync(values.data(), of_default, N * sizeof(int), cudaMemcpyDeviceToHost, stream));
        must(cudaMemcpyAsync(values.data() + N, of_own, N * sizeof(int), cudaMemcpyDeviceToHost, stream));
        must(cudaFreeAsync(of_default, stream));
        must(cudaFreeAsync(of_own, stream));
        must(cudaStreamSynchronize(stream));
        return frame::words(values);
    });
}

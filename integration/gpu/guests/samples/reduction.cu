// A sum over a grid by cooperative groups: one kernel in which all blocks wait for each other.
#include "frame.cuh"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace groups = cooperative_groups;

constexpr int BLOCKS = 32, THREADS = 256;

__global__ void sum(const unsigned *words, unsigned *parts, unsigned *whole) {
    auto grid = groups::this_grid();
    auto warp = groups::tiled_partition<32>(groups::this_thread_block());
    __shared__ unsigned of_warps[THREADS / 32];
    unsigned part = groups::reduce(warp, words[grid.thread_rank()], groups::plus<unsigned>());
    if (warp.thread_rank() == 0) of_warps[threadIdx.x / 32] = part;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned of_block = 0;
        for (unsigned of_warp : of_warps) of_block += of_warp;
        parts[blockIdx.x] = of_block;
    }
    grid.sync();
    if (grid.thread_rank() == 0) {
        *whole = 0;
        for (int i = 0; i < BLOCKS; i++) *whole += parts[i];
    }
}

int main(int count, char **arguments) {
    std::vector<unsigned> given(BLOCKS * THREADS);
    for (size_t i = 0; i < given.size(); i++) given[i] = 7 * i;
    unsigned *words, *parts, *whole;
    must(cudaMalloc(&words, given.size() * 4));
    must(cudaMalloc(&parts, BLOCKS * 4));
    must(cudaMalloc(&whole, 4));
    return frame::serve(count, arguments, [&] {
        Values values(BLOCKS + 1);
        must(cudaMemcpy(words, given.data(), given.size() * 4, cudaMemcpyHostToDevice));
        void *passed[] = {&words, &parts, &whole};
        must(cudaLaunchCooperativeKernel(sum, BLOCKS, THREADS, passed, 0, nullptr));
        must(cudaMemcpy(values.data(), parts, BLOCKS * 4, cudaMemcpyDeviceToHost));
        must(cudaMemcpy(&values[BLOCKS], whole, 4, cudaMemcpyDeviceToHost));
        return values;
    });
}

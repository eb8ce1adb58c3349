// A captured graph with copies, kernels and a set, replayed, and changed between replays.
#include "frame.cuh"

constexpr int N = 1 << 14;

__global__ void more(int *words, int by) { words[blockIdx.x * blockDim.x + threadIdx.x] += by; }

int main(int count, char **arguments) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    int *host, *device;
    must(cudaStreamCreate(&stream));
    must(cudaMallocHost(&host, N * sizeof(int)));
    must(cudaMalloc(&device, N * sizeof(int)));
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    must(cudaMemsetAsync(device, 1, N * sizeof(int), stream));
    more<<<N / 256, 256, 0, stream>>>(device, 5);
    more<<<N / 256, 256, 0, stream>>>(device, 7);
    must(cudaMemcpyAsync(host, device, N * sizeof(int), cudaMemcpyDeviceToHost, stream));
    must(cudaStreamEndCapture(stream, &graph));
    must(cudaGraphInstantiate(&executable, graph, 0));
    return frame::serve(count, arguments, [&] {
        memset(host, 0, N * sizeof(int));
        must(cudaGraphLaunch(executable, stream));
        must(cudaStreamSynchronize(stream));
        return frame::words(std::vector<int>(host, host + N));
    });
}

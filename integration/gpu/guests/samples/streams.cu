// Streams with copies to and from pinned memory, an order by events, and a function of the host.
#include "frame.cuh"

constexpr int STREAMS = 4, N = 1 << 14;

__global__ void scale(int *words, int by) { words[blockIdx.x * blockDim.x + threadIdx.x] *= by; }

int main(int count, char **arguments) {
    cudaStream_t streams[STREAMS];
    cudaEvent_t done[STREAMS];
    int *host, *back, *device;
    must(cudaMallocHost(&host, STREAMS * N * sizeof(int)));
    must(cudaHostAlloc(&back, STREAMS * N * sizeof(int), cudaHostAllocPortable));
    must(cudaMalloc(&device, STREAMS * N * sizeof(int)));
    for (int i = 0; i < STREAMS * N; i++) host[i] = i;
    for (int s = 0; s < STREAMS; s++) {
        must(cudaStreamCreateWithFlags(&streams[s], s % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
        must(cudaEventCreateWithFlags(&done[s], cudaEventDisableTiming));
    }
    return frame::serve(count, arguments, [&] {
        std::atomic<int> called{0};
        for (int s = 0; s < STREAMS; s++) {
            int *at = device + s * N;
            must(cudaMemcpyAsync(at, host + s * N, N * sizeof(int), cudaMemcpyHostToDevice, streams[s]));
            scale<<<N / 256, 256, 0, streams[s]>>>(at, s + 2);
            must(cudaGetLastError());
            must(cudaEventRecord(done[s], streams[s]));
            must(cudaStreamWaitEvent(streams[0], done[s]));
            auto count_up = [](void *count) { ++*static_cast<std::atomic<int> *>(count); };
            must(cudaLaunchHostFunc(streams[s], count_up, &called));
        }
        must(cudaMemcpyAsync(back, device, STREAMS * N * sizeof(int), cudaMemcpyDeviceToHost, streams[0]));
        for (auto stream : streams) must(cudaStreamSynchronize(stream));
        std::vector<int> values(back, back + STREAMS * N);
        values.push_back(called);
        return frame::words(values);
    });
}

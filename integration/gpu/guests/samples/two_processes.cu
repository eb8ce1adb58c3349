// Memory and an event that a second process has opened: it writes there, and its work is waited for by the event.
#include "frame.cuh"
#include <sys/wait.h>

constexpr int N = 1 << 12;

struct Handles {
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
};

__global__ void twice(int *words) { words[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }

int other(int from, int to) {
    Handles handles;
    int *words;
    cudaEvent_t event;
    char byte;
    if (read(from, &handles, sizeof(handles)) != sizeof(handles)) return 1;
    must(cudaIpcOpenMemHandle(reinterpret_cast<void **>(&words), handles.memory, cudaIpcMemLazyEnablePeerAccess));
    must(cudaIpcOpenEventHandle(&event, handles.event));
    while (read(from, &byte, 1) == 1) {
        int answer = 0;
        try {
            must(cudaStreamWaitEvent(nullptr, event));
            twice<<<N / 256, 256>>>(words);
            must(cudaDeviceSynchronize());
        } catch (const std::exception &error) {
            fprintf(stderr, "the other process: %s\n", error.what());
            answer = 1;
        }
        if (write(to, &answer, sizeof(answer)) != sizeof(answer)) return 1;
    }
    _exit(0);
}

int main(int count, char **arguments) {
    if (count == 4) return other(atoi(arguments[2]), atoi(arguments[3]));
    int there[2], back[2];
    if (pipe(there) || pipe(back)) return 1;
    if (fork() == 0) {
        close(there[1]);
        std::string from = std::to_string(there[0]), to = std::to_string(back[1]);
        execl("/proc/self/exe", arguments[0], "other", from.c_str(), to.c_str(), nullptr);
        _exit(1);
    }
    close(there[0]);
    Handles handles;
    int *words;
    cudaEvent_t event;
    std::vector<int> given(N);
    for (int i = 0; i < N; i++) given[i] = i;
    must(cudaMalloc(&words, N * sizeof(int)));
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
    must(cudaIpcGetMemHandle(&handles.memory, words));
    must(cudaIpcGetEventHandle(&handles.event, event));
    if (write(there[1], &handles, sizeof(handles)) != sizeof(handles)) return 1;
    return frame::serve(count, arguments, [&] {
        std::vector<int> values(N);
        int answer = 1;
        must(cudaMemcpy(words, given.data(), N * sizeof(int), cudaMemcpyHostToDevice));
        must(cudaEventRecord(event));
        if (write(there[1], "g", 1) != 1 || read(back[0], &answer, sizeof(answer)) != sizeof(answer) || answer)
            throw std::runtime_error("the other process was told");
        must(cudaMemcpy(values.data(), words, N * sizeof(int), cudaMemcpyDeviceToHost));
        return frame::words(values);
    });
}

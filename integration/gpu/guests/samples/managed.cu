// Managed memory, a little of it.
#include "frame.cuh"

constexpr int N = 1 << 12;

__global__ void square(int *words) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    words[i] *= words[i];
}

int main(int count, char **arguments) {
    int *words;
    must(cudaMallocManaged(&words, N * sizeof(int)));
    return frame::serve(count, arguments, [&] {
        for (int i = 0; i < N; i++) words[i] = i;
        square<<<N / 256, 256>>>(words);
        must(cudaGetLastError());
        must(cudaDeviceSynchronize());
        return frame::words(std::vector<int>(words, words + N));
    });
}

// A product of matrices by tiles in shared memory, with times by events, of matrices that stay on the GPU.
#include "frame.cuh"

constexpr int N = 256, TILE = 16;

__global__ void product(const float *a, const float *b, float *c) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    float sum = 0;
    for (int k = 0; k < N; k += TILE) {
        left[threadIdx.y][threadIdx.x] = a[y * N + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * N + x];
        __syncthreads();
        for (int i = 0; i < TILE; i++) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    c[y * N + x] = sum;
}

int main(int count, char **arguments) {
    std::vector<float> a(N * N), c(N * N);
    for (int i = 0; i < N * N; i++) a[i] = i % 97;
    float *on_a, *on_c;
    cudaEvent_t begun, done;
    must(cudaMalloc(&on_a, N * N * sizeof(float)));
    must(cudaMalloc(&on_c, N * N * sizeof(float)));
    must(cudaMemcpy(on_a, a.data(), N * N * sizeof(float), cudaMemcpyHostToDevice));
    must(cudaEventCreate(&begun));
    must(cudaEventCreate(&done));
    return frame::serve(count, arguments, [&] {
        float ms = 0;
        must(cudaEventRecord(begun));
        product<<<dim3(N / TILE, N / TILE), dim3(TILE, TILE)>>>(on_a, on_a, on_c);
        must(cudaGetLastError());
        must(cudaEventRecord(done));
        must(cudaEventSynchronize(done));
        must(cudaEventElapsedTime(&ms, begun, done));
        must(cudaMemcpy(c.data(), on_c, N * N * sizeof(float), cudaMemcpyDeviceToHost));
        return frame::words(c);
    });
}

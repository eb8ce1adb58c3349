// The sum of two vectors, with all memory allocated anew in each round.
#include "frame.cuh"

__global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main(int count, char **arguments) {
    const int n = 1 << 16;
    std::vector<float> a(n), b(n), c(n);
    for (int i = 0; i < n; i++) a[i] = i, b[i] = 2 * i;
    return frame::serve(count, arguments, [&] {
        float *on_a, *on_b, *on_c;
        for (auto on : {&on_a, &on_b, &on_c}) must(cudaMalloc(on, n * sizeof(float)));
        must(cudaMemcpy(on_a, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
        must(cudaMemcpy(on_b, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
        add<<<(n + 255) / 256, 256>>>(on_a, on_b, on_c, n);
        must(cudaGetLastError());
        must(cudaMemcpy(c.data(), on_c, n * sizeof(float), cudaMemcpyDeviceToHost));
        for (auto on : {on_a, on_b, on_c}) must(cudaFree(on));
        return frame::words(c);
    });
}

// An array that a kernel reads as a texture.
#include "frame.cuh"

constexpr int N = 64;

__global__ void turned(cudaTextureObject_t texture, float *out) {
    int x = threadIdx.x, y = blockIdx.x;
    out[y * N + x] = tex2D<float>(texture, y + 0.5f, x + 0.5f);
}

int main(int count, char **arguments) {
    std::vector<float> given(N * N), values(N * N);
    for (int i = 0; i < N * N; i++) given[i] = i;
    auto format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    float *out;
    must(cudaMallocArray(&array, &format, N, N));
    must(cudaMemcpy2DToArray(array, 0, 0, given.data(), N * 4, N * 4, N, cudaMemcpyHostToDevice));
    must(cudaMalloc(&out, N * N * 4));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc how = {};
    how.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    must(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
    return frame::serve(count, arguments, [&] {
        turned<<<N, N>>>(texture, out);
        must(cudaGetLastError());
        must(cudaMemcpy(values.data(), out, N * N * 4, cudaMemcpyDeviceToHost));
        return frame::words(values);
    });
}

// Arrays that kernels read as textures and write as surfaces: in two and three dimensions, in layers, with levels, and
// linear memory; and one that each round destroys and makes again, whose texture outlives it for a round.
#include "frame.cuh"

constexpr int N = 64, DEPTH = 8, LAYERS = 4, LEVELS = 3;

__global__ void turned(cudaTextureObject_t texture, float *out) {
    int x = threadIdx.x, y = blockIdx.x;
    out[y * N + x] = tex2D<float>(texture, y + 0.5f, x + 0.5f);
}

__global__ void painted(cudaSurfaceObject_t surface, float *from, float by) {
    int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    surf3Dwrite(from[y * N + x] * by + z, surface, x * 4, y, z);
}

__global__ void solid(cudaTextureObject_t texture, float *out) {
    int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    out[(z * N + y) * N + x] = tex3D<float>(texture, x + 0.5f, y + 0.5f, z + 0.5f);
}

__global__ void layered(cudaTextureObject_t texture, float *out) {
    int x = threadIdx.x, y = blockIdx.x, layer = blockIdx.y;
    out[(layer * N + y) * N + x] = tex2DLayered<float>(texture, x + 0.5f, y + 0.5f, layer);
}

__global__ void level(cudaTextureObject_t texture, float *out, float which) {
    int x = threadIdx.x, y = blockIdx.x, side = blockDim.x;
    out[y * side + x] = tex2DLod<float>(texture, (x + 0.5f) / side, (y + 0.5f) / side, which);
}

__global__ void straight(cudaTextureObject_t texture, float *out) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    out[at] = tex1Dfetch<float>(texture, at);
}

static cudaChannelFormatDesc format() { return cudaCreateChannelDesc<float>(); }

static std::vector<float> pattern(int count, int seed) {
    std::vector<float> values(count);
    for (int i = 0; i < count; i++) values[i] = (i * 7 + seed * 13) % 4099;
    return values;
}

static void fill(cudaArray_t array, const std::vector<float> &from, int side, int depth) {
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(const_cast<float *>(from.data()), side * 4, side, side);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(side, side, depth);
    copy.kind = cudaMemcpyHostToDevice;
    must(cudaMemcpy3D(&copy));
}

static cudaResourceDesc of(cudaArray_t array) {
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

static cudaTextureObject_t textured(const cudaResourceDesc &resource, bool is_normalized = false) {
    cudaTextureDesc how = {};
    how.readMode = cudaReadModeElementType;
    how.normalizedCoords = is_normalized;
    how.maxMipmapLevelClamp = LEVELS;
    cudaTextureObject_t made;
    must(cudaCreateTextureObject(&made, &resource, &how, nullptr));
    return made;
}

// What each round makes again. A call of a round may have failed, so each part is there or not.
struct Changing {
    cudaArray_t array = nullptr;
    cudaTextureObject_t texture = 0, left = 0;

    void change(int seed) {
        if (left) {
            cudaTextureObject_t gone = left;
            left = 0;
            must(cudaDestroyTextureObject(gone));
        }
        if (array) {
            cudaArray_t gone = array;
            array = nullptr;
            left = texture;
            texture = 0;
            must(cudaFreeArray(gone));
        }
        auto kind = format();
        must(cudaMallocArray(&array, &kind, N, N));
        fill(array, pattern(N * N, seed), N, 1);
        texture = textured(of(array));
    }
};

int main(int count, char **arguments) {
    auto kind = format();
    float *out, *memory;
    must(cudaMalloc(&out, N * N * DEPTH * 4));
    must(cudaMalloc(&memory, N * N * 4));
    auto given = pattern(N * N, 5);
    must(cudaMemcpy(memory, given.data(), N * N * 4, cudaMemcpyHostToDevice));

    cudaArray_t flat, deep, layers;
    must(cudaMallocArray(&flat, &kind, N, N));
    fill(flat, given, N, 1);
    must(cudaMalloc3DArray(&deep, &kind, make_cudaExtent(N, N, DEPTH), cudaArraySurfaceLoadStore));
    must(cudaMalloc3DArray(&layers, &kind, make_cudaExtent(N, N, LAYERS), cudaArrayLayered));
    fill(layers, pattern(N * N * LAYERS, 6), N, LAYERS);
    cudaMipmappedArray_t mipmapped;
    must(cudaMallocMipmappedArray(&mipmapped, &kind, make_cudaExtent(N, N, 0), LEVELS));
    for (int at = 0; at < LEVELS; at++) {
        cudaArray_t part;
        must(cudaGetMipmappedArrayLevel(&part, mipmapped, at));
        fill(part, pattern((N >> at) * (N >> at), 7 + at), N >> at, 1);
    }

    // Objects that end at once leave holes among the values.
    cudaTextureObject_t hole = textured(of(flat));
    cudaTextureObject_t of_flat = textured(of(flat)), of_deep = textured(of(deep)), of_layers = textured(of(layers));
    cudaResourceDesc levels = {}, linear = {}, to_paint = of(deep);
    levels.resType = cudaResourceTypeMipmappedArray;
    levels.res.mipmap.mipmap = mipmapped;
    linear.resType = cudaResourceTypeLinear;
    linear.res.linear.devPtr = memory;
    linear.res.linear.desc = kind;
    linear.res.linear.sizeInBytes = N * N * 4;
    cudaTextureObject_t of_levels = textured(levels, true), of_memory = textured(linear);
    cudaSurfaceObject_t surface;
    must(cudaCreateSurfaceObject(&surface, &to_paint));
    must(cudaDestroyTextureObject(hole));

    Changing changing;
    return frame::serve(count, arguments, [&] {
        Values all;
        std::vector<float> values(N * N * DEPTH);
        auto take = [&](int words) {
            must(cudaGetLastError());
            must(cudaMemcpy(values.data(), out, words * 4, cudaMemcpyDeviceToHost));
            auto seen = frame::words(std::vector<float>(values.begin(), values.begin() + words));
            all.insert(all.end(), seen.begin(), seen.end());
        };
        turned<<<N, N>>>(of_flat, out);
        take(N * N);
        painted<<<dim3(N, DEPTH), N>>>(surface, memory, 3);
        solid<<<dim3(N, DEPTH), N>>>(of_deep, out);
        take(N * N * DEPTH);
        layered<<<dim3(N, LAYERS), N>>>(of_layers, out);
        take(N * N * LAYERS);
        for (int at = 0; at < LEVELS; at++) {
            level<<<(N >> at), (N >> at)>>>(of_levels, out, at);
            take((N >> at) * (N >> at));
        }
        straight<<<N, N>>>(of_memory, out);
        take(N * N);
        for (int step = 0; step < 3; step++) {
            changing.change(step);
            turned<<<N, N>>>(changing.texture, out);
            take(N * N);
        }
        return all;
    });
}

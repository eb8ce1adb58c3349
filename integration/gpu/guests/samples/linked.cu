// The driver's own interface: two parts in PTX that it links when the program begins, and the module's functions in a list.
#include "frame.cuh"

const char *CALLED = ".version 8.0\n.target sm_80\n.address_size 64\n"
                     ".visible .func (.param .b32 out) tripled(.param .b32 in) {\n.reg .b32 %r<3>;\n"
                     "ld.param.b32 %r1, [in];\nmul.lo.s32 %r2, %r1, 3;\nst.param.b32 [out], %r2;\nret;\n}\n";
const char *CALLING = ".version 8.0\n.target sm_80\n.address_size 64\n"
                      ".extern .func (.param .b32 out) tripled(.param .b32 in);\n"
                      ".visible .entry work(.param .u64 words) {\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n"
                      "ld.param.u64 %rd1, [words];\ncvta.to.global.u64 %rd1, %rd1;\nmov.u32 %r1, %tid.x;\n"
                      "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
                      "{\n.param .b32 a;\n.param .b32 b;\nst.param.b32 [a], %r1;\ncall (b), tripled, (a);\n"
                      "ld.param.b32 %r2, [b];\n}\n"
                      "st.global.u32 [%rd3], %r2;\nret;\n}\n";

int main(int count, char **arguments) {
    using namespace frame;
    CUlinkState link;
    CUmodule module;
    CUfunction found;
    void *image, *words;
    size_t size;
    must(cudaMalloc(&words, 64 * 4));
    must(driver<decltype(cuLinkCreate)>("cuLinkCreate_v2")(0, nullptr, nullptr, &link));
    auto add = driver<decltype(cuLinkAddData)>("cuLinkAddData_v2");
    for (auto text : {CALLED, CALLING})
        must(add(link, CU_JIT_INPUT_PTX, const_cast<char *>(text), strlen(text) + 1, "part", 0, nullptr, nullptr));
    must(driver<decltype(cuLinkComplete)>("cuLinkComplete")(link, &image, &size));
    must(driver<decltype(cuModuleLoadData)>("cuModuleLoadData")(&module, image));
    must(driver<decltype(cuLinkDestroy)>("cuLinkDestroy")(link));
    must(driver<decltype(cuModuleEnumerateFunctions)>("cuModuleEnumerateFunctions")(&found, 1, module));
    return serve(count, arguments, [&] {
        Values values(64);
        void *passed[] = {&words};
        // A thread of its own has no context yet, which the driver's interface does not make.
        must(cudaSetDevice(0));
        must(driver<decltype(cuLaunchKernel)>("cuLaunchKernel")(found, 1, 1, 1, 64, 1, 1, 0, nullptr, passed, nullptr));
        must(cudaMemcpy(values.data(), words, 64 * 4, cudaMemcpyDeviceToHost));
        return values;
    });
}

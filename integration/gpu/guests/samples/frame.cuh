// What every guest in CUDA C++ does, by the same lines and answers as `frame.py` has: rounds that compare each value with
// its own undisturbed ones, faults of its own, and work that is always on its way.
//
// A guest is a function that gives a round's values. A call that fails is thrown by `must`, and told.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#define must(call) frame::passed(#call, call)
// A word for each element: floats are compared by their bits.
using Values = std::vector<uint32_t>;

namespace frame {

constexpr uint64_t WILD = 0x10;
constexpr int TRIES = 5;
constexpr double PATIENCE = 20;

inline void passed(const char *call, cudaError_t answer) {
    if (answer != cudaSuccess) {
        // cudart tells an error once more to whoever asks for the last one.
        cudaGetLastError();
        throw std::runtime_error(std::string(call).substr(0, 60) + ": " + std::to_string(answer));
    }
}

inline void passed(const char *call, CUresult answer) {
    if (answer != CUDA_SUCCESS)
        throw std::runtime_error(std::string(call).substr(0, 60) + ": " + std::to_string(answer));
}

// The driver's functions by name: the machine that links has no driver to link with.
template <typename F> F *driver(const char *name) {
    static void *library = dlopen("libcuda.so.1", RTLD_NOW);
    auto function = reinterpret_cast<F *>(dlsym(library, name));
    if (!function) throw std::runtime_error(std::string(name) + " is not there");
    return function;
}

inline uint64_t recoveries() {
    auto ask = reinterpret_cast<uint64_t (*)(void *, size_t)>(dlsym(RTLD_DEFAULT, "mps_shim_last_recovery"));
    return ask ? ask(nullptr, 0) : 0;
}

template <typename T> Values words(const std::vector<T> &from) {
    Values to((from.size() * sizeof(T) + 3) / 4);
    memcpy(to.data(), from.data(), from.size() * sizeof(T));
    return to;
}

inline std::vector<CUresult> fault(const std::string &kernels, const std::string &kind) {
    std::vector<CUresult> told;
    auto call = [&](auto &&made) {
        CUresult answer = made();
        if (answer != CUDA_SUCCESS) told.push_back(answer), answer = made();
        passed("fault", answer);
    };
    CUdeviceptr word = WILD;
    CUmodule module;
    CUfunction function;
    must(cudaFree(nullptr));
    if (kind == "misaligned") call([&] { return driver<decltype(cuMemAlloc)>("cuMemAlloc_v2")(&word, 4096); });
    std::ifstream file(kernels);
    std::string image((std::istreambuf_iterator<char>(file)), {});
    call([&] { return driver<decltype(cuModuleLoadData)>("cuModuleLoadData")(&module, image.c_str()); });
    call([&] { return driver<decltype(cuModuleGetFunction)>("cuModuleGetFunction")(&function, module, kind.c_str()); });
    void *given[] = {&word};
    auto wait = driver<decltype(cuCtxSynchronize)>("cuCtxSynchronize");
    auto launch = driver<decltype(cuLaunchKernel)>("cuLaunchKernel");
    for (auto answer : {launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, given, nullptr), wait(), wait()})
        if (answer != CUDA_SUCCESS) told.push_back(answer);
    return told;
}

struct Seen {
    std::vector<std::string> told;
    bool is_same = false;
    int wrong = 0, rounds = 0, in_a_row = 0;
};

inline void one(const std::function<Values()> &compute, const Values &expected, Seen &seen) {
    try {
        seen.is_same = compute() == expected;
        seen.rounds++;
        seen.wrong += !seen.is_same;
        seen.in_a_row = seen.is_same ? seen.in_a_row + 1 : 0;
    } catch (const std::exception &error) {
        fprintf(stderr, "%s\n", error.what());
        seen.told.push_back(error.what());
        seen.is_same = false;
        seen.in_a_row = 0;
    }
}

inline double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline void until(const std::function<bool()> &fact, double seconds) {
    for (double end = now() + seconds; !fact() && now() < end;)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// `earlier`: how many of the errors came before the program said that it was at work.
inline void say(const std::string &event, const std::vector<CUresult> &codes = {}, const Seen &seen = {}, int earlier = 0) {
    std::ostringstream line;
    line << "{\"event\": \"" << event << "\", \"recoveries\": " << recoveries() << ", \"codes\": [";
    for (size_t i = 0; i < codes.size(); i++) line << (i ? ", " : "") << codes[i];
    line << "], \"told\": [";
    for (size_t i = 0; i < seen.told.size(); i++) {
        std::string text;
        for (char c : seen.told[i]) text += c == '"' || c == '\\' ? '\'' : c;
        line << (i ? ", \"" : "\"") << text << '"';
    }
    line << "], \"is_same\": " << (seen.is_same ? "true" : "false") << ", \"wrong\": " << seen.wrong
         << ", \"rounds\": " << seen.rounds << ", \"earlier\": " << earlier << "}";
    puts(line.str().c_str());
    fflush(stdout);
}

inline int serve(int count, char **arguments, const std::function<Values()> &compute) {
    const std::string kernels = count > 1 ? arguments[1] : "kernels.ptx";
    Values expected = compute();
    if (expected.empty() || compute() != expected) return fprintf(stderr, "the program is not the same twice\n"), 3;
    say("ready");
    Seen at_work;
    std::atomic<int> rounds{0}, in_a_row{0}, heard{0};
    int earlier = 0;
    std::atomic<bool> is_over{false};
    std::thread work;
    std::vector<CUresult> codes;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string command, first;
        uint64_t before = 0;
        words >> command >> first >> before;
        if (command == "busy") {
            at_work = {}, codes = {}, rounds = 0, in_a_row = 0, heard = 0, is_over = false;
            work = std::thread([&] {
                while (!is_over && at_work.told.size() < 10 * TRIES) {
                    one(compute, expected, at_work);
                    heard = at_work.told.size(), rounds = at_work.rounds, in_a_row = at_work.in_a_row;
                }
            });
            until([&] { return rounds >= 2; }, PATIENCE);
            earlier = heard;
            say("busy");
        } else if (command == "wrong") {
            codes = fault(kernels, first);
            say("wrong", codes);
        } else if (command == "rest") {
            until([&] { return recoveries() > before; }, atof(first.c_str()));
            int from = rounds;
            auto is_right = [&] { return in_a_row >= 2 && rounds >= from + 2; };
            until(is_right, PATIENCE);
            bool is_same = is_right();
            is_over = true;
            work.join();
            at_work.is_same = is_same;
            say("round", codes, at_work, earlier);
        } else {
            Seen seen;
            if (command == "round" && !first.empty()) until([&] { return recoveries() > before; }, atof(first.c_str()));
            codes = command == "fault" ? fault(kernels, first) : std::vector<CUresult>{};
            for (int i = 0; i < TRIES && !seen.rounds; i++) one(compute, expected, seen);
            say("round", codes, seen);
        }
    }
    return 0;
}

}  // namespace frame

/* A stand-in for the CUDA runtime, in what matters here: it opens the driver by hand, asks dlsym for the old lookup, that
 * one for the new lookup, and that one for everything else. */
#include <dlfcn.h>
#include <stddef.h>

typedef int (*v1_fn)(const char *, void **, int, unsigned long long);
typedef int (*v2_fn)(const char *, void **, int, unsigned long long, int *);

static v2_fn lookup(void)
{
    static v2_fn known;
    if (!known) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        v1_fn first = driver ? (v1_fn)dlsym(driver, "cuGetProcAddress") : NULL;
        void *second = NULL;
        if (first && first("cuGetProcAddress", &second, 12000, 0) == 0)
            known = (v2_fn)second;
    }
    return known;
}

int cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version, unsigned long long flags,
                                     int *status)
{
    return lookup() ? lookup()(symbol, function, (int)version, flags, status) : 35; /* cudaErrorInsufficientDriver */
}

int cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags, int *status)
{
    return cudaGetDriverEntryPointByVersion(symbol, function, 12000, flags, status);
}

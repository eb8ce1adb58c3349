/* A stand-in for libcuda.so.1: the entry points that the library hooks, with the driver's rules for them. */
#include <stddef.h>
#include <string.h>

static int init_calls;

int fake_init_calls(void) { return __atomic_load_n(&init_calls, __ATOMIC_SEQ_CST); }

int cuInit(unsigned flags)
{
    __atomic_fetch_add(&init_calls, 1, __ATOMIC_SEQ_CST);
    return flags == 0 ? 0 : 1; /* CUDA_ERROR_INVALID_VALUE for flags that do not exist */
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

int cuStreamQuery(void *stream)
{
    (void)stream;
    return 600; /* CUDA_ERROR_NOT_READY */
}

int cuStreamQuery_ptsz(void *stream)
{
    return stream ? 600 : 0;
}

int cuGetProcAddress(const char *symbol, void **pfn, int version, unsigned long long flags);
int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, unsigned long long flags, int *status);

static void *found(const char *symbol, int version, unsigned long long flags)
{
    if (strcmp(symbol, "cuInit") == 0)
        return (void *)cuInit;
    if (strcmp(symbol, "cuDriverGetVersion") == 0)
        return (void *)cuDriverGetVersion;
    /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
    if (strcmp(symbol, "cuStreamQuery") == 0)
        return flags & 2 ? (void *)cuStreamQuery_ptsz : (void *)cuStreamQuery;
    /* One name, two functions, as in the real driver. */
    if (strcmp(symbol, "cuGetProcAddress") == 0)
        return version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
    return NULL;
}

int cuGetProcAddress(const char *symbol, void **pfn, int version, unsigned long long flags)
{
    *pfn = found(symbol, version, flags);
    return *pfn ? 0 : 500; /* CUDA_ERROR_NOT_FOUND */
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, unsigned long long flags, int *status)
{
    *pfn = found(symbol, version, flags);
    if (status)
        *status = *pfn ? 0 : 1;
    return 0; /* v2 reports a missing function in `status` and in the null pointer alone */
}

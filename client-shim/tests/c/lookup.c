/* Reaches cuInit in the way named by the first argument, calls it and prints what it said and how often the driver
 * was called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int (*init_fn)(unsigned);
typedef int (*v1_fn)(const char *, void **, int, unsigned long long);
typedef int (*v2_fn)(const char *, void **, int, unsigned long long, int *);

static void fail(const char *what)
{
    printf("failed: %s\n", what);
    exit(1);
}

static void *open_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver)
        fail(dlerror());
    return driver;
}

static void report(void *driver, init_fn init)
{
    if (!init)
        fail("no cuInit");
    int (*calls)(void) = (int (*)(void))dlsym(driver, "fake_init_calls");
    int result = init(0);
    printf("cuInit %d", result);
    if (calls)
        printf(" calls %d", calls());
    printf("\n");
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    void *driver = open_driver();
    void *found = NULL;
    int status = -1;

    if (strcmp(way, "dlsym") == 0) {
        found = dlsym(driver, "cuInit");
    } else if (strcmp(way, "dlsym-dlsym") == 0) {
        void *libc = dlopen("libc.so.6", RTLD_NOW);
        void *(*lookup)(void *, const char *) = (void *(*)(void *, const char *))dlsym(libc, "dlsym");
        if (!lookup)
            lookup = (void *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "dlsym");
        found = lookup(driver, "cuInit");
    } else if (strcmp(way, "runtime") == 0) {
        /* The runtime is linked or opened; either way it answers with what it was given itself. */
        void *runtime = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
        int (*entry)(const char *, void **, unsigned long long, int *) =
            runtime ? (int (*)(const char *, void **, unsigned long long, int *))dlsym(runtime, "cudaGetDriverEntryPoint")
                    : NULL;
        if (!entry || entry("cuInit", &found, 0, &status) != 0)
            fail("cudaGetDriverEntryPoint");
    } else if (strcmp(way, "dlvsym") == 0) {
        printf("dlvsym %s\n", dlvsym(driver, "cuInit", "GLIBC_2.2.5") ? "found" : "missing");
        return 0;
    } else if (strcmp(way, "default") == 0) {
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        found = dlsym(RTLD_DEFAULT, "cuInit");
    } else if (strcmp(way, "program") == 0) {
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        found = dlsym(dlopen(NULL, RTLD_NOW), "cuInit");
    } else if (strcmp(way, "v1") == 0) {
        v1_fn lookup = (v1_fn)dlsym(driver, "cuGetProcAddress");
        if (lookup("cuInit", &found, 11030, 0) != 0)
            fail("cuGetProcAddress");
    } else if (strcmp(way, "v2") == 0) {
        v2_fn lookup = (v2_fn)dlsym(driver, "cuGetProcAddress_v2");
        if (lookup("cuInit", &found, 12000, 0, &status) != 0 || status != 0)
            fail("cuGetProcAddress_v2");
    } else if (strcmp(way, "v1-v2") == 0) {
        /* cudart 12: asks the old function for the new one and goes on with that. */
        v1_fn first = (v1_fn)dlsym(driver, "cuGetProcAddress");
        void *second = NULL;
        if (first("cuGetProcAddress", &second, 12000, 0) != 0)
            fail("cuGetProcAddress for cuGetProcAddress_v2");
        if (((v2_fn)second)("cuInit", &found, 12000, 0, &status) != 0 || status != 0)
            fail("cuGetProcAddress_v2 from cuGetProcAddress");
    } else if (strcmp(way, "v1-v1") == 0) {
        v1_fn first = (v1_fn)dlsym(driver, "cuGetProcAddress");
        void *second = NULL;
        if (first("cuGetProcAddress", &second, 11030, 0) != 0)
            fail("cuGetProcAddress for itself");
        if (((v1_fn)second)("cuInit", &found, 11030, 0) != 0)
            fail("cuGetProcAddress from itself");
    } else if (strcmp(way, "missing") == 0) {
        v1_fn v1 = (v1_fn)dlsym(driver, "cuGetProcAddress");
        v2_fn v2 = (v2_fn)dlsym(driver, "cuGetProcAddress_v2");
        int old = v1("cuNoSuchThing", &found, 11030, 0);
        if (found)
            fail("v1 invented a function");
        int new = v2("cuNoSuchThing", &found, 12000, 0, &status);
        if (found)
            fail("v2 invented a function");
        found = dlsym(driver, "cuNoSuchThing");
        printf("missing %d %d %d %s\n", old, new, status, dlerror() ? "dlerror" : "no dlerror");
        return found != NULL;
    } else if (strcmp(way, "unhooked") == 0) {
        /* A function that is not hooked keeps the driver's address, in every way of asking. */
        void *v1 = NULL, *v2 = NULL, *plain = dlsym(driver, "cuDriverGetVersion");
        ((v1_fn)dlsym(driver, "cuGetProcAddress"))("cuDriverGetVersion", &v1, 11030, 0);
        ((v2_fn)dlsym(driver, "cuGetProcAddress_v2"))("cuDriverGetVersion", &v2, 12000, 0, NULL);
        int version = 0;
        ((int (*)(int *))plain)(&version);
        printf("unhooked %s %d\n", plain == v1 && plain == v2 ? "same" : "different", version);
        return 0;
    } else if (strcmp(way, "per-thread") == 0) {
        v2_fn v2 = (v2_fn)dlsym(driver, "cuGetProcAddress_v2");
        void *legacy = NULL, *per_thread = NULL;
        if (v2("cuStreamQuery", &legacy, 12000, 1, NULL) != 0 || v2("cuStreamQuery", &per_thread, 12000, 2, NULL) != 0)
            fail("cuGetProcAddress_v2");
        printf("per-thread %d %d %s\n", ((int (*)(void *))legacy)(NULL), ((int (*)(void *))per_thread)(NULL),
               per_thread == dlsym(driver, "cuStreamQuery_ptsz") ? "same" : "different");
        return 0;
    } else if (strcmp(way, "reopened") == 0) {
        /* Probing for a driver, closing it, and opening it again later, when its place is taken. */
        Dl_info where;
        if (!dlsym(driver, "cuInit") || !dladdr(dlsym(driver, "fake_init_calls"), &where))
            fail("first lookup");
        dlclose(driver);
        mmap(where.dli_fbase, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        driver = open_driver();
        found = dlsym(driver, "cuInit");
    } else if (strcmp(way, "two-copies") == 0) {
        void *other = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
        if (!other)
            fail(dlerror());
        report(driver, (init_fn)dlsym(driver, "cuInit"));
        report(other, (init_fn)dlsym(other, "cuInit"));
        return 0;
    } else if (strcmp(way, "once-more-patiently") == 0) {
        report(driver, (init_fn)dlsym(driver, "cuInit"));
        /* Whoever waits once more does so for an hour. */
        setenv("MPS_SHIM_REQUIRE", "3600", 1);
        for (int i = 0; i < 2; i++)
            report(driver, (init_fn)dlsym(driver, "cuInit"));
        return 0;
    } else if (strcmp(way, "thrice") == 0) {
        for (int i = 0; i < 3; i++)
            report(driver, (init_fn)dlsym(driver, "cuInit"));
        return 0;
    } else {
        fail("no such way");
    }
    report(driver, (init_fn)found);
    return 0;
}

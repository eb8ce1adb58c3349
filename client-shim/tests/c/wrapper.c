/* Another preloaded library that wraps cuInit, as GPU sharing tools do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int cuInit(unsigned flags)
{
    int (*next)(unsigned) = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit");
    printf("wrapped ");
    return next ? next(flags) : -1;
}

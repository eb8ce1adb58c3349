/* Asks for the driver where there is none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int cuInit(unsigned flags) __attribute__((weak));

int main(void)
{
    dlerror();
    void *found = dlsym(RTLD_DEFAULT, "cuInit");
    const char *error = dlerror();
    void *in_program = dlsym(dlopen(NULL, RTLD_NOW), "cuInit");
    printf("default %s %s program %s", found ? "found" : "missing", error ? "dlerror" : "no dlerror",
           in_program ? "found" : "missing");
    if (cuInit)
        printf(" weak %d", cuInit(0));
    printf("\n");
    return 0;
}

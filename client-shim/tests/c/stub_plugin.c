/* A library with a function of the driver's name, which loads the driver when it is called. */
#include <dlfcn.h>

int cuInit(unsigned flags)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : 0;
    return init ? init(flags) : 303; /* CUDA_ERROR_SHARED_OBJECT_INIT_FAILED */
}

int plugin_init(void) { return cuInit(0); }

/* Opens the library named by its argument privately and starts CUDA through it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *plugin = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*init)(void) = plugin ? (int (*)(void))dlsym(plugin, "plugin_init") : NULL;
    if (!init) {
        printf("failed: %s\n", dlerror());
        return 1;
    }
    printf("cuInit %d\n", init());
    return 0;
}

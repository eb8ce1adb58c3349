/* Initialises CUDA twice in a parent and twice in a forked child, and prints both pairs of results. The child's come
 * first. */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    if (!init)
        return 1;
    int first = init(0), second = init(0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int third = init(0), fourth = init(0);
        printf("child %d %d\n", third, fourth);
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    printf("parent %d %d child's end %d\n", first, second, status);
    return 0;
}

/* Sixteen threads look cuInit up and call it at the same moment, each in another way. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define THREADS 16

static pthread_barrier_t start;

static void *thread(void *argument)
{
    long number = (long)argument;
    pthread_barrier_wait(&start);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = NULL;
    if (number % 3 == 0) {
        found = dlsym(driver, "cuInit");
    } else if (number % 3 == 1) {
        int (*v1)(const char *, void **, int, unsigned long long) =
            (int (*)(const char *, void **, int, unsigned long long))dlsym(driver, "cuGetProcAddress");
        v1("cuInit", &found, 11030, 0);
    } else {
        int (*v2)(const char *, void **, int, unsigned long long, int *) =
            (int (*)(const char *, void **, int, unsigned long long, int *))dlsym(driver, "cuGetProcAddress_v2");
        v2("cuInit", &found, 12000, 0, NULL);
    }
    return found && ((int (*)(unsigned))found)(0) == 0 ? NULL : (void *)1;
}

int main(void)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, thread, (void *)i);
    int failed = 0;
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        failed += result != NULL;
    }
    int (*calls)(void) = (int (*)(void))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_init_calls");
    printf("failed %d calls %d\n", failed, calls());
    return 0;
}

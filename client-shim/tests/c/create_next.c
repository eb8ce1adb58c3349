/* Another preloaded library that wraps pthread_create, as allocators and sanitizers do, and says so in a letter. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#ifndef LETTER
#define LETTER "?"
#endif

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    if (write(STDOUT_FILENO, LETTER, 1) != 1 || !next || next == pthread_create)
        return -1;
    return next(thread, attributes, start, argument);
}

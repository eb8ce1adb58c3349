/* Threads that end in all the ways in which a thread may: each prints what became of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static sem_t ended;

static void *returns(void *argument) { return argument; }

static void *leaves(void *argument) { pthread_exit(argument); }

static void cleaned(void *argument) { ++*(long *)argument; }

static void *waits(void *argument)
{
    pthread_cleanup_push(cleaned, argument);
    for (;;)
        pause();
    pthread_cleanup_pop(0);
    return NULL;
}

static void *posts(void *argument)
{
    sem_post(&ended);
    return argument;
}

static long joined(pthread_t thread)
{
    void *result = NULL;
    return pthread_join(thread, &result) ? -100 : (long)result;
}

static void all(const char *name, create *create)
{
    pthread_t thread;
    pthread_attr_t attributes;
    long cleanups = 0;
    create(&thread, NULL, returns, (void *)3);
    printf("%s: returned %ld", name, joined(thread));
    create(&thread, NULL, leaves, (void *)4);
    printf(", left with %ld", joined(thread));
    create(&thread, NULL, waits, &cleanups);
    pthread_cancel(thread);
    int is_cancelled = joined(thread) == (long)PTHREAD_CANCELED;
    printf(", cancelled %d", is_cancelled);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    create(&thread, &attributes, posts, NULL);
    while (sem_wait(&ended) != 0)
        ;
    printf(", detached\n");
    fflush(stdout);
}

int main(void)
{
    sem_init(&ended, 0, 0);
    all("linked", pthread_create);
    all("looked up", (create *)dlsym(RTLD_DEFAULT, "pthread_create"));
    const char *versions[] = {"GLIBC_2.2.5", "GLIBC_2.34"};
    for (int i = 0; i < 2; i++) {
        void *found = dlvsym(RTLD_DEFAULT, "pthread_create", versions[i]);
        if (found)
            all(versions[i], (create *)found);
    }
    return 0;
}

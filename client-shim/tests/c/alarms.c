/* Starts CUDA while a timer interrupts the program again and again. Each interruption writes one letter. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static void interrupted(int number)
{
    (void)number;
    if (write(STDOUT_FILENO, "a", 1) < 0)
        _exit(1);
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    if (!init)
        return 1;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupted;
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every_two_ms = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every_two_ms, NULL);
    int result = init(0);
    setitimer(ITIMER_REAL, &never, NULL);
    printf(" cuInit %d\n", result);
    return 0;
}

/* Wraps the next function of its own name, wherever that is. Put in front of itself under two file names, each copy
 * must find the one behind it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

int answer(void)
{
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "answer");
    if (!next || next == answer)
        abort();
    return next() + 1;
}

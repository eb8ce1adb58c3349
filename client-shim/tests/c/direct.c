/* Calls the driver as a program linked to it does. */
#include <stdio.h>

int cuInit(unsigned flags);
int fake_init_calls(void);

int main(void)
{
    int result = cuInit(0);
    int wrong = cuInit(5);
    printf("cuInit %d %d calls %d\n", result, wrong, fake_init_calls());
    return 0;
}

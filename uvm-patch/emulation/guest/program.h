/* SPDX-License-Identifier: MIT */
/* Programs of ours that tools/emulate --program has put into /bin. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdbool.h>
#include <sys/types.h>

struct program {
	pid_t pid;
	const char *output;	/* the file that has its standard output and error */
};

bool program_exists(const char *path);
/* argv[0] is its path; the environment is this one. */
struct program program_start(const char *output, char *const argv[]);
/* Waits until the file has the text; NULL if it does not come. What is returned is valid until the next call. */
const char *program_says(const char *output, const char *text, unsigned int ms);
/* All that a file has, NUL terminated, in the same memory. */
const char *program_output(const char *output);
/* Waits for its end: the status of waitpid, or -1 if it goes on. */
int program_wait(struct program *p, unsigned int ms);

#endif

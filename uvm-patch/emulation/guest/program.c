// SPDX-License-Identifier: MIT
/* See program.h. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "lab.h"
#include "program.h"

#define POLL_NS	5000000

bool program_exists(const char *path)
{
	return access(path, X_OK) == 0;
}

struct program program_start(const char *output, char *const argv[])
{
	struct program p = { .output = output };

	/* Emptied here: what an earlier program said must not be taken for this one's. */
	int fd = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);

	fflush(stdout);
	p.pid = fork();
	if (p.pid == 0) {
		int nothing = open("/dev/null", O_RDONLY);

		dup2(nothing, 0);
		dup2(fd, 1);
		dup2(fd, 2);
		execv(argv[0], argv);
		_exit(127);
	}
	close(fd);
	return p;
}

const char *program_output(const char *output)
{
	static char text[1 << 22];
	int fd = open(output, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)n;
	if (fd >= 0)
		close(fd);
	text[length] = '\0';
	return text;
}

const char *program_says(const char *output, const char *text, unsigned int ms)
{
	uint64_t deadline = now_ms() + ms;

	do {
		struct timespec tick = { .tv_nsec = POLL_NS };
		const char *found = strstr(program_output(output), text);

		if (found)
			return found;
		nanosleep(&tick, NULL);
	} while (now_ms() < deadline);
	printf("  %s does not say: %s\n", output, text);
	return NULL;
}

int program_wait(struct program *p, unsigned int ms)
{
	uint64_t deadline = now_ms() + ms;

	do {
		struct timespec tick = { .tv_nsec = POLL_NS };
		int status;

		if (waitpid(p->pid, &status, WNOHANG) == p->pid)
			return status;
		nanosleep(&tick, NULL);
	} while (now_ms() < deadline);
	return -1;
}

// SPDX-License-Identifier: MIT
/* See lab.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "order.h"

static int gpus[EMU_GPUS] = { -1, -1 };

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int gpu_fd(uint32_t gpu)
{
	static const char *const paths[EMU_GPUS] = { "/dev/emu-gpu0", "/dev/emu-gpu1" };

	if (gpus[gpu] < 0)
		gpus[gpu] = open(paths[gpu], O_RDWR | O_CLOEXEC);
	return gpus[gpu];
}

/* What the child does once it is there. */
struct role {
	bool sharing;
	char *const *argv;	/* NULL: it obeys */
	int output;
};

static struct client start(uint32_t tsg, uint32_t ve, const struct role *role)
{
	struct client c = { .gr = EMU_CHANNEL(tsg, 0u, ve), .ce = EMU_CHANNEL(tsg, 1u, ve) };
	struct order o;
	int pair[2];

	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		abort();
	c.pid = fork();
	if (c.pid == 0) {
		close(pair[0]);
		notices_close();
		if (role->argv)
			client_become(pair[1], c.gr, c.ce, role->argv, role->output);
		client_run(pair[1], c.gr, c.ce, role->sharing);
	}
	close(pair[1]);
	c.sock = pair[0];
	if (read(c.sock, &o, sizeof(o)) != sizeof(o) || o.result) {
		printf("  client setup failed: %d (0x%x)\n", o.result, -o.result);
		failures++;
	}
	c.descriptor = o.descriptor;
	return c;
}

struct client client_start(uint32_t tsg, uint32_t ve)
{
	return start(tsg, ve, &(struct role) { 0 });
}

struct client client_start_sharing(uint32_t tsg, uint32_t ve)
{
	return start(tsg, ve, &(struct role) { .sharing = true });
}

struct client client_start_as(uint32_t tsg, uint32_t ve, char *const argv[], const char *output)
{
	struct role role = { .argv = argv, .output = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) };
	struct client c = start(tsg, ve, &role);

	close(role.output);
	return c;
}

int client_descriptor(struct client *c)
{
	int pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, c->descriptor, 0);

	close(pidfd);
	return fd;
}

static struct order obey(struct client *c, struct order o)
{
	struct order answer = { .result = EPIPE };

	if (write(c->sock, &o, sizeof(o)) == sizeof(o) && read(c->sock, &answer, sizeof(answer)) != sizeof(answer))
		answer.result = EPIPE;
	return answer;
}

bool client_wait(struct client *c, unsigned int ms)
{
	uint64_t deadline = now_ms() + ms;

	/* The socket's end of file is the fact that is waited for. */
	struct pollfd p = { .fd = c->sock, .events = POLLIN };

	while (now_ms() < deadline) {
		if (poll(&p, 1, (int)(deadline - now_ms())) > 0 && (p.revents & POLLHUP)) {
			waitpid(c->pid, NULL, 0);
			close(c->sock);
			return true;
		}
	}
	return false;
}

void client_end(struct client *c, enum ending how)
{
	struct order o = { .verb = DO_END };

	switch (how) {
	case ENDS_CLEANLY:
		if (write(c->sock, &o, sizeof(o)) != sizeof(o))
			break;
		break;
	case ENDS_BY_EXIT:
		shutdown(c->sock, SHUT_WR);
		break;
	case ENDS_BY_SIGNAL:
		kill(c->pid, SIGKILL);
		break;
	}
	waitpid(c->pid, NULL, 0);
	close(c->sock);
}

struct emu_access_request client_access(struct client *c, bool ce, uint32_t type, uint64_t va,
					uint32_t count, uint64_t stride)
{
	struct order o = { .verb = DO_ACCESS, .gpu = c->gpu };

	o.access.handle = ce ? c->ce : c->gr;
	o.access.type = type;
	o.access.va = va;
	o.access.count = count;
	o.access.stride = stride;
	o.access.force_type = EMU_WALK;
	o = obey(c, o);
	if (o.result) {
		printf("  access: %s\n", strerror(o.result));
		failures++;
	}
	return o.access;
}

struct emu_access_request client_host_access(struct client *c, uint64_t va)
{
	struct order o = { .verb = DO_ACCESS, .gpu = c->gpu };

	o.access.handle = c->ce;
	o.access.type = EMU_READ;
	o.access.va = va;
	o.access.count = 1;
	o.access.force_type = EMU_WALK;
	o.access.host = 1;
	return obey(c, o).access;
}

struct emu_access_request client_fault(struct client *c, uint32_t force_type, uint64_t va)
{
	struct order o = { .verb = DO_ACCESS, .gpu = c->gpu };

	o.access.handle = c->gr;
	o.access.type = EMU_READ;
	o.access.va = va;
	o.access.count = 1;
	o.access.force_type = force_type;
	return obey(c, o).access;
}

void client_program(struct client *c, uint64_t va, uint32_t ms)
{
	struct order o = { .verb = DO_ACCESS, .gpu = c->gpu };

	o.access.handle = c->gr;
	o.access.type = EMU_READ;
	o.access.va = va;
	o.access.count = 1;
	o.access.force_type = EMU_WALK;
	o.access.repeat_ms = ms;
	CHECK(obey(c, o).result == 0);
}

int client_join(struct client *c)
{
	int r = obey(c, (struct order) { .verb = DO_JOIN }).result;

	if (r)
		printf("  the second GPU: %d (0x%x)\n", r, -r);
	return r;
}

int client_leave(struct client *c)
{
	return obey(c, (struct order) { .verb = DO_LEAVE }).result;
}

struct client on_second(const struct client *c)
{
	struct client there = *c;

	there.gpu = 1;
	return there;
}

int client_range(struct client *c, uint64_t base, uint64_t length)
{
	return obey(c, (struct order) { .verb = DO_RANGE, .base = base, .length = length }).result;
}

int client_map(struct client *c, uint64_t base, uint64_t length, bool small, bool read_only)
{
	return obey(c, (struct order) { .verb = DO_MAP, .gpu = c->gpu, .base = base, .length = length, .small = small,
				       .read_only = read_only }).result;
}

int client_managed(struct client *c, uint64_t base, uint64_t length, bool read_only)
{
	return obey(c, (struct order) { .verb = DO_MANAGED, .base = base, .length = length, .read_only = read_only }).result;
}

int client_free(struct client *c, uint64_t base, uint64_t length)
{
	return obey(c, (struct order) { .verb = DO_FREE, .base = base, .length = length }).result;
}

int client_host_memory(struct client *c, uint64_t length)
{
	return client_host_memory_at(c, 0, length, false);
}

int client_host_memory_at(struct client *c, uint64_t base, uint64_t length, bool read_only)
{
	return obey(c, (struct order) { .verb = DO_HOST_MEMORY, .base = base, .length = length,
				       .read_only = read_only }).result;
}

bool client_has_hmm(struct client *c)
{
	return obey(c, (struct order) { .verb = DO_HAS_HMM }).has_hmm;
}

int client_channels(struct client *c, unsigned int count)
{
	return obey(c, (struct order) { .verb = DO_CHANNELS, .length = count }).result;
}

int client_moves(struct client *c, unsigned int subcontext, unsigned int count)
{
	return obey(c, (struct order) { .verb = DO_CHANNELS, .base = subcontext, .length = count }).result;
}

int client_command(struct client *c, unsigned int command)
{
	return obey(c, (struct order) { .verb = DO_COMMAND, .length = command }).result;
}

int client_self_test(struct client *c, struct self_test_result *result)
{
	struct order o = obey(c, (struct order) { .verb = DO_SELF_TEST });

	*result = o.self_test;
	return o.result;
}

struct emu_access_request gpu_access(uint32_t handle, uint32_t type, uint64_t va)
{
	return gpu_accesses(0, handle, type, va, 1, 0);
}

struct emu_access_request gpu_accesses(uint32_t gpu, uint32_t handle, uint32_t type, uint64_t va, uint32_t count,
				       uint64_t stride)
{
	struct emu_access_request r = { .handle = handle, .type = type, .va = va, .count = count, .stride = stride,
					.force_type = EMU_WALK };

	if (ioctl(gpu_fd(gpu), EMU_IOC_ACCESS, &r)) {
		printf("  access: %s\n", strerror(errno));
		failures++;
	}
	return r;
}

uint32_t client_walk(struct client *c, uint64_t va)
{
	struct emu_walk_request r = { .handle = c->gr, .va = va };

	return ioctl(gpu_fd(c->gpu), EMU_IOC_WALK, &r) ? ~0u : r.result;
}

struct emu_status gpu_status_of(uint32_t gpu)
{
	struct emu_status s = { 0 };

	if (ioctl(gpu_fd(gpu), EMU_IOC_STATUS, &s))
		failures++;
	return s;
}

struct emu_status gpu_status(void)
{
	return gpu_status_of(0);
}

void gpu_revive(void)
{
	if (ioctl(gpu_fd(0), EMU_IOC_REVIVE) || ioctl(gpu_fd(1), EMU_IOC_REVIVE))
		failures++;
}

void gpu_stall(bool on)
{
	if (ioctl(gpu_fd(0), EMU_IOC_STALL, (unsigned long)on))
		failures++;
}

void gpu_chunks(bool there_are)
{
	if (ioctl(gpu_fd(0), EMU_IOC_CHUNKS, (unsigned long)there_are))
		failures++;
}

void gpu_pause(bool on)
{
	if (ioctl(gpu_fd(0), EMU_IOC_PAUSE, (unsigned long)on))
		failures++;
}

bool gpu_wait_idle(unsigned int ms)
{
	uint64_t deadline = now_ms() + ms;
	struct emu_status s;
	uint32_t gpu = 0;

	do {
		struct timespec tick = { .tv_nsec = 2000000 };

		s = gpu_status_of(gpu);
		if (s.chunks || s.spaces || s.user_channels || s.mems || s.running)
			nanosleep(&tick, NULL);
		else if (++gpu == EMU_GPUS)
			return true;
	} while (now_ms() < deadline);
	printf("  left over: %u chunks, %u address spaces, %u channels, %u memories, %u accesses\n",
	       s.chunks, s.spaces, s.user_channels, s.mems, s.running);
	return false;
}

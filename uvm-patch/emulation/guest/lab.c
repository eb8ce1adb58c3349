// SPDX-License-Identifier: MIT
/* See lab.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "uvm_linux_ioctl.h"
#include "lab.h"

static const NvProcessorUuid uuid = { { 'e', 'm', 'u', 'l', 'a', 't', 'e', 'd', '-', 't', 'u', '1', '0', '2', 0, 1 } };

enum verb { DO_ACCESS, DO_RANGE, DO_MAP, DO_END };

struct order {
	enum verb verb;
	struct emu_access_request access;
	uint64_t base, length;
	bool small, read_only;
	int result;
};

static int gpu = -1, notices = -1;
static struct uvm_mps_record all[1 << 16];
static size_t all_count;

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int gpu_fd(void)
{
	if (gpu < 0)
		gpu = open("/dev/emu-gpu", O_RDWR | O_CLOEXEC);
	return gpu;
}

/* errno, or the driver's status negated. */
#define UVM(fd, cmd, params) (ioctl(fd, cmd, &(params)) ? errno : -(int)(params).rmStatus)

static int client_setup(int *uvm, int *mm, uint32_t gr, uint32_t ce)
{
	UVM_INITIALIZE_PARAMS init = { 0 };
	UVM_MM_INITIALIZE_PARAMS mm_init = { 0 };
	UVM_REGISTER_GPU_PARAMS reg = { .gpu_uuid = uuid, .rmCtrlFd = -1 };
	UVM_REGISTER_GPU_VASPACE_PARAMS space = { .gpuUuid = uuid, .rmCtrlFd = -1 };
	UVM_REGISTER_CHANNEL_PARAMS channel = { .gpuUuid = uuid, .rmCtrlFd = -1 };
	int r;

	*uvm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	*mm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	if (*uvm < 0 || *mm < 0)
		return errno;
	r = UVM(*uvm, UVM_INITIALIZE, init);
	if (r)
		return r;
	mm_init.uvmFd = *uvm;
	r = UVM(*mm, UVM_MM_INITIALIZE, mm_init);
	if (r)
		return r;
	r = UVM(*uvm, UVM_REGISTER_GPU, reg);
	if (r)
		return r;
	r = UVM(*uvm, UVM_REGISTER_GPU_VASPACE, space);
	if (r)
		return r;
	channel.hChannel = gr;
	r = UVM(*uvm, UVM_REGISTER_CHANNEL, channel);
	if (r)
		return r;
	channel.hChannel = ce;
	return UVM(*uvm, UVM_REGISTER_CHANNEL, channel);
}

static void unregister(int uvm, uint32_t gr, uint32_t ce)
{
	UVM_UNREGISTER_CHANNEL_PARAMS channel = { 0 };
	UVM_UNREGISTER_GPU_VASPACE_PARAMS space = { .gpuUuid = uuid };
	UVM_UNREGISTER_GPU_PARAMS reg = { .gpu_uuid = uuid };

	channel.hChannel = gr;
	(void)UVM(uvm, UVM_UNREGISTER_CHANNEL, channel);
	channel.hChannel = ce;
	(void)UVM(uvm, UVM_UNREGISTER_CHANNEL, channel);
	(void)UVM(uvm, UVM_UNREGISTER_GPU_VASPACE, space);
	(void)UVM(uvm, UVM_UNREGISTER_GPU, reg);
}

static int map(int uvm, const struct order *o)
{
	UVM_MAP_EXTERNAL_ALLOCATION_PARAMS p;

	memset(&p, 0, sizeof(p));
	p.base = o->base;
	p.length = o->length;
	p.gpuAttributesCount = 1;
	p.perGpuAttributes[0].gpuUuid = uuid;
	p.perGpuAttributes[0].gpuMappingType = o->read_only ? 3 : 0;	/* UvmGpuMappingTypeReadOnly */
	p.rmCtrlFd = -1;
	p.hMemory = EMU_MEMORY((uint32_t)((o->length + 0xffff) >> 16), o->small);
	return UVM(uvm, UVM_MAP_EXTERNAL_ALLOCATION, p);
}

static void client_run(int sock, uint32_t gr, uint32_t ce)
{
	int uvm, mm, device = open("/dev/emu-gpu", O_RDWR);
	struct order o = { .result = client_setup(&uvm, &mm, gr, ce) };

	if (write(sock, &o, sizeof(o)) != sizeof(o))
		_exit(1);
	while (read(sock, &o, sizeof(o)) == sizeof(o)) {
		UVM_CREATE_EXTERNAL_RANGE_PARAMS range = { .base = o.base, .length = o.length };

		switch (o.verb) {
		case DO_ACCESS:
			o.result = ioctl(device, EMU_IOC_ACCESS, &o.access) ? errno : 0;
			break;
		case DO_RANGE:
			o.result = UVM(uvm, UVM_CREATE_EXTERNAL_RANGE, range);
			break;
		case DO_MAP:
			o.result = map(uvm, &o);
			break;
		case DO_END:
			unregister(uvm, gr, ce);
			_exit(0);
		}
		if (write(sock, &o, sizeof(o)) != sizeof(o))
			break;
	}
	_exit(0);
}

struct client client_start(uint32_t tsg, uint32_t ve)
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
		close(notices);
		client_run(pair[1], c.gr, c.ce);
	}
	close(pair[1]);
	c.sock = pair[0];
	if (read(c.sock, &o, sizeof(o)) != sizeof(o) || o.result) {
		printf("  client setup failed: %d (0x%x)\n", o.result, -o.result);
		failures++;
	}
	return c;
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
	struct order o = { .verb = DO_ACCESS };

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

struct emu_access_request client_fault(struct client *c, uint32_t force_type, uint64_t va)
{
	struct order o = { .verb = DO_ACCESS };

	o.access.handle = c->gr;
	o.access.type = EMU_READ;
	o.access.va = va;
	o.access.count = 1;
	o.access.force_type = force_type;
	return obey(c, o).access;
}

void client_program(struct client *c, uint64_t va, uint32_t ms)
{
	struct order o = { .verb = DO_ACCESS };

	o.access.handle = c->gr;
	o.access.type = EMU_READ;
	o.access.va = va;
	o.access.count = 1;
	o.access.force_type = EMU_WALK;
	o.access.repeat_ms = ms;
	CHECK(obey(c, o).result == 0);
}

int client_range(struct client *c, uint64_t base, uint64_t length)
{
	return obey(c, (struct order) { .verb = DO_RANGE, .base = base, .length = length }).result;
}

int client_map(struct client *c, uint64_t base, uint64_t length, bool small, bool read_only)
{
	return obey(c, (struct order) { .verb = DO_MAP, .base = base, .length = length, .small = small,
				       .read_only = read_only }).result;
}

uint32_t client_walk(struct client *c, uint64_t va)
{
	struct emu_walk_request r = { .handle = c->gr, .va = va };

	return ioctl(gpu_fd(), EMU_IOC_WALK, &r) ? ~0u : r.result;
}

struct emu_status gpu_status(void)
{
	struct emu_status s = { 0 };

	if (ioctl(gpu_fd(), EMU_IOC_STATUS, &s))
		failures++;
	return s;
}

void gpu_revive(void)
{
	if (ioctl(gpu_fd(), EMU_IOC_REVIVE))
		failures++;
}

bool gpu_wait_idle(unsigned int ms)
{
	uint64_t deadline = now_ms() + ms;
	struct emu_status s;

	do {
		struct timespec tick = { .tv_nsec = 2000000 };

		s = gpu_status();
		if (!s.chunks && !s.spaces && !s.user_channels && !s.mems && !s.running)
			return true;
		nanosleep(&tick, NULL);
	} while (now_ms() < deadline);
	printf("  left over: %u chunks, %u address spaces, %u channels, %u memories, %u accesses\n",
	       s.chunks, s.spaces, s.user_channels, s.mems, s.running);
	return false;
}

int mps_open(int flags)
{
	return open("/dev/nvidia-uvm-mps", flags | O_CLOEXEC);
}

void notices_open(void)
{
	if (patched && notices < 0)
		notices = mps_open(O_RDWR | O_NONBLOCK);
}

int mps_fd(void)
{
	return notices;
}

struct uvm_mps_record *notices_read(size_t *count)
{
	ssize_t n;

	all_count = 0;
	while (patched && all_count < sizeof(all) / sizeof(all[0])) {
		n = read(notices, all + all_count, sizeof(all) - all_count * sizeof(all[0]));
		if (n <= 0)
			break;
		all_count += (size_t)n / sizeof(all[0]);
	}
	*count = all_count;
	return all;
}

unsigned int notices_count(const struct uvm_mps_record *r, size_t n, uint32_t type, pid_t pid)
{
	unsigned int found = 0;
	size_t i;

	for (i = 0; i < n; i++)
		found += r[i].type == type && (!pid || (pid_t)r[i].tgid == pid);
	return found;
}

const struct uvm_mps_record *notices_find(const struct uvm_mps_record *r, size_t n, uint32_t type)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (r[i].type == type)
			return &r[i];
	}
	return NULL;
}

bool notices_wait(uint32_t type, pid_t pid, unsigned int ms, struct uvm_mps_record *out)
{
	uint64_t deadline = now_ms() + ms;
	struct pollfd p = { .fd = notices, .events = POLLIN };

	while (now_ms() < deadline) {
		if (poll(&p, 1, (int)(deadline - now_ms())) <= 0)
			continue;
		while (read(notices, out, sizeof(*out)) == sizeof(*out)) {
			if (out->type == type && (!pid || (pid_t)out->tgid == pid))
				return true;
		}
	}
	return false;
}

void policy(uint32_t mode, uint32_t kill_ms, uint32_t hold_ms, uint32_t max_sinks, uint32_t flags)
{
	struct uvm_mps_policy p = { UVM_MPS_ABI_VERSION, mode, kill_ms, hold_ms, max_sinks, flags };

	if (patched && ioctl(notices, UVM_MPS_IOC_SET_POLICY, &p)) {
		printf("  policy: %s\n", strerror(errno));
		failures++;
	}
}

struct uvm_mps_stats mps_stats(void)
{
	struct uvm_mps_stats s = { 0 };

	if (patched && ioctl(notices, UVM_MPS_IOC_GET_STATS, &s))
		failures++;
	return s;
}

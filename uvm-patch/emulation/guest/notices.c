// SPDX-License-Identifier: MIT
/* The reader of the notices: see lab.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "lab.h"

static int notices = -1;
static struct uvm_mps_record all[1 << 16];
static size_t all_count;

int mps_open(int flags)
{
	return open("/dev/nvidia-uvm-mps", flags | O_CLOEXEC);
}

void notices_open(void)
{
	if (patched && notices < 0)
		notices = mps_open(O_RDWR | O_NONBLOCK);
}

void notices_close(void)
{
	if (notices >= 0)
		close(notices);
	notices = -1;
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

int release(uint64_t va_space_id)
{
	struct uvm_mps_claim claim = { .va_space_id = va_space_id };

	return ioctl(notices, UVM_MPS_IOC_RELEASE, &claim);
}

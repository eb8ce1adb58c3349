// SPDX-License-Identifier: MIT
/* /dev/nvidia-uvm-mps itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "scene.h"

void the_device_keeps_its_promises(void)
{
	struct uvm_mps_policy p = { UVM_MPS_ABI_VERSION, UVM_MPS_ISOLATE, 0, 0, 1, 0 };
	struct uvm_mps_info info;
	struct uvm_mps_record r[8];
	struct client a, b;
	ssize_t n;
	int fd, i;

	NEEDS(patched, "the stock module has no such device");
	two_clients(&a, &b);
	fd = mps_open(O_RDONLY | O_NONBLOCK);
	CHECK(fd >= 0);
	CHECK(ioctl(fd, UVM_MPS_IOC_INFO, &info) == 0 && info.version == UVM_MPS_ABI_VERSION &&
	      info.record_size == sizeof(r[0]) && info.driver[0]);
	printf("  driver %s, tested %u\n", info.driver, info.tested);
	CHECK(ioctl(fd, UVM_MPS_IOC_SET_POLICY, &p) == -1 && errno == EPERM);
	p.version++;
	CHECK(ioctl(mps_fd(), UVM_MPS_IOC_SET_POLICY, &p) == -1 && errno == EINVAL);
	p.version--;
	p.mode = 3;
	CHECK(ioctl(mps_fd(), UVM_MPS_IOC_SET_POLICY, &p) == -1 && errno == EINVAL);
	CHECK(ioctl(fd, _IO('U', 0xff)) == -1 && errno == ENOTTY);
	CHECK(read(fd, r, sizeof(r[0]) - 1) == -1 && errno == EINVAL);

	/* The snapshot: two clients with two channels each, then its end. */
	n = read(fd, r, sizeof(r));
	CHECK(n == 7 * (ssize_t)sizeof(r[0]));
	for (i = 0; i < 7; i++)
		CHECK(r[i].flags & UVM_MPS_F_SNAPSHOT);
	CHECK(r[0].type == UVM_MPS_VASPACE_ADD && r[1].type == UVM_MPS_CHANNEL_ADD && r[2].type == UVM_MPS_CHANNEL_ADD);
	CHECK((pid_t)r[0].tgid == a.pid && (pid_t)r[3].tgid == b.pid && r[6].type == UVM_MPS_SNAPSHOT_END);
	CHECK(read(fd, r, sizeof(r)) == -1 && errno == EAGAIN);

	/* A reader that sleeps through more records than the ring has is told how many it lost. */
	CHECK(churn(CHURN));
	{
		uint64_t lost = 0, got = 0, first = r[6].seq, last = 0;

		while ((n = read(fd, r, sizeof(r[0]))) == (ssize_t)sizeof(r[0])) {
			lost += r[0].type == UVM_MPS_OVERRUN ? r[0].count : 0;
			got += r[0].type != UVM_MPS_OVERRUN;
			last = r[0].seq;
		}
		CHECK(lost == 2 * CHURN - RING && got == RING && last == first + 2 * CHURN - 1);
	}
	close(fd);
	end_both(&a, &b);
}

/* How the clients of one reader look in its PID namespace: its exit status, 0 if as they must. */
static int look_from_within(pid_t outside)
{
	struct uvm_mps_record r[8];
	int fd = mps_open(O_RDONLY | O_NONBLOCK), wrong = 0;
	ssize_t n = read(fd, r, sizeof(r));

	/* A client of an outer namespace cannot be seen from here. */
	wrong |= n < (ssize_t)sizeof(r[0]) || r[0].type != UVM_MPS_VASPACE_ADD || r[0].tgid != 0;
	wrong |= (pid_t)r[0].tgid_init != outside ? 2 : 0;

	/* This process is the first of its own. */
	wrong |= getpid() != 1 || !churn(1) ? 4 : 0;
	n = read(fd, r, sizeof(r[0]));
	wrong |= n != (ssize_t)sizeof(r[0]) || r[0].type != UVM_MPS_VASPACE_ADD || r[0].tgid != 1 ? 8 : 0;
	wrong |= r[0].tgid_init <= 1 ? 16 : 0;
	return wrong;
}

void a_process_has_the_number_of_the_readers_namespace(void)
{
	struct uvm_mps_record rec;
	struct client a;
	pid_t child;
	int status;

	NEEDS(patched, "the stock module has no such device");
	NEEDS(access("/proc/self/ns/pid", F_OK) == 0, "this kernel has no PID namespaces");
	a = client_start(fresh_tsg(), 1);
	fflush(stdout);
	child = fork();
	if (child == 0) {
		if (unshare(CLONE_NEWPID))
			_exit(64);
		child = fork();
		if (child == 0)
			_exit(look_from_within(a.pid));
		_exit(waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 65);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	if (WEXITSTATUS(status))
		printf("  from within its namespace: %#x\n", WEXITSTATUS(status));
	CHECK(WEXITSTATUS(status) == 0);

	/* From outside every process can be seen, by the number that it has here. */
	CHECK(notices_wait(UVM_MPS_VASPACE_ADD, a.pid, PATIENCE_MS, &rec) && rec.tgid == rec.tgid_init);
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, PATIENCE_MS, &rec) && rec.tgid > 1 && rec.tgid == rec.tgid_init);
	client_end(&a, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

/* What tools/emulate does with the list of tested versions, UVM_MPS_TESTED_LIST. */
void an_untested_driver_only_observes(void)
{
	struct uvm_mps_policy p = { UVM_MPS_ABI_VERSION, UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0 }, now;
	struct uvm_mps_info info = { 0 };
	int fd;

	NEEDS(patched, "the stock module has no such device");
	NEEDS(option("mps.untested"), "this driver is on the list: UVM_MPS_TESTED_LIST=/dev/null tools/emulate");
	CHECK(module_unload());
	CHECK(module_load("uvm_mps_untested=0 uvm_mps_mode=2"));
	fd = mps_open(O_RDWR);
	CHECK(ioctl(fd, UVM_MPS_IOC_INFO, &info) == 0 && info.tested == 0);
	CHECK(ioctl(fd, UVM_MPS_IOC_GET_POLICY, &now) == 0 && now.mode == UVM_MPS_OBSERVE);
	CHECK(ioctl(fd, UVM_MPS_IOC_SET_POLICY, &p) == -1 && errno == EOPNOTSUPP);
	CHECK(ioctl(fd, UVM_MPS_IOC_GET_POLICY, &now) == 0 && now.mode == UVM_MPS_OBSERVE);
	close(fd);
	CHECK(module_unload());
	CHECK(module_load(""));
	notices_open();
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
}

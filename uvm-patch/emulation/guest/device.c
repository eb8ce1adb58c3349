// SPDX-License-Identifier: MIT
/* /dev/nvidia-uvm-mps itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
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

/* Without the right to administer the system, whatever the mode of the descriptor: its exit status, 0 if as it must be. */
static int try_without_rights(int fd, uint64_t va_space_id)
{
	struct uvm_mps_policy p = { UVM_MPS_ABI_VERSION, UVM_MPS_OFF, 0, 0, SINKS, 0 };
	struct uvm_mps_claim claim = { .va_space_id = va_space_id };
	int wrong = setresuid(65534, 65534, 65534) ? 1 : 0;

	wrong |= ioctl(fd, UVM_MPS_IOC_SET_POLICY, &p) == -1 && errno == EPERM ? 0 : 2;
	wrong |= ioctl(fd, UVM_MPS_IOC_CLAIM, &claim) == -1 && errno == EPERM ? 0 : 4;
	wrong |= ioctl(fd, UVM_MPS_IOC_RELEASE, &claim) == -1 && errno == EPERM ? 0 : 8;
	wrong |= ioctl(fd, UVM_MPS_IOC_GET_POLICY, &p) == 0 && p.mode == UVM_MPS_ISOLATE ? 0 : 16;
	wrong |= mps_open(O_RDWR) < 0 && errno == EACCES ? 0 : 32;
	return wrong;
}

void only_an_administrator_decides(void)
{
	struct uvm_mps_record rec;
	struct client a;
	pid_t child;
	int status;

	NEEDS(patched, "the stock module has no such device");
	a = client_start(fresh_tsg(), 1);
	CHECK(notices_wait(UVM_MPS_VASPACE_ADD, a.pid, PATIENCE_MS, &rec));
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(try_without_rights(mps_fd(), rec.va_space_id));
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	if (WEXITSTATUS(status))
		printf("  without rights: %#x\n", WEXITSTATUS(status));
	client_end(&a, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

/* A reader that names no memory to put a record into has not got it. */
void a_record_that_could_not_be_handed_over_is_not_lost(void)
{
	struct uvm_mps_record r[2];
	uint64_t first, lost = mps_stats().lost;
	int fd;

	NEEDS(patched, "the stock module has no such device");
	fd = mps_open(O_RDONLY | O_NONBLOCK);
	CHECK(syscall(SYS_read, fd, NULL, sizeof(r)) == -1 && errno == EFAULT);
	CHECK(read(fd, r, sizeof(r[0])) == sizeof(r[0]) && r[0].type == UVM_MPS_SNAPSHOT_END);
	first = r[0].seq;
	CHECK(churn(1));
	CHECK(syscall(SYS_read, fd, NULL, sizeof(r)) == -1 && errno == EFAULT);
	CHECK(read(fd, r, sizeof(r)) == sizeof(r));
	CHECK(r[0].type == UVM_MPS_VASPACE_ADD && r[0].seq == first);
	CHECK(r[1].type == UVM_MPS_VASPACE_DEL && r[1].seq == first + 1);
	CHECK(mps_stats().lost == lost);
	close(fd);
}

/* Address spaces that any user opens and closes push out their own records, and no fault's. */
void a_flood_of_address_spaces_does_not_wash_a_fault_away(void)
{
	uint64_t expected = 0, lost = 0;
	struct uvm_mps_record *recs;
	struct client a, b;
	bool begun = false;
	size_t n, i;

	NEEDS(patched, "the stock module has no such device");
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(churn(CHURN));
	recs = notices_read(&n);
	CHECK(notices_count(recs, n, UVM_MPS_FATAL_FAULT, a.pid) == 1);
	/* Every number is told or counted as lost, in order. */
	for (i = 0; i < n; i++) {
		CHECK(!begun || recs[i].seq == expected);
		begun = true;
		expected = recs[i].seq + (recs[i].type == UVM_MPS_OVERRUN ? recs[i].count : 1);
		lost += recs[i].type == UVM_MPS_OVERRUN ? recs[i].count : 0;
	}
	CHECK(lost == 2 * CHURN - RING);
	end_both(&a, &b);
}

/* A driver that is on no list observes, and says so, whatever it is asked for. */
void a_driver_on_no_list_only_observes(void)
{
	struct uvm_mps_policy p = { UVM_MPS_ABI_VERSION, UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0 }, now;
	struct uvm_mps_info info = { .tested = 1 };
	int fd;

	NEEDS(patched, "the stock module has no such device");
	NEEDS(access("/nvidia-uvm-unlisted.ko", F_OK) == 0, "there is no such module in this machine");
	CHECK(module_unload());
	CHECK(module_load_unlisted("uvm_mps_untested=0 uvm_mps_mode=2"));
	fd = mps_open(O_RDWR);
	CHECK(ioctl(fd, UVM_MPS_IOC_INFO, &info) == 0 && info.tested == 0);
	CHECK(ioctl(fd, UVM_MPS_IOC_GET_POLICY, &now) == 0 && now.mode == UVM_MPS_OBSERVE);
	CHECK(ioctl(fd, UVM_MPS_IOC_SET_POLICY, &p) == -1 && errno == EOPNOTSUPP);
	close(fd);
	CHECK(module_unload());
	CHECK(module_load_unlisted("uvm_mps_untested=1 uvm_mps_mode=2"));
	fd = mps_open(O_RDWR);
	CHECK(ioctl(fd, UVM_MPS_IOC_GET_POLICY, &now) == 0 && now.mode == UVM_MPS_ISOLATE);
	close(fd);
	CHECK(module_unload());
	CHECK(module_load(""));
	notices_open();
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
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

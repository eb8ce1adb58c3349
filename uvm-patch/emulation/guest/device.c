// SPDX-License-Identifier: MIT
/* /dev/nvidia-uvm-mps itself. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
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

// SPDX-License-Identifier: MIT
/* The end of a client: condemned, killed, dead in the middle of a kernel, in every order. */
#include <errno.h>
#include <sys/ioctl.h>
#include "scene.h"

void a_condemned_client_maps_nothing_new(void)
{
	struct uvm_mps_record rec;
	struct client a, b;

	NEEDS(patched, "the stock module condemns nobody");
	two_clients(&a, &b);
	CHECK(client_range(&a, RANGE + 64 * MIB, MIB) == 0);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	{
		/* The refusal starts a moment later, outside the fault path. */
		uint64_t deadline = now_ms() + PATIENCE_MS, base = RANGE + 128 * MIB;
		int r;

		do {
			r = client_range(&a, base, MIB);
			base += MIB;
		} while (r == 0 && now_ms() < deadline);
		CHECK(r == EIO);
	}
	CHECK(notices_wait(UVM_MPS_REFUSED, a.pid, PATIENCE_MS, &rec));
	CHECK(client_map(&a, RANGE + 64 * MIB, 64 * KIB, false, false) == EIO);
	CHECK(client_range(&b, RANGE + 64 * MIB, MIB) == 0);
	end_both(&a, &b);
}

void the_kernel_kills_at_the_deadline_without_a_daemon(void)
{
	struct uvm_mps_record rec;
	struct client a, b;
	uint64_t start;

	NEEDS(patched, "the stock module condemns nobody");
	policy(UVM_MPS_ISOLATE, 300, 0, SINKS, 0);
	two_clients(&a, &b);
	start = now_ms();
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(client_wait(&a, PATIENCE_MS));
	CHECK(now_ms() - start >= 250);
	CHECK(notices_wait(UVM_MPS_KILLED, a.pid, PATIENCE_MS, &rec));
	CHECK(rec.flags & UVM_MPS_F_KILL_SENT);
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, PATIENCE_MS, &rec));
	CHECK(is_well(&b));
	client_end(&b, ENDS_CLEANLY);

	/* A claim by the daemon sets it off; one for a healthy client is refused. */
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(notices_wait(UVM_MPS_FATAL_FAULT, a.pid, PATIENCE_MS, &rec));
	{
		struct uvm_mps_claim claim = { .va_space_id = rec.va_space_id, .kill_ms = UVM_MPS_NEVER };

		CHECK(ioctl(mps_fd(), UVM_MPS_IOC_CLAIM, &claim) == 0);
		CHECK(!client_wait(&a, 600));
		claim.va_space_id = rec.va_space_id + 1;
		CHECK(ioctl(mps_fd(), UVM_MPS_IOC_CLAIM, &claim) == -1 && errno == EINVAL);
		claim.va_space_id = 1ull << 40;
		CHECK(ioctl(mps_fd(), UVM_MPS_IOC_CLAIM, &claim) == -1 && errno == ESRCH);
	}
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	end_both(&a, &b);
}

/* A client is killed while its kernel runs; the kernel needs its memory for 300 ms more. */
void sudden_death_harms_nobody_while_the_tables_are_held(void)
{
	struct uvm_mps_record rec;
	struct client a, b;

	policy(UVM_MPS_ISOLATE, HOUR_MS, 1500, SINKS, 0);
	two_clients(&a, &b);
	client_program(&a, RANGE, patched ? 300 : PATIENCE_MS);	/* a cancel ends it, too */
	client_end(&a, ENDS_BY_SIGNAL);
	if (!patched) {
		uint64_t deadline = now_ms() + PATIENCE_MS;

		while (!is_dead(&b) && now_ms() < deadline)
			;
		CHECK(is_dead(&b));
		client_end(&b, ENDS_CLEANLY);
		CHECK(gpu_wait_idle(PATIENCE_MS));
		return;
	}
	CHECK(notices_wait(UVM_MPS_HELD, a.pid, PATIENCE_MS, &rec));
	CHECK(is_well(&b));
	CHECK(notices_wait(UVM_MPS_HOLD_END, 0, PATIENCE_MS, &rec));
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, PATIENCE_MS, &rec));
	CHECK(gpu_status().running == 0);
	CHECK(is_well(&b));

	/* RELEASE ends the hold at once; a clean exit is not held at all. */
	policy(UVM_MPS_ISOLATE, HOUR_MS, 60000, SINKS, 0);
	a = client_start(EMU_CHANNEL_TSG(b.gr), 3);
	client_end(&a, ENDS_BY_SIGNAL);
	CHECK(notices_wait(UVM_MPS_HELD, a.pid, PATIENCE_MS, &rec));
	{
		struct uvm_mps_claim claim = { .va_space_id = rec.va_space_id };

		CHECK(ioctl(mps_fd(), UVM_MPS_IOC_RELEASE, &claim) == 0);
	}
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, PATIENCE_MS, &rec));
	a = client_start(EMU_CHANNEL_TSG(b.gr), 3);
	client_end(&a, ENDS_BY_EXIT);
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, PATIENCE_MS, &rec));
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

static void zombie_fault(void)
{
	struct uvm_mps_record rec;
	struct client a, b;

	two_clients(&a, &b);
	client_program(&a, RANGE, PATIENCE_MS);
	client_end(&a, ENDS_BY_SIGNAL);
	if (patched) {
		CHECK(notices_wait(UVM_MPS_ZOMBIE_FAULT, 0, PATIENCE_MS, &rec));
		CHECK(rec.fault_class == 'P' && rec.ve_id == 1 && rec.va_space_id != 0);
		CHECK(rec.tsg_id == EMU_CHANNEL_TSG(b.gr) && (pid_t)rec.tgid_init != b.pid);
	}
	{
		uint64_t deadline = now_ms() + PATIENCE_MS;

		while (!is_dead(&b) && now_ms() < deadline)
			;
	}
	CHECK(is_dead(&b));
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

/* In two MIG instances. */
void a_zombie_fault_names_the_dead_client(void)
{
	zombie_fault();
	zombie_fault();
}

void teardown_in_every_order_leaves_nothing(void)
{
	enum ending how_a, how_b;
	int first;

	for (how_a = ENDS_CLEANLY; how_a <= ENDS_BY_SIGNAL; how_a++) {
		for (how_b = ENDS_CLEANLY; how_b <= ENDS_BY_SIGNAL; how_b++) {
			for (first = 0; first < 2; first++) {
				struct client a, b;

				two_clients(&a, &b);
				client_access(&a, false, EMU_WRITE, WILD, 20, 3 * MIB);
				client_access(&a, false, EMU_WRITE, RANGE + MIB, 1, 0);
				client_end(first ? &a : &b, first ? how_a : how_b);
				if (patched && first)
					CHECK(is_well(&b));
				client_end(first ? &b : &a, first ? how_b : how_a);
				CHECK(gpu_wait_idle(PATIENCE_MS));
			}
		}
	}
	CHECK(mps_stats().clients == 0);
}

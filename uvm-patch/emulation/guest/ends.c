// SPDX-License-Identifier: MIT
/* The end of a client: condemned, killed, dead in the middle of a kernel, in every order. */
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "uvm_linux_ioctl.h"
#include "scene.h"

void a_condemned_client_maps_nothing_new(void)
{
	struct uvm_mps_record rec;
	struct client a, b;

	NEEDS(patched, "the stock module condemns nobody");
	two_clients(&a, &b);
	CHECK(client_range(&a, RANGE + 64 * MIB, MIB) == 0);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	/* From the moment on at which its access goes on. */
	CHECK(client_range(&a, RANGE + 128 * MIB, MIB) == EIO);
	CHECK(notices_wait(UVM_MPS_REFUSED, a.pid, PATIENCE_MS, &rec));
	CHECK(client_map(&a, RANGE + 64 * MIB, 64 * KIB, false, false) == EIO);
#ifdef UVM_ALLOC_DEVICE_P2P
	CHECK(client_command(&a, UVM_ALLOC_DEVICE_P2P) == EIO);
#endif
	CHECK(client_range(&b, RANGE + 64 * MIB, MIB) == 0);
	end_both(&a, &b);
}

void refusals_that_are_not_told_are_counted(void)
{
	struct uvm_mps_stats before, after;
	unsigned long told = 0, left_out = 0;
	struct uvm_mps_record *recs;
	struct client a, b;
	uint64_t began;
	unsigned int i;
	bool fast;
	size_t n;

	NEEDS(patched, "the stock module condemns nobody");
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	notices_read(&n);
	before = mps_stats();
	began = now_ms();
	for (i = 0; i < 4000; i++)
		CHECK(client_range(&a, RANGE + 128 * MIB, MIB) == EIO);
	/* At no more than a hundred a second all of them may be told: a machine can be that slow under KASAN. */
	fast = now_ms() - began < 30000;
	after = mps_stats();
	end_both(&a, &b);
	recs = notices_read(&n);
	for (i = 0; i < n; i++) {
		told += recs[i].type == UVM_MPS_REFUSED;
		left_out += recs[i].type == UVM_MPS_SUPPRESSED ? recs[i].count : 0;
	}
	printf("  %lu told, %lu left out\n", told, left_out);
	CHECK(after.refused - before.refused == 4000 && told + left_out == 4000 && (left_out > 0 || !fast));
	CHECK(after.suppressed - before.suppressed == left_out);
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

/* A hold keeps the process's memory on the host, where the driver is bound to its address space, and says how much. */
void a_hold_says_what_it_keeps_and_ends_in_its_own_thread(void)
{
	uint32_t by_system = gpu_status().torn_down_by_system;
	struct uvm_mps_record rec;
	struct client a, b;

	NEEDS(patched, "the stock module holds nobody");
	policy(UVM_MPS_ISOLATE, HOUR_MS, 60000, SINKS, 0);
	two_clients(&a, &b);
	CHECK(client_host_memory(&a, 64 * MIB) == 0);
	client_end(&a, ENDS_BY_SIGNAL);
	CHECK(notices_wait(UVM_MPS_HELD, a.pid, PATIENCE_MS, &rec));
	printf("  %u MiB of the host\n", rec.count);
	CHECK(rec.count >= 64 && rec.count < 80);
	CHECK(release(rec.va_space_id) == 0);
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, PATIENCE_MS, &rec));
	CHECK(gpu_status().torn_down_by_system == by_system);

	a = client_start_sharing(EMU_CHANNEL_TSG(b.gr), 3);
	CHECK(client_host_memory(&a, 64 * MIB) == 0);
	client_end(&a, ENDS_BY_SIGNAL);
	CHECK(notices_wait(UVM_MPS_HELD, a.pid, PATIENCE_MS, &rec) && rec.count == 0);
	CHECK(release(rec.va_space_id) == 0);
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, PATIENCE_MS, &rec));
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

/* One that leaves and takes channels all the time, in its own group, does not make others forgotten. */
void one_client_does_not_take_the_graves_of_others(void)
{
	struct uvm_mps_record rec;
	struct client a, b, c;
	uint64_t id;

	NEEDS(patched, "the stock module names nobody");
	two_clients(&a, &b);
	c = client_start(EMU_CHANNEL_TSG(b.gr), 3);
	client_program(&a, RANGE, PATIENCE_MS);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 60000, SINKS, 0);
	client_end(&a, ENDS_BY_SIGNAL);
	CHECK(notices_wait(UVM_MPS_HELD, a.pid, PATIENCE_MS, &rec));
	id = rec.va_space_id;
	gpu_pause(true);
	CHECK(release(id) == 0);
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, PATIENCE_MS, &rec) && rec.va_space_id == id);
	CHECK(client_channels(&c, 70) == 0);
	gpu_pause(false);
	CHECK(notices_wait(UVM_MPS_ZOMBIE_FAULT, 0, PATIENCE_MS, &rec));
	CHECK(rec.ve_id == 1 && rec.va_space_id == id);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	client_end(&c, ENDS_BY_SIGNAL);
	client_end(&b, ENDS_BY_SIGNAL);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

/* Nor does it make others of its own subcontexts forgotten: a subcontext has one grave, however many channels it had. */
void one_subcontext_does_not_take_the_graves_of_its_clients_others(void)
{
	uint64_t deadline = now_ms() + PATIENCE_MS, packets;
	struct uvm_mps_record rec;
	struct client a, b, c;
	pid_t child;
	size_t n;

	NEEDS(patched, "the stock module names nobody");
	two_clients(&a, &b);
	notices_read(&n);
	c = client_start(EMU_CHANNEL_TSG(b.gr), 3);
	packets = gpu_status().packets;
	gpu_pause(true);
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(gpu_access(c.gr, EMU_WRITE, WILD).results[EMU_RC] == 1 ? 0 : 1);
	while (gpu_status().packets == packets && now_ms() < deadline)
		usleep(1000);
	CHECK(client_moves(&c, 4, 8) == 0);
	gpu_pause(false);
	CHECK(notices_wait(UVM_MPS_ZOMBIE_FAULT, 0, PATIENCE_MS, &rec));
	CHECK(rec.ve_id == 3 && rec.va_space_id != 0 && (pid_t)rec.tgid_init == c.pid);
	CHECK(waitpid(child, NULL, 0) == child);
	client_end(&c, ENDS_BY_SIGNAL);
	end_both(&a, &b);
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

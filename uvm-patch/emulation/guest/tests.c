// SPDX-License-Identifier: MIT
/*
 * What the patched module must do and what the stock module does, in the same
 * emulated GPU. This program is the whole user space of the virtual machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lab.h"

#define WILD	0x7f1234567000ull
#define RANGE	0x7e0000000000ull
#define KIB	1024ull
#define MIB	(1024 * KIB)
#define HOUR_MS	3600000u
#define SINKS	256u

bool patched;
unsigned long checks, failures;
static uint32_t next_tsg;
static bool long_run;
static const char *skipped;	/* why the test that runs has nothing to do */

#define NEEDS(fact, why) do {							\
	if (!(fact)) {								\
		skipped = why;							\
		return;								\
	}									\
} while (0)

/* A TSG that no cancel has ended. */
static uint32_t fresh_tsg(void)
{
	if (next_tsg == EMU_TSGS)
		next_tsg = 0;
	if (gpu_status().tsg_dead & (1u << next_tsg))
		gpu_revive();
	return next_tsg++;
}

static bool is_dead(struct client *c)
{
	return gpu_status().tsg_dead & (1u << EMU_CHANNEL_TSG(c->gr));
}

/* The other client's own memory still works. */
static bool is_well(struct client *c)
{
	return !is_dead(c) && client_access(c, false, EMU_WRITE, RANGE, 1, 0).results[EMU_OK] == 1;
}

static void give_memory(struct client *c)
{
	CHECK(client_range(c, RANGE, 2 * MIB) == 0);
	CHECK(client_map(c, RANGE, 256 * KIB, false, false) == 0);
}

static void end_both(struct client *a, struct client *b)
{
	client_end(a, ENDS_CLEANLY);
	client_end(b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(5000));
}

static void two_clients(struct client *a, struct client *b)
{
	uint32_t tsg = fresh_tsg();
	size_t n;

	*a = client_start(tsg, 1);
	*b = client_start(tsg, 2);
	give_memory(a);
	give_memory(b);
	notices_read(&n);
}

/* The heart: one fault, one notice, no cancel, the sink in one page tree only. */
static void a_wild_store_ends_its_client_alone(void)
{
	struct emu_status before, after;
	struct emu_access_request r;
	struct uvm_mps_record *recs;
	const struct uvm_mps_record *f;
	struct client a, b;
	size_t n;

	two_clients(&a, &b);
	before = gpu_status();
	r = client_access(&a, false, EMU_WRITE, WILD, 1, 0);
	after = gpu_status();
	printf("  %u packets, %llu replays, %llu cancels, %llu us\n", r.faults,
	       (unsigned long long)(after.replays - before.replays),
	       (unsigned long long)(after.cancels - before.cancels), (unsigned long long)r.total_ns / 1000);
	recs = notices_read(&n);

	if (!patched) {
		CHECK(r.results[EMU_RC] == 1);
		CHECK(after.cancels == before.cancels + 1);
		CHECK(is_dead(&b));
		end_both(&a, &b);
		return;
	}
	CHECK(r.results[EMU_SPARSE] == 1);
	CHECK(after.cancels == before.cancels);
	CHECK(after.reports == before.reports);
	CHECK(client_walk(&a, WILD) == EMU_WALK_SPARSE);
	CHECK(client_walk(&b, WILD) != EMU_WALK_SPARSE);
	CHECK(client_walk(&b, WILD) != EMU_OK);
	CHECK(is_well(&b));
	CHECK(notices_count(recs, n, UVM_MPS_FATAL_FAULT, 0) == 1);
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	if (f) {
		CHECK(f->magic == UVM_MPS_MAGIC && f->size == sizeof(*f));
		CHECK((pid_t)f->tgid == a.pid && (pid_t)f->tgid_init == a.pid);
		CHECK(f->verdict == UVM_MPS_ISOLATED && f->sink == UVM_MPS_SINK_SPARSE && f->fault_class == 'A');
		CHECK(f->address == WILD && f->ve_id == 1 && f->tsg_id == EMU_CHANNEL_TSG(a.gr));
		CHECK(f->flags & UVM_MPS_F_REPLAYABLE && f->flags & UVM_MPS_F_CONDEMNED);
		CHECK(f->va_space_id != 0 && !memcmp(f->gpu_uuid, "emulated-tu102", 14));
	}
	/* The same window again, and address 0. */
	before = gpu_status();
	CHECK(client_access(&a, false, EMU_READ, WILD + 0x3000, 1, 0).faults == 0);
	CHECK(client_access(&a, false, EMU_ATOMIC, 0, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(gpu_status().cancels == before.cancels);
	CHECK(is_well(&b));
	end_both(&a, &b);
}

static void expect(struct client *a, struct client *b, struct emu_access_request r, char cls, uint8_t sink,
		   enum emu_result result)
{
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	size_t n;

	recs = notices_read(&n);
	if (!patched) {
		CHECK(r.results[EMU_RC] == r.count);
		CHECK(is_dead(b));
		return;
	}
	CHECK(r.results[result] == r.count);
	CHECK(is_well(b));
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(f && f->fault_class == cls && f->sink == sink && (pid_t)f->tgid == a->pid);
	if (f && (f->fault_class != cls || f->sink != sink))
		printf("  class %c, sink %u, verdict %u, status 0x%x\n", f->fault_class, f->sink, f->verdict, f->nv_status);
}

static void class_b_the_unmapped_part_of_an_external_range(void)
{
	struct client a, b;

	two_clients(&a, &b);
	expect(&a, &b, client_access(&a, false, EMU_WRITE, RANGE + MIB, 1, 0), 'B', UVM_MPS_SINK_SPARSE, EMU_SPARSE);
	end_both(&a, &b);
}

static void class_c_a_store_to_a_read_only_mapping(void)
{
	struct client a, b;

	two_clients(&a, &b);
	CHECK(client_map(&a, RANGE + MIB, 128 * KIB, false, true) == 0);
	CHECK(client_access(&a, false, EMU_READ, RANGE + MIB, 1, 0).results[EMU_OK] == 1);
	expect(&a, &b, client_access(&a, false, EMU_WRITE, RANGE + MIB, 1, 0), 'C', UVM_MPS_SINK_REMAP_SPARSE, EMU_SPARSE);
	end_both(&a, &b);
}

static void class_c_with_small_pages_gets_the_private_page(void)
{
	struct client a, b;

	two_clients(&a, &b);
	CHECK(client_map(&a, RANGE + MIB, 12 * KIB, true, true) == 0);
	expect(&a, &b, client_access(&a, false, EMU_ATOMIC, RANGE + MIB + 4 * KIB, 1, 0), 'C', UVM_MPS_SINK_REMAP_PAGE, EMU_OK);
	end_both(&a, &b);
}

static void a_hole_beside_small_pages_gets_the_private_page(void)
{
	struct client a, b;

	two_clients(&a, &b);
	CHECK(client_map(&a, RANGE + MIB, 12 * KIB, true, false) == 0);
	expect(&a, &b, client_access(&a, false, EMU_WRITE, RANGE + MIB + 16 * KIB, 1, 0), 'B', UVM_MPS_SINK_PAGE, EMU_OK);
	if (patched)
		CHECK(client_access(&a, false, EMU_WRITE, RANGE + MIB, 1, 0).results[EMU_OK] == 1);
	end_both(&a, &b);
}

static void a_prefetch_harms_nobody(void)
{
	struct client a, b;

	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_PREFETCH, WILD, 1, 0).results[EMU_OK] == 1);
	CHECK(is_well(&b));
	end_both(&a, &b);
}

static void class_o_a_copy_engine_fault_restarts_its_channel(void)
{
	struct emu_status before = gpu_status(), after;
	struct client a, b;

	two_clients(&a, &b);
	expect(&a, &b, client_access(&a, true, EMU_WRITE, WILD, 1, 0), 'A', UVM_MPS_SINK_SPARSE, EMU_SPARSE);
	after = gpu_status();
	CHECK(after.reports == before.reports + (patched ? 0 : 1));
	CHECK(after.clear_faulted >= before.clear_faulted + (patched ? 1 : 0));
	end_both(&a, &b);
}

/* Classes that cannot be isolated pass through unchanged, with a notice. */
static void classes_h_to_k_pass_through_with_a_notice(void)
{
	static const struct { uint32_t type; char cls; } rows[] = {
		{ 3, 'H' }, { 4, 'K' }, { 1, 'I' }, { 5, 'I' }, { 8, 'I' }, { 9, 'I' }, { 10, 'I' }, { 11, 'I' },
		{ 12, 'I' }, { 13, 'I' }, { 14, 'J' },
	};
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	struct client a, b;
	size_t i, n;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		two_clients(&a, &b);
		CHECK(client_fault(&a, rows[i].type, WILD).results[EMU_RC] == 1);
		CHECK(is_dead(&b));
		recs = notices_read(&n);
		f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
		CHECK(!patched || (f && f->fault_class == rows[i].cls && f->verdict == UVM_MPS_CLASS));
		if (patched && f && f->fault_class != rows[i].cls)
			printf("  type %u: class %c instead of %c\n", rows[i].type, f->fault_class, rows[i].cls);
		end_both(&a, &b);
	}
}

static void a_client_that_nobody_shares_with_is_left_to_the_driver(void)
{
	struct client a = client_start(fresh_tsg(), 1);
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	size_t n;

	notices_read(&n);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_RC] == 1);
	recs = notices_read(&n);
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(!patched || (f && f->verdict == UVM_MPS_NOT_SHARED));
	client_end(&a, ENDS_CLEANLY);

	if (patched) {
		policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, UVM_MPS_ALONE);
		a = client_start(fresh_tsg(), 1);
		CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
		client_end(&a, ENDS_CLEANLY);
		policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	}
	CHECK(gpu_wait_idle(5000));
}

static void observing_changes_nothing_but_tells(void)
{
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	struct client a, b;
	size_t n;

	policy(UVM_MPS_OBSERVE, HOUR_MS, 0, SINKS, 0);
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_RC] == 1);
	CHECK(is_dead(&b));
	recs = notices_read(&n);
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(!patched || (f && f->verdict == UVM_MPS_PASSED && (pid_t)f->tgid == a.pid));
	end_both(&a, &b);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
}

static void a_sweep_gets_larger_windows_and_ends_at_the_limit(void)
{
	struct uvm_mps_stats before = mps_stats(), after;
	struct emu_access_request r;
	struct client a, b;

	two_clients(&a, &b);
	/* One access every 64 KiB over 128 MiB, one after the other. */
	r = client_access(&a, false, EMU_WRITE, WILD & ~(32 * MIB - 1), 2048, 64 * KIB);
	if (!patched) {
		CHECK(r.results[EMU_RC] == 2048);
		end_both(&a, &b);
		return;
	}
	after = mps_stats();
	CHECK(r.results[EMU_SPARSE] == 2048);
	printf("  128 MiB in %llu sinks\n", (unsigned long long)(after.sinks - before.sinks));
	CHECK(after.sinks - before.sinks <= 128);
	CHECK(is_well(&b));
	end_both(&a, &b);

	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, 3, 0);
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 3, 16 * MIB).results[EMU_SPARSE] == 3);
	CHECK(client_access(&a, false, EMU_WRITE, WILD + 1024 * MIB, 1, 0).results[EMU_RC] == 1);
	CHECK(is_dead(&b));
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	end_both(&a, &b);
}

static void a_storm_is_survived_and_counted_exactly(void)
{
	struct uvm_mps_stats before = mps_stats(), after;
	unsigned long told = 0, suppressed = 0;
	struct emu_access_request r;
	struct uvm_mps_record *recs;
	struct client a, b;
	size_t n, i;

	two_clients(&a, &b);
	r = client_access(&a, false, EMU_WRITE, WILD & ~(MIB - 1), 4096, 4 * KIB);
	CHECK(r.results[patched ? EMU_SPARSE : EMU_RC] == 4096);
	if (patched)
		CHECK(is_well(&b));
	end_both(&a, &b);
	if (!patched)
		return;
	after = mps_stats();
	recs = notices_read(&n);
	for (i = 0; i < n; i++) {
		told += recs[i].type == UVM_MPS_FATAL_FAULT;
		suppressed += recs[i].type == UVM_MPS_SUPPRESSED ? recs[i].count : 0;
	}
	printf("  %llu faults, %lu told, %lu suppressed\n", (unsigned long long)(after.faults - before.faults), told, suppressed);
	CHECK(told + suppressed == after.faults - before.faults);
	CHECK(after.passed == before.passed);
}

static void a_condemned_client_maps_nothing_new(void)
{
	struct uvm_mps_record rec;
	struct client a, b;

	NEEDS(patched, "the stock module condemns nobody");
	two_clients(&a, &b);
	CHECK(client_range(&a, RANGE + 64 * MIB, MIB) == 0);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	{
		/* The refusal starts a moment later, outside the fault path. */
		uint64_t deadline = now_ms() + 2000, base = RANGE + 128 * MIB;
		int r;

		do {
			r = client_range(&a, base, MIB);
			base += MIB;
		} while (r == 0 && now_ms() < deadline);
		CHECK(r == EIO);
	}
	CHECK(notices_wait(UVM_MPS_REFUSED, a.pid, 1000, &rec));
	CHECK(client_map(&a, RANGE + 64 * MIB, 64 * KIB, false, false) == EIO);
	CHECK(client_range(&b, RANGE + 64 * MIB, MIB) == 0);
	end_both(&a, &b);
}

static void the_kernel_kills_at_the_deadline_without_a_daemon(void)
{
	struct uvm_mps_record rec;
	struct client a, b;
	uint64_t start;

	NEEDS(patched, "the stock module condemns nobody");
	policy(UVM_MPS_ISOLATE, 300, 0, SINKS, 0);
	two_clients(&a, &b);
	start = now_ms();
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(client_wait(&a, 5000));
	CHECK(now_ms() - start >= 250);
	CHECK(notices_wait(UVM_MPS_KILLED, a.pid, 1000, &rec));
	CHECK(rec.flags & UVM_MPS_F_KILL_SENT);
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, 2000, &rec));
	CHECK(is_well(&b));
	client_end(&b, ENDS_CLEANLY);

	/* A claim by the daemon sets it off; one for a healthy client is refused. */
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(notices_wait(UVM_MPS_FATAL_FAULT, a.pid, 1000, &rec));
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
static void sudden_death_harms_nobody_while_the_tables_are_held(void)
{
	struct uvm_mps_record rec;
	struct client a, b;

	policy(UVM_MPS_ISOLATE, HOUR_MS, 1000, SINKS, 0);
	two_clients(&a, &b);
	client_program(&a, RANGE, 300);
	client_end(&a, ENDS_BY_SIGNAL);
	if (!patched) {
		uint64_t deadline = now_ms() + 2000;

		while (!is_dead(&b) && now_ms() < deadline)
			;
		CHECK(is_dead(&b));
		client_end(&b, ENDS_CLEANLY);
		CHECK(gpu_wait_idle(5000));
		return;
	}
	CHECK(notices_wait(UVM_MPS_HELD, a.pid, 1000, &rec));
	CHECK(is_well(&b));
	CHECK(notices_wait(UVM_MPS_HOLD_END, 0, 3000, &rec));
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, 3000, &rec));
	CHECK(gpu_status().running == 0);
	CHECK(is_well(&b));

	/* RELEASE ends the hold at once; a clean exit is not held at all. */
	policy(UVM_MPS_ISOLATE, HOUR_MS, 60000, SINKS, 0);
	a = client_start(EMU_CHANNEL_TSG(b.gr), 3);
	client_end(&a, ENDS_BY_SIGNAL);
	CHECK(notices_wait(UVM_MPS_HELD, a.pid, 1000, &rec));
	{
		struct uvm_mps_claim claim = { .va_space_id = rec.va_space_id };

		CHECK(ioctl(mps_fd(), UVM_MPS_IOC_RELEASE, &claim) == 0);
	}
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, 2000, &rec));
	a = client_start(EMU_CHANNEL_TSG(b.gr), 3);
	client_end(&a, ENDS_BY_EXIT);
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, 2000, &rec));
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(5000));
}

static void a_zombie_fault_names_the_dead_client(void)
{
	struct uvm_mps_record rec;
	struct client a, b;

	two_clients(&a, &b);
	client_program(&a, RANGE, 2000);
	client_end(&a, ENDS_BY_SIGNAL);
	if (patched) {
		CHECK(notices_wait(UVM_MPS_ZOMBIE_FAULT, 0, 3000, &rec));
		CHECK(rec.fault_class == 'P' && rec.ve_id == 1 && rec.va_space_id != 0);
		CHECK(rec.tsg_id == EMU_CHANNEL_TSG(b.gr) && (pid_t)rec.tgid_init != b.pid);
	}
	{
		uint64_t deadline = now_ms() + 2000;

		while (!is_dead(&b) && now_ms() < deadline)
			;
	}
	CHECK(is_dead(&b));
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(5000));
}

static void teardown_in_every_order_leaves_nothing(void)
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
				CHECK(gpu_wait_idle(5000));
			}
		}
	}
	CHECK(mps_stats().clients == 0);
}

static void the_device_keeps_its_promises(void)
{
	struct uvm_mps_policy p = { UVM_MPS_ABI_VERSION, UVM_MPS_ISOLATE, 0, 0, 1, 0 };
	struct uvm_mps_info info;
	struct uvm_mps_record r[8];
	struct client a, b;
	ssize_t n;
	int fd, i, left;

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

	/* A reader that sleeps through 1500 clients of 4 records or more loses some, and is told how many. */
	left = long_run ? 1500 : 0;
	for (i = 0; i < left; i++) {
		struct client c = client_start(EMU_CHANNEL_TSG(a.gr), 5);

		client_end(&c, ENDS_CLEANLY);
	}
	if (left) {
		uint64_t lost = 0, got = 0, first = r[6].seq, last = 0;

		while ((n = read(fd, r, sizeof(r[0]))) == (ssize_t)sizeof(r[0])) {
			lost += r[0].type == UVM_MPS_OVERRUN ? r[0].count : 0;
			got += r[0].type != UVM_MPS_OVERRUN;
			last = r[0].seq;
		}
		CHECK(lost > 0);
		CHECK(got + lost == last + 1 - first);
	}
	close(fd);
	end_both(&a, &b);
}

static void a_hundred_thousand_faults_leave_nothing(void)
{
	struct uvm_mps_stats before = mps_stats(), after;
	uint64_t first = gpu_status().packets, packets = 0;
	struct client a, b;
	unsigned int i;

	NEEDS(patched, "the stock module ends at the first fault");
	NEEDS(long_run, "only with --long");
	b = client_start(fresh_tsg(), 2);
	give_memory(&b);
	for (i = 0; packets < 100000 && i < 1000; i++) {
		struct emu_access_request r;

		a = client_start(EMU_CHANNEL_TSG(b.gr), 1);
		r = client_access(&a, false, EMU_WRITE, WILD & ~(32 * MIB - 1), 4096, 4 * KIB);
		CHECK(r.results[EMU_SPARSE] == 4096);
		client_end(&a, i & 1 ? ENDS_BY_SIGNAL : ENDS_CLEANLY);
		CHECK(is_well(&b));
		packets = gpu_status().packets - first;
	}
	after = mps_stats();
	printf("  %llu packets from %u clients, %llu faults handled, %llu sinks\n", (unsigned long long)packets, i,
	       (unsigned long long)(after.faults - before.faults), (unsigned long long)(after.sinks - before.sinks));
	CHECK(packets >= 100000);
	CHECK(after.passed == before.passed);
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(5000));
}

static void from_packet_to_replay_takes_about_as_long_as_the_cancel(void)
{
	uint64_t total = 0, n = 0;
	unsigned int i;

	for (i = 0; i < (long_run ? 100 : 10); i++) {
		struct emu_access_request r;
		struct client a, b;

		two_clients(&a, &b);
		r = client_access(&a, false, EMU_WRITE, WILD, 1, 0);
		total += r.total_ns;
		n++;
		end_both(&a, &b);
	}
	printf("  MEASURED fault_us %llu\n", (unsigned long long)(total / n / 1000));
}

static void load(const char *path, const char *parameters)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0 || syscall(SYS_finit_module, fd, parameters, 0)) {
		printf("FATAL: %s: %s\n", path, strerror(errno));
		failures++;
	}
	close(fd);
}

static void make_node(void)
{
	char name[64];
	unsigned int device;
	FILE *f = fopen("/proc/devices", "r");

	while (f && fscanf(f, "%u %63s", &device, name) >= 0) {
		if (!strcmp(name, "nvidia-uvm"))
			mknod("/dev/nvidia-uvm", S_IFCHR | 0666, makedev(device, 0));
		if (fgetc(f) == EOF)
			break;
	}
	if (f)
		fclose(f);
}

static bool option(const char *name)
{
	char line[4096] = "";
	FILE *f = fopen("/proc/cmdline", "r");
	bool found = f && fgets(line, sizeof(line), f) && strstr(line, name);

	if (f)
		fclose(f);
	return found;
}

#define RUN(test) do {								\
	unsigned long was = failures;						\
	uint64_t began = now_ms();						\
	printf("run  %s\n", #test);						\
	skipped = NULL;								\
	test();									\
	if (skipped)								\
		printf("skip %s Skipped(%s)\n", #test, skipped);		\
	else									\
		printf("%s %s (%llu ms)\n", failures == was ? "ok  " : "FAIL", #test,	\
		       (unsigned long long)(now_ms() - began));			\
} while (0)

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	patched = option("mps.patched");
	long_run = option("mps.long");
	printf("== %s module\n", patched ? "patched" : "stock");
	load("/nvidia.ko", "");
	load("/nvidia-uvm.ko", option("mps.untested") ? "uvm_mps_untested=1" : "");
	make_node();
	notices_open();
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);

	RUN(a_wild_store_ends_its_client_alone);
	RUN(class_b_the_unmapped_part_of_an_external_range);
	RUN(class_c_a_store_to_a_read_only_mapping);
	RUN(class_c_with_small_pages_gets_the_private_page);
	RUN(a_hole_beside_small_pages_gets_the_private_page);
	RUN(a_prefetch_harms_nobody);
	RUN(class_o_a_copy_engine_fault_restarts_its_channel);
	RUN(classes_h_to_k_pass_through_with_a_notice);
	RUN(a_client_that_nobody_shares_with_is_left_to_the_driver);
	RUN(observing_changes_nothing_but_tells);
	RUN(a_sweep_gets_larger_windows_and_ends_at_the_limit);
	RUN(a_storm_is_survived_and_counted_exactly);
	RUN(a_condemned_client_maps_nothing_new);
	RUN(the_kernel_kills_at_the_deadline_without_a_daemon);
	RUN(sudden_death_harms_nobody_while_the_tables_are_held);
	RUN(a_zombie_fault_names_the_dead_client);
	RUN(teardown_in_every_order_leaves_nothing);
	RUN(the_device_keeps_its_promises);
	RUN(from_packet_to_replay_takes_about_as_long_as_the_cancel);
	RUN(a_hundred_thousand_faults_leave_nothing);

	if (syscall(SYS_delete_module, "nvidia_uvm", O_NONBLOCK)) {
		close(mps_fd());
		CHECK(syscall(SYS_delete_module, "nvidia_uvm", O_NONBLOCK) == 0);
	}
	printf("== %s: %lu checks, %lu failed\n", patched ? "patched" : "stock", checks, failures);
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}

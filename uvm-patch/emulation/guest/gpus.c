// SPDX-License-Identifier: MIT
/* Clients with channels on both GPUs, between which there is no peer access. */
#include <unistd.h>
#include "scene.h"

#define HOLES	400u	/* more than sinks before the last resort */

/* Two clients that share a group on either GPU, with memory of their own there; *there are the same on the second. */
static void two_clients_on_both(struct client *a, struct client *b, struct client *a_there, struct client *b_there)
{
	size_t n;

	/* Bit 1 of it is what module_load() gives a driver that is on no list. */
	load_anew(option("mps.untested") ? "uvm_mps_untested=5" : "uvm_mps_untested=4");
	two_clients(a, b);
	CHECK(client_join(a) == 0 && client_join(b) == 0);
	*a_there = on_second(a);
	*b_there = on_second(b);
	CHECK(client_map(a_there, RANGE, 256 * KIB, false, false) == 0);
	CHECK(client_map(b_there, RANGE, 256 * KIB, false, false) == 0);
	notices_read(&n);
}

static bool is_second(const struct uvm_mps_record *f)
{
	return f && !memcmp(f->gpu_uuid, EMU_UUID(1), sizeof(f->gpu_uuid));
}

void several_gpus_are_left_to_the_driver_without_the_key(void)
{
	const struct uvm_mps_record *f;
	struct client a, b, there;

	load_anew("");
	two_clients(&a, &b);
	CHECK(client_join(&a) == 0);
	there = on_second(&a);
	CHECK(client_map(&there, RANGE, 256 * KIB, false, false) == 0);
	CHECK(is_well(&a) && is_well(&there) && is_well(&b));
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_RC] == 1);
	f = told('A', UVM_MPS_UNTRIED);
	CHECK(!patched || (f && f->nv_status == UVM_MPS_UNTRIED_GPUS));
	CHECK(is_dead(&b) && is_well(&there));
	end_both(&a, &b);
}

/* The same address on the one and on the other: a sink each, in the page tree of the GPU that has met the fault. */
void a_wild_store_on_one_gpu_is_isolated_there_alone(void)
{
	struct uvm_mps_stats before, after;
	const struct uvm_mps_record *f;
	struct client a, b, a_there, b_there;

	two_clients_on_both(&a, &b, &a_there, &b_there);
	before = mps_stats();
	if (!patched) {
		CHECK(client_access(&a_there, false, EMU_WRITE, WILD, 1, 0).results[EMU_RC] == 1);
		CHECK(is_dead(&b_there) && is_well(&a) && is_well(&b));
		end_both(&a, &b);
		return;
	}
	CHECK(client_access(&a_there, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	f = told('A', UVM_MPS_ISOLATED);
	CHECK(is_second(f) && (pid_t)f->tgid == a.pid);
	CHECK(client_walk(&a_there, WILD) == EMU_WALK_SPARSE);
	CHECK(client_walk(&a, WILD) != EMU_WALK_SPARSE && client_walk(&b_there, WILD) != EMU_WALK_SPARSE);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	f = told('A', UVM_MPS_REPEAT);
	CHECK(f && !is_second(f));
	after = mps_stats();
	CHECK(after.sinks == before.sinks + 2 && after.passed == before.passed);

	/* The same by a copy engine of the second. */
	CHECK(client_access(&a_there, true, EMU_WRITE, WILD + GIB, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(is_second(told('A', UVM_MPS_REPEAT)));
	CHECK(is_well(&a) && is_well(&a_there) && is_well(&b) && is_well(&b_there));
	end_both(&a, &b);
}

/* A store that a mapping of the second GPU's denies rewrites it there, with small pages to a page of that GPU's own. */
void a_mapping_on_the_second_gpu_is_rewritten_there_alone(void)
{
	struct client a, b, a_there, b_there;
	struct emu_access_request r;

	NEEDS(patched, "the stock module makes no sinks");
	two_clients_on_both(&a, &b, &a_there, &b_there);
	CHECK(client_map(&a, RANGE + MIB, 12 * KIB, true, true) == 0);
	CHECK(client_map(&a_there, RANGE + MIB, 12 * KIB, true, true) == 0);
	CHECK(client_access(&a_there, false, EMU_WRITE, RANGE + MIB, 1, 0).results[EMU_OK] == 1);
	CHECK(is_second(told('C', UVM_MPS_ISOLATED)));
	/* A hole beside them, too. */
	r = client_access(&a, false, EMU_READ, RANGE + MIB + 16 * KIB, 1, 0);
	CHECK(r.results[EMU_OK] == 1 && r.value == 0);
	CHECK(!is_second(told('B', UVM_MPS_REPEAT)));
	CHECK(client_access(&a, false, EMU_WRITE, RANGE + MIB, 1, 0).results[EMU_OK] == 1);
	CHECK(client_access(&a_there, false, EMU_READ, RANGE + MIB + 4 * KIB, 1, 0).value == a.gr);
	CHECK(is_well(&b) && is_well(&b_there));
	end_both(&a, &b);
}

void storms_on_two_gpus_at_once_are_isolated_on_both(void)
{
	struct uvm_mps_stats before, after;
	struct client a, b, a_there, b_there;
	pid_t here, there;

	NEEDS(patched, "the stock module makes no sinks");
	two_clients_on_both(&a, &b, &a_there, &b_there);
	before = mps_stats();
	here = start_accesses(&a, FAR, HOLES, STEP / 4, EMU_SPARSE);
	there = start_accesses(&a_there, FAR, HOLES, STEP / 4, EMU_SPARSE);
	CHECK(went_well(here) && went_well(there));
	after = mps_stats();
	printf("  %llu sinks, %llu faults\n", (unsigned long long)(after.sinks - before.sinks),
	       (unsigned long long)(after.faults - before.faults));
	CHECK(after.passed == before.passed);
	/* The client's ordinary ones, and the last resort on each. */
	CHECK(after.sinks - before.sinks <= 128 + 2);
	CHECK(client_walk(&b, FAR) != EMU_WALK_SPARSE && client_walk(&b_there, FAR) != EMU_WALK_SPARSE);
	CHECK(is_well(&a) && is_well(&a_there) && is_well(&b) && is_well(&b_there));
	end_both(&a, &b);
}

void a_gpu_that_a_condemned_client_gives_up_takes_its_sinks_along(void)
{
	struct client a, b, a_there, b_there;

	NEEDS(patched, "the stock module makes no sinks");
	two_clients_on_both(&a, &b, &a_there, &b_there);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(client_access(&a_there, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(client_leave(&a) == 0);
	CHECK(client_walk(&a, WILD) == EMU_WALK_SPARSE);
	CHECK(client_access(&a, false, EMU_READ, WILD, 1, 0).faults == 0);
	CHECK(is_well(&a) && is_well(&b) && is_well(&b_there));
	end_both(&a, &b);
}

/* Its kernels on both need their memory for a moment more. */
void sudden_death_on_two_gpus_harms_nobody(void)
{
	struct client a, b, a_there, b_there;
	struct uvm_mps_record rec;

	NEEDS(patched, "the stock module holds nothing");
	two_clients_on_both(&a, &b, &a_there, &b_there);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 60000, SINKS, 0);
	client_program(&a, RANGE, 300);
	client_program(&a_there, RANGE, 300);
	client_end(&a, ENDS_BY_SIGNAL);
	CHECK(notices_wait(UVM_MPS_HELD, a.pid, PATIENCE_MS, &rec));
	while (gpu_status().running || gpu_status_of(1).running)
		usleep(5000);
	CHECK(is_well(&b) && is_well(&b_there));
	CHECK(release(rec.va_space_id) == 0);
	CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, PATIENCE_MS, &rec));
	CHECK(is_well(&b) && is_well(&b_there));
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

/*
 * The driver serves the faults of one GPU after the other, so that only those of
 * two meet in a client's sinks. While the entries of the first one's are being
 * written the second waits, and nothing is told of it.
 */
void a_fault_waits_for_another_of_the_same_client(void)
{
	uint64_t deadline = now_ms() + PATIENCE_MS, packets, grace;
	struct client a, b, a_there, b_there;
	struct uvm_mps_record *recs;
	pid_t first, second;
	size_t n;

	NEEDS(patched, "the stock module makes no sinks");
	two_clients_on_both(&a, &b, &a_there, &b_there);
	gpu_stall(true);
	first = start_accesses(&a, WILD, 1, 0, EMU_SPARSE);
	while (!gpu_status().stopped && now_ms() < deadline)
		usleep(1000);
	CHECK(gpu_status().stopped);
	packets = gpu_status_of(1).packets;
	second = start_accesses(&a_there, WILD, 1, 0, EMU_SPARSE);
	while (gpu_status_of(1).packets == packets && now_ms() < deadline)
		usleep(1000);
	/* One that does not wait needs a moment to show it; one that does has all the time. */
	for (grace = now_ms() + 2000 * slowness; now_ms() < grace; )
		usleep(10000);
	recs = notices_read(&n);
	CHECK(notices_count(recs, n, UVM_MPS_FATAL_FAULT, 0) == 0);
	gpu_stall(false);
	CHECK(went_well(first) && went_well(second));
	recs = notices_read(&n);
	CHECK(notices_count(recs, n, UVM_MPS_FATAL_FAULT, a.pid) == 2);
	CHECK(is_well(&b) && is_well(&b_there));
	end_both(&a, &b);
}

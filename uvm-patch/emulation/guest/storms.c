// SPDX-License-Identifier: MIT
/* Storms of faults, and a GPU with no memory left, which is where a storm ends. */
#include <unistd.h>
#include "scene.h"

#define BUFFER	8191u			/* packets that a fault buffer of 8,192 takes at once */
#define STORM	12000u			/* more than that */
#define BATCH	256u			/* packets that the driver takes at once */
#define MANY	300u			/* holes, more than sinks in them before the last resort */

/*
 * Small pages, each in a table of its own: those take what the driver has left
 * of a chunk, and then there is none. Later tables are in the host's memory.
 */
static void take_all_memory(struct client *c)
{
	unsigned int i;

	gpu_chunks(false);
	CHECK(client_range(c, OWN, 2 * GIB) == 0);
	for (i = 0; i < 600; i++)
		CHECK(client_map(c, OWN + i * 2 * MIB, 4 * KIB, true, false) == 0);
}

void without_memory_for_a_private_page_the_verdict_is_failed(void)
{
	const struct uvm_mps_record *f;
	struct client a, b;
	size_t n;

	NEEDS(patched, "the stock module ends at the first fault");
	two_clients(&a, &b);
	CHECK(client_map(&a, RANGE + MIB, 12 * KIB, true, false) == 0);
	take_all_memory(&b);
	/* What is free needs no memory of the GPU's. */
	CHECK(client_access(&a, false, EMU_WRITE, FAR + 5 * STEP, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(is_well(&b));
	notices_read(&n);
	/* A hole beside small pages does. */
	CHECK(client_access(&a, false, EMU_WRITE, RANGE + MIB + 16 * KIB, 1, 0).results[EMU_RC] == 1);
	f = told('B', UVM_MPS_FAILED);
	CHECK(f && f->nv_status != 0 && f->sink == UVM_MPS_SINK_NONE);
	CHECK(is_dead(&b));
	gpu_chunks(true);
	end_both(&a, &b);
}

/* The fault that ends everybody comes when the records of its client have been used up by what it survived. */
void what_ends_everybody_is_told_after_any_storm(void)
{
	struct uvm_mps_stats before = mps_stats(), after;
	uint64_t deadline = now_ms() + PATIENCE_MS;
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	struct client a, b;
	uint64_t was;
	pid_t storm, last;
	size_t n;

	NEEDS(patched, "the stock module ends at the first fault");
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, 0, 0);
	two_clients(&a, &b);
	CHECK(client_range(&a, RANGE + 64 * MIB, 64 * MIB) == 0);
	CHECK(client_map(&a, RANGE + 64 * MIB, 32 * MIB, false, true) == 0);
	notices_read(&n);
	/* All in one batch, which the driver takes in the order of addresses. */
	was = gpu_status().packets;
	gpu_pause(true);
	storm = start_accesses(&a, RANGE + 64 * MIB, BATCH - 1, 4 * KIB, EMU_RC);
	last = start_accesses(&a, WILD, 1, 0, EMU_RC);
	while (gpu_status().packets < was + BATCH && now_ms() < deadline)
		usleep(5000);
	gpu_pause(false);
	CHECK(went_well(storm) && went_well(last));
	after = mps_stats();
	CHECK(after.suppressed > before.suppressed);
	recs = notices_read(&n);
	for (f = recs; f < recs + n; f++) {
		if (f->type == UVM_MPS_FATAL_FAULT && f->verdict == UVM_MPS_LIMIT)
			break;
	}
	CHECK(f < recs + n && f->tgid == (uint32_t)a.pid && f->address == WILD);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	end_both(&a, &b);
}

/* More stores to one read-only mapping than a fault buffer has packets, and than a client once had retries. */
void a_storm_on_one_mapping_rewrites_it_once(void)
{
	struct uvm_mps_stats before = mps_stats(), after;
	uint64_t deadline = now_ms() + PATIENCE_MS;
	struct emu_status was, is;
	struct client a, b;
	pid_t child;

	two_clients(&a, &b);
	CHECK(client_range(&a, RANGE + 64 * MIB, 64 * MIB) == 0);
	CHECK(client_map(&a, RANGE + 64 * MIB, 48 * MIB, false, true) == 0);
	/* The buffer is full, and has lost some, before the driver sees the first. */
	was = gpu_status();
	gpu_pause(true);
	child = start_accesses(&a, RANGE + 64 * MIB, STORM, 4 * KIB, patched ? EMU_SPARSE : EMU_RC);
	while (gpu_status().running < STORM && now_ms() < deadline)
		usleep(5000);
	is = gpu_status();
	CHECK(is.packets == was.packets + BUFFER && is.overflows == was.overflows + 1);
	gpu_pause(false);
	CHECK(went_well(child));
	is = gpu_status();
	if (!patched) {
		end_both(&a, &b);
		return;
	}
	after = mps_stats();
	printf("  %llu packets, %llu faults, %llu invalidates\n", (unsigned long long)(is.packets - was.packets),
	       (unsigned long long)(after.faults - before.faults), (unsigned long long)(is.invalidates - was.invalidates));
	CHECK(after.faults - before.faults > 4096);
	CHECK(after.passed == before.passed);
	CHECK(is.invalidates - was.invalidates <= 4);
	CHECK(is_well(&b));
	end_both(&a, &b);
}

/* A storm of holes far apart, each of which wants page tables, and in its middle the GPU's memory is gone. */
void memory_that_ends_in_the_middle_of_a_storm_harms_nobody(void)
{
	struct uvm_mps_stats before = mps_stats(), after;
	uint64_t deadline = now_ms() + PATIENCE_MS;
	struct client a, b;
	pid_t child;

	NEEDS(patched, "the stock module ends at the first fault");
	two_clients(&a, &b);
	child = start_accesses(&a, FAR, MANY, STEP / 2, EMU_SPARSE);
	while (mps_stats().sinks < before.sinks + 10 && now_ms() < deadline)
		usleep(1000);
	gpu_chunks(false);
	CHECK(mps_stats().sinks < before.sinks + MANY / 4);
	CHECK(went_well(child));
	after = mps_stats();
	printf("  %llu sinks, %llu faults\n", (unsigned long long)(after.sinks - before.sinks),
	       (unsigned long long)(after.faults - before.faults));
	CHECK(after.passed == before.passed);
	CHECK(is_well(&a));
	CHECK(is_well(&b));
	gpu_chunks(true);
	end_both(&a, &b);
}

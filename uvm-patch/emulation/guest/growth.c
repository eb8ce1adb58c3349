// SPDX-License-Identifier: MIT
/* Indexes that are wild, storms, and a GPU with no memory left: sinks grow to the whole address space. */
#include <sys/wait.h>
#include <unistd.h>
#include "scene.h"

#define GIB	(1024 * MIB)
#define FAR	0x100000000000ull	/* where nobody has anything */
#define BUFFER	8191u			/* packets that a fault buffer of 8,192 takes at once */
#define STORM	12000u			/* more than that */
#define BATCH	256u			/* packets that the driver takes at once */
#define MANY	300u			/* holes, more than sinks in them before the last resort */
#define STEP	(256 * GIB)		/* what one entry of the second directory spans */
#define OWN	(FAR + 64 * STEP)	/* a range of whoever has one, with nothing mapped in it */

/* Every one was isolated, the neighbour lives, and the client's own memory is what it was. */
static void expect_isolated(struct client *a, struct client *b, const struct emu_access_request *r, uint32_t count)
{
	CHECK(r->results[EMU_SPARSE] == count);
	if (r->results[EMU_SPARSE] != count)
		printf("  %u sparse, %u cancelled, %u too late of %u\n", r->results[EMU_SPARSE], r->results[EMU_RC],
		       r->results[EMU_TIMEOUT], count);
	CHECK(is_well(a));
	CHECK(is_well(b));
}

/* a[i] with an index of 32 bits that was never set: 16 GiB around a. Its loads are many, in no order. */
void a_wild_index_of_32_bits_ends_its_client_alone(void)
{
	struct uvm_mps_stats before = mps_stats(), after;
	struct emu_access_request r;
	struct client a, b;

	NEEDS(patched, "the stock module ends at the first fault");
	two_clients(&a, &b);
	/* 1,949 odd steps of 8.4 MiB; one of them is a's own. */
	r = client_access(&a, false, EMU_READ, RANGE - 8 * GIB + 64 * KIB, 1948, 8 * MIB + 412 * KIB);
	expect_isolated(&a, &b, &r, 1948);
	after = mps_stats();
	printf("  16 GiB in %llu sinks, %llu faults\n", (unsigned long long)(after.sinks - before.sinks),
	       (unsigned long long)(after.faults - before.faults));
	CHECK(after.passed == before.passed);
	CHECK(after.sinks - before.sinks <= 64 + 18);
	end_both(&a, &b);
}

/* With one of 64 bits every address of the process is as likely. */
void a_wild_index_of_64_bits_ends_its_client_alone(void)
{
	struct uvm_mps_stats before = mps_stats(), after;
	struct emu_access_request r;
	struct client a, b;

	NEEDS(patched, "the stock module ends at the first fault");
	two_clients(&a, &b);
	CHECK(client_range(&a, OWN, 4 * GIB) == 0);
	r = client_access(&a, false, EMU_WRITE, 0x3000, 500, 261 * GIB + 4 * MIB);
	expect_isolated(&a, &b, &r, 500);
	after = mps_stats();
	printf("  127 TiB in %llu sinks, %llu faults\n", (unsigned long long)(after.sinks - before.sinks),
	       (unsigned long long)(after.faults - before.faults));
	CHECK(after.passed == before.passed);
	CHECK(after.sinks - before.sinks <= 128 + 2);
	CHECK(client_walk(&b, 0x3000) != EMU_WALK_SPARSE && client_walk(&b, FAR) != EMU_WALK_SPARSE);
	CHECK(client_walk(&a, OWN + GIB) != EMU_WALK_SPARSE);
	/* Beside the ranges it has, too; what it frees takes tables along that held entries. */
	CHECK(client_access(&a, false, EMU_WRITE, RANGE + 4 * MIB, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(client_access(&a, false, EMU_WRITE, RANGE + 3 * GIB, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(client_free(&a, RANGE, 2 * MIB) == 0);
	CHECK(client_access(&a, false, EMU_WRITE, RANGE + 3 * GIB, 1, 0).results[EMU_SPARSE] == 1);
	r = client_access(&a, false, EMU_WRITE, RANGE, 1, 0);
	CHECK(r.results[EMU_SPARSE] == 1);
	CHECK(is_well(&b));
	end_both(&a, &b);
}

void at_the_limit_the_whole_address_space_becomes_the_sink(void)
{
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	struct client a, b;
	size_t n;

	NEEDS(patched, "the stock module ends at the first fault");
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, 3, 0);
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 3, 16 * MIB).results[EMU_SPARSE] == 3);
	CHECK(client_access(&a, false, EMU_WRITE, FAR, 400, STEP / 8).results[EMU_SPARSE] == 400);
	CHECK(is_well(&b));
	/* A hole of its own range is none of the free. */
	notices_read(&n);
	CHECK(client_access(&a, false, EMU_WRITE, RANGE + MIB, 1, 0).results[EMU_RC] == 1);
	CHECK(is_dead(&b));
	recs = notices_read(&n);
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(f && f->verdict == UVM_MPS_LIMIT && f->fault_class == 'B');
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	end_both(&a, &b);
}

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
	struct uvm_mps_record *recs;
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
	recs = notices_read(&n);
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(f && f->verdict == UVM_MPS_FAILED && f->nv_status != 0 && f->sink == UVM_MPS_SINK_NONE && f->fault_class == 'B');
	CHECK(is_dead(&b));
	gpu_chunks(true);
	end_both(&a, &b);
}

/* Stores of another process, so that this one can go on while the GPU serves them; all are to end in the same way. */
static pid_t start_accesses(uint32_t handle, uint64_t va, uint32_t count, uint64_t stride, enum emu_result result)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(gpu_accesses(handle, EMU_WRITE, va, count, stride).results[result] == count ? 0 : 1);
	return child;
}

static bool went_well(pid_t child)
{
	int status;

	return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
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
	storm = start_accesses(a.gr, RANGE + 64 * MIB, BATCH - 1, 4 * KIB, EMU_RC);
	last = start_accesses(a.gr, WILD, 1, 0, EMU_RC);
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
	child = start_accesses(a.gr, RANGE + 64 * MIB, STORM, 4 * KIB, patched ? EMU_SPARSE : EMU_RC);
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
	child = start_accesses(a.gr, FAR, MANY, STEP / 2, EMU_SPARSE);
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

/*
 * Two faults of a client, as they come from two GPUs: the second is made up by
 * the self test, since this machine has one. While the entries of the first
 * one's sink are being written the second waits, and nothing is told of it.
 */
void a_fault_waits_for_another_of_the_same_client(void)
{
	uint64_t deadline = now_ms() + PATIENCE_MS, grace;
	struct self_test_result result;
	struct uvm_mps_record *recs, rec;
	struct client a, b;
	pid_t first, second;
	size_t n;

	NEEDS(patched, "the stock module makes no sinks");
	allow_builtin_tests();
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, UVM_MPS_ALONE);
	two_clients(&a, &b);
	gpu_stall(true);
	first = start_accesses(a.gr, WILD, 1, 0, EMU_SPARSE);
	while (!gpu_status().stopped && now_ms() < deadline)
		usleep(1000);
	CHECK(gpu_status().stopped);
	fflush(stdout);
	second = fork();
	if (second == 0)
		_exit(client_self_test(&a, &result) == 0 ? 0 : 1);	/* its count of sinks is not its own here */
	/* The last thing that it does before it comes to the client. */
	CHECK(notices_wait(UVM_MPS_ZOMBIE_FAULT, 0, PATIENCE_MS, &rec));
	/* One that does not wait needs a moment to show it; one that does has all the time. */
	for (grace = now_ms() + 1000 * slowness; now_ms() < grace; )
		usleep(10000);
	recs = notices_read(&n);
	CHECK(notices_count(recs, n, UVM_MPS_FATAL_FAULT, 0) == 0);
	gpu_stall(false);
	CHECK(went_well(first) && went_well(second));
	recs = notices_read(&n);
	CHECK(notices_count(recs, n, UVM_MPS_FATAL_FAULT, a.pid) >= 1 + 5);
	CHECK(is_well(&b));
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	end_both(&a, &b);
}

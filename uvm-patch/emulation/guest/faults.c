// SPDX-License-Identifier: MIT
/* One fault, of every class: what becomes of the client and of its neighbour. */
#include "scene.h"

/*
 * The unit that made the access, as the GPU's header numbers it. By these two
 * the driver chooses how a channel is restarted, each branch by its own.
 */
static void check_unit(const struct uvm_mps_record *f, uint32_t engine, uint32_t client)
{
	CHECK(!patched || (f && f->mmu_engine_id == engine && f->client_id == client));
	if (f && (f->mmu_engine_id != engine || f->client_id != client))
		printf("  engine %u instead of %u, client %u instead of %u\n", f->mmu_engine_id, engine,
		       f->client_id, client);
}

/* The heart: one fault, one notice, no cancel, the sink in one page tree only. */
static void wild_store(void)
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
		check_unit(f, gpu_kind()->graphics + EMU_FIRST_VE(a.gr) + 1, gpu_kind()->client_t1);
		CHECK(f->va_space_id != 0 && !memcmp(f->gpu_uuid, "emulated-gpu-0", 14));
	}
	/* The same window again, and address 0. */
	before = gpu_status();
	CHECK(client_access(&a, false, EMU_READ, WILD + 0x3000, 1, 0).faults == 0);
	CHECK(client_access(&a, false, EMU_ATOMIC, 0, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(gpu_status().cancels == before.cancels);
	CHECK(is_well(&b));
	end_both(&a, &b);
}

/* In the GPU's first MIG instance and, with other numbers of the hardware's, in another. */
void a_wild_store_ends_its_client_alone(void)
{
	wild_store();
	wild_store();
}

const struct uvm_mps_record *expect(struct client *a, struct client *b, struct emu_access_request r, char cls,
				    uint8_t sink, enum emu_result result)
{
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	size_t n;

	recs = notices_read(&n);
	if (!patched) {
		CHECK(r.results[EMU_RC] == r.count);
		CHECK(is_dead(b));
		return NULL;
	}
	CHECK(r.results[result] == r.count);
	CHECK(is_well(b));
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(f && f->fault_class == cls && f->sink == sink && (pid_t)f->tgid == a->pid);
	if (f && (f->fault_class != cls || f->sink != sink))
		printf("  class %c, sink %u, verdict %u, status 0x%x\n", f->fault_class, f->sink, f->verdict, f->nv_status);
	return f;
}

void class_b_the_unmapped_part_of_an_external_range(void)
{
	struct client a, b;

	two_clients(&a, &b);
	expect(&a, &b, client_access(&a, false, EMU_WRITE, RANGE + MIB, 1, 0), 'B', UVM_MPS_SINK_SPARSE, EMU_SPARSE);
	end_both(&a, &b);
}

void class_c_a_store_to_a_read_only_mapping(void)
{
	struct client a, b;

	two_clients(&a, &b);
	CHECK(client_map(&a, RANGE + MIB, 128 * KIB, false, true) == 0);
	CHECK(client_access(&a, false, EMU_READ, RANGE + MIB, 1, 0).results[EMU_OK] == 1);
	expect(&a, &b, client_access(&a, false, EMU_WRITE, RANGE + MIB, 1, 0), 'C', UVM_MPS_SINK_REMAP_SPARSE, EMU_SPARSE);
	end_both(&a, &b);
}

void class_c_with_small_pages_gets_the_private_page(void)
{
	struct client a, b;

	two_clients(&a, &b);
	CHECK(client_map(&a, RANGE + MIB, 12 * KIB, true, true) == 0);
	expect(&a, &b, client_access(&a, false, EMU_ATOMIC, RANGE + MIB + 4 * KIB, 1, 0), 'C', UVM_MPS_SINK_REMAP_PAGE, EMU_OK);
	end_both(&a, &b);
}

void a_hole_beside_small_pages_gets_the_private_page(void)
{
	struct client a, b;

	two_clients(&a, &b);
	CHECK(client_map(&a, RANGE + MIB, 12 * KIB, true, false) == 0);
	expect(&a, &b, client_access(&a, false, EMU_WRITE, RANGE + MIB + 16 * KIB, 1, 0), 'B', UVM_MPS_SINK_PAGE, EMU_OK);
	if (patched)
		CHECK(client_access(&a, false, EMU_WRITE, RANGE + MIB, 1, 0).results[EMU_OK] == 1);
	end_both(&a, &b);
}

/* What a client reads where it has nothing was nobody's, and nobody else's private page is the same one. */
void a_private_page_holds_nothing_of_anybody(void)
{
	struct emu_access_request r;
	struct client a, b;

	NEEDS(patched, "the stock module has no private pages");
	two_clients(&a, &b);
	CHECK(client_map(&a, RANGE + MIB, 12 * KIB, true, false) == 0);
	CHECK(client_map(&b, RANGE + MIB, 12 * KIB, true, false) == 0);
	r = client_access(&a, false, EMU_READ, RANGE + MIB + 16 * KIB, 1, 0);
	CHECK(r.results[EMU_OK] == 1 && r.value == 0);
	CHECK(client_access(&a, false, EMU_WRITE, RANGE + MIB + 16 * KIB, 1, 0).results[EMU_OK] == 1);
	CHECK(client_access(&a, false, EMU_READ, RANGE + MIB + 16 * KIB, 1, 0).value == a.gr);
	r = client_access(&b, false, EMU_READ, RANGE + MIB + 16 * KIB, 1, 0);
	CHECK(r.results[EMU_OK] == 1 && r.value == 0);
	end_both(&a, &b);
}

/* Zeros are no instructions: a sink would end everybody, and be told as isolated. */
void class_n_a_fetch_from_a_hole_is_left_to_the_driver(void)
{
	const struct uvm_mps_record *f;
	struct client a, b;

	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_FETCH, WILD, 1, 0).results[EMU_RC] == 1);
	CHECK(is_dead(&b));
	f = told('N', UVM_MPS_CLASS);
	CHECK(!patched || (f && f->sink == UVM_MPS_SINK_NONE));
	check_unit(f, gpu_kind()->graphics + EMU_FIRST_VE(a.gr) + 1, gpu_kind()->client_gcc);
	CHECK(!patched || !(f && f->flags & UVM_MPS_F_CONDEMNED));
	end_both(&a, &b);
}

void a_prefetch_harms_nobody(void)
{
	struct client a, b;

	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_PREFETCH, WILD, 1, 0).results[EMU_OK] == 1);
	CHECK(is_well(&b));
	end_both(&a, &b);
}

void class_o_a_copy_engine_fault_restarts_its_channel(void)
{
	struct emu_status before = gpu_status(), after;
	const struct uvm_mps_record *f;
	struct client a, b;

	two_clients(&a, &b);
	f = expect(&a, &b, client_access(&a, true, EMU_WRITE, WILD, 1, 0), 'A', UVM_MPS_SINK_SPARSE, EMU_SPARSE);
	check_unit(f, gpu_kind()->ce, gpu_kind()->client_ce);
	after = gpu_status();
	CHECK(after.reports == before.reports + (patched ? 0 : 1));
	CHECK(after.clear_faulted >= before.clear_faulted + (patched ? 1 : 0));
	end_both(&a, &b);
}

/* As of a semaphore in memory that is not there. */
void class_o_a_host_fault_restarts_its_channel(void)
{
	struct emu_status before = gpu_status(), after;
	const struct uvm_mps_record *f;
	struct client a, b;

	two_clients(&a, &b);
	f = expect(&a, &b, client_host_access(&a, WILD), 'A', UVM_MPS_SINK_SPARSE, EMU_SPARSE);
	check_unit(f, gpu_kind()->host, gpu_kind()->client_host);
	after = gpu_status();
	CHECK(after.reports == before.reports + (patched ? 0 : 1));
	CHECK(!patched || client_access(&a, true, EMU_WRITE, RANGE, 1, 0).results[EMU_OK] == 1);
	end_both(&a, &b);
}

/* Classes that cannot be isolated pass through unchanged, with a notice. */
void classes_h_to_k_pass_through_with_a_notice(void)
{
	static const struct { uint32_t type; char cls; } rows[] = {
		{ 3, 'H' }, { 4, 'K' }, { 1, 'I' }, { 5, 'I' }, { 8, 'I' }, { 9, 'I' }, { 10, 'I' }, { 11, 'I' },
		{ 12, 'I' }, { 13, 'I' }, { 14, 'J' },
	};
	struct client a, b;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		two_clients(&a, &b);
		CHECK(client_fault(&a, rows[i].type, WILD).results[EMU_RC] == 1);
		CHECK(is_dead(&b));
		told(rows[i].cls, UVM_MPS_CLASS);
		end_both(&a, &b);
	}
}

void a_client_that_nobody_shares_with_is_left_to_the_driver(void)
{
	struct client a = client_start(fresh_tsg(), 1);
	size_t n;

	notices_read(&n);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_RC] == 1);
	told('A', UVM_MPS_NOT_SHARED);
	client_end(&a, ENDS_CLEANLY);

	if (patched) {
		policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, UVM_MPS_ALONE);
		a = client_start(fresh_tsg(), 1);
		CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
		client_end(&a, ENDS_CLEANLY);
		policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	}
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

void observing_changes_nothing_but_tells(void)
{
	const struct uvm_mps_record *f;
	struct client a, b;

	policy(UVM_MPS_OBSERVE, HOUR_MS, 0, SINKS, 0);
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_RC] == 1);
	CHECK(is_dead(&b));
	f = told('A', UVM_MPS_PASSED);
	CHECK(!patched || (f && (pid_t)f->tgid == a.pid));
	end_both(&a, &b);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
}

// SPDX-License-Identifier: MIT
/*
 * Every class of fault, every limit, the rate cap and the ring's arithmetic,
 * and random facts against a second statement of the rules (model.c).
 * Usage: policy_test [number of random facts]
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "model.h"
#include "uvm_mps_policy.h"

unsigned long checks, failures;

static struct uvm_mps_facts wild_store(void)
{
	struct uvm_mps_facts f;

	memset(&f, 0, sizeof(f));
	f.mode = UVM_MPS_ISOLATE;
	f.kind = UVM_MPS_KIND_TRANSLATION;
	f.reason = UVM_MPS_REASON_ADDRESS;
	f.range = UVM_MPS_RANGE_NONE;
	f.replayable = f.known = f.shared = f.addressable = 1;
	f.free_windows = 15;
	f.max_sinks = UVM_MPS_DEFAULT_SINKS;
	return f;
}

static struct uvm_mps_decision decide(const struct uvm_mps_facts *f)
{
	struct uvm_mps_decision d;

	memset(&d, 0xa5, sizeof(d));
	uvm_mps_decide(f, &d);
	return d;
}

static void passes(const struct uvm_mps_facts *f, char cls, int verdict)
{
	struct uvm_mps_decision d = decide(f);

	CHECK(d.fault_class == cls);
	CHECK(d.verdict == verdict);
	CHECK(d.action == UVM_MPS_ACT_PASS);
	CHECK(d.sink == UVM_MPS_SINK_NONE && d.size == 0);
}

static void acts(const struct uvm_mps_facts *f, char cls, int action, int sink, unsigned long size)
{
	struct uvm_mps_decision d = decide(f);

	CHECK(d.fault_class == cls);
	CHECK(d.verdict == (f->condemned ? UVM_MPS_REPEAT : UVM_MPS_ISOLATED));
	CHECK(d.action == action);
	CHECK(d.sink == sink);
	CHECK(d.size == size);
}

static void class_a_a_hole_gets_a_sparse_window(void)
{
	struct uvm_mps_facts f = wild_store();

	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_0);
	f.replayable = 0;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_0);
	f.free_windows = 0;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_PAGE, UVM_MPS_PAGE);
}

static void class_b_the_unmapped_part_of_an_external_range_is_a_hole(void)
{
	struct uvm_mps_facts f = wild_store();

	f.range = UVM_MPS_RANGE_EXTERNAL_HOLE;
	acts(&f, 'B', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_0);
	f.free_windows = 0;
	acts(&f, 'B', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_PAGE, UVM_MPS_PAGE);
}

static void class_c_a_denied_store_rewrites_the_mapping(void)
{
	struct uvm_mps_facts f = wild_store();

	f.kind = UVM_MPS_KIND_PERMISSION;
	f.reason = UVM_MPS_REASON_PERMISSIONS;
	f.range = UVM_MPS_RANGE_EXTERNAL_64K;
	acts(&f, 'C', UVM_MPS_ACT_REMAP, UVM_MPS_SINK_REMAP_SPARSE, 0);
	f.range = UVM_MPS_RANGE_EXTERNAL_4K;
	acts(&f, 'C', UVM_MPS_ACT_REMAP, UVM_MPS_SINK_REMAP_PAGE, 0);
}

/* One storm on one mapping: whatever the fault buffer held is replayed, and no retry of the client's is used up. */
static void class_c_a_mapping_is_rewritten_once_and_then_only_replayed(void)
{
	struct uvm_mps_facts f = wild_store();

	f.kind = UVM_MPS_KIND_PERMISSION;
	f.reason = UVM_MPS_REASON_PERMISSIONS;
	f.range = UVM_MPS_RANGE_EXTERNAL_64K;
	f.condemned = f.covered = 1;
	f.retries = UVM_MPS_MAX_RETRIES;
	for (f.hits = 0; f.hits < 16 * 8192; f.hits += 8192)
		acts(&f, 'C', UVM_MPS_ACT_RETRY, UVM_MPS_SINK_NONE, 0);
	f.range = UVM_MPS_RANGE_EXTERNAL_4K;
	acts(&f, 'C', UVM_MPS_ACT_RETRY, UVM_MPS_SINK_NONE, 0);
	f.hits = UVM_MPS_MAX_HITS;
	passes(&f, 'C', UVM_MPS_LIMIT);
}

static void what_was_never_tried_is_refused_and_only_where_it_could_be_isolated(void)
{
	struct uvm_mps_facts f = wild_store();
	unsigned int range;

	for (f.untried = UVM_MPS_UNTRIED_FORMAT; f.untried <= UVM_MPS_UNTRIED_HMM; f.untried *= 2) {
		f.condemned = 0;
		passes(&f, 'A', UVM_MPS_UNTRIED);
		f.condemned = f.covered = 1;
		passes(&f, 'A', UVM_MPS_UNTRIED);
		f.covered = 0;
	}
	f.untried = UVM_MPS_UNTRIED_HMM;
	f.range = UVM_MPS_RANGE_HMM;
	passes(&f, 'E', UVM_MPS_CLASS);
	for (range = UVM_MPS_RANGE_ZOMBIE; range <= UVM_MPS_RANGE_EXTERNAL_4K; range++) {
		f.range = (__u8)range;
		passes(&f, "  DBCC"[range], UVM_MPS_UNTRIED);
	}
	f.mode = UVM_MPS_OBSERVE;
	passes(&f, 'C', UVM_MPS_PASSED);
}

static void class_n_a_fetch_is_left_alone_whatever_could_be_mapped(void)
{
	unsigned int range;

	for (range = 0; range <= UVM_MPS_RANGE_COUNT; range++) {
		struct uvm_mps_facts f = wild_store();

		f.fetch = 1;
		f.range = (__u8)range;
		passes(&f, 'N', UVM_MPS_CLASS);
		f.covered = 1;
		passes(&f, 'N', UVM_MPS_CLASS);
		f.prefetch = 1;
		passes(&f, 'M', UVM_MPS_CLASS);
		f.prefetch = 0;
		f.mode = UVM_MPS_OBSERVE;
		passes(&f, 'N', UVM_MPS_PASSED);
	}
}

static void class_d_only_dead_managed_memory_is_permitted_and_only_to_an_sm(void)
{
	struct uvm_mps_facts f = wild_store();

	f.range = UVM_MPS_RANGE_ZOMBIE;
	acts(&f, 'D', UVM_MPS_ACT_PERMIT, UVM_MPS_SINK_PERMIT, 0);
	f.replayable = 0;
	passes(&f, 'D', UVM_MPS_CLASS);
	f.replayable = 1;
	f.range = UVM_MPS_RANGE_MANAGED;
	passes(&f, 'D', UVM_MPS_CLASS);
}

static void classes_e_f_g_l_are_left_alone(void)
{
	struct uvm_mps_facts f = wild_store();

	f.range = UVM_MPS_RANGE_HMM;
	passes(&f, 'E', UVM_MPS_CLASS);
	f.range = UVM_MPS_RANGE_DRIVER;
	passes(&f, 'L', UVM_MPS_CLASS);
	f.range = UVM_MPS_RANGE_NONE;
	f.addressable = 0;
	passes(&f, 'G', UVM_MPS_CLASS);
	f.ats = 1;
	passes(&f, 'F', UVM_MPS_CLASS);
}

static void classes_h_i_j_k_m_q_are_settled_by_type_wherever_they_are(void)
{
	static const struct { __u8 kind, reason, prefetch; char cls; } rows[] = {
		{ UVM_MPS_KIND_VA_LIMIT, UVM_MPS_REASON_FAULT_TYPE, 0, 'H' },
		{ UVM_MPS_KIND_OTHER, UVM_MPS_REASON_FAULT_TYPE, 0, 'I' },
		{ UVM_MPS_KIND_TRANSLATION, UVM_MPS_REASON_FAULT_TYPE, 0, 'I' },
		{ UVM_MPS_KIND_POISON, UVM_MPS_REASON_FAULT_TYPE, 0, 'J' },
		{ UVM_MPS_KIND_POISON, UVM_MPS_REASON_ADDRESS, 0, 'J' },
		{ UVM_MPS_KIND_UNBOUND, UVM_MPS_REASON_FAULT_TYPE, 0, 'K' },
		{ UVM_MPS_KIND_TRANSLATION, UVM_MPS_REASON_ADDRESS, 1, 'M' },
		{ UVM_MPS_KIND_TRANSLATION, UVM_MPS_REASON_GLOBAL, 0, 'Q' },
		{ UVM_MPS_KIND_TRANSLATION, 99, 0, 'Q' },
		{ 99, UVM_MPS_REASON_ADDRESS, 0, 'I' },
	};
	unsigned int i, range;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (range = 0; range <= UVM_MPS_RANGE_COUNT; range++) {
			struct uvm_mps_facts f = wild_store();

			f.kind = rows[i].kind;
			f.reason = rows[i].reason;
			f.prefetch = rows[i].prefetch;
			f.range = (__u8)range;
			passes(&f, rows[i].cls, UVM_MPS_CLASS);
		}
	}
}

static void nothing_is_isolated_unless_asked_for_a_known_client_in_company(void)
{
	struct uvm_mps_facts f = wild_store();

	f.mode = UVM_MPS_OBSERVE;
	passes(&f, 'A', UVM_MPS_PASSED);
	f.mode = UVM_MPS_OFF;
	passes(&f, 'A', UVM_MPS_PASSED);
	f.mode = 77;
	passes(&f, 'A', UVM_MPS_PASSED);
	f = wild_store();
	f.known = 0;
	passes(&f, 'A', UVM_MPS_STRANGER);
	f = wild_store();
	f.shared = 0;
	passes(&f, 'A', UVM_MPS_NOT_SHARED);
	f.alone = 1;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_0);
}

static void windows_grow_with_the_number_of_sinks_and_shrink_to_what_is_free(void)
{
	struct uvm_mps_facts f = wild_store();

	f.condemned = 1;
	f.sinks = UVM_MPS_LEVEL_1_AFTER - 1;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_0);
	f.sinks = UVM_MPS_LEVEL_1_AFTER;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_1);
	f.sinks = UVM_MPS_LEVEL_2_AFTER;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_2);
	f.sinks = UVM_MPS_LEVEL_3_AFTER - 1;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_2);
	f.sinks = UVM_MPS_LEVEL_3_AFTER;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_3);
	f.free_windows = 7;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_2);
	f.free_windows = 3;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_1);
	f.free_windows = 1;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_0);
	f.free_windows = 0;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_PAGE, UVM_MPS_PAGE);
	CHECK(uvm_mps_window(0) == UVM_MPS_WINDOW_0);
	CHECK(uvm_mps_window(99) == UVM_MPS_WINDOW_3);
}

static void the_last_resort_is_all_that_is_free_and_only_once(void)
{
	struct uvm_mps_facts f = wild_store();

	f.condemned = 1;
	f.sinks = UVM_MPS_WHOLE_AFTER - 1;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_3);
	f.sinks = UVM_MPS_WHOLE_AFTER;
	acts(&f, 'A', UVM_MPS_ACT_WHOLE, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_3);
	f.whole = 1;
	acts(&f, 'A', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_3);
	/* A hole in an external range is not free: it is the client's. */
	f.whole = 0;
	f.range = UVM_MPS_RANGE_EXTERNAL_HOLE;
	acts(&f, 'B', UVM_MPS_ACT_INSERT, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_3);
	/* Before a client is given up, wherever the limit is. */
	f = wild_store();
	f.max_sinks = f.sinks = 3;
	acts(&f, 'A', UVM_MPS_ACT_WHOLE, UVM_MPS_SINK_SPARSE, UVM_MPS_WINDOW_0);
	f.whole = 1;
	passes(&f, 'A', UVM_MPS_LIMIT);
}

/* Wild int32 and int64 indexes: what a client may have by default is enough by far. */
static void no_ordinary_bug_reaches_the_limit(void)
{
	CHECK(UVM_MPS_LEVEL_3_AFTER + (16ull << 30) / UVM_MPS_WINDOW_3 < UVM_MPS_WHOLE_AFTER);
	CHECK(UVM_MPS_WHOLE_AFTER < UVM_MPS_DEFAULT_SINKS / 4);
	CHECK(UVM_MPS_MAX_HITS >= 100 * 8192);
}

static void a_covered_address_is_only_replayed_until_that_stops_helping(void)
{
	struct uvm_mps_facts f = wild_store();

	f.condemned = f.covered = f.whole = 1;
	f.sinks = f.max_sinks;
	acts(&f, 'A', UVM_MPS_ACT_RETRY, UVM_MPS_SINK_NONE, 0);
	f.hits = UVM_MPS_MAX_HITS - 1;
	acts(&f, 'A', UVM_MPS_ACT_RETRY, UVM_MPS_SINK_NONE, 0);
	f.hits = UVM_MPS_MAX_HITS;
	passes(&f, 'A', UVM_MPS_LIMIT);
}

static void the_number_of_sinks_and_of_retries_is_limited(void)
{
	struct uvm_mps_facts f = wild_store();

	f.whole = 1;
	f.sinks = f.max_sinks - 1;
	CHECK(decide(&f).action == UVM_MPS_ACT_INSERT);
	f.sinks = f.max_sinks;
	passes(&f, 'A', UVM_MPS_LIMIT);
	f = wild_store();
	f.max_sinks = 0;
	passes(&f, 'A', UVM_MPS_LIMIT);
	f = wild_store();
	f.range = UVM_MPS_RANGE_EXTERNAL_64K;
	f.retries = UVM_MPS_MAX_RETRIES - 1;
	CHECK(decide(&f).action == UVM_MPS_ACT_REMAP);
	f.retries = UVM_MPS_MAX_RETRIES;
	passes(&f, 'C', UVM_MPS_LIMIT);
	f.range = UVM_MPS_RANGE_ZOMBIE;
	passes(&f, 'D', UVM_MPS_LIMIT);
}

static void the_meter_allows_a_burst_then_a_rate_and_counts_the_rest(void)
{
	struct uvm_mps_meter m;
	unsigned int i, taken = 0, left_out;

	uvm_mps_meter_init(&m, 5);
	for (i = 0; i < 1000; i++)
		taken += uvm_mps_meter_take(&m, 5);
	CHECK(taken == UVM_MPS_METER_BURST);
	left_out = uvm_mps_meter_drain(&m);
	CHECK(taken + left_out == 1000);
	CHECK(uvm_mps_meter_drain(&m) == 0);
	CHECK(!uvm_mps_meter_take(&m, 5 + UVM_MPS_METER_STEP_NS - 1));
	CHECK(uvm_mps_meter_take(&m, 5 + UVM_MPS_METER_STEP_NS));
	CHECK(!uvm_mps_meter_take(&m, 5 + UVM_MPS_METER_STEP_NS));
	CHECK(!uvm_mps_meter_take(&m, 0));
	for (i = taken = 0; i < 1000; i++)
		taken += uvm_mps_meter_take(&m, ~0ull);
	CHECK(taken == UVM_MPS_METER_BURST);
}

static void one_second_of_storm_lets_through_no_more_than_burst_and_rate(void)
{
	struct uvm_mps_meter m;
	unsigned int taken = 0, offered = 0;
	__u64 t;

	uvm_mps_meter_init(&m, 0);
	for (t = 0; t < 1000000000ull; t += 1000, offered++)
		taken += uvm_mps_meter_take(&m, t);
	CHECK(taken <= UVM_MPS_METER_BURST + 1000000000ull / UVM_MPS_METER_STEP_NS);
	CHECK(taken >= UVM_MPS_METER_BURST + 1000000000ull / UVM_MPS_METER_STEP_NS - 1);
	CHECK(taken + uvm_mps_meter_drain(&m) == offered);
}

static void a_slow_reader_is_told_its_exact_loss(void)
{
	CHECK(uvm_mps_ring_lost(0, 0, 8) == 0);
	CHECK(uvm_mps_ring_lost(8, 0, 8) == 0);
	CHECK(uvm_mps_ring_lost(9, 0, 8) == 1);
	CHECK(uvm_mps_ring_lost(10000, 0, 4096) == 5904);
	CHECK(uvm_mps_ring_lost(3, ~0ull - 3, 4) == 3);
}

/* xorshift64*: the same facts from the same seed on every machine. */
static uint64_t state = 0x9e3779b97f4a7c15ull;

static uint64_t random_bits(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 2685821657736338717ull;
}

static __u32 near_limit(uint64_t r, __u32 limit)
{
	return r & 3 ? (__u32)((r >> 2) % (limit + 1)) : limit - 1 + (__u32)((r >> 2) % 3);
}

static void random_facts(struct uvm_mps_facts *f)
{
	uint64_t r = random_bits(), s = random_bits();

	memset(f, 0, sizeof(*f));
	/* Mostly what a storm looks like, else the early exits hide the rest. */
	f->mode = r & 3 ? UVM_MPS_ISOLATE : (r >> 2) & 3;
	f->kind = (r >> 4) & 1 ? UVM_MPS_KIND_TRANSLATION : (r >> 5) & 7;
	f->reason = (r >> 8) & 3 ? (r >> 10) & 1 : (r >> 10) & 7;
	f->range = (__u8)((r >> 13) % (UVM_MPS_RANGE_COUNT + 1));
	f->replayable = (r >> 20) & 1;
	f->prefetch = !((r >> 21) & 7);
	f->known = !!((r >> 24) & 7);
	f->shared = !!((r >> 27) & 7);
	f->alone = !((r >> 30) & 3);
	f->condemned = (r >> 32) & 1;
	f->ats = !((r >> 33) & 7);
	f->addressable = !!((r >> 36) & 7);
	f->covered = !((r >> 39) & 3);
	f->free_windows = (r >> 41) & 15;
	f->fetch = !((r >> 45) & 7);
	f->whole = (r >> 48) & 1;
	f->untried = (r >> 51) & 7 ? 0 : (r >> 54) & 31;
	f->max_sinks = (__u32)(s & 0xff) * ((r >> 49) & 3);
	f->sinks = near_limit((s >> 8) & 0xffff, f->max_sinks ? f->max_sinks : 1);
	f->hits = near_limit((s >> 24) & 0xfffff, UVM_MPS_MAX_HITS);
	f->retries = near_limit((s >> 44) & 0xfffff, UVM_MPS_MAX_RETRIES);
}

static void a_subcontext_is_counted_within_its_mig_instance(void)
{
	CHECK(uvm_mps_ve_id(0, 0) == 0);
	CHECK(uvm_mps_ve_id(63, 0) == 63);
	CHECK(uvm_mps_ve_id(16, 16) == 0);
	CHECK(uvm_mps_ve_id(21, 16) == 5);
	/* A neighbour's subcontext is nobody of this instance. */
	CHECK(uvm_mps_ve_id(15, 16) == UVM_MPS_UNKNOWN);
	CHECK(uvm_mps_ve_id(0, 1) == UVM_MPS_UNKNOWN);
}

static unsigned long random_count = 10000000;

static void random_facts_agree_with_the_model(void)
{
	unsigned long i, seen[8] = { 0 };
	struct uvm_mps_decision d, m;
	struct uvm_mps_facts f;

	for (i = 0; i < random_count; i++) {
		random_facts(&f);
		uvm_mps_decide(&f, &d);
		model_decide(&f, &m);
		if (memcmp(&d, &m, sizeof(d))) {
			CHECK(!"decision differs from the model");
			fprintf(stderr, "fact %lu: class %c/%c verdict %u/%u action %u/%u size %u/%u\n", i,
				d.fault_class, m.fault_class, d.verdict, m.verdict, d.action, m.action,
				d.size, m.size);
			return;
		}
		seen[d.verdict & 7]++;
	}
	/* A verdict that never occurred was not tested. FAILED is the kernel's. */
	for (i = 0; i < 8; i++)
		CHECK(seen[i] || i == UVM_MPS_FAILED || random_count < 100000);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		random_count = strtoul(argv[1], NULL, 10);

	RUN(class_a_a_hole_gets_a_sparse_window);
	RUN(class_b_the_unmapped_part_of_an_external_range_is_a_hole);
	RUN(class_c_a_denied_store_rewrites_the_mapping);
	RUN(class_c_a_mapping_is_rewritten_once_and_then_only_replayed);
	RUN(class_d_only_dead_managed_memory_is_permitted_and_only_to_an_sm);
	RUN(classes_e_f_g_l_are_left_alone);
	RUN(classes_h_i_j_k_m_q_are_settled_by_type_wherever_they_are);
	RUN(what_was_never_tried_is_refused_and_only_where_it_could_be_isolated);
	RUN(class_n_a_fetch_is_left_alone_whatever_could_be_mapped);
	RUN(nothing_is_isolated_unless_asked_for_a_known_client_in_company);
	RUN(windows_grow_with_the_number_of_sinks_and_shrink_to_what_is_free);
	RUN(the_last_resort_is_all_that_is_free_and_only_once);
	RUN(no_ordinary_bug_reaches_the_limit);
	RUN(a_covered_address_is_only_replayed_until_that_stops_helping);
	RUN(the_number_of_sinks_and_of_retries_is_limited);
	RUN(the_meter_allows_a_burst_then_a_rate_and_counts_the_rest);
	RUN(one_second_of_storm_lets_through_no_more_than_burst_and_rate);
	RUN(a_slow_reader_is_told_its_exact_loss);
	RUN(a_subcontext_is_counted_within_its_mig_instance);
	RUN(random_facts_agree_with_the_model);
	printf("%lu checks, %lu failed, %lu random facts\n", checks, failures, random_count);
	return failures ? 1 : 0;
}

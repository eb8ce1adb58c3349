// SPDX-License-Identifier: MIT
/* Addresses that are wild: sinks grow to the whole address space, its upper half among it. */
#include "scene.h"

#define TIB		(1024 * GIB)
#define BEYOND_A_CPU	0x00ab123456789000ull	/* more than 47 bits, fewer than 57 */
#define UPPER		0xffff912345678000ull	/* a pointer of a kernel */
#define LAST		0xffffffffffffe000ull	/* NULL[-1] */

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
	told('B', UVM_MPS_LIMIT);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	end_both(&a, &b);
}

/* On Hopper a page fault as any other; before it the GPU has no such address, which ends everybody. */
void an_address_that_no_cpu_has_is_isolated_where_the_gpu_has_it(void)
{
	bool has = gpu_kind()->va_bits == 57;
	const struct uvm_mps_record *f;
	struct client a, b;

	NEEDS(patched, "the stock module ends at the first fault");
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, BEYOND_A_CPU, 1, 0).results[has ? EMU_SPARSE : EMU_RC] == 1);
	f = told(has ? 'A' : 'H', has ? UVM_MPS_ISOLATED : UVM_MPS_CLASS);
	CHECK(f && (!has || f->address == BEYOND_A_CPU));
	CHECK(has ? is_well(&b) : is_dead(&b));
	end_both(&a, &b);
}

/* A negative index: what is below the lowest address is the highest. */
void the_upper_half_of_the_addresses_is_isolated(void)
{
	const struct uvm_mps_record *f;
	struct client a, b;

	NEEDS(patched, "the stock module ends at the first fault");
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, UPPER, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(client_access(&a, false, EMU_READ, LAST, 1, 0).results[EMU_SPARSE] == 1);
	f = told('A', UVM_MPS_ISOLATED);
	CHECK(f && f->address == UPPER);
	CHECK(is_well(&a) && is_well(&b));
	end_both(&a, &b);
}

/* The last resort has it, too: more addresses of it than there may be sinks. */
void the_last_resort_has_both_halves_of_the_addresses(void)
{
	bool wide = gpu_kind()->va_bits == 57;
	struct uvm_mps_stats before = mps_stats(), after;
	struct emu_access_request r;
	struct client a, b;

	NEEDS(patched, "the stock module ends at the first fault");
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, 6, 0);
	two_clients(&a, &b);
	r = client_access(&a, false, EMU_WRITE, UPPER, 100, TIB);
	expect_isolated(&a, &b, &r, 100);
	r = client_access(&a, false, EMU_WRITE, 0x3000, 100, TIB + 8 * MIB);
	expect_isolated(&a, &b, &r, 100);
	if (wide) {
		r = client_access(&a, false, EMU_WRITE, BEYOND_A_CPU, 100, 128 * TIB + 8 * MIB);
		expect_isolated(&a, &b, &r, 100);
	}
	after = mps_stats();
	CHECK(after.passed == before.passed);
	CHECK(after.sinks - before.sinks <= 6 + 1);
	CHECK(client_walk(&b, UPPER) != EMU_WALK_SPARSE);
	CHECK(is_well(&a));
	CHECK(is_well(&b));
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	end_both(&a, &b);
}

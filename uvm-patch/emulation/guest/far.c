// SPDX-License-Identifier: MIT
/* Addresses that no process can have: beyond what a CPU translates, and in the half that is the kernel's. */
#include "scene.h"

#define TIB		(1024 * 1024 * MIB)
#define BEYOND_A_CPU	0x00ab123456789000ull	/* more than 47 bits, fewer than 57 */
#define UPPER		0xffff912345678000ull	/* a pointer of a kernel */
#define LAST		0xffffffffffffe000ull	/* NULL[-1] */

/* On Hopper a page fault as any other; before it the GPU has no such address, which ends everybody. */
void an_address_that_no_cpu_has_is_isolated_where_the_gpu_has_it(void)
{
	bool has = gpu_kind()->va_bits == 57;
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	struct client a, b;
	size_t n;

	NEEDS(patched, "the stock module ends at the first fault");
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, BEYOND_A_CPU, 1, 0).results[has ? EMU_SPARSE : EMU_RC] == 1);
	recs = notices_read(&n);
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(f && f->fault_class == (has ? 'A' : 'H') && f->verdict == (has ? UVM_MPS_ISOLATED : UVM_MPS_CLASS));
	CHECK(f && (!has || f->address == BEYOND_A_CPU));
	CHECK(has ? is_well(&b) : is_dead(&b));
	end_both(&a, &b);
}

/* A negative index: what is below the lowest address is the highest. */
void the_upper_half_of_the_addresses_is_isolated(void)
{
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	struct client a, b;
	size_t n;

	NEEDS(patched, "the stock module ends at the first fault");
	two_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, UPPER, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(client_access(&a, false, EMU_READ, LAST, 1, 0).results[EMU_SPARSE] == 1);
	recs = notices_read(&n);
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(f && f->fault_class == 'A' && f->verdict == UVM_MPS_ISOLATED && f->address == UPPER);
	CHECK(is_well(&a));
	CHECK(is_well(&b));
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
	CHECK(r.results[EMU_SPARSE] == 100);
	r = client_access(&a, false, EMU_WRITE, 0x3000, 100, TIB + 8 * MIB);
	CHECK(r.results[EMU_SPARSE] == 100);
	if (wide) {
		r = client_access(&a, false, EMU_WRITE, BEYOND_A_CPU, 100, 128 * TIB + 8 * MIB);
		CHECK(r.results[EMU_SPARSE] == 100);
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

// SPDX-License-Identifier: MIT
/* Heterogeneous memory management: the GPU has all of a process's memory, on a kernel with CONFIG_DEVICE_PRIVATE. */
#include "scene.h"

#define HOST	0x600000000000ull	/* memory of the process's own */
#define MISSING	"this kernel has no CONFIG_DEVICE_PRIVATE: emulation/debug-kernel has"

/* False: the kernel has it not. What the GPU does to the process's memory is served. */
static bool two_clients_with_hmm(struct client *a, struct client *b, unsigned int key)
{
	char parameters[64];

	snprintf(parameters, sizeof(parameters), "uvm_disable_hmm=0 uvm_mps_untested=%u",
		 key | (option("mps.untested") ? UVM_MPS_UNTRIED_DRIVER : 0));
	load_anew(parameters);
	two_clients(a, b);
	if (!client_has_hmm(a)) {
		end_both(a, b);
		return false;
	}
	CHECK(client_host_memory_at(a, HOST, 4 * MIB, false) == 0);
	CHECK(client_access(a, false, EMU_WRITE, HOST, 1, 0).results[EMU_OK] == 1);
	CHECK(client_access(a, false, EMU_READ, HOST + 3 * MIB, 1, 0).results[EMU_OK] == 1);
	return true;
}

void with_hmm_faults_are_left_to_the_driver_without_the_key(void)
{
	const struct uvm_mps_record *f;
	struct client a, b;

	NEEDS(two_clients_with_hmm(&a, &b, 0), MISSING);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_RC] == 1);
	f = told('A', UVM_MPS_UNTRIED);
	CHECK(!patched || (f && f->nv_status == UVM_MPS_UNTRIED_HMM));
	CHECK(is_dead(&b));
	end_both(&a, &b);
}

/* The process may get memory anywhere, so that sinks stay small, and nothing becomes one as a whole. */
void with_hmm_and_the_key_a_hole_is_isolated_in_small_sinks(void)
{
	struct uvm_mps_stats before, after;
	struct client a, b;

	NEEDS(patched, "the stock module makes no sinks");
	NEEDS(two_clients_with_hmm(&a, &b, UVM_MPS_UNTRIED_HMM), MISSING);
	before = mps_stats();
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	told('A', UVM_MPS_ISOLATED);
	CHECK(client_access(&a, false, EMU_WRITE, FAR, 200, 128 * KIB).results[EMU_SPARSE] == 200);
	after = mps_stats();
	CHECK(after.sinks == before.sinks + 201 && after.passed == before.passed);
	CHECK(client_walk(&a, FAR + 64 * KIB) != EMU_WALK_SPARSE);
	/* What it has, and what it gets, in the 2 MiB of one of them, too. */
	CHECK(client_access(&a, false, EMU_WRITE, HOST + MIB, 1, 0).results[EMU_OK] == 1);
	CHECK(client_host_memory_at(&a, FAR + 64 * KIB, 64 * KIB, false) == 0);
	CHECK(client_access(&a, false, EMU_WRITE, FAR + 64 * KIB, 1, 0).results[EMU_OK] == 1);
	CHECK(is_well(&a) && is_well(&b));
	end_both(&a, &b);
}

/* A store to memory that the process has made read-only. */
void with_hmm_faults_inside_its_blocks_are_left_to_the_driver(void)
{
	struct client a, b;

	NEEDS(two_clients_with_hmm(&a, &b, UVM_MPS_UNTRIED_HMM), MISSING);
	CHECK(client_host_memory_at(&a, HOST + 16 * MIB, 2 * MIB, true) == 0);
	CHECK(client_access(&a, false, EMU_READ, HOST + 16 * MIB, 1, 0).results[EMU_OK] == 1);
	CHECK(client_access(&a, false, EMU_WRITE, HOST + 16 * MIB, 1, 0).results[EMU_RC] == 1);
	told('E', UVM_MPS_CLASS);
	CHECK(is_dead(&b));
	end_both(&a, &b);
}

// SPDX-License-Identifier: MIT
/* Class D: managed memory, the one kind whose faults the driver itself serves. */
#include <sys/syscall.h>
#include <unistd.h>
#include "scene.h"

#define MANAGED	0x700000000000ull
#define PAGE(n)	(MANAGED + (n) * 256 * KIB)

/* Two clients as under MPS: a process's end does not stop the channels at once. */
static void two_sharing_clients(struct client *a, struct client *b)
{
	uint32_t tsg = fresh_tsg();
	size_t n;

	*a = client_start_sharing(tsg, 1);
	*b = client_start(tsg, 2);
	CHECK(client_managed(a, MANAGED, 4 * MIB, false) == 0);
	give_memory(b);
	notices_read(&n);
}

/*
 * The client dies in the middle of a kernel that needs a managed page which
 * the GPU does not have yet. Its CPU mapping is gone, so the driver denies the
 * access. A descriptor that is still open somewhere keeps the address space.
 */
void class_d_dead_managed_memory_is_served(void)
{
	struct uvm_mps_stats before, after;
	struct emu_access_request r;
	struct client a, b;
	int descriptor;

	two_sharing_clients(&a, &b);
	CHECK(client_access(&a, false, EMU_WRITE, PAGE(0), 1, 0).results[EMU_OK] == 1);
	CHECK(is_well(&b));
	descriptor = client_descriptor(&a);
	CHECK(descriptor >= 0);
	client_end(&a, ENDS_BY_SIGNAL);

	before = mps_stats();
	CHECK(gpu_access(a.gr, EMU_READ, PAGE(0)).results[EMU_OK] == 1);
	expect(&a, &b, gpu_access(a.gr, EMU_WRITE, PAGE(1)), 'D', UVM_MPS_SINK_PERMIT, EMU_OK);
	if (patched) {
		/* Condemned by now: the driver asks before it calls a fault fatal. */
		r = gpu_access(a.gr, EMU_ATOMIC, PAGE(2));
		CHECK(r.results[EMU_OK] == 1 && r.faults == 1);
		after = mps_stats();
		CHECK(after.faults == before.faults + 1 && after.isolated == before.isolated + 1);
		CHECK(after.passed == before.passed && after.sinks == before.sinks);
		/* A hole is a hole, dead or not. */
		CHECK(gpu_access(a.gr, EMU_WRITE, WILD).results[EMU_SPARSE] == 1);
		CHECK(is_well(&b));
	}
	close(descriptor);
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));

	/* The same with nobody else's descriptor: the hold keeps it. */
	if (!patched)
		return;
	policy(UVM_MPS_ISOLATE, HOUR_MS, 60000, SINKS, 0);
	two_sharing_clients(&a, &b);
	client_end(&a, ENDS_BY_SIGNAL);
	{
		struct uvm_mps_record rec;

		CHECK(notices_wait(UVM_MPS_HELD, a.pid, PATIENCE_MS, &rec));
		expect(&a, &b, gpu_access(a.gr, EMU_WRITE, PAGE(3)), 'D', UVM_MPS_SINK_PERMIT, EMU_OK);
		CHECK(release(rec.va_space_id) == 0);
		CHECK(notices_wait(UVM_MPS_VASPACE_DEL, 0, PATIENCE_MS, &rec));
	}
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

/*
 * A store to managed memory that its process has made read-only. The driver
 * looks at the permissions of the CPU's mapping only in its test mode, in
 * which the module is loaded for this.
 */
void class_d_living_managed_memory_is_left_to_the_driver(void)
{
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	struct client a, b;
	size_t n;

	load_anew(BUILTIN_TESTS);
	two_sharing_clients(&a, &b);
	CHECK(client_managed(&a, MANAGED + 16 * MIB, 2 * MIB, true) == 0);
	CHECK(client_access(&a, false, EMU_READ, MANAGED + 16 * MIB, 1, 0).results[EMU_OK] == 1);
	CHECK(is_well(&b));
	notices_read(&n);
	CHECK(client_access(&a, false, EMU_WRITE, MANAGED + 16 * MIB, 1, 0).results[EMU_RC] == 1);
	CHECK(is_dead(&b));
	recs = notices_read(&n);
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(!patched || (f && f->fault_class == 'D' && f->verdict == UVM_MPS_CLASS && (pid_t)f->tgid == a.pid));
	/* Not cleanly: the driver's own eviction of a read-only range stumbles over its permissions. */
	client_end(&a, ENDS_BY_SIGNAL);
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));

	/* A condemned client may not do more than another: only what is dead anyway is served. */
	if (!patched)
		return;
	two_sharing_clients(&a, &b);
	CHECK(client_managed(&a, MANAGED + 16 * MIB, 2 * MIB, true) == 0);
	CHECK(client_access(&a, false, EMU_READ, MANAGED + 16 * MIB, 1, 0).results[EMU_OK] == 1);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(is_well(&b));
	notices_read(&n);
	CHECK(client_access(&a, false, EMU_WRITE, MANAGED + 16 * MIB, 1, 0).results[EMU_RC] == 1);
	recs = notices_read(&n);
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(f && f->fault_class == 'D' && f->verdict == UVM_MPS_CLASS && f->flags & UVM_MPS_F_CONDEMNED);
	client_end(&a, ENDS_BY_SIGNAL);
	client_end(&b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

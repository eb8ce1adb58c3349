// SPDX-License-Identifier: MIT
/* Many faults: windows grow, limits hold, records are counted, nothing is left. */
#include "scene.h"

void a_sweep_gets_larger_windows(void)
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
}

void a_storm_is_survived_and_counted_exactly(void)
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

void a_hundred_thousand_faults_leave_nothing(void)
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
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

void from_packet_to_replay_takes_about_as_long_as_the_cancel(void)
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

// SPDX-License-Identifier: MIT
/* The module loaded anew, and the driver's builtin tests with our own among them. */
#include <unistd.h>
#include "nvstatus.h"
#include "scene.h"

void load_anew(const char *parameters)
{
	static char loaded[128];

	if (!strcmp(loaded, parameters))
		return;
	snprintf(loaded, sizeof(loaded), "%s", parameters);
	CHECK(module_unload());
	CHECK(access("/dev/nvidia-uvm-mps", F_OK) == -1);
	CHECK(module_load(parameters));
	notices_open();
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
}

void the_module_comes_back_after_an_unload(void)
{
	struct uvm_mps_record r[2];
	int fd;

	load_anew(BUILTIN_TESTS);
	if (!patched)
		return;
	/* Nobody is alive, and the numbers start anew. */
	fd = mps_open(0);
	CHECK(read(fd, r, sizeof(r)) == sizeof(r[0]) && r[0].type == UVM_MPS_SNAPSHOT_END && r[0].seq == 0);
	close(fd);
}

void the_self_test_passes(void)
{
	struct self_test_result result;
	struct client a, b;
	size_t n;

	NEEDS(patched, "the stock module has no such test");
	load_anew(BUILTIN_TESTS);
	two_clients(&a, &b);
	CHECK(client_self_test(&a, &result) == -(int)NV_ERR_INVALID_STATE);	/* Nobody allowed it. */
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, UVM_MPS_ALONE);
	CHECK(client_self_test(&a, &result) == 0);
	printf("  %u checks on %u GPU, %u failed\n", result.checks, result.gpus, result.failed);
	CHECK(result.gpus == 1 && result.checks >= 30 && result.failed == 0);
	CHECK(is_well(&b));
	{
		struct uvm_mps_record *recs = notices_read(&n);

		CHECK(notices_count(recs, n, UVM_MPS_FATAL_FAULT, a.pid) == 5 + 4);
		CHECK(notices_count(recs, n, UVM_MPS_ZOMBIE_FAULT, 0) == 1);
		CHECK(notices_count(recs, n, UVM_MPS_REFUSED, a.pid) == 2);
	}
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	end_both(&a, &b);
}

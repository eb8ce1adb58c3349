// SPDX-License-Identifier: MIT
/* See scene.h. */
#include <sys/wait.h>
#include <unistd.h>
#include "scene.h"

bool patched;
unsigned long checks, failures;
bool long_run;
unsigned int slowness = 1;
const char *skipped;
static uint32_t next_tsg;

/* A TSG that no cancel has ended. */
uint32_t fresh_tsg(void)
{
	if (next_tsg == EMU_TSGS)
		next_tsg = 0;
	if ((gpu_status().tsg_dead | gpu_status_of(1).tsg_dead) & (1u << next_tsg))
		gpu_revive();
	return next_tsg++;
}

bool is_dead(struct client *c)
{
	return gpu_status_of(c->gpu).tsg_dead & (1u << EMU_CHANNEL_TSG(c->gr));
}

/* The other client's own memory still works. */
bool is_well(struct client *c)
{
	return !is_dead(c) && client_access(c, false, EMU_WRITE, RANGE, 1, 0).results[EMU_OK] == 1;
}

void give_memory(struct client *c)
{
	CHECK(client_range(c, RANGE, 2 * MIB) == 0);
	CHECK(client_map(c, RANGE, 256 * KIB, false, false) == 0);
}

void end_both(struct client *a, struct client *b)
{
	client_end(a, ENDS_CLEANLY);
	client_end(b, ENDS_CLEANLY);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

void two_clients(struct client *a, struct client *b)
{
	uint32_t tsg = fresh_tsg();
	size_t n;

	*a = client_start(tsg, 1);
	*b = client_start(tsg, 2);
	give_memory(a);
	give_memory(b);
	notices_read(&n);
}

const struct uvm_mps_record *told(char cls, uint8_t verdict)
{
	const struct uvm_mps_record *f;
	struct uvm_mps_record *recs;
	size_t n;

	recs = notices_read(&n);
	f = notices_find(recs, n, UVM_MPS_FATAL_FAULT);
	CHECK(!patched || (f && f->fault_class == cls && f->verdict == verdict));
	if (f && (f->fault_class != cls || f->verdict != verdict))
		printf("  class %c, verdict %u, status 0x%x\n", f->fault_class, f->verdict, f->nv_status);
	return f;
}

void expect_isolated(struct client *a, struct client *b, const struct emu_access_request *r, uint32_t count)
{
	CHECK(r->results[EMU_SPARSE] == count);
	if (r->results[EMU_SPARSE] != count)
		printf("  %u sparse, %u cancelled, %u too late of %u\n", r->results[EMU_SPARSE], r->results[EMU_RC],
		       r->results[EMU_TIMEOUT], count);
	CHECK(is_well(a));
	CHECK(is_well(b));
}

pid_t start_accesses(struct client *c, uint64_t va, uint32_t count, uint64_t stride, enum emu_result result)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(gpu_accesses(c->gpu, c->gr, EMU_WRITE, va, count, stride).results[result] == count ? 0 : 1);
	return child;
}

bool went_well(pid_t child)
{
	int status;

	return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// SPDX-License-Identifier: MIT
/* See scene.h. */
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
	if (gpu_status().tsg_dead & (1u << next_tsg))
		gpu_revive();
	return next_tsg++;
}

bool is_dead(struct client *c)
{
	return gpu_status().tsg_dead & (1u << EMU_CHANNEL_TSG(c->gr));
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

// SPDX-License-Identifier: MIT
/*
 * The daemon's own reader of the notices, mps-notices, beside the test's: both
 * are told the same, and its account of what it lost is exact.
 */
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "program.h"
#include "scene.h"

#define READER	"/bin/mps-notices"
#define OUTPUT	"/notices.json"
#define FULL_RING_MS	(3 * PATIENCE_MS)	/* to print a whole ring of records */

static struct program start_reader(char *until, char *count)
{
	char *argv[] = { READER, "--until", until, "--count", count, "--for-ms", "120000", NULL };

	return program_start(OUTPUT, argv);
}

static const char *name_of(const struct uvm_mps_record *r)
{
	static const char *const names[] = {
		[UVM_MPS_CHANNEL_ADD] = "channel-added", [UVM_MPS_CHANNEL_DEL] = "channel-removed",
		[UVM_MPS_VASPACE_ADD] = "va-space-added", [UVM_MPS_VASPACE_DEL] = "va-space-removed",
		[UVM_MPS_FATAL_FAULT] = "fault", [UVM_MPS_ZOMBIE_FAULT] = "zombie-fault",
		[UVM_MPS_SUPPRESSED] = "suppressed", [UVM_MPS_KILLED] = "killed", [UVM_MPS_HELD] = "held",
		[UVM_MPS_HOLD_END] = "hold-ends", [UVM_MPS_REFUSED] = "mapping-refused",
	};

	return r->type < sizeof(names) / sizeof(names[0]) && names[r->type] ? names[r->type] : "?";
}

/* The number after a key in one line; -1 if it is not there. */
static long long number(const char *line, const char *key)
{
	const char *end = strchr(line, '\n'), *at = strstr(line, key);

	return at && (!end || at < end) && isdigit((unsigned char)at[strlen(key)]) ? atoll(at + strlen(key)) : -1;
}

/* The first line with this event, from its beginning; an empty one if it does not come. */
static const char *line_with(const char *event)
{
	char text[64];
	const char *at, *begin;

	snprintf(text, sizeof(text), "\"event\":\"%s\"", event);
	at = program_says(OUTPUT, text, PATIENCE_MS);
	CHECK(at != NULL);
	if (!at)
		return "";
	begin = program_output(OUTPUT);
	while (at > begin && at[-1] != '\n')
		at--;
	return at;
}

/* One line for one record, in order: the event, whose, and for a channel and a fault what. */
static const char *compare(const char *line, const struct uvm_mps_record *r)
{
	char event[64];
	const char *next = strchr(line, '\n');

	snprintf(event, sizeof(event), "\"event\":\"%s\"", name_of(r));
	CHECK(strstr(line, event) && strstr(line, event) < next);
	CHECK(number(line, "\"va_space\":") == (long long)r->va_space_id);
	CHECK(!r->tgid || number(line, "\"process\":{\"pid\":") == (long long)r->tgid);
	if (r->type == UVM_MPS_CHANNEL_ADD || r->type == UVM_MPS_CHANNEL_DEL)
		CHECK(number(line, "\"channel\":{\"channel\":") == (long long)r->channel_id);
	if (r->type == UVM_MPS_FATAL_FAULT) {
		CHECK(number(line, "\"address\":") == (long long)r->address);
		CHECK(number(line, "\"subcontext\":") == (long long)r->ve_id);
	}
	return next ? next + 1 : line + strlen(line);
}

static void both_are_told_the_same(void)
{
	struct program reader = start_reader("va-space-removed", "2");
	struct uvm_mps_record *recs;
	struct client a, b;
	const char *line;
	unsigned int compared = 0;
	uint32_t tsg = fresh_tsg();
	size_t n, i;

	line_with("snapshot-ends");
	notices_read(&n);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 60000, SINKS, 0);
	a = client_start(tsg, 1);
	b = client_start(tsg, 2);
	give_memory(&b);
	CHECK(client_access(&a, false, EMU_WRITE, WILD, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(client_access(&a, false, EMU_READ, WILD + 64 * MIB, 1, 0).results[EMU_SPARSE] == 1);
	CHECK(program_says(OUTPUT, "\"class\":\"A\"", PATIENCE_MS) != NULL);
	CHECK(is_well(&b));
	/* A sudden death: held, released, gone. */
	client_end(&a, ENDS_BY_SIGNAL);
	CHECK(release((uint64_t)number(line_with("held"), "\"va_space\":")) == 0);
	line_with("va-space-removed");
	client_end(&b, ENDS_CLEANLY);
	CHECK(program_wait(&reader, PATIENCE_MS) == 0);

	recs = notices_read(&n);
	line = strchr(line_with("snapshot-ends"), '\n');
	line = line ? line + 1 : "";
	for (i = 0; i < n; i++, compared++)
		line = compare(line, &recs[i]);
	CHECK(compared >= 2 * 6 + 2 + 2);
	CHECK(strstr(line, "\"event\":\"end\"") && number(line, "\"lost\":") == 0);
	printf("  %u records, both readers agree\n", compared);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

static void losses_are_counted_exactly(void)
{
	struct program reader = start_reader("snapshot-ends", "2");
	long long lost;

	line_with("snapshot-ends");
	kill(reader.pid, SIGSTOP);
	CHECK(waitpid(reader.pid, NULL, WUNTRACED) == reader.pid);
	CHECK(churn(CHURN));
	kill(reader.pid, SIGCONT);
	CHECK(program_wait(&reader, FULL_RING_MS) == 0);
	lost = number(line_with("lost"), "\"count\":");
	printf("  lost %lld of %u records\n", lost, 2 * CHURN);
	CHECK(lost == 2 * CHURN - RING);
	CHECK(number(line_with("end"), "\"lost\":") == lost);
}

void the_daemons_reader_sees_what_the_module_tells(void)
{
	struct program reader;

	NEEDS(patched, "the stock module has no such device");
	NEEDS(program_exists(READER), "mps-notices is not in the machine: tools/emulate --program");
	both_are_told_the_same();
	losses_are_counted_exactly();

	/* A module that is being read stays; afterwards it goes and comes back. */
	reader = start_reader("va-space-added", "1");
	line_with("snapshot-ends");
	CHECK(!module_unload());
	CHECK(churn(1));
	CHECK(program_wait(&reader, PATIENCE_MS) == 0);
	CHECK(module_unload());
	reader = start_reader("va-space-added", "1");
	CHECK(WEXITSTATUS(program_wait(&reader, PATIENCE_MS)) == 2);
	CHECK(strstr(program_output(OUTPUT), "\"event\":\"refused\""));
	CHECK(module_load(""));
	notices_open();
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	reader = start_reader("va-space-added", "1");
	line_with("snapshot-ends");
	CHECK(churn(1));
	CHECK(program_wait(&reader, PATIENCE_MS) == 0);
}

// SPDX-License-Identifier: MIT
/*
 * The daemon itself, with a simulated server of NVIDIA's, and clients that are
 * attached to that server and have channels on the emulated GPU as well.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "program.h"
#include "scene.h"

#define DAEMON	"/bin/nvidia-cuda-mps-control"
#define SERVER	"/bin/nvidia-cuda-mps-server"
#define CLIENT	"/bin/mps-lab-client"
#define LOG	"/control.log"	/* its standard output, in the foreground */
#define EVENTS	"/log/events.jsonl"
#define FUNERAL	"[funerals]\nhold_timeout = 2.0\nendless_hold = 0.0\n"

/* Whether somebody accepts connections there. */
static bool is_served(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "/mps/control" };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool served = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;

	close(fd);
	return served;
}

static struct program start_daemon(void)
{
	uint64_t deadline = now_ms() + PATIENCE_MS;
	struct program daemon;
	char *argv[] = { DAEMON, "-f", NULL };
	FILE *config = fopen("/config.toml", "w");

	CHECK(config && fputs(FUNERAL, config) >= 0 && fclose(config) == 0);
	mkdir("/tmp", 01777);
	mkdir("/mps", 0755);
	mkdir("/log", 0755);
	setenv("PATH", "/bin", 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/mps", 1);
	setenv("CUDA_MPS_LOG_DIRECTORY", "/log", 1);
	setenv("MPS_CONTROL_CONFIG", "/config.toml", 1);
	/* Its deadlines for peers that are stuck, this many times as long: half a second passes when the host is busy. */
	setenv("MPS_TEST_PATIENCE", slowness > 1 ? "100" : "20", 1);
	daemon = program_start(LOG, argv);
	while (!is_served() && now_ms() < deadline)
		usleep(5000);
	return daemon;
}

static struct client attach(uint32_t tsg, uint32_t ve, const char *output)
{
	char *argv[] = { CLIENT, NULL };
	struct client c = client_start_as(tsg, ve, argv, output);

	CHECK(program_says(output, "attached", PATIENCE_MS) != NULL);
	return c;
}

/* Its connections to the server and its channels on the GPU still work. */
static bool works(struct client *c, const char *output)
{
	size_t before = strlen(program_output(output));
	uint64_t deadline = now_ms() + PATIENCE_MS;

	if (is_dead(c) || write(c->sock, "ping\n", 5) != 5)
		return false;
	while (strlen(program_output(output)) == before && now_ms() < deadline)
		usleep(5000);
	return !strcmp(program_output(output) + before, "pong\n");
}

static bool va_space_gone(pid_t pid, unsigned int ms)
{
	struct uvm_mps_record rec;

	return notices_wait(UVM_MPS_VASPACE_DEL, pid, ms, &rec);
}

static bool is_here(void)
{
	return program_exists(DAEMON) && program_exists(SERVER) && program_exists(CLIENT);
}

/* The verdict on a wild store of this client. */
static void expect_verdict(const struct client *culprit, const char *how)
{
	char text[128];

	snprintf(text, sizeof(text), ": client %d (user 0, %s), memory fault, write of 0x%llx", culprit->pid, CLIENT, WILD);
	CHECK(program_says(LOG, text, PATIENCE_MS) != NULL);
	CHECK(program_says(LOG, how, PATIENCE_MS) != NULL);
}

static void finish(struct program *daemon, unsigned long failures_before)
{
	kill(daemon->pid, SIGTERM);
	CHECK(program_wait(daemon, PATIENCE_MS) == 0);
	CHECK(program_says(LOG, "Exit with status 0", PATIENCE_MS) != NULL);
	CHECK(!strstr(program_output(LOG), "is not watched by"));
	if (failures != failures_before)
		printf("%s\n", program_output(LOG));
	CHECK(gpu_wait_idle(PATIENCE_MS));
}

void the_daemon_names_and_ends_the_culprit(void)
{
	unsigned long failures_before = failures;
	struct program daemon;
	struct client culprit, other, third;
	uint32_t tsg = fresh_tsg();
	size_t n;

	NEEDS(patched, "the stock module has no such device");
	NEEDS(is_here(), "the daemon is not in the machine: tools/emulate --program");
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
	daemon = start_daemon();
	CHECK(program_says(LOG, "The patched UVM module's notices are read", PATIENCE_MS) != NULL);
	culprit = attach(tsg, 1, "/culprit.out");
	other = attach(tsg, 2, "/other.out");
	third = attach(tsg, 3, "/third.out");
	notices_read(&n);

	/* A fault: its client's process is ended, and nobody else notices; its tools queue tells of no fatal fault. */
	CHECK(gpu_access(culprit.gr, EMU_WRITE, WILD).results[EMU_SPARSE] == 1);
	expect_verdict(&culprit, "certain, by notice; isolated, nobody else is harmed");
	CHECK(client_wait(&culprit, PATIENCE_MS));
	CHECK(va_space_gone(0, PATIENCE_MS));
	CHECK(works(&other, "/other.out") && works(&third, "/third.out"));

	/* A sudden death: copies of its descriptors keep its page tables for a while, and then let them go. */
	client_end(&third, ENDS_BY_SIGNAL);
	CHECK(!va_space_gone(0, 1000));
	CHECK(va_space_gone(0, PATIENCE_MS));
	CHECK(works(&other, "/other.out"));
	CHECK(!strstr(program_output(LOG), "takes no new clients"));
	client_end(&other, ENDS_BY_EXIT);
	finish(&daemon, failures_before);
}

/* An event of this process in the daemon's journal, from the pid on; NULL if it does not come. */
static const char *journal_says(const char *event, pid_t pid, unsigned int ms)
{
	uint64_t deadline = now_ms() + ms;
	char name[64], process[64];

	snprintf(name, sizeof(name), "\"event\":\"%s\"", event);
	snprintf(process, sizeof(process), "\"process\":{\"pid\":%d,", pid);
	do {
		const char *line = program_output(EVENTS);

		for (; (line = strstr(line, name)) != NULL; line++) {
			const char *at = strstr(line, process), *end = strchr(line, '\n');

			if (at && end && at < end)
				return at;
		}
		usleep(5000);
	} while (now_ms() < deadline);
	return NULL;
}

/* The copies of its descriptors go with it, so that the module's last record can come; the daemon waits for that. */
void the_daemon_waits_until_nothing_is_left_of_the_culprit(void)
{
	unsigned long failures_before = failures;
	struct uvm_mps_record held;
	struct program daemon;
	struct client culprit, other;
	uint32_t tsg = fresh_tsg();
	const char *gone;
	size_t n;

	NEEDS(patched, "the stock module has no such device");
	NEEDS(is_here(), "the daemon is not in the machine: tools/emulate --program");
	policy(UVM_MPS_ISOLATE, HOUR_MS, 60000, SINKS, 0);
	daemon = start_daemon();
	culprit = attach(tsg, 1, "/culprit.out");
	other = attach(tsg, 2, "/other.out");
	notices_read(&n);

	/* The module keeps the page tables of the client that the daemon has ended: it is not gone yet. */
	CHECK(gpu_access(culprit.gr, EMU_WRITE, WILD).results[EMU_SPARSE] == 1);
	CHECK(notices_wait(UVM_MPS_HELD, culprit.pid, PATIENCE_MS, &held));
	CHECK(client_wait(&culprit, PATIENCE_MS));
	CHECK(journal_says("client-ended", culprit.pid, PATIENCE_MS) != NULL);
	CHECK(!journal_says("culprit-gone", culprit.pid, 500));
	CHECK(!va_space_gone(0, 500));
	CHECK(works(&other, "/other.out"));

	/* Nobody else has its descriptors: the last record comes with the end of the module's own hold. */
	CHECK(release(held.va_space_id) == 0);
	CHECK(va_space_gone(0, PATIENCE_MS));
	gone = journal_says("culprit-gone", culprit.pid, PATIENCE_MS);
	CHECK(gone && strstr(gone, "\"complete\":true") && strstr(gone, "\"complete\":true") < strchr(gone, '\n'));
	CHECK(works(&other, "/other.out"));
	client_end(&other, ENDS_BY_EXIT);
	finish(&daemon, failures_before);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
}

/* With the stock module by the driver's own tools queue, with the patched one by a notice, too. */
void the_daemon_replaces_the_server_when_the_fault_is_not_isolated(void)
{
	unsigned long failures_before = failures;
	struct program daemon;
	struct client culprit, other, later;
	uint32_t tsg = fresh_tsg();
	char text[64];

	NEEDS(is_here(), "the daemon is not in the machine: tools/emulate --program");
	policy(UVM_MPS_OBSERVE, HOUR_MS, 0, SINKS, 0);
	daemon = start_daemon();
	culprit = attach(tsg, 1, "/culprit.out");
	other = attach(tsg, 2, "/other.out");
	CHECK(gpu_access(culprit.gr, EMU_WRITE, WILD).results[EMU_RC] == 1);
	CHECK(is_dead(&other));
	snprintf(text, sizeof(text), "; others lost with it: %d", other.pid);
	expect_verdict(&culprit, text);
	CHECK(program_says(LOG, "takes no new clients: a fault on the GPU", PATIENCE_MS) != NULL);
	CHECK(program_says(LOG, " serves user 0 in place of ", PATIENCE_MS) != NULL);
	later = attach(fresh_tsg(), 1, "/later.out");
	CHECK(works(&later, "/later.out"));
	client_end(&culprit, ENDS_BY_SIGNAL);
	client_end(&other, ENDS_BY_SIGNAL);
	client_end(&later, ENDS_BY_EXIT);
	finish(&daemon, failures_before);
	policy(UVM_MPS_ISOLATE, HOUR_MS, 0, SINKS, 0);
}

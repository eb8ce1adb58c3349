/* SPDX-License-Identifier: MIT */
/*
 * The test program's laboratory: client processes that do what libcuda does
 * with /dev/nvidia-uvm and then obey, and a reader of the notices.
 */
#ifndef LAB_H
#define LAB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include "emu_abi.h"
#include "kind.h"
#include "uvm_mps.h"

extern bool patched;		/* which module is loaded */
extern unsigned long checks, failures;

#define CHECK(cond) do {							\
	checks++;								\
	if (!(cond)) {								\
		failures++;							\
		printf("  %s:%d: %s\n", __FILE__, __LINE__, #cond);		\
	}									\
} while (0)

struct client {
	pid_t pid;
	int sock;
	uint32_t gr, ce;	/* handles of its channels */
	int descriptor;		/* its number for its /dev/nvidia-uvm */
	uint32_t gpu;		/* what it is to do, and what is asked about it, is on this one */
};

struct self_test_result {
	uint32_t checks, failed, gpus;
};

/* A client with one graphics and one copy-engine channel. */
struct client client_start(uint32_t tsg, uint32_t ve);
/* The same in the driver's mode for several processes: its end does not stop its channels at once. */
struct client client_start_sharing(uint32_t tsg, uint32_t ve);
/* One that goes on as a program of ours. It obeys no more, but ends when it is asked to end by exit. */
struct client client_start_as(uint32_t tsg, uint32_t ve, char *const argv[], const char *output);
/* Takes the second GPU, too, and gives it up; both return as client_range(). The same client there. */
int client_join(struct client *c);
int client_leave(struct client *c);
struct client on_second(const struct client *c);
int client_descriptor(struct client *c);	/* a duplicate of its /dev/nvidia-uvm */
/* Ends by unregistering everything, by closing, or by a signal. */
enum ending { ENDS_CLEANLY, ENDS_BY_EXIT, ENDS_BY_SIGNAL };
void client_end(struct client *c, enum ending how);
bool client_wait(struct client *c, unsigned int ms);	/* false: still alive */

struct emu_access_request client_access(struct client *c, bool ce, uint32_t type, uint64_t va,
					uint32_t count, uint64_t stride);
/* An access by the host engine of its copy-engine channel, as of a semaphore. */
struct emu_access_request client_host_access(struct client *c, uint64_t va);
struct emu_access_request client_fault(struct client *c, uint32_t force_type, uint64_t va);
/* An access of the client's work on the GPU, which may outlive the process. */
struct emu_access_request gpu_access(uint32_t handle, uint32_t type, uint64_t va);
struct emu_access_request gpu_accesses(uint32_t gpu, uint32_t handle, uint32_t type, uint64_t va, uint32_t count,
				       uint64_t stride);
void client_program(struct client *c, uint64_t va, uint32_t ms);

/* Both return the errno, or the driver's status as a negative number. */
int client_range(struct client *c, uint64_t base, uint64_t length);
int client_map(struct client *c, uint64_t base, uint64_t length, bool small, bool read_only);
int client_managed(struct client *c, uint64_t base, uint64_t length, bool read_only);
/* Frees a range; takes memory of the process's own; leaves its graphics channel and takes it anew, so often. */
int client_free(struct client *c, uint64_t base, uint64_t length);
int client_host_memory(struct client *c, uint64_t length);
int client_host_memory_at(struct client *c, uint64_t base, uint64_t length, bool read_only);
bool client_has_hmm(struct client *c);
int client_channels(struct client *c, unsigned int count);
/* Leaves it for good, for one of another subcontext, which it leaves and takes anew so often. */
int client_moves(struct client *c, unsigned int subcontext, unsigned int count);
int client_command(struct client *c, unsigned int command);	/* an ioctl without its parameters */
int client_self_test(struct client *c, struct self_test_result *result);

uint32_t client_walk(struct client *c, uint64_t va);
struct emu_status gpu_status_of(uint32_t gpu);
struct emu_status gpu_status(void);	/* the first one's */
void gpu_revive(void);	/* all */
/* The first one only. */
void gpu_stall(bool on);	/* see EMU_IOC_STALL */
void gpu_chunks(bool there_are);	/* see EMU_IOC_CHUNKS */
void gpu_pause(bool on);	/* see EMU_IOC_PAUSE */
bool gpu_wait_idle(unsigned int ms);	/* no client, no memory in use */

/* A process of many address spaces, one after the other: two records each. */
bool churn(unsigned int count);

/* Notices. All of these do nothing on the stock module. */
void notices_open(void);
void notices_close(void);
struct uvm_mps_record *notices_read(size_t *count);	/* everything since the last call */
unsigned int notices_count(const struct uvm_mps_record *r, size_t n, uint32_t type, pid_t pid);
const struct uvm_mps_record *notices_find(const struct uvm_mps_record *r, size_t n, uint32_t type);
bool notices_wait(uint32_t type, pid_t pid, unsigned int ms, struct uvm_mps_record *out);
void policy(uint32_t mode, uint32_t kill_ms, uint32_t hold_ms, uint32_t max_sinks, uint32_t flags);
struct uvm_mps_stats mps_stats(void);
int release(uint64_t va_space_id);
int mps_fd(void);
int mps_open(int flags);

uint64_t now_ms(void);

/* machine.c: the modules, and what the kernel command line asks for. */
bool module_load(const char *parameters);
bool module_load_unlisted(const char *parameters);	/* the same of a driver that is on no list */
bool module_unload(void);
bool option(const char *name);
const struct emu_kind *gpu_kind(void);	/* mps.gpu=, or Turing */
const char *option_value(const char *name);	/* what follows it; NULL if it is not there */

#endif
